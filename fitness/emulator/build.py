"""Builds of a CUDA kernel file: a shared object that `fitness/cpu/runner.cpp` maps, beside the runtime that it calls.

g++ compiles the very text that NVRTC gets, prelude included, behind headers that stand in for CUDA.
"""

from __future__ import annotations

import platform
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from fitness.cpu.build import LIBRARIES, LINK_FLAGS, SHIM, parameters, read_at_most, tidy_log
from fitness.cpu.gate import ALLOWED_SYMBOLS, MAX_OBJECT_BYTES, Allowance, objection, section_objection, symbols
from fitness.cpu.image import MAX_FILE_BYTES, Image, Refused, image
from fitness.cpu.runner import RUNNER_FLAGS
from fitness.cuda.compile.build import DIALECT
from fitness.cuda.compile.nvrtc import FILE, HEADERS
from fitness.emulator.ptx.assembly import translated
from fitness.evaluation import Rejection, Status
from fitness.judging.signature import Param, TableError
from fitness.sandbox.disk import refuse_machine_fault
from fitness.sandbox.native import CXX, built, compiler_version, precompiled, toolchain_folders
from fitness.sandbox.processes import run_confined
from fitness.sandbox.source import ASSEMBLY, MAX_EXPANDED, forbidden
from operators.definition.spec import Operator
from operators.identity import digest
from operators.kernel import Kernel
from operators.plan.reading import Plan
from operators.prelude import translation_unit

HERE = Path(__file__).parent
INCLUDE = HERE / "include"
CHECKS = ("bounds", "alignment", "shift-exponent", "integer-divide-by-zero")
"""Checks of g++; their findings are reported by runtime.hpp, with the kernel file's line."""
LOCAL_BY_CALL = {"x86_64": "-mtls-dialect=gnu", "aarch64": "-mtls-dialect=trad"}
"""Has code ask for thread-local variables by `VARIABLE`, on each processor."""
FLAGS = (
    "-std=c++17", "-O2", "-march=native", "-fPIC", "-fvisibility=hidden", "-pipe", "-w", "-fno-exceptions",
    "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fno-strict-aliasing", "-fwrapv",
    "-fno-extern-tls-init", LOCAL_BY_CALL[platform.machine()], "-fsanitize=" + ",".join(CHECKS), "-fmax-errors=5",
    "-fdiagnostics-color=never", "-fno-diagnostics-show-caret",
)  # fmt: skip
"""`-fno-extern-tls-init`: dynamic shared memory has no constructors."""
MAX_SHARED_BYTES = 227 << 10
"""Largest shared memory of a block on an H100."""
DYNAMIC_ALIGNMENT = 1024
"""Alignment of dynamic shared memory, in bytes; also the space that its names take in the object, all at the end."""
DATA_BYTES = 1 << 20
"""Largest data of a kernel file's variables, and of what the compiler's checks know of its lines."""
VARIABLE = "__tls_get_addr"
"""Function that the compiler has code call to find a thread-local variable, which shared memory is."""
COMPILE_TIMEOUT_S = 120.0
GPU_ONLY: Mapping[str, str] = {
    "cub/": "CUB", "cute/": "CuTe", "cutlass/": "CUTLASS", "mma.h": "tensor cores (wmma)", "cuda/": "libcu++",
    "thrust/": "Thrust",
}  # fmt: skip
"""Headers by the beginning of their name."""


@dataclass(frozen=True)
class EmulatedBuild:
    """A compiled kernel file on disk."""

    library: Path
    image: Image
    """The mapping of the library."""
    launches: tuple[str, ...]
    """Distinct kernels of the plan; `evo_launch_<i>` in the library runs the i-th."""
    params: Mapping[str, tuple[Param, ...]]
    """By name expression."""

    @property
    def static_bytes(self) -> int:
        """Bytes of a block's shared memory before the dynamic part."""
        return self.image.block_bytes - DYNAMIC_ALIGNMENT


