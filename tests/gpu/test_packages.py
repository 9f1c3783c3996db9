"""Packages of CUDA kernels where they run: right by their own test, and as fast as their verdicts."""

from __future__ import annotations

import importlib
import json
import math
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from cuda.pathfinder import find_nvidia_header_directory

from evo.evaluate import evaluate_file
from evo.packaging.package import Subject, from_file, write_package
from fitness.cuda.target import SPREAD
from fitness.oracle.inputs import draw
from operators.catalog import functions
from operators.plan.reading import parse_plan

pytestmark = [
    pytest.mark.gpu,
    # torch's own compiler imports what torch deprecates
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning"),
]

SLACK = 0.02
"""Slack beside the verdict's interval and how far one process lies off: another kernel flushes caches."""
FLUSH_BYTES = 256 << 20
ROUNDS = 30
AHEAD_CYCLES = 1_000_000
"""Cycles that the device waits, some hundred microseconds, while a call is queued."""


@pytest.mark.slow
def test_a_package_of_several_launches_is_right_and_as_fast_as_its_verdict(tmp_path: Path) -> None:
    subject = from_file("prefix_sum", "champions/h200", target="cuda")
    plan = parse_plan(subject.kernel.source, subject.operator, "cuda")
    assert plan.tune and plan.buffers and len(plan.launches) > 1
    file = tmp_path / "prefix_sum.cu"
    file.write_text(subject.kernel.source)
    levels, _ = evaluate_file(
        "prefix_sum", file, target="cuda", dtype=subject.task.dtype, values=(), workload_set="realistic"
    )
    assert levels[-1].correct, levels[-1].message
    folder = tmp_path / "prefix_sum_package"
    write_package(subject, folder)
    done = subprocess.run([sys.executable, str(folder / "test_kernel.py")], cwd="/", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for timing in levels[-1].timings:
        found_us = _time_us(folder, subject, timing.workload)
        error = 1.96 * math.hypot(timing.log_ratio_se, SPREAD.of(1000 * timing.latency_us)) + SLACK
        told = json.dumps({"workload": timing.workload, "package_us": found_us, "verdict_us": timing.latency_us})
        print(told)
        assert abs(math.log(found_us / timing.latency_us)) <= error, told


@pytest.mark.parametrize(
    ("operator", "dtype", "name"), [("prefix_sum", "fp32", "h200"), ("matrix_mul", "bf16", "h200-bf16")]
)
def test_the_launcher_in_cpp_is_right(operator: str, dtype: str, name: str, tmp_path: Path) -> None:
    """Several launches with tunables and scratch; tensor maps and clusters. With g++ and the driver, no toolkit."""
    compiler = shutil.which("g++")
    if compiler is None or torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("this needs g++ and a GPU that the cubin is for")
    torch.cuda.init()
    mapped = Path("/proc/self/maps").read_text().split()
    driver = next(word for word in mapped if Path(word).name.startswith("libcuda.so"))
    folder = tmp_path / f"{operator}_package"
    write_package(from_file(operator, f"champions/{name}", target="cuda", dtype=dtype), folder)
    headers = find_nvidia_header_directory("cudart") or "/usr/local/cuda/include"
    sources = [f"{operator}_package.cpp", "test_kernel.cpp"]
    warnings = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
    build = [compiler, "-std=c++17", *warnings, f"-isystem{headers}", *sources, driver, "-o", "test_kernel"]
    subprocess.run(build, cwd=folder / "cpp", check=True)
    done = subprocess.run(
        ["./test_kernel", "kernel.sm_90a.cubin", "cases.bin"], cwd=folder / "cpp", capture_output=True, text=True
    )
    assert done.returncode == 0 and "of what is allowed" in done.stdout, done.stdout + done.stderr
    print(done.stdout)


@pytest.mark.parametrize("kernel", ["naive", "champions/h200"])
def test_a_package_is_an_operator_of_torch_in_programs_graphs_streams_and_on_every_device(
    kernel: str, tmp_path: Path
) -> None:
    """Called by Python, and by the binding that `build()` compiles."""
    builds = kernel != "naive"  # torch knows an operator of each kernel once in a process
    folder = tmp_path / f"softmax_{'built' if builds else 'op'}_package"
    write_package(from_file("softmax", kernel, target="cuda", dtype="fp32"), folder)
    sys.path.insert(0, str(folder.parent))
    try:
        package = importlib.import_module(folder.name)
    finally:
        sys.path.remove(str(folder.parent))
    if builds:
        package.build()
    op = package.softmax

    def is_right(found: torch.Tensor, x: torch.Tensor) -> bool:
        return torch.allclose(found, torch.softmax(x, 1), atol=1e-6)

    for number in range(torch.cuda.device_count()):
        x = torch.randn(37, 130, device=f"cuda:{number}")
        assert op(x).device == x.device and is_right(op(x), x)
    x = torch.randn(64, 1000, device="cuda")
    direct = op._kernel.direct
    assert (direct is not None) == builds
    if direct is not None:
        assert is_right(direct(x), x) and is_right(package.load()(x), x)
        for other in (x.double(), x.t(), x.cpu(), x[0], x.clone().requires_grad_()):
            assert direct(other) is NotImplemented
        with ThreadPoolExecutor(4) as pool:  # threads that have no context of the GPU yet
            assert all(is_right(found, x) for found in pool.map(direct, [x] * 64))
    namespace, _, name = op.name.partition("::")
    torch.library.opcheck(getattr(getattr(torch.ops, namespace), name).default, (x,))
    compiled = torch.compile(lambda x: op(x * 2), fullgraph=True)
    assert is_right(compiled(x), x * 2)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(AHEAD_CYCLES)
        late = x + 1  # not there before the stream comes to it: what is launched elsewhere reads something else
        found = op(late)
    stream.synchronize()
    assert is_right(found, late)

    graph, held = torch.cuda.CUDAGraph(), x.clone()
    with torch.cuda.graph(graph):
        replayed = op(held)
    for _ in range(2):
        held.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
        assert is_right(replayed, held)


def _time_us(folder: Path, subject: Subject, name: str) -> float:
    """Median of calls between events, as verdicts are timed: queued before the first event, from cold caches."""
    operator = subject.operator
    workload = next(w for w in operator.workload_set("realistic") if w.name == name)
    sys.path.insert(0, str(folder.parent))
    try:
        kernel = importlib.import_module(folder.name).load()
    finally:
        sys.path.remove(str(folder.parent))
    offers, rng = functions(operator.folder), np.random.default_rng(0)
    inputs = draw(operator, offers, dims=workload.dims, dtype=subject.task.dtype, family="nominal", rng=rng)
    given = [inputs.tensors[tensor.name].cuda() for tensor in operator.inputs]
    dims = {name: int(inputs.dims[name]) for name in operator.data_dims}
    kernel(*given, **dims)
    torch.cuda.synchronize()
    flush = torch.empty(FLUSH_BYTES // 4, device="cuda")
    times_us = []
    for _ in range(ROUNDS):
        flush.fill_(0.0)
        flush.sum()  # what was written leaves the cache here, not while the kernel runs
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(AHEAD_CYCLES)
        begin.record()
        kernel(*given, **dims)
        end.record()
        torch.cuda.synchronize()
        times_us.append(1000 * begin.elapsed_time(end))
    return float(np.median(times_us))
