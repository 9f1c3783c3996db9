"""Machine code that few kernels need, and that a kernel which tells its runs apart does need.

Numbers of threads are ordinary in a team (`omp_get_thread_num`, `omp_get_num_threads`). How many there would be, asked
outside of one, is a fact of the plan, and differs between the places where a kernel is run. An address of constants
cannot be told from one that is read through; that of code can, since only the OpenMP library is given any.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Collection, Iterator, Sequence

from fitness.words import CLOCK, OWN_ADDRESS, PLACE, UNREAD

_INSTRUCTION = re.compile(r"\s*[0-9a-f]+:\t(?:(?:lock|rep[nz]*|notrack|bnd|data16|cs) )*(\S+)\s*(.*)")
_FUNCTION = re.compile(r"[0-9a-f]+ <[^>]+>:")
_RELOCATION = re.compile(r"\s*[0-9a-f]+: (R_\S+)\s+([^\s+]+?)(?:[+-]0x[0-9a-f]+)?\s*$")
INSTRUCTIONS: dict[str, dict[str, str]] = {
    "x86_64": {
        CLOCK: r"(?:rdtscp?|rdpmc|tpause|umwait|mwaitx)\b",
        PLACE: r"(?:rdpid|cpuid|xgetbv|s[gil]dt|str|smsw|lsl|lar)[wlq]?\s",
        OWN_ADDRESS: r"(?:rd[fg]sbase|rdssp[dq])\b|.*%[fg]s:(?!0x28\b)",
    },
    "aarch64": {
        CLOCK: r"mrs\b.*\b(?:cnt\w+|pmccntr)_el0",
        PLACE: r"mrs\b.*\b(?:midr|mpidr|revidr)_el1",
        OWN_ADDRESS: r"mrs\b.*\btpidr\w*_el0",
    },
}
"""By processor, what an instruction that is flagged looks like; x86's stack guard lies at %fs:0x28."""
ASKED = re.compile(r"omp_get_(?:max_threads|num_procs|thread_limit|dynamic|nested)_?")
_TEAM = re.compile(r"GOMP_(?:parallel|task|taskloop)\w*")
_HANDED = {name: re.compile(rf"%(?:[er]?{name}|{name[0]}[lh]{'|dil' * (name == 'di')})\b") for name in ("di", "dx")}
"""Registers in which the OpenMP library takes the function that a team is to run, and the one that copies a task's
arguments."""
_LOADED = re.compile(r"(?:lea|mov)q? [^,]*(?:\(%rip\))?,%(r\w+)")
_COPIED = re.compile(r"movq? %(r\w+),%(r\w+)$")
_KEPT = re.compile(r"(?:push|pop)q? ")


def flagged(listing: str, *, code: Collection[str], undefined: Collection[str], whole: bool = True) -> list[str]:
    """The reasons, in words; `code` names the object's functions and sections of code, `whole`: nothing was cut off."""
    lines = [*_lines(listing)]
    found = [
        reason
        for reason, pattern in INSTRUCTIONS.get(platform.machine(), {}).items()
        if any(re.match(pattern, instruction) for instruction, _ in lines)
    ]
    if PLACE not in found and any(map(ASKED.fullmatch, undefined)):
        found.append(PLACE)
    if OWN_ADDRESS not in found and any(_taken(lines, number, {*code, *undefined}) for number in range(len(lines))):
        found.append(OWN_ADDRESS)
    return found + [UNREAD] * (not whole)


_Line = tuple[str, tuple[str, str]]


def _lines(listing: str) -> Iterator[_Line]:
    """Instructions, each with the type and the symbol of its last relocation; an empty one where a function begins."""
    instruction, relocation = "", ("", "")
    for line in listing.splitlines():
        if match := _INSTRUCTION.match(line):
            if instruction:
                yield instruction, relocation
            instruction, relocation = f"{match[1]} {match[2]}", ("", "")
        elif _FUNCTION.match(line):
            if instruction:
                yield instruction, relocation
            instruction, relocation = "", ("", "")
            yield instruction, relocation
        elif match := _RELOCATION.match(line):
            relocation = match[1], match[2]
    if instruction:
        yield instruction, relocation


def _taken(lines: Sequence[_Line], number: int, code: Collection[str]) -> bool:
    """Whether the instruction of this number takes an address of code, other than for the OpenMP library to call."""
    instruction, (kind, symbol) = lines[number]
    beside_itself = not kind and instruction.startswith("lea") and "(%rip)" in instruction  # the assembler knew
    if not beside_itself and (symbol not in code or not instruction.startswith(("lea", "mov")) or "TPOFF" in kind):
        return False
    loaded = _LOADED.match(instruction)
    return loaded is None or not _for_a_team(lines, number, loaded[1])


def _for_a_team(lines: Sequence[_Line], number: int, register: str) -> bool:
    """Whether what this instruction puts into a register goes to the OpenMP library alone, until the register has
    something else. No instruction is looked at twice for one register."""
    if handed := _HANDED.get(register[1:]):
        for at in range(number + 1, len(lines)):
            later, (_, called) = lines[at]
            if later.startswith(("call", "jmp")):
                return _TEAM.fullmatch(called) is not None
            if handed.search(later):
                return False
        return False
    mentioned = re.compile(rf"%(?:{register}|{register}[dwb]|e?{register[1:]}|{register[1]}l)\b")
    for at in range(number + 1, len(lines)):
        later = lines[at][0].split("#")[0].rstrip()
        if not later:
            return True
        if not mentioned.search(later) or _KEPT.match(later):
            continue
        copied = _COPIED.match(later)
        if copied and copied[1] == register and copied[2][1:] in _HANDED and _for_a_team(lines, at, copied[2]):
            continue
        sources, _, target = later.rpartition(",")
        return mentioned.fullmatch(target) is not None and not mentioned.search(sources)
    return True
