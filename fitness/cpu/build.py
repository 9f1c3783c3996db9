"""Builds on the CPU: a kernel file becomes a shared object and the facts its object file tells, kept on disk.

None of the kernel's code runs. Several processes share one folder of builds without a lock.
"""

from __future__ import annotations

import os
import pickle
import platform
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from fitness.cpu.gate import (
    DIALECT,
    MAX_OBJECT_BYTES,
    ON_CPU,
    Allowance,
    objection,
    section_objection,
    symbols,
    undefined,
)  # fmt: skip
from fitness.cpu.image import MAX_FILE_BYTES, Image, Refused, image
from fitness.cpu.loops import vector_work
from fitness.evaluation import Rejection, Status
from fitness.judging.base import COMPILE_LIMIT_S
from fitness.judging.signature import MAX_TABLE_BYTES, Param, TableError, parameter_table
from fitness.sandbox.disk import refuse_machine_fault
from fitness.sandbox.native import CXX, compiler_version, include_folders, precompiled, publish, toolchain_folders
from fitness.sandbox.processes import run_confined
from fitness.sandbox.source import forbidden, hoisted, smuggled
from fitness.words import CLOCK, OWN_ADDRESS, PLACE, UNREAD
from operators.definition.spec import Operator
from operators.identity import digest
from operators.kernel import Kernel
from operators.plan.reading import Plan
from operators.prelude import prelude

FLAGS = (
    "-std=c++17", "-O3", "-march=native", "-fopenmp", "-fPIC", "-fvisibility=hidden", "-pipe", "-w", "-fno-rtti",
    "-fno-exceptions", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fmax-errors=5",
    "-fdiagnostics-color=never",
)  # fmt: skip
"""Flags of kernels, without -ffast-math: kernels keep NaN, infinity and the order of their own sums."""
HEADERS = "#include <cstddef>\n#include <type_traits>\n#include <utility>\n#include <math.h>\n"
"""Those of the prelude and the shim come first, out of reach of anything that a kernel defines."""
LINK_FLAGS = (
    "-shared", "-nostartfiles", "-fopenmp", "-Wl,-z,defs", "-Wl,--as-needed", "-Wl,-z,relro", "-Wl,-z,now",
    "-Wl,-z,noexecstack", "-Wl,-z,text", "-Wl,--hash-style=sysv", "-Wl,--build-id=none",
)  # fmt: skip
"""Flags of the linker, without the compiler's own code for the beginning and the end of a library, which nothing here
would run."""
LIBRARIES = ("-lmvec", "-lm")
LINKED, FILE = "kernel.so", "kernel.cpp"
ASKED_PLACE = re.compile(r"\b__builtin_(?:LINE|FILE|FUNCTION|source_location)\b|\bsource_location\b")
"""Words by which a kernel asks for its place in a file after macros."""
MAY_ASK = re.compile(r"##|%:%:|__(?:LINE|(?:BASE_)?FILE(?:_NAME)?|DATE|TIME(?:STAMP)?|COUNTER|INCLUDE_LEVEL)__")
"""Source that may ask for its place or time by a macro, whose name it may also put together."""
MOVED_BY, ELSEWHERE = 1000, "elsewhere"
"""Lines and file name by which such a source is moved, to see whether it stays the same."""
LINE_MARKERS = re.compile(r"^#.*$", re.MULTILINE)
ASKS_FOR_ITS_PLACE = (
    "kernel: it asks for its line, its file, the time or a count of questions (__LINE__, __COUNTER__ and the like): "
    "it would be another kernel in a package"
)
MAX_PREPROCESSED_BYTES = 32 << 20
"""Most preprocessed text of a kernel, headers included: those of all mathematics and intrinsics have 5 MiB."""
MAX_LOG_COLUMNS = 600
COMPILE_TIMEOUT_S = COMPILE_LIMIT_S["cpu"]
LISTING_BYTES = 4 << 20
"""Most disassembly that is read; a hundred times what kernels have."""
KEPT = 64 + 4 * (os.cpu_count() or 1)
"""Number of builds that are kept: more than are waited for, or compared with, at one time. Others are compiled
again."""
METADATA = ".build"
SHIM = Path(__file__).with_name("shim.hpp")
VIRTUAL = """extern "C" __attribute__((noreturn)) void __cxa_pure_virtual() { __builtin_trap(); }
void operator delete(void*) noexcept { __builtin_trap(); }
void operator delete(void*, std::size_t) noexcept { __builtin_trap(); }
"""
"""Stubs that tables of virtual functions refer to and no kernel comes to: it has no heap to delete anything from."""


