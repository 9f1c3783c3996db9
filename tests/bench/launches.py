"""Microseconds per call of a kernel: of a package's loader, its operator of torch, the same compiled, what `evo put`
puts into the place of a function, that function itself, which is torch's own, and the launch alone.

    python -m tests.bench.launches FOLDER [--operator softmax] [--kernel champions/h200] [--built] [--idle]

The tensor is small, so that little but the way to the kernel is timed. On a GPU calls are timed as they are enqueued,
and a CUDA graph of the operator is replayed as the floor; each result is compared with torch's own first. The raw
launch is `torch.empty_like` and `cuLaunchKernelEx`, called by Python for one known shape, with nothing looked at.
`--built` has the packages' bindings to torch compiled first, which takes a minute. Torch's own function is timed under
torch.compile too, the floor of what that can be. `--idle` times what Python does for a CUDA package where there is no
GPU: the tensors lie in main memory, the driver does nothing, and the clock is the thread's own, which stands while
others use its core.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from cuda.bindings import driver

from evo.packaging.package import Subject, from_file, write_package
from evo.packaging.runtime.loading import TORCH_TYPES, Package
from evo.packaging.runtime.on_cuda import Loaded
from evo.repository.put import Put, place_of
from fitness.cuda.running.arguments import program
from fitness.cuda.running.launching import ReadyLaunch
from operators.catalog import load
from operators.definition.spec import Operator
from operators.dtypes import resolve_dtype
from operators.importing.folder import CALL, ORIGIN
from operators.importing.needed import source_digest

CALLS, ROUNDS, SIZE = 200, 20, 64
OWN = {
    "softmax": "torch.softmax(x, 1)",
    "relu": "torch.relu(x)",
    "gelu": "torch.nn.functional.gelu(x)",
    "layer_norm": "torch.nn.functional.layer_norm(x, x.shape[1:], weight, bias)",
}
"""Torch's own functions, by operator, of its inputs."""


def timed(call: Callable[[], Any], wait: Callable[[], None], clock: Callable[[], float]) -> tuple[float, float]:
    """Microseconds of a call: the median of rounds, and the fastest of them, which a busy machine disturbs least."""
    found = []
    for _ in range(ROUNDS):
        wait()
        began = clock()
        for _ in range(CALLS):
            call()
        found.append(1e6 * (clock() - began) / CALLS)
        wait()
    return median(found), min(found)


def put_place(subject: Subject, folder: Path) -> str:
    """Put the kernel into the place of torch's own function, as `evo put` does, and return the module's name."""
    name, dtype = subject.operator.name, subject.task.dtype
    made, module = folder / "operator" / name, f"{name}_user"
    shutil.copytree(subject.operator.folder, made)
    (made / ORIGIN).mkdir(exist_ok=True)
    file, inputs = folder / f"{module}.py", [tensor.name for tensor in subject.operator.inputs]
    file.write_text(f"import torch\n\n\ndef {name}({', '.join(inputs)}):\n    return {OWN[name]}\n")
    told = {
        tensor.name: {
            "shape": [SIZE] * len(tensor.shape),
            "dtype": TORCH_TYPES[resolve_dtype(tensor.dtype, dtype).name],
            "device": subject.task.target,
        }
        for tensor in subject.operator.inputs
    }
    call = {"arguments": told, "keyword_only": []}
    way: dict[str, Any] = {
        "into": f"{file}:{name}",
        "source": source_digest(file, name),
        "arguments": inputs,
        "bool": [],
    }
    way |= {
        "inputs": {each: ["input", at] for at, each in enumerate(inputs)},
        "returned": subject.operator.outputs[0].name,
    }
    way |= {"workloads": [[dict.fromkeys(subject.operator.dims, SIZE), call]]}
    (made / ORIGIN / CALL).write_text(json.dumps(way))
    workload = ",".join(f"{dim}={SIZE}" for dim in subject.operator.dims)
    timing = dict.fromkeys(("latency_us", "anchor_latency_us", "log_ratio_se"), 1.0) | {"log_ratio": 0.0, "pairs": 3}
    verdict = {"status": "correct", "level": "confirmed", "timings": [{"workload": workload, **timing}]}
    gpus = [torch.cuda.get_device_name()] if torch.cuda.is_available() else []
    subject = replace(subject, operator=load(str(made)), verdict=verdict, conditions={"gpus": gpus})
    Put(subject, place_of(subject, "")).begin()
    return module


