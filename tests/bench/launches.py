"""Microseconds per call of a package: its loader, its operator of torch, the same compiled, and torch's own function.

    python -m tests.bench.launches FOLDER [--operator softmax] [--kernel champions/h200] [--target cuda] [--idle]

The tensor is small, so that little but the way to the kernel is timed. On a GPU calls are timed as they are enqueued,
and a CUDA graph of the operator is replayed as the floor; each result is compared with torch's own first. `--idle`
times what Python does for a CUDA package where there is no GPU: the tensors lie in main memory, and the driver does
nothing.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from cuda.bindings import driver

from evo.packaging.package import from_file, write_package

CALLS, ROUNDS = 200, 20
OWN: dict[str, Callable[..., Any]] = {
    "softmax": lambda x: torch.softmax(x, 1),
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
}
"""Torch's own functions, by operator of one tensor."""


def timed(call: Callable[[], Any], wait: Callable[[], None]) -> tuple[float, float]:
    """Microseconds of a call: the median of rounds, and the fastest of them, which a busy machine disturbs least."""
    found = []
    for _ in range(ROUNDS):
        wait()
        began = time.perf_counter()
        for _ in range(CALLS):
            call()
        found.append(1e6 * (time.perf_counter() - began) / CALLS)
        wait()
    return median(found), min(found)


class IdleDriver:
    """The driver's bindings, of which every function succeeds and does nothing."""

    def __init__(self) -> None:
        self._told = {
            **dict.fromkeys(("cuDevicePrimaryCtxRetain", "cuCtxGetCurrent"), driver.CUcontext(1)),
            **dict.fromkeys(("cuDeviceGet", "cuModuleLoadData", "cuModuleGetFunction", "cuFuncGetAttribute"), 0),
            "cuDeviceGetAttribute": 132,
            "cuOccupancyMaxActiveBlocksPerMultiprocessor": 1,
        }

    def __getattr__(self, name: str) -> Any:
        if not re.match("cu[A-Z]", name):
            return getattr(driver, name)
        returned = (driver.CUresult.CUDA_SUCCESS, *([self._told[name]] if name in self._told else []))
        return lambda *arguments: returned


def make_idle(name: str) -> None:
    """Have the package of this name take tensors in main memory for a GPU's, and talk to an IdleDriver."""
    kernel, op = importlib.import_module(f"{name}.kernel"), importlib.import_module(f"{name}.torch_op")
    arrays = importlib.import_module(f"{name}.engine.evo.packaging.runtime.loading").Torch
    told, maker, idle = arrays.told, arrays.maker, IdleDriver()
    arrays.told = lambda self, form: replace(told(self, form), device=0)
    arrays.maker = lambda self, shape, dtype, device: maker(self, shape, dtype, "cpu")
    arrays.stream = lambda self, device: 1
    kernel._driver = lambda: idle
    kernel.compiled = lambda package, arch: (b"", {name: name for name in package.params})
    op.KEYS["cuda"] = "CPU"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--operator", default="softmax", choices=OWN)
    parser.add_argument("--kernel", default="naive")
    parser.add_argument("--target", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="fp32", choices=("fp32", "bf16"))
    parser.add_argument("--idle", action="store_true")
    asked = parser.parse_args()
    place = "cpu" if asked.idle else asked.target
    folder = asked.folder / f"{asked.operator}_launches"
    target = "cuda" if asked.idle else asked.target
    write_package(from_file(asked.operator, asked.kernel, target=target, dtype=asked.dtype), folder)
    sys.path.insert(0, str(folder.parent))
    package = importlib.import_module(folder.name)
    if asked.idle:
        make_idle(folder.name)
    wait = torch.cuda.synchronize if place == "cuda" else lambda: None
    x = torch.randn(64, 64, device=place).to(getattr(torch, {"fp32": "float32", "bf16": "bfloat16"}[asked.dtype]))
    loader, op, own = package.load(), getattr(package, asked.operator), OWN[asked.operator]
    calls = {"loader": lambda: loader(x), "torch.ops": lambda: op(x), "torch's own": lambda: own(x)}
    compiled = torch.compile(op, fullgraph=True)
    calls["torch.compile"] = lambda: compiled(x)
    if place == "cuda":
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            op(x)
        stream.synchronize()
        with torch.cuda.graph(graph):
            held = op(x)
        graph.replay()
        wait()
        assert torch.allclose(held.float(), own(x).float(), atol=1e-2), "the graph"
        calls["CUDA graph"] = graph.replay
    with torch.no_grad():
        for name, call in calls.items():
            result = call()
            right = result is None or torch.allclose(result.float(), own(x).float(), atol=1e-2)
            assert right or asked.idle, name
            usual, fastest = timed(call, wait)
            print(f"{name:<14} {usual:8.2f} us, {fastest:8.2f} at best", flush=True)


if __name__ == "__main__":
    main()
