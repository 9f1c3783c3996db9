"""Builds: a cubin from a kernel file, what is known of its kernels, and the identity of its code. Needs no GPU."""

from __future__ import annotations

import atexit
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from fitness.cuda.compile.compiler import Compiler, CompilerFault
from fitness.cuda.compile.cubin import Cubin, CubinError, read_cubin
from fitness.cuda.compile.line_table import Lines, read_lines
from fitness.cuda.compile.nvrtc import FILE, HEADERS, OPTIONS, Compiled, CompileJob, include_folders, version
from fitness.cuda.compile.program import ReadOnlyTable
from fitness.cuda.compile.ptx import Rare, Traits, lower_precision, rare, tells_places, traits, written
from fitness.cuda.compile.state import PROBE, PROBE_KERNELS, Reference, detached, objection, reference, tables
from fitness.evaluation import Rejection, Status
from fitness.judging.signature import Param, TableError
from fitness.sandbox.source import Dialect, forbidden
from operators.definition.spec import Operator
from operators.errors import PlanError, UserError
from operators.identity import digest
from operators.kernel import Kernel
from operators.plan.reading import Plan, parse_plan
from operators.prelude import prelude, translation_unit

ARCH = "sm_90a"
"""Architecture that is compiled for where there is no GPU to ask."""
MAX_LOG_CHARACTERS, MAX_PTX_CHARACTERS = 1 << 20, 8 << 20
"""Longest log and longest PTX of one kernel file; the largest known has a tenth of it."""
MAX_STACK_BYTES = 16384
"""Largest stack of a thread: this much of every thread that the device can hold is overwritten before each call."""
MAX_LOG_LINES = 40
MAX_LOG_COLUMNS = 600
"""Longest line of a log; templates spell out their types at any length."""
DIALECT = Dialect(lambda header: True, "a CUDA header, such as <cuda/barrier>", assembly=True)
"""Any header that the compiler's process can open, which are NVIDIA's; inline PTX is what CUDA kernels live on."""
SHIM_FILE = "parameters of a launch"
OWN_LINES = f"""#line 1 "{FILE}"
"""
"""Lines that follow are the kernel file's."""
SHIM = (
    f"""#line 1 "{SHIM_FILE}"
"""
    + """namespace evo_shim {
template <class X> constexpr int kind() { return __is_enum(X) ? 0 : 3; }
#define EVO_KIND(KIND, ...) template <> constexpr int kind<__VA_ARGS__>() { return KIND; }
EVO_KIND(0, bool) EVO_KIND(0, char) EVO_KIND(0, signed char) EVO_KIND(0, unsigned char)
EVO_KIND(0, short) EVO_KIND(0, unsigned short) EVO_KIND(0, int) EVO_KIND(0, unsigned int)
EVO_KIND(0, long) EVO_KIND(0, unsigned long) EVO_KIND(0, long long) EVO_KIND(0, unsigned long long)
EVO_KIND(1, float) EVO_KIND(1, double)
#undef EVO_KIND
struct Param { int kind, size, pointee_kind, pointee_size, pointee_const; };
template <class X> struct Size { static constexpr int of() { return sizeof(X); } };
template <> struct Size<void> { static constexpr int of() { return 0; } };
template <class X> struct About {
    static constexpr Param param() { return {kind<X>(), sizeof(X), 3, 0, 0}; }
};
template <class X> struct About<const X> : About<X> {};
template <class X> struct About<X*> {
    static constexpr Param param() { return {2, sizeof(X*), kind<X>(), Size<X>::of(), 0}; }
};
template <class X> struct About<const X*> {
    static constexpr Param param() { return {2, sizeof(X*), kind<X>(), Size<X>::of(), 1}; }
};
template <class X> struct About<X* const> : About<X*> {};
template <class F> struct Table;
template <class... A> struct Table<void(A...)> {
    int count;
    Param params[sizeof...(A) + 1];
};
template <class F> struct Make;
template <class... A> struct Make<void(A...)> {
    static constexpr Table<void(A...)> table() { return {sizeof...(A), {About<A>::param()..., {}}}; }
};
template <class F> __device__ const Table<F> parameters = Make<F>::table();
}
"""
    + OWN_LINES
)
"""Text in front of every translation unit: a table of a kernel's parameters for the cubin, which is read, not run."""


@dataclass(frozen=True)
class KernelFacts:
    """Facts of ptxas on one compiled kernel; bytes are per thread, but for shared memory."""

    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    static_shared_bytes: int
    barriers: int


