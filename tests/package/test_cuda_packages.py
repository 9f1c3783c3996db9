"""Packages of CUDA kernels, without a GPU: their own copy of the loader tells a driver just what the engine's does."""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evo.package.subject import Subject, from_file
from evo.package.writing import write_package
from fitness.cuda import launcher, launching
from fitness.cuda.arguments import program
from fitness.cuda.build import compile_cuda
from fitness.cuda.launcher import Launcher
from operators.dtypes import resolve_dtype
from operators.errors import UserError
from operators.kernel import Kernel
from operators.plan import parse_plan
from tests.package.fakes import FACTS, STREAM, FakeArray, FakeDriver, FakeLibrary

KERNELS = {
    "sorting": ("tunable", ""),
    "prefix_sum": ("champions/h200", ""),
    "softmax_attention": ("champions/h200-bf16", "bf16"),
    "spmv_coo": ("champions/h200-fp32", "fp32"),
}
"""Groups and tunables, scratch, tensor maps, dims that data tell, what is cleared."""


@dataclass(frozen=True)
class Packed:
    """A package, imported from where it lies."""

    subject: Subject
    folder: Path
    kernel: Any
    """Its module kernel.py."""

    def engine(self, name: str) -> Any:
        return importlib.import_module(f"{self.folder.name}.engine.{name}")


@pytest.fixture(scope="module", params=KERNELS)
def packed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Packed]:
    name, dtype = KERNELS[request.param]
    subject = from_file(request.param, name, target="cuda", dtype=dtype)
    tunables = {n: listed[-1] for n, listed in parse_plan(subject.kernel.source, subject.operator, "cuda").tune.items()}
    kernel = Kernel(subject.operator.name, "cuda", subject.kernel.source, tunables)
    subject = Subject(subject.operator, subject.task, kernel, subject.origin, subject.verdict, subject.conditions)
    folder = tmp_path_factory.mktemp("packages") / f"{request.param}_package"
    write_package(subject, folder)
    sys.path.insert(0, str(folder.parent))
    try:
        yield Packed(subject, folder, importlib.import_module(f"{folder.name}.kernel"))
    finally:
        sys.path.remove(str(folder.parent))


def test_a_package_launches_what_the_engine_launches(packed: Packed, monkeypatch: pytest.MonkeyPatch) -> None:
    operator, dtype = packed.subject.operator, packed.subject.task.dtype
    plan = parse_plan(packed.subject.kernel.source, operator, "cuda")
    built = compile_cuda(packed.subject.kernel, operator, dtype)
    compared = 0
    for workload in (*operator.hidden, *operator.workloads):
        dims = {**workload.dims, **dict.fromkeys(operator.data_dims, 5)}
        if not plan.supports(operator, dims, packed.subject.kernel.values, FACTS, dtype):
            continue
        arrays = _arrays(operator, dtype, dims)
        ours, scratch = _told_by_package(packed, arrays, dims, monkeypatch)
        occupancy = {}
        asked = FakeDriver()
        settings = {"dtype": dtype, "dims": dims, "values": packed.subject.kernel.values, "facts": FACTS}
        for step in plan.resolve(operator, **settings, occupancy=dict.fromkeys(plan.occupancy_kernels, 1)).steps:
            threads = math.prod(step.block)
            blocks = asked.call("OccupancyMaxActiveBlocksPerMultiprocessor", step.kernel, threads, 0)
            occupancy[step.kernel] = min(blocks, occupancy.get(step.kernel, blocks))
        resolved = plan.resolve(operator, **settings, occupancy=occupancy)
        addresses = {name: array.address for name, array in arrays.items()} | scratch
        sizes = {n: resolve_dtype(a.dtype, dtype).size * math.prod(a.shape) for n, a in arrays.items()}
        sizes |= {buffer.name: buffer.bytes for buffer in resolved.buffers}
        engine = FakeDriver()
        with monkeypatch.context() as patch:
            engine.use_in(patch, launcher, launching)
            runner = _launcher(built.lowered)
            runner.enqueue(program(resolved, built.params, operator), addresses, sizes)
        assert ours == engine.told, workload.name
        assert any(told[0] in built.lowered for told in ours)
        compared += 1
    assert compared >= 4