def compile_emulated(
    kernel: Kernel, plan: Plan, operator: Operator, *, dtype: str, folder: Path
) -> EmulatedBuild | Rejection:
    """Compile into `folder`. What only a GPU can run is `unsupported`, with a message that says what it is."""
    if problem := forbidden(kernel.source, FILE, DIALECT):
        return Rejection(Status.INVALID, problem)
    if reason := needs_gpu(kernel.source):
        return Rejection(Status.UNSUPPORTED, f"needs a GPU: {reason}")
    launches = tuple(dict.fromkeys(launch.kernel for launch in plan.launches))
    unit = _renamed(launches) + translation_unit(
        kernel.source, operator, plan, target="cuda", dtype=dtype, values=kernel.values
    )
    calls = "\n".join(f"EVO_EMULATE({number}, {name})" for number, name in enumerate(launches))
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        (Path(scratch) / FILE).write_text(f'{unit}\n#line 1 "launches of the plan"\n{calls}\n', encoding="utf-8")
        failure = _compiled(scratch, assembly=any(word in kernel.source for word in ASSEMBLY))
        if failure:
            return failure
        params = _examined(Path(scratch), launches)
        if isinstance(params, Rejection):
            return params
        failure = _run(
            [CXX, *LINK_FLAGS, "-Wl,-z,undefs", "kernel.o", "shared.s", "-o", "kernel.so", *LIBRARIES], scratch
        )
        if failure:
            return failure
        try:
            linked = image(read_at_most(Path(scratch) / "kernel.so", MAX_FILE_BYTES), len(launches), _allowance())
        except Refused as error:
            return _needs_gpu(str(error))
        library = folder / f"{kernel.id}-{dtype}-emulated.so"
        (Path(scratch) / "kernel.so").replace(library)
    return EmulatedBuild(library, linked, launches, params)


def _examined(scratch: Path, launches: tuple[str, ...]) -> Mapping[str, tuple[Param, ...]] | Rejection:
    """The launches' parameters, where kernel.o reaches for no more than a GPU offers. It makes shared.s."""
    data = read_at_most(scratch / "kernel.o", MAX_OBJECT_BYTES)
    if problem := section_objection(data, _allowance()):
        return _needs_gpu(problem)
    try:
        elf = ELFFile(BytesIO(data))
        if problem := objection(elf, _allowance()):
            return _needs_gpu(problem)
        (scratch / "shared.s").write_text(_dynamic_shared(elf), encoding="utf-8")
        return {name: parameters(elf, index) for index, name in enumerate(launches)}
    except TableError as error:
        return Rejection(Status.INVALID, str(error))
    except ELFError as error:
        return Rejection(Status.INVALID, f"its object file cannot be read: {error}")


def _needs_gpu(what: str) -> Rejection:
    return Rejection(Status.UNSUPPORTED, f"needs a GPU: {what}")


def _compiled(folder: str, *, assembly: bool) -> Rejection | None:
    """Make kernel.o; inline PTX becomes C++ once macros are out of its way."""
    headers = ("-include", str(precompiled(_headers(), *flags())), "-I", str(INCLUDE))
    if not assembly:
        return _run([CXX, *flags(), *headers, "-x", "c++", "-c", FILE, "-o", "kernel.o"], folder)
    failure = _run([CXX, *flags(), *headers, "-x", "c++", "-E", "-fpch-preprocess", FILE, "-o", "kernel.ii"], folder)
    if failure:
        return failure
    expanded = Path(folder) / "kernel.ii"
    text = expanded.read_text(encoding="utf-8")
    if len(text) > MAX_EXPANDED:
        return Rejection(Status.UNSUPPORTED, f"needs a GPU: its code has {len(text)} characters after its macros")
    expanded.write_text(translated(text, FILE), encoding="utf-8")
    return _run([CXX, *flags(), "-fpreprocessed", "-x", "c++", "-c", "kernel.ii", "-o", "kernel.o"], folder)


