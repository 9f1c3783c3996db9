"""Data races between threads of a CPU kernel, which is run once more with every access watched, on small shapes.

The compiler puts a call in front of every access to memory (-fsanitize=thread), and the calls into the OpenMP library
that order threads get other names. Both end in races.cpp, which is preloaded into the runner and knows what happens
before what; no schedule has to be unlucky for it. A kernel that reads or writes what another thread writes, with
nothing between, is wrong however often it was right. What is watched is compiled anew from what the build compiled, and
runs in the same room as ever. It could deceive the watch, which is for faults: tricks are for other checks.
"""

from __future__ import annotations

import re
import struct
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from fitness.cpu.build import (
    FILE,
    FLAGS,
    LINK_FLAGS,
    LINKED,
    BuiltKernel,
    CpuBuild,
    compiled,
    link,
    preprocess,
    translation_unit,
)
from fitness.cpu.gate import ALLOWED_SYMBOLS, Allowance, called, offered
from fitness.cpu.runner import CpuRunner, plan_words
from fitness.evaluation import Rejection, Status
from fitness.judging.device import KernelFault
from fitness.oracle.cases import Question
from fitness.oracle.verify import Oracle
from fitness.sandbox.memory import Region
from fitness.sandbox.native import CXX, built, toolchain_folders
from fitness.sandbox.processes import run_confined
from operators.plan.reading import ResolvedPlan

TIMEOUT_S = 10.0
"""Time limit of the calls on one shape."""
TEAM = range(2, 9)
"""Threads that a kernel gets; more tell no more."""
MOST_THREADS = 16
"""Most threads, those of nested teams included, as in races.cpp."""
REPORT, REPORT_BYTES = "races of its threads", 4096
_MAGIC = 0x7261636573
_STATES = {1: f"it starts more than {MOST_THREADS} threads", 2: "it touches too much memory"}
PREFIX = "races_"
_CALLABLE = re.compile(rf"__tsan_\w+|{PREFIX}\w+|(?:{ALLOWED_SYMBOLS.pattern})")
WATCHED = Allowance(lambda name: name if _CALLABLE.fullmatch(name) else None)
_ORDERING = re.compile(r"GOMP_(?:parallel|task(?!yield|group_start)|doacross|scope|cancel)\w*")
"""Functions that order threads, or let them run: all of them must be known, or nothing can be said."""
_WATCHED = ("-O1", "-g1", "-gdwarf-4", "-fsanitize=thread", "-fno-omit-frame-pointer")
_LINKED_ANYHOW = tuple(flag for flag in LINK_FLAGS if flag != "-Wl,-z,defs")
_TELLS = """
extern "C" {{
void {prefix}tell(long*, const void*);
__attribute__((used, visibility("default"), no_sanitize("thread"))) void evo_launch_{number}(void* const* values) {{
    {prefix}tell(*static_cast<long* const*>(values[0]), reinterpret_cast<const void*>(&evo_launch_{number}));
}}
}}
"""


@dataclass(frozen=True)
class Found:
    """Result of watching a kernel's accesses."""

    race: str = ""
    """Lines that race, in words; empty: none do."""
    lack: str = ""
    """Why it told nothing."""


