"""Packages of CUDA kernels, without a GPU: their own copy of the loader tells a driver just what the engine's does."""

from __future__ import annotations

import importlib
import json
import math
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread, current_thread
from typing import Any

import pytest
from cuda.bindings import driver as bindings
from cuda.pathfinder import find_nvidia_header_directory

from evo.packaging.cpp_files import STATIC
from evo.packaging.package import Subject, from_file, write_package
from evo.packaging.runtime import on_cuda
from fitness.cuda.compile.build import CudaBuild, compile_cuda
from fitness.cuda.running import launcher
from fitness.cuda.running.arguments import program
from fitness.cuda.running.launcher import Launcher
from fitness.judging.signature import check_arguments
from operators.definition.domain import conditions
from operators.dtypes import resolve_dtype
from operators.errors import PlanError, UserError
from operators.expression import ExpressionError, parse
from operators.kernel import Kernel
from operators.plan.reading import Plan, ResolvedPlan, parse_plan
from tests.choosing import some_slow
from tests.package.fakes import FACTS, STREAM, FakeArray, FakeDriver, FakeLibrary, printed_like_cpp

SCRATCH = 1 << 50
CUDA_HEADERS = find_nvidia_header_directory("cudart")
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror")
MAIN = """
#include <cstdio>
#include <iostream>
#include <sstream>
#include "NAME.cpp"
#include "cases.hpp"
int main() {
    const auto stream = reinterpret_cast<CUstream>(77);
    const NAME::Kernel kernel = NAME::Kernel::of_image("");
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream text(line);
        std::vector<long long> words;
        for (long long word; text >> word;) words.push_back(word);
        std::vector<void*> at;
        for (std::size_t i = COUNT; i < words.size(); ++i) at.push_back(reinterpret_cast<void*>(words[i]));
        std::printf("call\\n");
        try {
            kernel.launch({DIMS}, cases::tensors(at), reinterpret_cast<void*>(1LL << 50), stream);
        } catch (const std::invalid_argument& error) {
            std::printf("refused %s\\n", error.what());
        }
    }
}
"""
KERNELS = {
    "sorting": ("tunable", ""),
    "prefix_sum": ("champions/h200", ""),
    "matrix_mul_nt": ("champions/h200-bf16", "bf16"),
    "spmv_coo": ("champions/h200-fp32", "fp32"),
    "layer_norm": (str(Path(__file__).with_name("everything.cu")), "fp32"),
}
"""Groups and tunables, scratch, tensor maps, dims that data tell, what is cleared; all that there is."""


@dataclass(frozen=True)
class Packed:
    """A package, imported from where it lies."""

    subject: Subject
    folder: Path
    kernel: Any
    """Its module kernel.py."""
    plan: Plan
    built: CudaBuild

    def engine(self, name: str) -> Any:
        return importlib.import_module(f"{self.folder.name}.engine.{name}")


@pytest.fixture(scope="module", params=some_slow(KERNELS, ["layer_norm"]))
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
        plan = parse_plan(kernel.source, subject.operator, "cuda")
        built = compile_cuda(kernel, subject.operator, dtype or subject.task.dtype)
        yield Packed(subject, folder, importlib.import_module(f"{folder.name}.kernel"), plan, built)
    finally:
        sys.path.remove(str(folder.parent))


@pytest.fixture(scope="module")
def fake_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("driver") / "libcuda.so"
    source = str(Path(__file__).with_name("fake_driver.cpp"))
    build = ["g++", "-std=c++17", "-shared", "-fPIC", f"-I{CUDA_HEADERS}", source, "-o", str(library)]
    subprocess.run(build, check=True)
    return library


