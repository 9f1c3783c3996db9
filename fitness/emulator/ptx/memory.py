"""Instructions that read and write memory, and those that only say how to."""

from __future__ import annotations

from collections.abc import Mapping

from fitness.emulator.ptx.operands import (
    CPP,
    LINE,
    SHARED,
    SPACES,
    UNSIGNED,
    Emit,
    address,
    count,
    members,
    place,
    to,
    value,
)
from fitness.emulator.ptx.reading import WIDTHS, Immediate, Instruction, NotEmulated, Operand, Register

SCOPES = ("cta", "cluster", "gpu", "sys")
ORDERED = ("volatile", "relaxed", "acquire", "release", "acq_rel", "cv", "mmio")
"""Accesses by which threads wait for each other: who polls must let others run."""
HINTS = ("weak", "nc", "ca", "cg", "cs", "lu", "wb", "wt")


def _hinted(i: Instruction) -> list[str]:
    """Modifiers that only say where a cache is to keep something."""
    return [m for m in i.modifiers if m.startswith(("L1::", "L2::"))]


def _policy(i: Instruction) -> int:
    """The number of operands at the end that are a cache policy."""
    return int(i.has("L2::cache_hint"))


def _access(i: Instruction) -> tuple[str, tuple[Operand, ...], str]:
    """The common part of ld and st: a statement that makes `evo_asm_at`, the registers, the type of one."""
    vectors = [m for m in i.modifiers if m in ("v2", "v4", "v8")]
    i.only(*SPACES, *SCOPES, *ORDERED, *HINTS, *vectors, *_hinted(i))
    count(i.operands, 2 + _policy(i))
    where, registers = i.operands[:2] if i.opcode == "st" else i.operands[1::-1]
    each = members(registers)
    if len(each) != (int(vectors[0][1:]) if vectors else 1):
        raise NotEmulated(i.text)
    at = f"char* const evo_asm_at = {place(i, where, len(each) * WIDTHS[i.type] // 8)};"
    if set(i.modifiers) & set(ORDERED):
        at += " evo::tick();"
    kind = CPP[f"{'s' if i.type.startswith('s') else 'u'}{WIDTHS[i.type]}"]
    return at, each, kind


def _load(i: Instruction) -> str:
    at, registers, kind = _access(i)
    size = WIDTHS[i.type] // 8
    parts = [
        f"{to(r)} = static_cast<decltype({to(r)})>(evo::ptx::loaded<{kind}>(evo_asm_at + {n * size}));"
        for n, r in enumerate(registers)
    ]
    return " ".join([at, *parts])


def _store(i: Instruction) -> str:
    at, registers, kind = _access(i)
    size = WIDTHS[i.type] // 8
    parts = [f"evo::ptx::stored<{kind}>(evo_asm_at + {n * size}, {value(r, i.type)});" for n, r in enumerate(registers)]
    return " ".join([at, *parts])


ATOMIC: Mapping[str, str] = {
    "add": "a + b", "min": "evo::ptx::least(a, b)", "max": "evo::ptx::greatest(a, b)", "and": "a & b", "or": "a | b",
    "xor": "a ^ b", "inc": "a >= b ? 0 : a + 1", "dec": "a == 0 || a > b ? b : a - 1", "exch": "b",
}  # fmt: skip


def _atomic(i: Instruction) -> str:
    """atom, and red, which has no result."""
    i.only(*SPACES, *SCOPES, *ORDERED, *ATOMIC, "cas", "noftz", *_hinted(i))
    operations = [m for m in i.modifiers if m in (*ATOMIC, "cas")]
    first = int(i.opcode == "atom")
    count(i.operands, first + 2 + _policy(i) + int(operations == ["cas"]))
    word = UNSIGNED[WIDTHS[i.type]]
    at = place(i, i.operands[first], WIDTHS[i.type] // 8)
    given = [f"static_cast<std::uint64_t>({value(operand, i.type)})" for operand in i.operands[first + 1 :]]
    if operations == ["cas"]:
        new = f"static_cast<{word}>(evo_asm_old == static_cast<{word}>({given[0]}) ? {given[1]} : evo_asm_old)"
    else:
        change = f"[](auto a, auto b) {{ return {ATOMIC[operations[0]]}; }}"
        bits = f"evo::ptx::Apply<{CPP[i.type]}>::bits({change}, std::uint64_t(evo_asm_old), {given[0]})"
        new = f"static_cast<{word}>({bits})"
    done = f"evo::ptx::exchanged<{word}>({at}, [&]({word} evo_asm_old) {{ return {new}; }})"
    if not first:
        return f"{done};"
    result = to(i.operands[0])
    return f"{result} = static_cast<decltype({result})>({done});"


def _copy_async(i: Instruction) -> str:
    """cp.async.ca and cp.async.cg (chapter 9.7.9.25.3.1); with fewer bytes of the source the rest are zeros."""
    i.only("async", "ca", "cg", *SHARED, "global", *_hinted(i), types=0)
    given = i.operands[: len(i.operands) - _policy(i)]
    count(given, 3, 4)
    size = given[2]
    if isinstance(size, Immediate) and int(size.text, 0) not in ((16,) if i.has("cg") else (4, 8, 16)):
        raise NotEmulated(i.text)
    taken = value(size)
    if len(given) == 4:
        ignored = isinstance(given[3], Register) and given[3].width == 1
        taken = f"({value(given[3])} ? 0 : {value(size)})" if ignored else value(given[3])
    return f"evo::ptx::copy_async({address(given[0])}, {address(given[1])}, {value(size)}, {taken}, {LINE});"


def _copies_awaited(i: Instruction) -> str:
    """cp.async.commit_group, .wait_group and .wait_all."""
    if i.has("wait_all"):
        return "evo::commit_copies(); evo::await_copies(0);"
    if i.has("commit_group"):
        return "evo::commit_copies();"
    count(i.operands, 1)
    return f"evo::await_copies({value(i.operands[0])});"


def _nothing(i: Instruction) -> str:
    """Emulates instructions that make a kernel faster or order memory, which one thread at a time sees in order."""
    return "evo::tick();" if i.opcode in ("fence", "membar", "nanosleep") else ";"


def _policy_made(i: Instruction) -> str:
    return f"{to(i.operands[0])} = 0;"


MEMORY: Mapping[str, Emit] = {
    "ld": _load, "ldu": _load, "st": _store, "atom": _atomic, "red": _atomic,
    "cp.async.ca": _copy_async, "cp.async.cg": _copy_async, "cp.async.commit_group": _copies_awaited,
    "cp.async.wait_group": _copies_awaited, "cp.async.wait_all": _copies_awaited, "createpolicy": _policy_made,
    **dict.fromkeys(("fence", "membar", "nanosleep", "prefetch", "prefetchu", "applypriority"), _nothing),
    **dict.fromkeys(("griddepcontrol", "setmaxnreg", "pmevent"), _nothing),
}  # fmt: skip
