"""Does a CUDA kernel file give right answers? Asked of a CPU, with the verdict's own oracle, poisons and guards.

g++ compiles the very text that NVRTC gets, prelude included, behind headers that stand in for CUDA, into a shared
object that `fitness/cpu/runner.cpp` maps, beside the runtime that it calls.
"""

from __future__ import annotations

import math
import platform
import re
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from struct import Struct

import numpy as np
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from fitness.cpu.build import LIBRARIES, LINK_FLAGS, SHIM, parameters, read_at_most, tidy_log
from fitness.cpu.gate import ALLOWED_SYMBOLS, MAX_OBJECT_BYTES, Allowance, objection, section_objection, symbols
from fitness.cpu.image import MAX_FILE_BYTES, Image, Refused, image
from fitness.cpu.runner import RUNNER_FLAGS, CpuRunner
from fitness.cuda.compile.build import DIALECT
from fitness.cuda.compile.nvrtc import FILE, HEADERS
from fitness.cuda.compile.program import Program
from fitness.cuda.running.arguments import program
from fitness.emulator.ptx.assembly import translated
from fitness.evaluation import CheckError, Rejection, Status
from fitness.judging.checks import Call, agreed_at_both_ends
from fitness.judging.device import KernelFault
from fitness.judging.shapes import Shapes
from fitness.judging.signature import Param, TableError, check_arguments
from fitness.oracle.cases import Question
from fitness.oracle.verify import Oracle, worst
from fitness.sandbox.disk import refuse_machine_fault
from fitness.sandbox.memory import Region
from fitness.sandbox.native import CXX, built, compiler_version, precompiled, toolchain_folders
from fitness.sandbox.processes import run_confined
from fitness.sandbox.source import ASSEMBLY, MAX_EXPANDED, forbidden
from operators.catalog import functions
from operators.definition.spec import Operator, Task, Workload
from operators.errors import PlanError
from operators.identity import digest
from operators.kernel import Kernel
from operators.plan.reading import Plan, ResolvedPlan, parse_plan
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


# --- the examination --------------------------------------------------------------------------------------------------


RUN_TIMEOUT_S = 60.0
FACTS: Mapping[str, int] = {
    "sm_count": 5, "warp_size": 32, "max_shared_bytes": MAX_SHARED_BYTES, "l2_bytes": 50 << 20,
}  # fmt: skip
"""Few multiprocessors, so that what is sized by them goes round several times."""
BLOCKS_PER_SM = 2
TENSOR_MAPS = "tensor maps (TMA)"
CONTROL = " emulation"
"""A buffer of ours beside the kernel's: no tensor can be called so."""
CONTROL_HEAD = Struct("<12I")
"""Seed, poison, bytes of text, launch, whether a thread runs, whether the emulation is at fault, block, thread:
`Control` of runtime.cpp."""
CONTROL_BYTES = CONTROL_HEAD.size + 1024


def emulated(
    kernel: Kernel,
    operator: Operator,
    dtype: str,
    *,
    shapes: int | Sequence[Mapping[str, int]] = 4,
    families: int = 1,
    seed: int = 0,
) -> tuple[CheckError, ...] | Rejection:
    """Run a CUDA kernel on the CPU and judge what it writes.

    `shapes` are settings of the dims, or how many of the hidden shapes that it supports to draw; each is run with as
    many input families as `families` says, on two poisons. A right kernel gives its errors, all within bounds; any
    other a rejection, which is `unsupported` and begins with "needs a GPU" for what cannot be emulated. The same seed
    draws the same inputs and the same order of threads. Raises ToolchainError where there is no g++.
    """
    with tempfile.TemporaryDirectory() as folder:
        emulation = Emulation(operator, dtype, folder=Path(folder), seed=seed)
        prepared = emulation.prepare(kernel)
        if isinstance(prepared, Rejection):
            return prepared
        return emulation.examine(prepared, shapes=shapes, families=families)


@dataclass(frozen=True)
class EmulatedKernel:
    """A kernel that can be run."""

    kernel: Kernel
    plan: Plan
    build: EmulatedBuild
    supported: frozenset[str]
    """Names of the hidden shapes that it declares support for."""


