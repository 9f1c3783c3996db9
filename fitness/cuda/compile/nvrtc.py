"""NVRTC in a process that reads nothing but CUDA headers: `python -m fitness.cuda.compile.nvrtc SOCKET_FD FOLDERS`.

Requests are the pickled fields of a `CompileJob`; answers are a JSON object and the bytes it announces, so that our
process unpickles nothing that a compiler wrote after it had read a candidate's source. Needs no GPU and no nvcc.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import pickle
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fitness.cuda.compile.line import fitting_extra
from fitness.install import MissingPackage, installing, reinstalling_toolchain
from fitness.sandbox.channel import receive_frame, send, send_frame
from operators.errors import UserError

FILE = "kernel.cu"
OPTIONS = ("--std=c++17", "--device-int128", "--ptxas-options=-v", "-default-device", "-w")
"""`-default-device` and `--device-int128` are what CuTe needs."""


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
HEADERS = {
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
    # Whatever a kernel says of NDEBUG: what asserts calls the device's runtime, which no kernel may.
    "assert.h": "#undef assert\n#define assert(...) ((void)0)\n",
    "cassert": "#include <assert.h>\n",
}
"""Headers that people are used to and NVRTC lacks."""


@dataclass(frozen=True)
class CompileJob:
    """One translation unit."""

    unit: str
    expressions: tuple[str, ...]
    """Names to be lowered: of kernels, and of variables after a `&`."""
    arch: str
    """sm_90a and the like."""
    folders: tuple[str, ...]
    """Folders with headers."""
    lines: bool = False
    """Whether the PTX tells which line of which file every instruction came from."""


@dataclass(frozen=True)
class Compiled:
    """Result of a compile job."""

    log: str
    cubin: bytes
    """Empty: it did not compile."""
    ptx: str
    lowered: Mapping[str, str]
    """By expression."""


@lru_cache
def library() -> Any:
    """The bindings, with NVRTC loaded. Raises MissingPackage where it is not installed, or of another CUDA line."""
    try:
        from cuda import bindings
        from cuda.bindings import nvrtc

        _, *numbers = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise MissingPackage(f"NVRTC is not installed ({reason})", installing(fitting_extra())) from error
    _check_line(f"cuda-bindings {bindings.__version__}", bindings.__version__, ".".join(map(str, numbers)))
    return nvrtc


@lru_cache
def include_folders() -> tuple[Path, ...]:
    """The folders of headers: CUDA's, CCCL's, CUTLASS's if it is there.

    Raises MissingPackage where one of the others is not, or CUDA's are of another line than NVRTC.
    """
    library()
    from cuda.pathfinder import find_nvidia_header_directory

    folders = [find_nvidia_header_directory(name) for name in ("cudart", "cccl")]
    if not all(folders):
        raise MissingPackage("the CUDA headers are not installed", installing(fitting_extra()))
    found = [Path(folder) for folder in folders if folder]
    _check_line(f"the headers in {found[0]}", headers_version(found[0]), version())
    cutlass = cutlass_folders()
    if cutlass:  # which names CCCL's headers as <cccl/...>
        found += [folder.parent for folder in found if folder.name == "cccl" and folder.parent not in found]
    return (*found, *cutlass)


def headers_version(folder: Path) -> str:
    """The version of CUDA's headers in a folder, as in `12.9`; empty where they do not tell."""
    text = (folder / "cuda_runtime_api.h").read_text(encoding="utf-8", errors="replace")
    found = re.search(r"^#define\s+CUDART_VERSION\s+(\d+)", text, re.MULTILINE)
    return f"{int(found[1]) // 1000}.{int(found[1]) % 1000 // 10}" if found else ""


def _check_line(what: str, its_version: str, nvrtc_version: str) -> None:
    """Raise MissingPackage for something of another line than NVRTC: what one makes, the other need not understand."""
    if its_version and its_version.partition(".")[0] != nvrtc_version.partition(".")[0]:
        cure = reinstalling_toolchain(fitting_extra())
        raise MissingPackage(f"NVRTC {nvrtc_version} and {what} are of different CUDA lines", cure, clash=True)


def cutlass_folders() -> tuple[Path, ...]:
    """Where the headers of CUTLASS and CuTe lie, which are optional: those of the package nvidia-cutlass."""
    # Not imported: that takes packages which headers do without.
    found = importlib.util.find_spec("cutlass_library")
    roots = found.submodule_search_locations if found else None
    folders = [Path(root, "source", "include") for root in roots or ()]
    return tuple(folder for folder in folders if (folder / "cute" / "tensor.hpp").is_file())


