"""Loads this folder's kernel: `load()` returns a function over torch's tensors in main memory, or numpy's arrays.

It compiles kernel.cpp with g++ (or what the environment variable CXX names) for this machine's processor. It needs
Python 3.11 and numpy or torch. A kernel that works with threads takes as many as OpenMP gives it (OMP_NUM_THREADS).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from evo.packaging.runtime import native
from evo.packaging.runtime.loading import Numpy, Package, PackagedKernel, Torch
from fitness.judging.signature import packed
from operators.plan.reading import ResolvedPlan

LIBRARIES: Mapping[str, Callable[[], Any]] = {"numpy": Numpy, "torch": Torch}


def load(folder: str | Path | None = None) -> CpuKernel:
    """Return the kernel of this folder, or of another package's; nothing is compiled before the first call."""
    return CpuKernel(Package(Path(folder) if folder else Path(__file__).parent))


def build(folder: str | Path | None = None) -> None:
    """Compile the short way for torch's tensors, which takes half a minute once: programs use it that load the package
    from then on. It raises RuntimeError."""
    native.build(Package(Path(folder) if folder else Path(__file__).parent).folder)


class CpuKernel(PackagedKernel):
    """A kernel of the processor: a call returns when the outputs are computed."""

    def __init__(self, package: Package) -> None:
        super().__init__(package, LIBRARIES)

    @cached_property
    def _functions(self) -> dict[str, Any]:
        library = ctypes.CDLL(str(compiled(self.package)))
        return {name: getattr(library, f"evo_launch_{i}") for i, name in enumerate(self.package.params)}

    def _launcher(
        self, library: Any, device: int | str, dims: Mapping[str, int]
    ) -> tuple[ResolvedPlan, Callable[[Mapping[str, int]], object]]:
        if device != "cpu":
            raise ValueError(f"the arrays lie on {device}; the kernel runs on a processor")
        self.hand_over(library, 0, [ctypes.cast(each, ctypes.c_void_p).value or 0 for each in self._functions.values()])
        package, steps = self.package, []
        resolved = package.resolved(dims, facts())
        sizes = package.sizes(dims, resolved)
        for step in resolved.steps:
            values: list[Any] = []
            for argument, param in zip(step.args, package.params[step.kernel], strict=True):
                if argument.kind in ("tensor", "buffer"):
                    values.append(argument.name)
                else:
                    data = packed(argument, param, package.operator)
                    values.append(ctypes.create_string_buffer(data, len(data)))
            steps.append((self._functions[step.kernel], ctypes.c_void_p * max(len(values), 1), values))

        def launch(addresses: Mapping[str, int]) -> None:
            for name in resolved.zero:
                ctypes.memset(addresses[name], 0, sizes[name])
            places = {name: ctypes.c_void_p(address) for name, address in addresses.items()}
            for function, pointers, values in steps:
                function(pointers(*[ctypes.addressof(places[v] if isinstance(v, str) else v) for v in values]))

        return resolved, launch


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
    command = [*settings["flags"], "-shared"]
    said = "\0".join((os.environ.get("CXX", "g++"), *command, _processor()))
    key = hashlib.sha256(source.read_bytes() + said.encode()).hexdigest()[:24]
    library = package.folder / "cache" / f"kernel-{key}.so"
    if library.is_file():
        return library
    try:
        library.parent.mkdir(exist_ok=True)
        folder = library.parent
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="kernel-"))
    return native.compiled([*command, str(source), *settings["libraries"]], folder / library.name)


def _processor() -> str:
    """The processor as -march=native sees it."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
    return platform.processor()