@dataclass(frozen=True)
class CpuBuild:
    """A compiled kernel on disk."""

    library: Path
    launches: tuple[str, ...]
    """Distinct launch names of the plan; `evo_launch_<i>` in the library calls the i-th."""
    image: Image
    """The mapping of the library."""
    params: Mapping[str, tuple[Param, ...]]
    """By launch name."""
    code_digest: str
    cell: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BuiltKernel:
    """A kernel that passed the build, with what it was built from."""

    kernel: Kernel
    plan: Plan
    build: CpuBuild
    operator: Operator
    dtype: str


def build(
    kernel: Kernel, plan: Plan, operator: Operator, *, dtype: str, folder: Path, resolved: str
) -> CpuBuild | Rejection:
    """Compile into `folder` (kept as `<kernel id>-<dtype>.so`).

    `resolved` is the canonical text of the plan over every shape it is judged on; it becomes part of the code digest.
    """
    if problem := forbidden(kernel.source, "kernel", DIALECT):
        return Rejection(Status.INVALID, problem)
    launches = tuple(dict.fromkeys(launch.kernel for launch in plan.launches))
    text = translation_unit(kernel, plan, operator, dtype=dtype, launches=launches)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = Path(scratch, "kernel.o")
        failure = preprocess(text, kernel.source, Path(scratch)) or compiled(
            [CXX, *FLAGS, "-c", "kernel.ii", "-o", "kernel.o"], scratch
        )
        if failure:
            return failure
        told = _told(made, launches)
        if isinstance(told, Rejection):
            return told
        linked = link(scratch, len(launches))
        if isinstance(linked, Rejection):
            return linked
        library = folder / f"{kernel.id}-{dtype}.so"
        shutil.move(Path(scratch, LINKED), library)
    program = digest("code", linked.digest, resolved, dtype, *FLAGS, compiler_version(), _cpu_model())
    return CpuBuild(library, launches, linked, told.params, program, _cell(told.facts), told.facts)


@dataclass(frozen=True)
class _Told:
    """Facts read from an object file."""

    params: Mapping[str, tuple[Param, ...]]
    facts: Mapping[str, Any]


def _told(compiled: Path, launches: tuple[str, ...]) -> _Told | Rejection:
    """Read an object file, or say what in it no kernel may have."""
    data = read_at_most(compiled, MAX_OBJECT_BYTES)
    if problem := section_objection(data):
        return Rejection(Status.INVALID, problem)
    try:
        elf = ELFFile(BytesIO(data))
        if problem := objection(elf):
            return Rejection(Status.INVALID, problem)
        params = {name: parameters(elf, index) for index, name in enumerate(launches)}
        facts = _facts(elf, compiled)
    except TableError as error:
        return Rejection(Status.INVALID, str(error))
    except ELFError as error:
        return Rejection(Status.INVALID, f"its object file cannot be read: {error}")
    return _Told(params, facts)


def link(
    folder: str, launches: int, *, flags: Sequence[str] = LINK_FLAGS, allowance: Allowance = ON_CPU
) -> Image | Rejection:
    """Make `LINKED` of `kernel.o`, both in `folder`; what the linker made is judged, wherever it has it from."""
    if failure := compiled([CXX, *flags, "kernel.o", "-o", LINKED, *LIBRARIES], folder):
        return failure
    try:
        return image(read_at_most(Path(folder, LINKED), MAX_FILE_BYTES), launches, allowance)
    except Refused as error:
        return Rejection(Status.INVALID, str(error))


def read_at_most(path: Path, size: int) -> bytes:
    """A file's bytes, or so many of them and one more, of which a reader sees that it is too long."""
    with path.open("rb") as stream:
        return stream.read(size + 1)