@lru_cache
def version() -> str:
    """The version of NVRTC, as in `13.0`."""
    _, *numbers = library().nvrtcVersion()
    return ".".join(map(str, numbers))


def compile_here(job: CompileJob) -> Compiled:
    """Compile in this process. Raises UserError where NVRTC knows nothing of the architecture."""
    with _Compilation(job.unit, job.expressions) as program:
        if not program.compile(job):
            return Compiled(program.log(), b"", "", {})
        lowered = {expression: program.lowered_name(expression) for expression in job.expressions}
        ptx = program.data("PTX").rstrip(b"\0").decode(errors="replace")
        return Compiled(program.log(), program.data("CUBIN"), ptx, lowered)


class _Compilation:
    """One NVRTC program, destroyed on exit."""

    def __init__(self, unit: str, expressions: Sequence[str]) -> None:
        self.nvrtc = library()
        names, bodies = ([text.encode() for text in part] for part in (HEADERS.keys(), HEADERS.values()))
        source = unit.encode(errors="replace")
        self.handle = self._call("CreateProgram", source, FILE.encode(), len(names), bodies, names)
        for expression in expressions:
            self._call("AddNameExpression", expression.encode())

    def __enter__(self) -> _Compilation:
        return self

    def __exit__(self, *_: object) -> None:
        self.nvrtc.nvrtcDestroyProgram(self.handle)

    def compile(self, job: CompileJob) -> bool:
        folders = (f"--include-path={folder}" for folder in job.folders)
        options = [f"--gpu-architecture={job.arch}", *OPTIONS, *folders, *(("-lineinfo",) if job.lines else ())]
        (result,) = self.nvrtc.nvrtcCompileProgram(self.handle, len(options), [option.encode() for option in options])
        if result == self.nvrtc.nvrtcResult.NVRTC_ERROR_INVALID_OPTION:
            raise UserError(f"NVRTC {version()} cannot compile for {job.arch!r}")
        return bool(result == self.nvrtc.nvrtcResult.NVRTC_SUCCESS)

    def log(self) -> str:
        # Where ptxas fails, its words follow a NUL of the compiler's own.
        return self.data("ProgramLog").replace(b"\0", b"").decode(errors="replace")

    def lowered_name(self, expression: str) -> str:
        name: bytes = self._call("GetLoweredName", expression.encode())
        return name.decode()

    def data(self, what: str) -> bytes:
        # Memory of our own: what the bindings are given is written to, even a bytes object, and of those with one
        # byte a process has only one each.
        buffer = bytearray(int(self._call(f"Get{what}Size")))
        self._call(f"Get{what}", buffer)
        return bytes(buffer)

    def _call(self, function: str, *arguments: object) -> Any:
        program = () if function == "CreateProgram" else (self.handle,)
        result, *values = getattr(self.nvrtc, f"nvrtc{function}")(*program, *arguments)
        if result != self.nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise RuntimeError(f"nvrtc{function}: {result.name}")
        return values[0] if len(values) == 1 else values


# --- the process ------------------------------------------------------------------------------------------------------


def _serve(channel: socket.socket) -> None:
    while True:
        try:
            job = CompileJob(*pickle.loads(receive_frame(channel)))
        except EOFError:
            return
        blobs = [b"", b"", b""]
        try:
            made = compile_here(job)
            answer: dict[str, object] = {"lowered": made.lowered}
            blobs = [made.log.encode(errors="replace"), made.cubin, made.ptx.encode()]
        except UserError as error:
            answer = {"user": str(error)}
        except RuntimeError as error:
            answer = {"broken": str(error)}
        head = json.dumps({**answer, "sizes": [len(blob) for blob in blobs]}).encode()
        send_frame(channel, head)
        send(channel, b"".join(blobs))


def main() -> None:
    """Entry point of the process; with a third argument, the library that confines it."""
    fd, folders, *confine = sys.argv[1:]
    readable = folders.split(os.pathsep)
    # A first program loads what NVRTC loads late: its builtins, and the compiler's own tables.
    compile_here(
        CompileJob('extern "C" __global__ void warm(float* x) { x[0] = sqrtf(x[1]); }', ("warm",), "sm_90", ())
    )
    if confine:
        ctypes.CDLL(confine[0]).evo_confine(":".join(readable).encode(), b"")
    with socket.socket(fileno=int(fd)) as channel:
        channel.sendall(b"\1")
        _serve(channel)


if __name__ == "__main__":
    main()