class Emulation:
    """Builds and examines kernels of one operator and dtype. `folder` holds what was compiled."""

    def __init__(
        self, operator: Operator, dtype: str, *, folder: Path, seed: int = 0, run_timeout_s: float = RUN_TIMEOUT_S
    ) -> None:
        self.operator = operator
        self.run_timeout_s = run_timeout_s
        self.dtype = dtype
        self.folder = folder
        self.oracle = Oracle(operator, functions(operator.folder), dtype)
        # No workloads: those are for clocks, and too large.
        self._shapes = Shapes(operator, Task(operator.name, dtype, "cuda"), (), self.oracle)
        self._rng = np.random.default_rng(seed)

    def prepare(self, kernel: Kernel) -> EmulatedKernel | Rejection:
        """Parse, check and compile."""
        try:
            plan = parse_plan(kernel.source, self.operator, "cuda").for_dtype(self.dtype)
            plan.settings(kernel.values)
            supported = self._shapes.supported(plan, kernel, FACTS)
            if isinstance(supported, Rejection):
                return supported
            build = compile_emulated(kernel, plan, self.operator, dtype=self.dtype, folder=self.folder)
        except PlanError as error:
            return Rejection(Status.INVALID, str(error))
        return build if isinstance(build, Rejection) else EmulatedKernel(kernel, plan, build, supported)

    def examine(
        self, prepared: EmulatedKernel, *, shapes: int | Sequence[Mapping[str, int]], families: int = 1
    ) -> tuple[CheckError, ...] | Rejection:
        """The worst errors of a right kernel, or the first thing wrong; see `emulated`."""
        if isinstance(shapes, int):
            hidden = [w for w in self.operator.hidden if w.name in prepared.supported]
            chosen = [hidden[i] for i in self._rng.permutation(len(hidden))[:shapes]]
        else:
            chosen = [Workload("emulated", dict(dims)) for dims in shapes]
        return self.examined(prepared, chosen, families=families)

    def examined(
        self, prepared: EmulatedKernel, chosen: Sequence[Workload], *, families: int = 1, limit_s: float = math.inf
    ) -> tuple[CheckError, ...] | Rejection:
        """The same on these shapes, begun within so many seconds. Raises OperatorError where one makes no sense."""
        checks = [(w, str(f)) for w in chosen for f in self._rng.permutation(self.oracle.families)[:families]]
        end = time.monotonic() + limit_s
        errors: list[CheckError] = []
        beyond: Rejection | None = None
        try:
            with self.opened(prepared) as call:
                for number, (workload, family) in enumerate(checks):
                    if time.monotonic() > end:
                        break
                    # Without the naive kernel's opinion: it may be the one that is examined.
                    case = self.oracle.case(workload, family, self._rng, at_end=number % 2 == 0)
                    try:
                        errors += agreed_at_both_ends(
                            self.oracle, case, call, self._rng, deterministic=prepared.plan.deterministic
                        )
                    except KernelFault as fault:
                        if fault.rejection.status is not Status.UNSUPPORTED:
                            raise
                        beyond = beyond or fault.rejection  # other shapes may take another route, which is wrong
        except KernelFault as fault:
            return fault.rejection
        return beyond or worst(errors)

    @contextmanager
    def opened(self, prepared: EmulatedKernel) -> Iterator[Call]:
        """A process with the kernel, which draws another order of its threads for every call."""
        with _Session(self, prepared, self._rng) as session:

            def call(question: Question, at_end: bool, poison: int) -> Region:
                session.bind(question, at_end=at_end)
                return session.run(poison=poison)

            yield call