@dataclass(frozen=True)
class CudaBuild:
    """A compiled kernel file."""

    arch: str
    cubin: bytes
    """The image as it is loaded, with the addresses of `tables`."""
    lowered: Mapping[str, str]
    """The plan's kernel name expressions, and the symbols in the cubin."""
    kernels: Mapping[str, KernelFacts]
    """By name expression."""
    params: Mapping[str, tuple[Param, ...]]
    """By name expression."""
    cell: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    tables: tuple[ReadOnlyTable, ...] = ()
    """Data that kernels only read, by its address, which is to lie in memory that they cannot write to."""


def compile_cuda(
    kernel: Kernel, operator: Operator, dtype: str, *, arch: str = ARCH, compiler: Compiler | None = None
) -> CudaBuild | Rejection:
    """Compile for one dtype and the kernel's setting of the tunables.

    A kernel that does not compile is a rejection, its line numbers those of the kernel file. Raises UserError where
    the compiler or its headers are not installed, or know nothing of `arch`.
    """
    try:
        plan = parse_plan(kernel.source, operator, "cuda", name=FILE).for_dtype(dtype)
        unit = SHIM + translation_unit(kernel.source, operator, plan, target="cuda", dtype=dtype, values=kernel.values)
    except PlanError as error:
        return Rejection(Status.INVALID, str(error))
    if problem := forbidden(kernel.source, FILE, DIALECT):
        return Rejection(Status.INVALID, problem)
    names = tuple(dict.fromkeys(launch.kernel for launch in plan.launches))
    folders, compiler = include_folders(), compiler or _shared()
    job = CompileJob(unit, names + _parameter_tables(names), arch, tuple(map(str, folders)))
    try:
        made = compiler.compile(job)
    except CompilerFault as fault:
        return Rejection(Status.COMPILE_ERROR, str(fault))
    if not made.cubin:
        return Rejection(Status.COMPILE_ERROR, scrub_log(made.log[:MAX_LOG_CHARACTERS], names, folders))
    return _inspected(made, job, plan, dtype, names, compiler)


def _inspected(
    made: Compiled, job: CompileJob, plan: Plan, dtype: str, names: Sequence[str], compiler: Compiler
) -> CudaBuild | Rejection:
    """The build that came of a job, with what its machine code tells; a rejection where that shows what is refused."""
    if len(made.log) > MAX_LOG_CHARACTERS or len(made.ptx) > MAX_PTX_CHARACTERS:
        return Rejection(Status.INVALID, f"it makes {len(made.ptx)} characters of PTX and {len(made.log)} of messages")
    by_symbol = read_ptxas_log(made.log)
    lowered = {name: made.lowered[name] for name in names}
    for name, symbol in lowered.items():
        if symbol not in by_symbol:
            return Rejection(Status.INVALID, f"launch of `{name}`: it is not a __global__ function")
    try:
        cubin = read_cubin(made.cubin)
        problem = _never_waits(cubin, plan, lowered) or objection(cubin, _reference(compiler, job.arch))
        found = traits(made.ptx)
        problem = problem or _keeps(cubin, made.ptx) or _asks(found, plan)
        if problem:
            return Rejection(Status.INVALID, problem)
        params = {
            name: cubin.parameters(lowered[name], made.lowered[shim])
            for name, shim in zip(names, _parameter_tables(names), strict=True)
        }
        loaded, slots = detached(made.cubin, cubin)
    except (CubinError, TableError) as error:
        return Rejection(Status.INVALID, str(error))
    kernels = {name: by_symbol[symbol] for name, symbol in lowered.items()}
    if (stack := max(k.stack_bytes for k in kernels.values())) > MAX_STACK_BYTES:
        return Rejection(
            Status.INVALID,
            f"it takes {stack} bytes of local memory per thread, for arrays and spilled registers; at most "
            f"{MAX_STACK_BYTES} are allowed",
        )
    facts = _facts(cubin, found, plan, kernels, dtype, job.arch)
    suspicious, unusual = _told_by_lines(made.ptx, job, compiler)
    facts["flagged"] = list(suspicious)
    facts["uncommon"] = ", ".join(unusual) or "none"
    return CudaBuild(job.arch, loaded, lowered, kernels, params, _cell(facts), facts, slots)