def translation_unit(kernel: Kernel, plan: Plan, operator: Operator, *, dtype: str, launches: tuple[str, ...]) -> str:
    """Headers, prelude, the kernel's own lines under their own numbers, and the shim that makes launches callable."""
    headers, source = hoisted(kernel.source)
    # What asserts needs a symbol that no kernel may have, so none does; a kernel that says so itself says it too late.
    included = "#define NDEBUG\n" if set(headers) & {"cassert", "assert.h"} else ""
    included += "\n".join(f"#if __has_include(<{name}>)\n#include <{name}>\n#endif" for name in headers)
    head = prelude(operator, plan, target="cpu", dtype=dtype, values=kernel.values)
    calls = "\n".join(
        f'#line 1 "launch {i + 1} of the plan"\nEVO_LAUNCH({i}, {name})' for i, name in enumerate(launches)
    )
    shim = SHIM.read_text(encoding="utf-8") + (VIRTUAL if re.search(r"\bvirtual\b", source) else "")
    return f'{HEADERS}{included}\n{head}{source}\n#line 1 "shim"\n{shim}{calls}\n'


def preprocess(text: str, source: str, folder: Path, *, whole: bool = False) -> Rejection | None:
    """Make `kernel.ii`; what was opened for it, and what macros made of it, must be as innocent as the source looks.

    With `whole` our headers are in it, for a compiler with other flags; else it refers to their compiled form.
    """
    (folder / "unit.cpp").write_text(text.replace("#line 1\n", f'#line 1 "{FILE}"\n', 1), encoding="utf-8")
    (folder / FILE).write_text(source, encoding="utf-8")  # for the lines that the compiler quotes
    headers = precompiled(HEADERS, *FLAGS)
    ahead = () if whole else ("-include", str(headers), "-fpch-preprocess")
    command = (CXX, *FLAGS, *ahead, "-E", "-MD", "-MF", "opened", "unit.cpp")
    if failure := compiled([*command, "-o", "kernel.ii"], str(folder)):
        return failure
    rule, made = (read_at_most(folder / name, MAX_PREPROCESSED_BYTES) for name in ("opened", "kernel.ii"))
    if max(len(rule), len(made)) > MAX_PREPROCESSED_BYTES:
        most = f"{MAX_PREPROCESSED_BYTES >> 20} MiB"
        return Rejection(Status.INVALID, f"kernel: its macros and headers make more than {most} of code")
    for path in rule.decode("utf-8", "replace").replace("\\\n", " ").partition(":")[2].split():
        if path not in ("unit.cpp", str(headers)) and not os.path.realpath(path).startswith(include_folders()):
            return Rejection(
                Status.INVALID, f"kernel: it includes {Path(path).name}, which is no header of the compiler"
            )
    own = _from_line(made, f'# 1 "{FILE}"')
    if problem := smuggled(own):
        return Rejection(Status.INVALID, f"kernel: after its macros it has {problem}")
    if ASKED_PLACE.search(own):
        return Rejection(Status.INVALID, ASKS_FOR_ITS_PLACE)
    return _elsewhere(text, own, [*command[:-1], "elsewhere.cpp"], folder) if MAY_ASK.search(source) else None


def _from_line(preprocessed: bytes, marker: str) -> str:
    """Return the text from a line marker on, where the kernel's own begins; all of it where there is none."""
    return preprocessed[max(preprocessed.find(marker.encode()), 0) :].decode("utf-8", "replace")


def _elsewhere(text: str, own: str, command: list[str], folder: Path) -> Rejection | None:
    """Why a kernel is refused whose macros make another text of it in another place or at another time; else None.

    What is packaged has other lines around it, and is compiled on another day: it would be another kernel there.
    """
    moved = text.replace("#line 1\n", f'static_assert(__COUNTER__ >= 0);\n#line {MOVED_BY + 1} "{ELSEWHERE}"\n', 1)
    (folder / "elsewhere.cpp").write_text(moved, encoding="utf-8")
    loud = [word for word in command if word != "-w"]
    if compiled([*loud, "-Werror=date-time", "-o", "elsewhere.ii"], str(folder)):
        return Rejection(Status.INVALID, ASKS_FOR_ITS_PLACE)
    made = read_at_most(folder / "elsewhere.ii", MAX_PREPROCESSED_BYTES)
    there = _from_line(made, f'# {MOVED_BY + 1} "{ELSEWHERE}"')
    if LINE_MARKERS.sub("", own) != LINE_MARKERS.sub("", there):
        return Rejection(Status.INVALID, ASKS_FOR_ITS_PLACE)
    return None