def raw_launch(folder: Path, inputs: Sequence[torch.Tensor]) -> Callable[[], torch.Tensor]:
    """A call that launches a package's kernel on these inputs, into a new output of the first one's form.

    Its plan must be one launch, without scratch or tensor maps.
    """
    package, index = Package(folder), inputs[0].device.index
    loaded, operator = Loaded(package, index), package.operator
    dims = package.dims({t.name: each.shape for t, each in zip(operator.inputs, inputs, strict=True)}, {})
    resolved = package.resolved(dims, loaded.facts, loaded.occupancy)
    (wanted,) = program(resolved, package.params, operator).calls
    (output,) = operator.outputs
    places = {("buffer", tensor.name): ctypes.c_uint64() for tensor in operator.tensors}
    for tensor, each in zip(operator.inputs, inputs, strict=True):
        places["buffer", tensor.name].value = each.data_ptr()
    values = [value if isinstance(value, bytes) else places[value] for value in wanted.args]
    ready = ReadyLaunch(driver, wanted, values, torch.cuda.current_stream().cuda_stream)
    config, function, arguments = ready.config, loaded.functions[wanted.kernel], ready.arguments.address
    place, like, launch = places["buffer", output.name], inputs[0], driver.cuLaunchKernelEx

    def call() -> torch.Tensor:
        made = torch.empty_like(like)
        place.value = made.data_ptr()
        launch(config, function, arguments, 0)
        return made

    return call


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
    """Have the package of this name take tensors in main memory for a GPU's, and talk to an IdleDriver.

    The same of its dispatch, where it is one that `evo put` wrote.
    """
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
    parser.add_argument("--built", action="store_true")
    parser.add_argument("--idle", action="store_true")
    asked = parser.parse_args()
    place = "cpu" if asked.idle else asked.target
    target = "cuda" if asked.idle else asked.target
    subject = from_file(asked.operator, asked.kernel, target=target, dtype=asked.dtype)
    folder = asked.folder / f"{asked.operator}_launches"
    write_package(subject, folder)
    user = put_place(subject, asked.folder)
    sys.path.insert(0, str(asked.folder))
    package = importlib.import_module(folder.name)
    if asked.idle:
        make_idle(folder.name)
        written = asked.folder / f"{asked.operator}_kernel" / "dispatch.py"
        written.write_text(written.read_text().replace('"cuda"', '"cpu"'))
        make_idle(written.parent.name)
    if asked.built:
        package.build()
        importlib.import_module(f"{asked.operator}_kernel.kernel").build()
    wait = torch.cuda.synchronize if place == "cuda" else lambda: None
    inputs = made_inputs(subject.operator, asked.dtype, place)
    loader, op = package.load(), getattr(package, asked.operator)
    put = getattr(importlib.import_module(user), asked.operator)
    own, dispatch = put.__wrapped__, put.__globals__
    if asked.idle:
        dispatch["judged_on"] = lambda index: True
    with torch.no_grad():
        dispatch["COUNTING"] = "here"
        put(*inputs)
        dispatch["COUNTING"] = ""
    assert dispatch["COUNTS"]["kernel"] == 1, "the kernel does not serve the call"
    compiled, own_compiled = (torch.compile(each, fullgraph=True) for each in (op, own))
    ways = {"loader": loader, "torch.ops": op, "evo put": put, "torch's own": own}
    ways |= {"torch.compile": compiled, "own, compiled": own_compiled}
    calls: dict[str, Callable[[], Any]] = {name: partial(way, *inputs) for name, way in ways.items()}
    wanted = own(*inputs)
    if place == "cuda":
        calls["raw launch"] = raw_launch(folder, inputs)
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            op(*inputs)
        stream.synchronize()
        with torch.cuda.graph(graph):
            held = op(*inputs)
        graph.replay()
        wait()
        assert torch.allclose(held.float(), wanted.float(), atol=1e-2), "the graph"
        calls["CUDA graph"] = graph.replay
    with torch.no_grad():
        for name, call in calls.items():
            result = call()
            right = result is None or torch.allclose(result.float(), wanted.float(), atol=1e-2)
            assert right or asked.idle, name
            usual, fastest = timed(call, wait, time.thread_time if asked.idle else time.perf_counter)
            print(f"{name:<14} {usual:8.2f} us, {fastest:8.2f} at best", flush=True)


def made_inputs(operator: Operator, dtype: str, device: str) -> list[torch.Tensor]:
    """Small tensors for an operator."""
    kinds = [getattr(torch, TORCH_TYPES[resolve_dtype(tensor.dtype, dtype).name]) for tensor in operator.inputs]
    axes = [len(tensor.shape) for tensor in operator.inputs]
    return [torch.randn([SIZE] * n, device=device).to(kind) for n, kind in zip(axes, kinds, strict=True)]


if __name__ == "__main__":
    main()