@pytest.mark.slow
def test_a_package_launches_what_the_engine_launches(packed: Packed, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    for dims in _dims(packed):
        arrays = _arrays(packed, dims)
        ours, scratch = _told_by_package(packed, arrays, dims, monkeypatch)
        addresses = {name: array.address for name, array in arrays.items()} | scratch
        assert ours == _told_by_engine(packed, dims, addresses, monkeypatch), dims
        assert any(told[0] in packed.built.lowered for told in ours)
        compared += 1
    assert compared >= 4


@pytest.mark.slow
def test_the_launcher_in_cpp_launches_what_the_engine_launches(
    packed: Packed, fake_driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if packed.subject.operator.name in ("sorting", "prefix_sum"):
        pytest.skip("they have nothing that the others lack")
    calls = _dims(packed) + _others(packed)
    tried = [{name: array.address for name, array in _arrays(packed, dims).items()} for dims in calls]
    printed = _told_by_cpp(
        packed, fake_driver, tmp_path, [[*d.values(), *a.values()] for d, a in zip(calls, tried, strict=True)]
    )
    refused = 0
    for dims, addresses, told in zip(calls, tried, printed, strict=True):
        if problem := _refusal(packed, dims):
            refused += 1
            assert told and told[-1].startswith("refused"), (dims, problem)
            continue
        end = SCRATCH
        for buffer in _resolved(packed, dims).buffers:
            addresses[buffer.name] = end
            end += -(-buffer.bytes // 256) * 256
        wanted = printed_like_cpp(_told_by_engine(packed, dims, addresses, monkeypatch), packed.built.lowered)
        assert set(told) == set(wanted), dims
        ordered = [[line for line in lines if not line.startswith("map")] for lines in (told, wanted)]
        assert ordered[0] == ordered[1], dims
    assert refused < len(calls) - 4


DESCRIPTORS = """
#include <cstdio>
#include "driver.hpp"
int main() {
    evo_plan::Descriptors descriptors;
    std::vector<CUdeviceptr> found;
    for (unsigned i = 0; i < 1100; ++i) {
        CUtensorMap made = {};
        std::memcpy(&made, &i, sizeof i);
        found.push_back(descriptors.address(made));
        std::printf("%llu %llu\\n", found.back(), descriptors.address(made));
    }
}
"""


def test_descriptors_keep_their_places_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over several chunks, each where no other is and once only; the thread's mode is restored where a call fails."""
    fake = FakeDriver()
    monkeypatch.setattr(on_cuda, "call", fake.call)
    descriptors = on_cuda.Descriptors(bindings)
    made = [number.to_bytes(128, "little") for number in range(1100)]
    found = [descriptors.address(each) for each in made]
    assert {at: fake.copied[at] for at in found} == dict(zip(found, made, strict=True)) == fake.copied
    assert [descriptors.address(each) for each in made] == found

    def failing(function: str, *arguments: object) -> object:
        if function == "MemcpyHtoDAsync":
            raise RuntimeError(function)
        return fake.call(function, *arguments)

    monkeypatch.setattr(on_cuda, "call", failing)
    with pytest.raises(RuntimeError):
        descriptors.address(bytes(128)[1:] + b"1")
    assert fake.mode == bindings.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    monkeypatch.setattr(on_cuda, "call", fake.call)
    assert descriptors.address(bytes(128)[1:] + b"1") not in found


@pytest.mark.slow
def test_descriptors_keep_their_places_in_cpp(fake_driver: Path, tmp_path: Path) -> None:
    (tmp_path / "main.cpp").write_text(DESCRIPTORS)
    folders = [f"-I{folder}" for folder in (CUDA_HEADERS, STATIC, STATIC / "cuda")]
    build = ["g++", "-std=c++17", *WARNINGS, *folders, "main.cpp", str(fake_driver), f"-Wl,-rpath,{fake_driver.parent}"]
    subprocess.run([*build, "-Wno-unused-function", "-o", "main"], cwd=tmp_path, check=True)
    told = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout.splitlines()
    pairs = [line.split() for line in told]
    assert len({first for first, _ in pairs}) == len(pairs) == 1100 and all(first == again for first, again in pairs)


def _refusal(packed: Packed, dims: dict[str, int]) -> str | None:
    """Why the kernel is not launched; None where it is."""
    operator, dtype = packed.subject.operator, packed.subject.task.dtype
    try:
        known = {*operator.dims, *operator.derived}
        for condition in conditions(operator):
            if not parse(condition, known).evaluate(operator.environment(dims)):
                return condition
        if not packed.plan.supports(operator, dims, packed.subject.kernel.values, FACTS, dtype):
            return "requires"
        return check_arguments(_resolved(packed, dims), packed.built.params, operator, dtype)
    except (PlanError, ExpressionError) as error:
        return str(error)


def _others(packed: Packed) -> list[dict[str, int]]:
    """Dims that were chosen by chance, which the kernel may not serve."""
    draw, names = random.Random(7), _dims(packed)[0]
    sizes = (0, *range(1, 40), *range(40, 120, 7), 1000, 4096, 70001)
    return [
        {name: draw.choice(sizes) for name in names} for _ in range(100 if len(packed.plan.tensor_maps) == 2 else 10)
    ]


def _dims(packed: Packed) -> list[dict[str, int]]:
    """The dims of all shapes that the kernel serves."""
    operator = packed.subject.operator
    found = []
    for workload in (*operator.hidden, *operator.workloads):
        dims = {**workload.dims, **dict.fromkeys(operator.data_dims, 5)}
        found.append({name: dims[name] for name in (*operator.dims, *operator.data_dims)})
    return [dims for dims in found if _refusal(packed, dims) is None]


def _resolved(packed: Packed, dims: dict[str, int]) -> ResolvedPlan:
    plan, subject = packed.plan, packed.subject
    settings = {"dtype": subject.task.dtype, "dims": dims, "values": subject.kernel.values, "facts": FACTS}
    occupancy: dict[str, int] = {}
    asked = FakeDriver()
    for step in plan.resolve(subject.operator, **settings, occupancy=dict.fromkeys(plan.occupancy_kernels, 1)).steps:
        blocks = asked.call("OccupancyMaxActiveBlocksPerMultiprocessor", step.kernel, math.prod(step.block), 0)
        occupancy[step.kernel] = min(blocks, occupancy.get(step.kernel, blocks))
    return plan.resolve(subject.operator, **settings, occupancy=occupancy)


def _told_by_engine(
    packed: Packed, dims: dict[str, int], addresses: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> list[Any]:
    resolved, operator = _resolved(packed, dims), packed.subject.operator
    sizes = {
        n: resolve_dtype(a.dtype, packed.subject.task.dtype).size * math.prod(a.shape)
        for n, a in _arrays(packed, dims).items()
    }
    sizes |= {buffer.name: buffer.bytes for buffer in resolved.buffers}
    engine = FakeDriver(packed.built.params)
    with monkeypatch.context() as patch:
        patch.setattr(launcher, "call", engine.call)
        runner = _launcher(packed.built.lowered)
        patch.setattr(runner, "readonly", engine.readonly)
        wanted = program(resolved, packed.built.params, operator)
        runner.enqueue(wanted, addresses, sizes, runner.tensor_maps(wanted, addresses))
    return engine.told


def _told_by_cpp(packed: Packed, driver: Path, folder: Path, calls: list[list[int]]) -> list[list[str]]:
    """The driver calls of the launcher in C++ in each of some calls, whose dims and addresses these are.

    It makes tensor maps anew where it asks for the occupancy first.
    """
    name, operator = packed.folder.name, packed.subject.operator
    count = len(operator.dims) + len(operator.data_dims)
    (folder / "main.cpp").write_text(
        MAIN.replace("NAME", name)
        .replace("DIMS", ", ".join(f"words[{i}]" for i in range(count)))
        .replace("COUNT", str(count))
    )
    binary = folder / "main"
    build = [
        "g++",
        "-std=c++17",
        *WARNINGS,
        f"-I{CUDA_HEADERS}",
        f"-I{packed.folder / 'cpp'}",
        str(folder / "main.cpp"),
    ]
    subprocess.run([*build, str(driver), f"-Wl,-rpath,{driver.parent}", "-o", str(binary)], check=True)
    kernels = ((packed.built.lowered[n], packed.built.params[n]) for n in packed.built.lowered)
    sizes = "\n".join(" ".join((symbol, *(str(p.size) for p in params))) for symbol, params in kernels)
    text = "".join(" ".join(map(str, words)) + "\n" for words in calls)
    done = subprocess.run(
        [binary], input=text, capture_output=True, text=True, env={"FAKE_PARAMETERS": sizes}, check=True
    )
    return [call.splitlines() for call in done.stdout.split("call\n")[1:]]


def _launcher(names: Any) -> Launcher:
    runner = Launcher.__new__(Launcher)
    runner.cu, runner.stream, runner.functions = bindings, STREAM, {name: name for name in names}
    return runner


def _arrays(packed: Packed, dims: dict[str, int]) -> dict[str, FakeArray]:
    operator, dtype = packed.subject.operator, packed.subject.task.dtype
    env = operator.environment(dims)
    return {
        tensor.name: FakeArray(resolve_dtype(tensor.dtype, dtype).name, tensor.sizes(env), (number + 1) << 42)
        for number, tensor in enumerate(operator.tensors)
    }


def _told_by_package(
    packed: Packed,
    arrays: dict[str, FakeArray],
    dims: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
    kernel: Any = None,
) -> tuple[list[Any], dict[str, int]]:
    """The driver calls of the package's loader, which is loaded here if it is not given, and where it put its
    scratch."""
    driver = FakeDriver(packed.built.params)
    kernel = kernel or _loaded(packed)
    made = kernel._library().made
    with monkeypatch.context() as patch:
        patch.setattr(packed.kernel, "call", driver.call)
        kernel._loaded[0].descriptors = packed.kernel.Descriptors(bindings)
        _call(packed, kernel, arrays, dims)
    scratch, address = {}, (1 << 50) + ((made + 1) << 40)  # one block, whose parts begin where torch's blocks would
    for buffer in _resolved(packed, dims).buffers:
        scratch[buffer.name] = address
        address += math.ceil(buffer.bytes / 512) * 512
    return driver.told, scratch


def _call(packed: Packed, kernel: Any, arrays: dict[str, FakeArray], dims: dict[str, int]) -> None:
    operator = packed.subject.operator
    out = [arrays[tensor.name] for tensor in operator.outputs if tensor.role == "out"]
    kernel(*(arrays[tensor.name] for tensor in operator.inputs), out=out, **dims)


def _moved(arrays: dict[str, FakeArray]) -> dict[str, FakeArray]:
    """The same arrays elsewhere."""
    return {name: replace(array, address=array.address + (1 << 41)) for name, array in arrays.items()}


def _loaded(packed: Packed) -> Any:
    """The package's loader on a fake GPU, for fake arrays."""

    def launch(*arguments: Any) -> tuple[int]:
        packed.kernel.call("LaunchKernelEx", *arguments)
        return (0,)

    kernel = packed.kernel.load()
    library = FakeLibrary(packed.engine("evo.packaging.runtime.loading").ArrayForm)
    kernel._library = lambda *kinds: library
    loaded = packed.kernel.Loaded.__new__(packed.kernel.Loaded)
    loaded.cu, loaded.facts, loaded._context = bindings, FACTS, None
    loaded._current, loaded._launch = lambda: (0, None), launch
    loaded.functions = {name: name for name in kernel.package.params}
    kernel._loaded[0] = loaded
    return kernel


@pytest.mark.slow
def test_the_code_compiles_alone(packed: Packed) -> None:
    source = (packed.folder / "kernel.cu").read_bytes()
    cubin, symbols = packed.kernel.compile_source(packed.kernel.load().package, source, "sm_90a")
    assert cubin[:4] == b"\x7fELF"
    assert symbols == json.loads((packed.folder / "plan.json").read_text())["symbols"]


def test_a_plan_is_resolved_once_for_the_shapes_of_many_calls(packed: Packed, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, dims = _loaded(packed), _dims(packed)[0]
    resolved, count = kernel.package.resolved, 0

    def counted(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        return resolved(*arguments)

    monkeypatch.setattr(kernel.package, "resolved", counted)
    arrays = _arrays(packed, dims)
    for _ in range(3):
        told, scratch = _told_by_package(packed, arrays, dims, monkeypatch, kernel)
        addresses = {name: array.address for name, array in arrays.items()} | scratch
        assert told == _told_by_engine(packed, dims, addresses, monkeypatch)
        arrays = _moved(arrays)
    assert count == 1
    other = next(each for each in _dims(packed) if each != dims)
    _told_by_package(packed, _arrays(packed, other), other, monkeypatch, kernel)
    assert count == 2


def test_threads_do_not_mix_their_addresses(packed: Packed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second thread calls while the first one is at its first launch."""
    kernel, driver = _loaded(packed), FakeDriver(packed.built.params)
    tried = ((dims, _resolved(packed, dims).steps) for dims in _dims(packed))
    dims = next(dims for dims, steps in tried if any(each.kind == "tensor" for step in steps for each in step.args))
    kernel._loaded[0].descriptors = packed.kernel.Descriptors(bindings)
    arrays = {"first": _arrays(packed, dims), "second": _moved(_arrays(packed, dims))}
    threads = {
        name: Thread(target=_call, args=(packed, kernel, given, dims), name=name) for name, given in arrays.items()
    }
    told: dict[str, set[int]] = {"first": set(), "second": set()}

    def call(function: str, *arguments: Any) -> Any:
        if function == "LaunchKernelEx":
            name = current_thread().name
            if name == "first" and threads["second"].ident is None:
                threads["second"].start()
                threads["second"].join(0.2)
            told[name] |= {int.from_bytes(value, "little") for value in driver.values(arguments[1], arguments[2])}
            return None
        return driver.call(function, *arguments)

    monkeypatch.setattr(packed.kernel, "call", driver.call)
    for given in arrays.values():  # the descriptors of both are copied before
        _call(packed, kernel, given, dims)
    monkeypatch.setattr(packed.kernel, "call", call)
    threads["first"].start()
    threads["first"].join()
    threads["second"].join()
    placed = {name: {array.address for array in given.values()} for name, given in arrays.items()}
    for name, other in (("first", "second"), ("second", "first")):
        assert told[name] & placed[name] and not told[name] & placed[other]


def test_wrong_arrays_are_refused_in_one_line(packed: Packed, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = packed.subject.operator
    dims = _dims(packed)[-1]
    right = _arrays(packed, dims)
    first = operator.inputs[0].name
    one = right[first]
    kernel = _loaded(packed)
    told = [each[0] for each in _told_by_package(packed, right, dims, monkeypatch, kernel)[0]]
    wrong = {
        "holds fp64": FakeArray("fp64", one.shape, one.address),
        "not contiguous": FakeArray(one.dtype, one.shape, one.address, contiguous=False),
        "multiple of 16": FakeArray(one.dtype, one.shape, one.address + 4),
        r"has the shape \[.*, 1\], not": FakeArray(one.dtype, (*one.shape, 1), one.address),
        "shares memory": FakeArray(one.dtype, one.shape, right[operator.outputs[0].name].address),
    }
    for said, array in wrong.items():
        if said == "shares memory" and operator.outputs[0].role == "inout":
            continue
        with pytest.raises(ValueError, match=said):
            _told_by_package(packed, {**right, first: array}, dims, monkeypatch, kernel)
    with pytest.raises(ValueError, match="has the shape"):
        _told_by_package(packed, right, {**dims, operator.dims[0]: 1 + dims[operator.dims[0]]}, monkeypatch, kernel)
    assert [each[0] for each in _told_by_package(packed, right, dims, monkeypatch, kernel)[0]] == told


def test_nothing_is_overwritten(packed: Packed) -> None:
    before = sorted(path.name for path in packed.folder.parent.iterdir())
    with pytest.raises(UserError, match="is there already"):
        write_package(packed.subject, packed.folder)
    assert sorted(path.name for path in packed.folder.parent.iterdir()) == before


BOUND = """
import ctypes, importlib, json, sys
sys.path.insert(0, sys.argv[1])
import torch
native = importlib.import_module("prefix_sum_bound.engine.evo.packaging.runtime.native")
driver = ctypes.CDLL(sys.argv[2])
native.build(native.Path(sys.argv[1], "prefix_sum_bound"), include=[sys.argv[3]], link=[sys.argv[2]])
binding = native.built(native.Path(sys.argv[1], "prefix_sum_bound"))
x, functions = torch.randn(5000), []
assert binding.call(x) is NotImplemented, "nothing is loaded yet"
module = ctypes.c_void_p()
driver.cuModuleLoadData(ctypes.byref(module), b"")
for symbol in sys.argv[4:]:
    functions.append(ctypes.c_void_p())
    driver.cuModuleGetFunction(ctypes.byref(functions[-1]), module, symbol.encode())
binding.add(0, [each.value for each in functions])
wanting = torch.randn(5000, requires_grad=True)
for wrong in (x.double(), x[None], x[::2], x[1:], x.to("meta"), torch._neg_view(x), wanting):
    assert binding.call(wrong) is NotImplemented
y = binding.call(x)
assert y.shape == x.shape and y.dtype == x.dtype
driver.fflush(None)
print("addresses", x.data_ptr().to_bytes(8, "little").hex(), y.data_ptr().to_bytes(8, "little").hex())
"""


@pytest.mark.slow
@pytest.mark.long
def test_a_binding_to_torch_launches_into_the_current_stream(fake_driver: Path, tmp_path: Path) -> None:
    """It is compiled for tensors in main memory, which take the place of a GPU's."""
    folder = tmp_path / "prefix_sum_bound"
    write_package(from_file("prefix_sum", "champions/h200", target="cuda"), folder)
    device = folder / "cpp" / "device.hpp"
    text = re.sub(r"(DispatchKey::\w*?)CUDA", r"\1CPU", device.read_text())
    device.write_text(text.replace("on(int device) const {", "on(int device) const { device = 0;"))
    told = json.loads((folder / "plan.json").read_text())
    symbols = [told["symbols"][name] for name in told["params"]]
    sizes = [
        " ".join([symbol, *(str(size) for _, size, *_ in params)])
        for symbol, params in zip(symbols, told["params"].values(), strict=True)
    ]
    environment = {**os.environ, "FAKE_PARAMETERS": "\n".join(sizes)}
    arguments = [str(tmp_path), str(fake_driver), CUDA_HEADERS, *symbols]
    command = [sys.executable, "-c", BOUND, *arguments]
    done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *lines, last = done.stdout.splitlines()
    launches = [line.split() for line in lines if line.startswith("launch")]
    assert launches and all(words[9] == str(STREAM) for words in launches)
    assert set(last.split()[1:]) <= {word for words in launches for word in words}