def compiled(command: list[str], folder: str) -> Rejection | None:
    """Why a confined command of the toolchain, run in `folder`, failed; None if it did not."""
    readable = (*toolchain_folders(), str(precompiled(HEADERS, *FLAGS).parent))
    outcome = run_confined(command, cwd=folder, timeout_s=COMPILE_TIMEOUT_S, readable=readable)
    if outcome.timed_out:
        return Rejection(Status.COMPILE_ERROR, f"the compiler did not finish within {COMPILE_TIMEOUT_S:.0f} s")
    if outcome.returncode != 0:
        refuse_machine_fault(outcome.returncode, outcome.output, folder, readable)
        return Rejection(Status.COMPILE_ERROR, tidy_log(outcome.output))
    return None


def tidy_log(log: str, lines: int = 40) -> str:
    """The compiler's words, the kernel's line numbers kept, our own file and temporary names taken out."""
    kept = [line for line in log.splitlines() if line.strip() and not line.startswith("compilation terminated")]
    cut = [f"... {len(kept) - lines} more lines"] if len(kept) > lines else []
    return "\n".join([_tidy(line) for line in kept[:lines]] + cut) or "the compiler failed without a message"


def _tidy(line: str) -> str:
    # Cut first: what a pattern costs on a line that a source chose, must not grow with it.
    line = line if len(line) <= MAX_LOG_COLUMNS else line[:MAX_LOG_COLUMNS] + " ..."
    return re.sub(r"/\S*?/(?=ld:)|/usr/bin/", "", re.sub(r"kernel\.(cpp|o)\b", "kernel", line))


# --- what the object file tells -------------------------------------------------------------------------------------


def parameters(elf: ELFFile, index: int) -> tuple[Param, ...]:
    """The parameters of one launch function, from the table that the shim leaves in the object file.

    Raises TableError where the kernel's source, whose macros the shim is subject to, made something else of it.
    """
    found = symbols(elf).get_symbol_by_name(f"evo_params_{index}")
    place = found[0]["st_shndx"] if found else None
    if not found or not isinstance(place, int) or elf.get_section(place)["sh_type"] == "SHT_NOBITS":
        raise TableError("it lacks the table of its parameters: a macro changes the shim")
    begin = found[0]["st_value"]
    return parameter_table(elf.get_section(place).data()[begin : begin + MAX_TABLE_BYTES])


def _facts(elf: ELFFile, compiled: Path) -> dict[str, Any]:
    text = sum(s["sh_size"] for s in elf.iter_sections() if s["sh_flags"] & 0x6 == 0x6)  # allocated, executable
    left = sorted(undefined(elf))
    listed = run_confined(
        ["objdump", "-dr", "--no-show-raw-insn", compiled.name],
        cwd=str(compiled.parent),
        timeout_s=COMPILE_TIMEOUT_S,
        output_bytes=LISTING_BYTES,
        readable=toolchain_folders(),
    )
    listing, whole = listed.output, listed.returncode == 0 and len(listed.output) < LISTING_BYTES
    vector_bits, packed_share = vector_work(listing)
    code = {s.name for s in symbols(elf).iter_symbols() if s["st_info"]["type"] == "STT_FUNC" and s.name}
    code |= {s.name for s in elf.iter_sections() if s["sh_flags"] & 0x4}
    return {
        "code_bytes": text,
        "vector_bits": vector_bits,
        "packed_share": round(packed_share, 3),
        "threads": any(name.startswith("GOMP_parallel") for name in left),
        "undefined_symbols": left,
        "flagged": flagged(listing, code=code, undefined=left, whole=whole),
    }