def needs_gpu(source: str) -> str | None:
    """The part of a kernel file, otherwise allowed, that cannot be emulated, in words; None: the text shows none."""
    for header in re.findall(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', source, re.MULTILINE):
        if header not in HEADERS and not (INCLUDE / header).is_file():
            known = (words for start, words in GPU_ONLY.items() if header.startswith(start))
            return next(known, f"<{header}>")
    return None


def _renamed(launches: Iterable[str]) -> str:
    """Kernels out of the way of the C library's functions: `select`, `index`, `remainder`."""
    names = {name for name in launches if re.fullmatch(r"\w+", name)}
    return "".join(f"#define {name} evo_kernel_{name}\n" for name in sorted(names))


@lru_cache
def _headers() -> str:
    """In one text, whose digest names the precompiled form."""
    own = ("types.hpp", "halves.hpp", "runtime.hpp", "ptx.hpp", "device.hpp")
    files = (HERE / own[0], SHIM, *(HERE / name for name in own[1:]))
    return "\n".join(f'#line 1 "{file.name}"\n{file.read_text(encoding="utf-8")}' for file in files)


def _runtime() -> Path:
    """The object that every emulator holds; a name of the headers' digest makes it another one when they change."""
    options = ("-c", "-fPIC", "-U_FORTIFY_SOURCE")  # which takes fibers for an attack
    return built("emulator/runtime.cpp", *options, f"-DOF_{digest(_headers())[:16]}")


@lru_cache
def flags() -> tuple[str, ...]:
    """The compiler's options; uninitialised locals hold a pattern where the compiler can do that (GCC 12)."""
    compiler_version()  # says what is missing where there is no compiler
    major = subprocess.run([CXX, "-dumpversion"], capture_output=True, text=True, check=True).stdout.split(".")[0]
    return (*FLAGS, "-ftrivial-auto-var-init=pattern") if int(major) >= 12 else FLAGS


def emulator() -> Path:
    """The program that maps kernels: the cpu target's runner with the runtime in it, whose names it offers them."""
    return built("cpu/runner.cpp", *RUNNER_FLAGS, "-rdynamic", str(_runtime()))


@lru_cache
def _allowance() -> Allowance:
    """The allowance of a kernel file: the runtime's names, data (each call has its own) and shared memory."""
    with _runtime().open("rb") as stream:
        table = list(symbols(ELFFile(stream)).iter_symbols())
    offered = {s.name for s in table if s["st_shndx"] != "SHN_UNDEF" and s["st_info"]["bind"] == "STB_GLOBAL"}

    def imports(name: str) -> str | None:
        if name == VARIABLE:
            return "evo_shared_variable"
        return name if name in offered or ALLOWED_SYMBOLS.fullmatch(name) else None

    return Allowance(imports, data_bytes=DATA_BYTES, block_memory=True)


def _dynamic_shared(elf: ELFFile) -> str:
    """Assembly that defines every `extern __shared__` array: all in one place, behind the static ones.

    Names are a kernel's own choice: whatever the assembler makes of them, the linked object is judged.
    """
    undefined = (s for s in symbols(elf).iter_symbols() if s["st_shndx"] == "SHN_UNDEF")
    names = sorted(s.name for s in undefined if s["st_info"]["type"] == "STT_TLS" and re.fullmatch(r"[\w.$]+", s.name))
    lines = ['.section .note.GNU-stack,"",%progbits', '.section .tbss,"awT",%nobits', f".balign {DYNAMIC_ALIGNMENT}"]
    for name in names:
        lines += [f".globl {name}", f".hidden {name}", f".type {name}, %object", f"{name}:"]
    return "\n".join([*lines, f".zero {DYNAMIC_ALIGNMENT}", ""])


def _run(command: list[str], folder: str) -> Rejection | None:
    readable = (*toolchain_folders(), str(precompiled(_headers(), *flags()).parent), str(INCLUDE))
    outcome = run_confined(command, cwd=folder, timeout_s=COMPILE_TIMEOUT_S, readable=readable)
    if outcome.timed_out:
        return Rejection(Status.COMPILE_ERROR, f"g++ did not finish within {COMPILE_TIMEOUT_S:.0f} s")
    if outcome.returncode != 0:
        refuse_machine_fault(outcome.returncode, outcome.output, folder, readable)
        return Rejection(Status.COMPILE_ERROR, f"does not compile for emulation:\n{tidy_log(outcome.output)}")
    return None