def _keeps(cubin: Cubin, ptx: str) -> str | None:
    """The fault of a variable that is written to though it has an initial value, which no device allows; None without
    one."""
    name = written(ptx, tables(cubin))
    return name and (
        f"it writes to the __device__ variable `{name}`, which would live on between calls; declare scratch memory as "
        "a [[buffer]]"
    )


def _asks(found: Traits, plan: Plan) -> str | None:
    """The fault of code that learns where the driver keeps barriers, in launches that have none; None without one.
    Runners watch that memory around cooperative launches alone."""
    if not found.environment or any(launch.cooperative for launch in plan.launches):
        return None
    return "it asks for the barrier of the grid; add `cooperative = true` to the [[launch]] that waits for all blocks"


def _never_waits(cubin: Cubin, plan: Plan, lowered: Mapping[str, str]) -> str | None:
    """The fault of a launch that may overlap the one before it and does not look whether that is done; None without
    one."""
    for launch in plan.launches:
        if launch.overlap and not cubin.waits(lowered[launch.kernel]):
            return (
                f"launch of `{launch.kernel}`: it may overlap the one before it, but never waits for that; call "
                "cudaGridDependencySynchronize() before it touches what earlier launches do, or leave `overlap` out"
            )
    return None


def _parameter_tables(names: Iterable[str]) -> tuple[str, ...]:
    """Expressions for the tables that tell the parameters of kernels."""
    return tuple(f"&evo_shim::parameters<decltype({name})>" for name in names)


def compile_lines(
    build: CudaBuild, kernel: Kernel, operator: Operator, dtype: str, *, compiler: Compiler | None = None
) -> dict[str, Lines]:
    """Return the lines of the kernel file that the instructions of a build come from, by name expression.

    The kernel is compiled once more, with -lineinfo, and nothing of that but the table of lines is used: what is
    judged, timed and profiled stays the build. A kernel whose machine code is not that of the build, byte for byte, is
    left out. Raises UserError as `compile_cuda` does.
    """
    plan = parse_plan(kernel.source, operator, "cuda", name=FILE).for_dtype(dtype)
    ahead = prelude(operator, plan, target="cuda", dtype=dtype, values=kernel.values)
    # The prelude's lines count as the shim's here, so that they are not taken for those of the kernel file.
    unit = SHIM.removesuffix(OWN_LINES) + ahead.removesuffix("#line 1\n") + OWN_LINES
    unit += kernel.source.removeprefix("\ufeff")
    # What the build has besides lies between what its code refers to.
    wanted = (*build.lowered, *_parameter_tables(build.lowered))
    job = CompileJob(unit, wanted, build.arch, tuple(map(str, include_folders())), lines=True)
    try:
        made = (compiler or _shared()).compile(job)
        judged, told = read_cubin(build.cubin), read_cubin(made.cubin)
        lines = read_lines(told)
    except (CompilerFault, CubinError):
        return {}
    found = {name: (f".text.{build.lowered[name]}", f".text.{made.lowered[name]}") for name in build.lowered}
    return {
        name: lines[theirs]
        for name, (ours, theirs) in found.items()
        if theirs in lines and judged.code(ours) == told.code(theirs)
    }


_references: dict[str, Reference] = {}
"""Facts learnt of architectures in this process."""


def _reference(compiler: Compiler, arch: str) -> Reference:
    """The known facts of an architecture. It raises UserError where our own code does not compile for it."""
    if arch not in _references:
        made = compiler.compile(CompileJob(PROBE, PROBE_KERNELS, arch, tuple(map(str, include_folders()))))
        if not made.cubin:
            raise UserError(f"NVRTC {version()} cannot compile for {arch!r}: {' '.join(made.log.split())[:300]}")
        _references[arch] = reference(read_cubin(made.cubin))
    return _references[arch]


@lru_cache
def _shared() -> Compiler:
    """For callers that bring none."""
    compiler = Compiler()
    atexit.register(compiler.close)
    return compiler


def _told_by_lines(ptx: str, job: CompileJob, compiler: Compiler) -> Rare:
    """The rare features that the kernel's own code uses, told by its lines.

    There is seldom anything, so that few are compiled twice. Where no compiler was asked for lines and some stand
    there, a kernel wrote them, to pass for a header.
    """
    found = rare(ptx)
    if not any(found) or tells_places(ptx):
        return found
    try:
        told = compiler.compile(replace(job, lines=True)).ptx
    except CompilerFault:  # slower than the first time; then headers count as well
        return found
    return rare(told, file=FILE)


