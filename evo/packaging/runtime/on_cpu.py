"""Loads this folder's kernel: `load()` returns a function over torch's tensors in main memory, or numpy's arrays.

It compiles kernel.cpp with g++ (or what the environment variable CXX names) for this machine's processor. It needs
Python 3.11 and numpy or torch. A kernel that works with threads takes as many as OpenMP gives it (OMP_NUM_THREADS).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from evo.packaging.runtime.loading import Called, Numpy, Package, PackagedKernel, Torch, library_of
from fitness.judging.signature import packed

LIBRARIES: Mapping[str, Callable[[], Any]] = {"numpy": Numpy, "torch": Torch}


def load(folder: str | Path | None = None) -> CpuKernel:
    """Return the kernel of this folder, or of another package's; nothing is compiled before the first call."""
    return CpuKernel(Package(Path(folder) if folder else Path(__file__).parent))


class CpuKernel(PackagedKernel):
    """A kernel of the processor: a call returns when the outputs are computed."""

    @cached_property
    def _functions(self) -> dict[str, Any]:
        library = ctypes.CDLL(str(compiled(self.package)))
        return {name: getattr(library, f"evo_launch_{i}") for i, name in enumerate(self.package.params)}

    def __call__(self, *inputs: Any, out: Any = None, **dims: int) -> Any:
        """Compute, and return the outputs."""
        library = library_of(inputs, LIBRARIES)
        called = Called(self.package, library, inputs, out, dims)
        if called.device != "cpu":
            raise ValueError(f"the arrays lie on {called.device}; the kernel runs on a processor")
        resolved = self.package.resolved(called.dims, facts())
        addresses = called.addresses_with(resolved.buffers)
        sizes = self.package.sizes(called.dims, resolved) if resolved.zero else {}
        for name in resolved.zero:
            ctypes.memset(addresses[name], 0, sizes[name])
        for step in resolved.steps:
            values = []
            for argument, param in zip(step.args, self.package.params[step.kernel], strict=True):
                if argument.kind in ("tensor", "buffer"):
                    data = addresses[argument.name].to_bytes(8, "little")
                else:
                    data = packed(argument, param, self.package.operator)
                values.append(ctypes.create_string_buffer(data, len(data)))
            pointers = (ctypes.c_void_p * max(len(values), 1))(*map(ctypes.addressof, values))
            self._functions[step.kernel](pointers)
        return called.result


def facts() -> dict[str, int]:
    """The facts of this machine that the plan's formulas may know."""
    said = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    cores = int(said) if said.isdigit() and int(said) else len(os.sched_getaffinity(0))
    try:
        l2_bytes = os.sysconf("SC_LEVEL2_CACHE_SIZE")
    except (ValueError, OSError):
        l2_bytes = 0
    return {"cpu_count": cores, "l2_bytes": l2_bytes if l2_bytes > 0 else 1 << 20}


def compiled(package: Package) -> Path:
    """The shared library for this processor, from the package's folder `cache` if it is there. It raises RuntimeError
    with the compiler's words."""
    source = package.folder / "kernel.cpp"
    settings = package.data["gcc"]
    command = [os.environ.get("CXX", "g++"), *settings["flags"], "-shared"]
    key = hashlib.sha256(source.read_bytes() + "\0".join((*command, _processor())).encode()).hexdigest()[:24]
    library = package.folder / "cache" / f"kernel-{key}.so"
    if library.is_file():
        return library
    try:
        library.parent.mkdir(exist_ok=True)
        folder = library.parent
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="kernel-"))
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = Path(scratch, "kernel.so")
        whole = [*command, str(source), "-o", str(made), *settings["libraries"]]
        try:
            done = subprocess.run(whole, capture_output=True, text=True, check=False)
        except OSError as error:
            raise RuntimeError(f"{command[0]}: {error.strerror}; a compiler is needed, CXX names another") from None
        if done.returncode:
            raise RuntimeError(f"{' '.join(whole)} failed:\n{done.stderr}")
        return made.replace(folder / library.name)


def _processor() -> str:
    """The processor as -march=native sees it."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
    return platform.processor()