def _cell(facts: Mapping[str, Any]) -> tuple[str, ...]:
    size = min(max((facts["code_bytes"] // 512).bit_length(), 1), 5)
    vectors = f"simd{facts['vector_bits']}" if facts["vector_bits"] else "scalar"
    return (vectors, "threads" if facts["threads"] else "serial", f"code{size}")


@lru_cache
def _cpu_model() -> str:
    """The processor as -march=native sees it."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return "\n".join(
        sorted({line for line in lines if line.startswith(("model name", "flags", "CPU part", "Features"))})
    )


# --- builds on disk ---------------------------------------------------------------------------------------------------


class Kept:
    """A build is a shared object and, written last and removed first, a pickle of `CpuBuild` beside it.

    What was kept as `.pickle` had no image, and was never held against what image.py allows: it is built again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, name: str) -> CpuBuild | None:
        """The build of this name, as used just now; None where it is not kept."""
        metadata = self._metadata(name)
        try:
            os.utime(metadata)
            build: CpuBuild = pickle.loads(metadata.read_bytes())
        except FileNotFoundError:
            return None
        return build

    def add(self, name: str, build: CpuBuild) -> None:
        """Keep a build; what was not used for the longest time is evicted where there are too many."""
        publish(self._metadata(name), pickle.dumps(build))
        used: list[tuple[int, Path]] = []
        for path in self._folder.glob(f"*{METADATA}"):
            with suppress(FileNotFoundError):  # evicted by another process
                used.append((path.stat().st_mtime_ns, path))
        for _, path in sorted(used)[:-KEPT]:
            for evicted in (path, path.with_suffix(".so")):
                evicted.unlink(missing_ok=True)

    def _metadata(self, name: str) -> Path:
        return self._folder / f"{name}{METADATA}"


@contextmanager
def held(library: Path) -> Iterator[Path]:
    """A second name of a shared object, which is never evicted. Raises FileNotFoundError where it was evicted."""
    with tempfile.TemporaryDirectory(dir=library.parent, prefix="open-") as folder:
        second = Path(folder, library.name)
        os.link(library, second)
        yield second


# --- what flags a kernel ----------------------------------------------------------------------------------------------


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
_HANDED = {"di": re.compile(r"%(?:[er]?di|dil)\b"), "dx": re.compile(r"%(?:[er]?dx|d[lh])\b")}
"""Registers in which the OpenMP library takes the function that a team is to run, and the one that copies a task's
arguments."""
_LOADED = re.compile(r"(?:lea|mov)q? [^,]*(?:\(%rip\))?,%(r\w+)")
_COPIED = re.compile(r"movq? %(r\w+),%(r\w+)$")
_KEPT = re.compile(r"(?:push|pop)q? ")
_ARGUMENTS = {"cx", "si", "8", "9"}
_CLOBBERED = {"ax", "10", "11"} | _ARGUMENTS
"""Registers, without the letter they begin with, that hold arguments, and that a call leaves to whom it calls."""
_LEAVES = re.compile(r"call|jmp|ret")
_ZEROED = re.compile(r"(?:xor|sub)[lq]? %(\w+),%\1$")
_CHANGED = re.compile(
    r"(?:ad[cd]|sub|sbb|and|x?or|s[ah][lr]|r[co][lr]|bt[crs]?|cmov\w+|cmp(?:xchg)?|test|xadd|xchg)[bwlq]? "
    r"|imul[wlq]? (?!\$)"
)
"""Instructions of two operands that read the second one."""


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
    name = register[1:]
    low = f"{name}l" if name in ("si", "di", "bp", "sp") else f"{name[0]}[lh]"
    mentioned = re.compile(rf"%(?:{register}[dwb]?|e?{name}|{low})\b")
    whole = re.compile(rf"%(?:{register}d?|e{name})")
    for at in range(number + 1, len(lines)):
        later, (_, called) = lines[at][0].split("#")[0].rstrip(), lines[at][1]
        if not later:
            return True
        if _LEAVES.match(later) and (called or "+0x" not in later):
            if later.startswith("ret"):
                return name != "ax"
            if name in _CLOBBERED:
                return name not in _ARGUMENTS
        elif mentioned.search(later) and not (_KEPT.match(later) and name not in _CLOBBERED):
            copied = _COPIED.match(later)
            if copied and copied[1] == register and copied[2][1:] in _HANDED and _for_a_team(lines, at, copied[2]):
                continue
            sources, _, target = later.rpartition(",")
            if _ZEROED.match(later):
                return True
            if _CHANGED.match(later) or mentioned.search(sources) or not mentioned.fullmatch(target):
                return False
            if whole.fullmatch(target):
                return True
    return True
