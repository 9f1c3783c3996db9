"""From a kernel file to a cubin, through NVRTC: in process, without a GPU and without nvcc.

Not covered here: isolation. What a kernel includes must look like a CUDA header, but some of those headers include
what a macro names; a kernel from a stranger is to be compiled in a process that can read nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fitness.evaluation import Rejection, Status
from fitness.source import Dialect, forbidden
from operators.errors import PlanError, UserError
from operators.kernel import Kernel
from operators.plan import parse_plan
from operators.prelude import translation_unit
from operators.spec import Operator

ARCH = "sm_90a"
FILE = "kernel.cu"
OPTIONS = ("--std=c++17", "--device-int128", "--ptxas-options=-v", "--no-source-include", "-default-device", "-w")
"""`-default-device` and `--device-int128` are what CuTe needs."""
MAX_LOG_LINES = 40
DIALECT = Dialect(lambda header: True, "a CUDA header, such as <cuda/barrier>", assembly=True)
"""Any header that the include folders hold, which are NVIDIA's; inline PTX is what CUDA kernels live on."""


def _macros(values: Mapping[str, str]) -> str:
    return "".join(f"#ifndef {name}\n#define {name} {value}\n#endif\n" for name, value in values.items())


def _in_std(*names: str) -> str:
    return "namespace std { " + " ".join(f"using ::{name};" for name in names) + " }\n"


_INTEGERS = tuple(f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64))
_MATH = (
    "exp", "exp2", "log", "log2", "sqrt", "fabs", "fmax", "fmin", "pow", "sin", "cos", "tanh", "floor", "ceil", "fma",
)  # fmt: skip
_SPECIAL = {"INFINITY": "__int_as_float(0x7f800000)", "NAN": "__int_as_float(0x7fffffff)"}
_FLOAT_LIMITS = {
    "FLT_MAX": "3.402823466e+38f",
    "FLT_MIN": "1.175494351e-38f",
    "FLT_EPSILON": "1.192092896e-07f",
    "DBL_MAX": "1.7976931348623157e+308",
    "DBL_MIN": "2.2250738585072014e-308",
    "DBL_EPSILON": "2.2204460492503131e-16",
}
_HEADERS = {
    "stdint.h": "#include <cuda/std/cstdint>\n",
    "cstdint": "#include <stdint.h>\n" + _in_std(*_INTEGERS),
    "math.h": _macros(_SPECIAL),
    "cmath": "#include <math.h>\n" + _in_std(*_MATH),
    "float.h": _macros(_FLOAT_LIMITS),
    "cfloat": "#include <float.h>\n",
    "limits.h": "#include <cuda/std/climits>\n",
    "climits": "#include <limits.h>\n",
    "stddef.h": "",
    "cstddef": _in_std("size_t", "ptrdiff_t"),
}
"""Headers that people are used to and NVRTC lacks."""


@dataclass(frozen=True)
class KernelFacts:
    """What ptxas says of one compiled kernel; bytes are per thread, but for shared memory."""

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
    lowered: Mapping[str, str]
    """The plan's kernel name expressions, and the symbols in the cubin."""
    kernels: Mapping[str, KernelFacts]
    """By name expression."""


def compile_cuda(
    kernel: Kernel, operator: Operator, dtype: str, *, arch: str = ARCH, include: Sequence[Path] | None = None
) -> CudaBuild | Rejection:
    """Compile for one dtype and the kernel's setting of the tunables.

    `include` replaces the folders with the CUDA headers, which are looked for where wheels, conda and the toolkit put
    them. A kernel that does not compile is a rejection, its line numbers those of the kernel file. Raises UserError
    where the compiler or its headers are not installed, or know nothing of `arch`.
    """
    try:
        plan = parse_plan(kernel.source, operator, "cuda", name=FILE)
        unit = translation_unit(kernel.source, operator, plan, target="cuda", dtype=dtype, values=kernel.values)
    except PlanError as error:
        return Rejection(Status.INVALID, str(error))
    if problem := forbidden(kernel.source, FILE, DIALECT):
        return Rejection(Status.INVALID, problem)
    expressions = tuple(dict.fromkeys(launch.kernel for launch in plan.launches))
    folders = tuple(include_folders() if include is None else include)
    with _Program(unit, expressions) as program:
        if not program.compile(arch, folders):
            return Rejection(Status.COMPILE_ERROR, scrub_log(program.log(), expressions, folders))
        lowered = {expression: program.lowered_name(expression) for expression in expressions}
        by_symbol = read_ptxas_log(program.log())
        for expression, symbol in lowered.items():
            if symbol not in by_symbol:
                return Rejection(Status.INVALID, f"launch of `{expression}`: it is not a __global__ function")
        facts = {expression: by_symbol[symbol] for expression, symbol in lowered.items()}
        return CudaBuild(arch, program.cubin(), lowered, facts)