def _launcher(names: Any) -> Launcher:
    runner = Launcher.__new__(Launcher)
    from cuda.bindings import driver

    runner.cu, runner.stream, runner.functions = driver, STREAM, {name: name for name in names}
    return runner


def _arrays(operator: Any, dtype: str, dims: dict[str, int]) -> dict[str, FakeArray]:
    env = operator.environment(dims)
    return {
        tensor.name: FakeArray(resolve_dtype(tensor.dtype, dtype).name, tensor.sizes(env), (number + 1) << 42)
        for number, tensor in enumerate(operator.tensors)
    }


def _told_by_package(
    packed: Packed, arrays: dict[str, FakeArray], dims: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Any], dict[str, int]]:
    """What the package's loader tells the driver, and where it put its scratch."""
    operator = packed.subject.operator
    driver = FakeDriver()
    library = FakeLibrary(packed.engine("fitness.package.loading").View)
    kernel = packed.kernel.load()
    from cuda.bindings import driver as bindings

    loaded = packed.kernel.Loaded.__new__(packed.kernel.Loaded)
    loaded.cu, loaded.facts, loaded._context = bindings, FACTS, None
    loaded.functions = {name: name for name in kernel.package.params}
    kernel._loaded[0] = loaded
    with monkeypatch.context() as patch:
        driver.use_in(patch, packed.kernel, packed.engine("fitness.cuda.launching"))
        patch.setattr(packed.kernel, "library_of", lambda *_: library)
        out = [arrays[tensor.name] for tensor in operator.outputs if tensor.role == "out"]
        kernel(*(arrays[tensor.name] for tensor in operator.inputs), out=out, **dims)
    buffers = [buffer.name for buffer in kernel.package.plan.buffers]
    return driver.told, {name: (1 << 50) + ((n + 1) << 40) for n, name in enumerate(buffers)}


def test_the_code_compiles_alone(packed: Packed) -> None:
    source = (packed.folder / "kernel.cu").read_bytes()
    cubin, symbols = packed.kernel.compile_source(packed.kernel.load().package, source, "sm_90a")
    assert cubin[:4] == b"\x7fELF"
    assert symbols == json.loads((packed.folder / "plan.json").read_text())["symbols"]


def test_wrong_arrays_are_refused_in_one_line(packed: Packed, monkeypatch: pytest.MonkeyPatch) -> None:
    operator, dtype = packed.subject.operator, packed.subject.task.dtype
    workload = operator.hidden[-1]
    dims = {**workload.dims, **dict.fromkeys(operator.data_dims, 5)}
    right = _arrays(operator, dtype, dims)
    first = operator.inputs[0].name
    one = right[first]
    wrong = {
        "holds fp64": FakeArray("fp64", one.shape, one.address),
        "not contiguous": FakeArray(one.dtype, one.shape, one.address, contiguous=False),
        "multiple of 16": FakeArray(one.dtype, one.shape, one.address + 4),
        "axes": FakeArray(one.dtype, (*one.shape, 1), one.address),
        "shares memory": FakeArray(one.dtype, one.shape, right[operator.outputs[0].name].address),
    }
    for said, array in wrong.items():
        if said == "shares memory" and operator.outputs[0].role == "inout":
            continue
        with pytest.raises(ValueError, match=said):
            _told_by_package(packed, {**right, first: array}, dims, monkeypatch)


def test_nothing_is_overwritten(packed: Packed) -> None:
    before = sorted(path.name for path in packed.folder.parent.iterdir())
    with pytest.raises(UserError, match="is there already"):
        write_package(packed.subject, packed.folder)
    assert sorted(path.name for path in packed.folder.parent.iterdir()) == before