def code_digest(build: CudaBuild, *, resolved: str, dtype: str, device: str) -> str:
    """Kernels of one digest are the same program: their code, and what is launched with what on every workload.

    `resolved` is what `fitness.judging.shapes.Shapes.verdict_text` says of the plan, `device` what expressions know of
    it.
    """
    return digest("code", read_cubin(build.cubin).digest(), resolved, dtype, device, build.arch, version(), *OPTIONS)


# --- what the code tells ---------------------------------------------------------------------------------------------


def _facts(
    cubin: Cubin, found: Traits, plan: Plan, kernels: Mapping[str, KernelFacts], dtype: str, arch: str
) -> dict[str, Any]:
    return {
        "code_bytes": cubin.code_bytes(),
        "registers": max(k.registers for k in kernels.values()),
        "spill_bytes": max(k.spill_store_bytes + k.spill_load_bytes for k in kernels.values()),
        "stack_bytes": max(k.stack_bytes for k in kernels.values()),
        "static_shared_bytes": max(k.static_shared_bytes for k in kernels.values()),
        "barriers": max(k.barriers for k in kernels.values()),
        "launches": len(plan.launches),
        "access_bytes": found.access_bytes,
        "vectors": found.vectors,
        "async_copies": found.async_copies,
        "bulk_copies": found.bulk_copies,
        "tensor_cores": found.tensor_cores,
        "atomics": found.atomics,
        "shared_memory": found.shared or any(launch.shared is not None for launch in plan.launches),
        "cooperation": (
            "grid" if any(launch.cooperative for launch in plan.launches)
            else "cluster" if found.cluster
            else "block" if found.block
            else "warp" if found.warp
            else "none"
        ),
        "lower_precision": ", ".join(lower_precision(found, dtype)) or "none",
        **{f"{name}_instructions": count for name, count in cubin.instructions(arch).items()},
    }  # fmt: skip