@lru_cache
def include_folders() -> tuple[Path, ...]:
    """Where the CUDA headers and CCCL lie. Raises UserError where they are not installed."""
    _nvrtc()
    from cuda.pathfinder import find_nvidia_header_directory

    folders = [find_nvidia_header_directory(name) for name in ("cudart", "cccl")]
    if not all(folders):
        raise UserError("the CUDA headers are not installed: pip install 'kernel-evo[nvrtc]'")
    return tuple(Path(folder) for folder in folders if folder)


@lru_cache
def _nvrtc() -> Any:
    """The bindings, with the library loaded."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"NVRTC is not installed ({reason}): pip install 'kernel-evo[nvrtc]'") from error
    return nvrtc


class _Program:
    """One NVRTC program, destroyed on exit."""

    def __init__(self, unit: str, expressions: Sequence[str]) -> None:
        self.nvrtc = _nvrtc()
        names, bodies = ([text.encode() for text in part] for part in (_HEADERS.keys(), _HEADERS.values()))
        source = unit.encode(errors="replace")
        self.handle = self._call("CreateProgram", source, FILE.encode(), len(names), bodies, names)
        for expression in expressions:
            self._call("AddNameExpression", expression.encode())

    def __enter__(self) -> _Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.nvrtc.nvrtcDestroyProgram(self.handle)

    def compile(self, arch: str, folders: Sequence[Path]) -> bool:
        options = [f"--gpu-architecture={arch}", *OPTIONS, *(f"--include-path={folder}" for folder in folders)]
        (result,) = self.nvrtc.nvrtcCompileProgram(self.handle, len(options), [option.encode() for option in options])
        if result == self.nvrtc.nvrtcResult.NVRTC_ERROR_INVALID_OPTION:
            raise UserError(f"NVRTC {'.'.join(map(str, self._call('Version')))} cannot compile for {arch!r}")
        return bool(result == self.nvrtc.nvrtcResult.NVRTC_SUCCESS)

    def log(self) -> str:
        # Where ptxas fails, its words follow a NUL of the compiler's own.
        return self._bytes("ProgramLog").replace(b"\0", b"").decode(errors="replace")

    def cubin(self) -> bytes:
        return self._bytes("CUBIN")

    def lowered_name(self, expression: str) -> str:
        name: bytes = self._call("GetLoweredName", expression.encode())
        return name.decode()

    def _bytes(self, what: str) -> bytes:
        buffer = b" " * int(self._call(f"Get{what}Size"))
        self._call(f"Get{what}", buffer)
        return buffer

    def _call(self, function: str, *arguments: object) -> Any:
        program = () if function in ("CreateProgram", "Version") else (self.handle,)
        result, *values = getattr(self.nvrtc, f"nvrtc{function}")(*program, *arguments)
        if result != self.nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise RuntimeError(f"nvrtc{function}: {result.name}")
        return values[0] if len(values) == 1 else values


# --- what the compiler says -----------------------------------------------------------------------------------------

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_PROPERTIES = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_DIAGNOSTIC = re.compile(r"(?P<file>[^\n()]+)\((?P<line>\d+)\): (?:catastrophic )?error(?: #\S+)?: (?P<text>.*)")
_PTXAS_ERROR = re.compile(r"^\s*ptxas\b.*?(?:error|fatal)\s*:\s*(.*)", re.MULTILINE)
_ABSOLUTE = re.compile(r"(?<![\w.<>)\]])/[\w.+-]+(?:/[\w.+-]+)+")
_NAME_MAP = "__nv_name_map"


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
            stack_bytes=max(stack, _number(r"(\d+) bytes cumulative stack size", text)),
            spill_store_bytes=stores,
            spill_load_bytes=loads,
            static_shared_bytes=_number(r"(\d+) bytes smem", text),
            barriers=_number(r"used (\d+) barriers", text),
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
    lines = "\n".join([text for _, text in own] + list(dict.fromkeys(others))).splitlines()
    cut = [f"... {len(lines) - MAX_LOG_LINES} more lines"] if len(lines) > MAX_LOG_LINES else []
    return "\n".join(lines[:MAX_LOG_LINES] + cut) or "the compiler failed without a message"


def _foreign(match: re.Match[str], text: str, expressions: Sequence[str], folders: Sequence[Path]) -> Iterator[str]:
    """What may be said of an error outside the kernel file."""
    file = match["file"]
    if file == _NAME_MAP:
        # Line 2 + i holds the i-th name; a second message repeats what the first one said.
        if not text.startswith("Error in parsing name expression"):
            index = int(match["line"]) - 2
            name = expressions[index] if 0 <= index < len(expressions) else "?"
            yield f"launch of `{name}`: error: {text}"
    elif file in _HEADERS or any(Path(file).resolve().is_relative_to(folder.resolve()) for folder in folders):
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