class _Session:
    """A runner of the cpu target with one kernel, and the memory it shares with us."""

    def __init__(self, emulation: Emulation, prepared: EmulatedKernel, rng: np.random.Generator) -> None:
        self._emulation = emulation
        self._prepared = prepared
        self._rng = rng
        self._runner = CpuRunner((str(emulator()),), threads=1)
        self._bound: tuple[Question, Region, Program] | None = None

    def __enter__(self) -> _Session:
        self._runner.map(self._prepared.build.image, self._prepared.build.library)
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()

    def bind(self, question: Question, *, at_end: bool) -> None:
        """Hand over inputs, and memory for outputs and scratch. Raises KernelFault."""
        resolved, program_ = self._resolved(question)
        sizes = self._emulation.oracle.work_sizes(question.dims) | {b.name: b.bytes for b in resolved.buffers}
        work = Region(sizes | {CONTROL: CONTROL_BYTES}, at_end=at_end)
        assert isinstance(question.region, Region)
        order = self._runner.bind(0, question.region, work)
        self._runner.define(0, _words(program_, self._prepared.build, order, work))
        self._bound = question, work, program_

    def run(self, *, poison: int) -> Region:
        """Run every launch; what it wrote. Raises KernelFault, which says where it happened."""
        assert self._bound
        question, work, program_ = self._bound
        work.prepare(poison)
        self._emulation.oracle.restore(question, work)
        seed = int(self._rng.integers(1, 1 << 32))
        work.view(CONTROL)[: CONTROL_HEAD.size] = CONTROL_HEAD.pack(seed, poison, *[0] * 10)
        try:
            self._runner.run(0, 0, timeout_s=self._emulation.run_timeout_s, poison=poison)
        except KernelFault as fault:
            raise _placed(fault.rejection, question, work, program_) from None
        return work

    def _resolved(self, question: Question) -> tuple[ResolvedPlan, Program]:
        plan, kernel, operator = self._prepared.plan, self._prepared.kernel, self._emulation.operator
        dtype, params = self._emulation.dtype, self._prepared.build.params
        try:
            resolved = plan.resolve(
                operator,
                dtype=dtype,
                dims=question.dims,
                values=kernel.values,
                facts=FACTS,
                occupancy=dict.fromkeys(plan.occupancy_kernels, BLOCKS_PER_SM),
            )
            problem = check_arguments(resolved, params, operator, dtype)
        except PlanError as error:
            problem = str(error)
        if problem:
            raise KernelFault(Status.INVALID, f"on {question.workload.name}: {problem}")
        return resolved, program(resolved, params, operator)


def _placed(rejection: Rejection, question: Question, work: Region, program_: Program) -> KernelFault:
    """The fault that ended a call, in the emulation's own words where it has some, and its place."""
    data = bytes(work.view(CONTROL))
    _, _, told, launch, running, lack, *index = CONTROL_HEAD.unpack_from(data)
    status, text = rejection.status, rejection.message
    if told:
        status, text = Status.RUNTIME_ERROR, data[CONTROL_HEAD.size :][: min(told, 1023)].decode(errors="replace")
    if lack:
        return KernelFault(Status.UNSUPPORTED, f"needs a GPU: {text}")
    if 0 < launch <= len(program_.calls):
        thread = f", thread {index[3:]}" if running else ""
        text += f" (`{program_.calls[launch - 1].kernel}`, block {index[:3]}{thread})"
    return KernelFault(status, f"{text} on {question.workload.name}")


def _words(program_: Program, build: EmulatedBuild, order: Sequence[str], work: Region) -> list[int]:
    """A program as the runner reads it; every launch's own arguments are followed by what runtime.hpp wants to know."""
    index = {name: number for number, name in enumerate(order)}
    words = [len(program_.zero)]
    for name in program_.zero:
        words += [index[name], work.extents[name].bytes]
    words.append(len(program_.calls))
    for number, launch in enumerate(program_.calls, 1):
        cluster = launch.cluster or (0, 0, 0)
        numbers = (*launch.grid, *launch.block, *cluster, launch.shared_bytes, int(launch.cooperative), number)
        numbers += (build.static_bytes,)
        words += [build.launches.index(launch.kernel), len(launch.args) + len(numbers) + 1]
        for argument in launch.args:
            if isinstance(argument, bytes):
                words += [0, int.from_bytes(argument.ljust(8, b"\0"), "little", signed=True)]
            elif argument[0] == "map":
                raise KernelFault(Status.UNSUPPORTED, f"needs a GPU: {TENSOR_MAPS}")
            else:
                words += [1, index[argument[1]]]
        for value in numbers:
            words += [0, value]
        words += [1, index[CONTROL]]
    return words