def _cell(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """The archive cell: memory access, arithmetic, cooperation of threads, resources."""
    memory = "vector" if facts["vectors"] else "scalar"
    if facts["async_copies"]:
        memory = "async"
    if facts["bulk_copies"]:
        memory = "tma"
    registers = next(limit for limit in (32, 64, 128, 255) if facts["registers"] <= limit)
    resources = "spills" if facts["spill_bytes"] else f"regs{registers}"
    return (memory, "tensor" if facts["tensor_cores"] else "fma", facts["cooperation"], resources)


# --- what the compiler says -----------------------------------------------------------------------------------------

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_PROPERTIES = re.compile(r"(\d{1,9}) bytes stack frame, (\d{1,9}) bytes spill stores, (\d{1,9}) bytes spill loads")
_USED = re.compile(r"Used (\d{1,9}) registers")
_DIAGNOSTIC = re.compile(r"(?P<file>[^\n()]+)\((?P<line>\d{1,9})\): (?:catastrophic )?error(?: #\S+)?: (?P<text>.*)")
_PTXAS_ERROR = re.compile(r"^[^\S\n]*+ptxas\b.*?(?:error|fatal)\s*+:\s*+(.*)", re.MULTILINE)
_ABSOLUTE = re.compile(r"(?<![\w.<>)\]])/[\w.+-]+(?:/[\w.+-]+)+")
_NAME_MAP = "__nv_name_map"
_LACKING = re.compile(
    r"(?:Instruction|Feature) '(?P<name>\.?[\w.:]++)[^']*+' "
    r"(?:not supported on \.target|cannot be compiled for architecture) '(?P<arch>\w+)'"
)
_ABORTED = "Ptx assembly aborted due to errors"
_OWNERS = {"wgmma": "Hopper alone (sm_90a)", "tcgen05": "Blackwell alone (sm_100a)"}
"""Instructions that one generation of datacenter GPUs has and no other."""


def read_ptxas_log(log: str) -> dict[str, KernelFacts]:
    """Facts by symbol, from the output of `ptxas -v`. Text that only looks like it is passed over."""
    facts: dict[str, KernelFacts] = {}
    pieces = _ENTRY.split(log)
    for symbol, text in zip(pieces[1::2], pieces[2::2], strict=True):
        # The kernel's own figures and those of functions that it calls without inlining them.
        properties, used = _PROPERTIES.findall(text), _USED.search(text)
        if not properties or not used:
            continue
        stack, stores, loads = (max(map(int, column)) for column in zip(*properties, strict=True))
        facts[symbol] = KernelFacts(
            registers=int(used[1]),
            stack_bytes=max(stack, _number(r"(\d{1,9}) bytes cumulative stack size", text)),
            spill_store_bytes=stores,
            spill_load_bytes=loads,
            static_shared_bytes=_number(r"(\d{1,9}) bytes smem", text),
            barriers=_number(r"used (\d{1,9}) barriers", text),
        )
    return facts


def scrub_log(log: str, expressions: Sequence[str], folders: Sequence[Path]) -> str:
    """The errors, in the order of the kernel file, without a word of any other file but the CUDA headers.

    The compiler quotes the lines it stumbles over, whatever file they are in; logs go to language models.
    """
    own: list[tuple[int, str]] = []
    others: list[str] = []
    for block in re.split(r"\n\s*\n", log):
        match = _DIAGNOSTIC.match(block.strip("\n"))
        if match is None:
            others += [f"ptxas: error: {text}" for text in _PTXAS_ERROR.findall(block)]
            continue
        quotes, origin = block.strip("\n").splitlines()[1:3], block.strip("\n").splitlines()[3:]
        text, origin = _hide_paths(match["text"], folders), [_hide_paths(line, folders) for line in origin]
        if match["file"] == FILE:
            line = int(match["line"])
            own.append((line, "\n".join([f"{FILE}:{line}: error: {text}", *quotes, *origin])))
        else:
            others += _foreign(match, "\n".join([text, *origin]), expressions, folders)
    # Whatever the order of the compiler, the first error of the kernel itself is the one to look at.
    own.sort(key=lambda entry: entry[0])
    lines = "\n".join([text for _, text in own] + _counted(others)).splitlines()
    cut = [f"... {len(lines) - MAX_LOG_LINES} more lines"] if len(lines) > MAX_LOG_LINES else []
    kept = [line if len(line) <= MAX_LOG_COLUMNS else line[:MAX_LOG_COLUMNS] + " ..." for line in lines[:MAX_LOG_LINES]]
    return "\n".join(kept + cut) or "the compiler failed without a message"


def _counted(errors: Iterable[str]) -> list[str]:
    """The errors, each once; those of instructions that the architecture lacks are one, which says where they exist."""
    lacking: dict[str, dict[str, None]] = {}
    rest: dict[str, None] = {}
    for error in errors:
        if match := _LACKING.search(error):
            lacking.setdefault(match["arch"], {}).setdefault(match["name"])
        else:
            rest.setdefault(error)
    told = []
    for arch, names in lacking.items():
        owners = [f"{family} is for {owner}" for family, owner in _OWNERS.items() if any(family in n for n in names)]
        where = f"; {', '.join(owners)}, mma.sync is for both" if owners else ""
        told.append(f"ptxas: error: {arch} has no {', '.join(names)}{where}")
    return [*told, *(error for error in rest if not (told and _ABORTED in error))]


def _foreign(match: re.Match[str], text: str, expressions: Sequence[str], folders: Sequence[Path]) -> Iterator[str]:
    """Advice on an error outside the kernel file."""
    file = match["file"]
    if file == SHIM_FILE:
        return  # what is wrong with a launch's name is said of the name itself
    if file == _NAME_MAP:
        # Line 2 + i holds the i-th name, unless the text says which; a second message repeats what the first one said.
        if not text.startswith("Error in parsing name expression"):
            said = re.search(r'Input name expression was: "\s*+([^"\n]*+)"', text)
            index = int(match["line"]) - 2
            name = said[1] if said else expressions[index] if 0 <= index < len(expressions) else ""
            if name in expressions:
                yield f"launch of `{name}`: error: {text}"
    elif file in HEADERS or any(Path(file).resolve().is_relative_to(folder.resolve()) for folder in folders):
        yield f"{_hide_paths(file, folders)}:{match['line']}: error: {text}"
    else:
        yield f"{FILE}: error: an #include opened a file that is none of the CUDA headers"


def _hide_paths(text: str, folders: Sequence[Path]) -> str:
    for folder in sorted(map(str, folders), key=len, reverse=True):
        text = text.replace(f"{folder}/", "")
    return _ABSOLUTE.sub("<path>", text)


def _number(pattern: str, text: str) -> int:
    match = re.search(pattern, text)
    return int(match[1]) if match else 0