def look(
    subject: BuiltKernel, oracle: Oracle, runs: Iterable[tuple[Question, ResolvedPlan]], *, team: int, folder: Path
) -> Found:
    """Run a kernel on each question by its plan for so many threads, until a race is seen."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = _instrumented(subject, Path(scratch))
        if isinstance(made, str):
            return Found(lack=made)
        environment = {"LD_PRELOAD": str(_library()), "OMP_THREAD_LIMIT": str(MOST_THREADS)}
        with CpuRunner(threads=team, environment=environment) as runner:
            try:
                runner.map(made.image, made.library)
                for number, (question, resolved) in enumerate(runs):
                    found = _told(_run(oracle, made, runner, number, question, resolved), made, scratch)
                    if found.race or found.lack:
                        return found
            except KernelFault as fault:
                return Found(lack=f"watched, it did not end well: {fault.rejection.message}")
    return Found()


def audited(found: Found, where: str) -> Mapping[str, str]:
    """The fact for the verdict. Raises KernelFault where threads race."""
    if found.race:
        raise KernelFault(Status.WRONG, f"{found.race} (seen on {where})")
    return {"races": f"not looked for: {found.lack}" if found.lack else f"none found on {where}"}


def _library() -> Path:
    return built("cpu/races.cpp", "-shared", "-fPIC", "-fopenmp")


@lru_cache
def _renamed() -> frozenset[str]:
    """Functions that have a watching counterpart in races.cpp, by the names that a kernel calls them by."""
    names = (name for name in offered(_library()) if name.startswith(PREFIX))
    return frozenset(name.removeprefix(PREFIX) for name in names) - {"tell"}


def _instrumented(subject: BuiltKernel, scratch: Path) -> CpuBuild | str:
    """The kernel's file with its accesses watched and one launch more, which tells; or why there is none."""
    kernel, launches = subject.kernel, subject.build.launches
    text = translation_unit(kernel, subject.plan, subject.operator, dtype=subject.dtype, launches=launches)
    text += _TELLS.format(prefix=PREFIX, number=len(launches))
    renames = [f"--redefine-sym={name}={PREFIX}{name}" for name in sorted(_renamed())]
    unprepared = [f"--remove-section={name}*" for name in (".init_array", ".rela.init_array")]
    failure = (
        preprocess(text, kernel.source, scratch, whole=True)
        or compiled([CXX, *FLAGS, *_WATCHED, "-c", "kernel.ii", "-o", "kernel.o"], str(scratch))
        or compiled(["objcopy", *renames, *unprepared, "kernel.o"], str(scratch))
    )
    if failure:
        return f"it does not compile to be watched: {failure.message.splitlines()[0]}"
    if unknown := sorted(filter(_ORDERING.fullmatch, called(scratch / "kernel.o"))):
        return f"it uses {', '.join(unknown)}"
    image = link(str(scratch), len(launches) + 1, flags=_LINKED_ANYHOW, allowance=WATCHED)
    if isinstance(image, Rejection):
        return f"it does not link to be watched: {image.message}"
    return replace(subject.build, library=scratch / LINKED, image=image)


def _run(
    oracle: Oracle, made: CpuBuild, runner: CpuRunner, number: int, question: Question, resolved: ResolvedPlan
) -> tuple[int, ...]:
    """The answer of the last launch, as words."""
    sizes = oracle.work_sizes(question.dims) | {b.name: b.bytes for b in resolved.buffers} | {REPORT: REPORT_BYTES}
    work = Region(sizes, at_end=False)
    work.prepare(0)
    oracle.restore(question, work)
    assert isinstance(question.region, Region)
    order = runner.bind(number, question.region, work)
    words = plan_words(resolved, made, oracle.operator, order, work)
    words[1 + 2 * len(resolved.zero)] += 1
    words += [len(made.launches), 1, 1, order.index(REPORT)]
    runner.define(number, words)
    runner.run(number, number, timeout_s=TIMEOUT_S)
    return struct.unpack(f"<{REPORT_BYTES // 8}q", work.contents(REPORT))


def _told(words: Sequence[int], made: CpuBuild, scratch: str) -> Found:
    magic, state, count = words[:3]
    if magic != _MAGIC or not 0 <= count <= (len(words) - 3) // 4:
        return Found(lack="what it told was overwritten")
    if not count:
        return Found(lack=_STATES.get(state, "")) if state else Found()
    first_writes, second_writes, *places = words[3:7]
    anchor = made.image.launches[-1]
    first, second = (_line(place + anchor - 1, scratch) for place in places)  # they are where a call returns to
    does = {True: "writes", False: "reads"}
    both = f"{first} {does[bool(first_writes)]} what {second} {does[bool(second_writes)]} in another thread"
    return Found(f"its threads race: {both}, and nothing orders the two: no barrier, no lock that both hold, no atomic")


def _line(address: int, scratch: str) -> str:
    """The kernel's own line at an address, in words."""
    said = run_confined(
        ["addr2line", "-s", "-i", "-e", LINKED, hex(address)], cwd=scratch, timeout_s=TIMEOUT_S,
        readable=toolchain_folders(),
    ).output  # fmt: skip
    match = re.search(rf"^{re.escape(FILE)}:(\d{{1,9}})", said, re.MULTILINE)
    return f"line {match[1]}" if match else "a line of a header"
