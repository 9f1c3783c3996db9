"""The cuda target on a real GPU: verdicts, everything a plan can say, and what becomes of kernels that misbehave."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from fitness.cuda import gpu
from fitness.cuda.compile.nvrtc import cutlass_folders
from fitness.cuda.running.library_process import QueuedCall
from fitness.evaluation import Evaluation, Level, Status
from fitness.judging import library
from fitness.judging.base import Anchor, Built
from fitness.judging.levels import judge
from fitness.judging.paired import LIBRARY_PAIRS
from fitness.judging.pipeline import Pipeline
from fitness.targets import fitness
from operators.catalog import folders, load
from operators.definition.spec import Task
from operators.kernel import Kernel
from tests.conftest import DATA
from tests.gpu.kernels import EXAMPLES, FAULTS, FEATURES, NOMINAL_ALONE, OUTLIVED, OUTLIVED_NS, REJECTED, ROWS, SOFTMAX
from tests.gpu.processes import kill, runners

pytestmark = pytest.mark.gpu
HOST_MS = 4


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """Fitness stages by operator and dtype, on small workloads; each keeps some processes."""
    folder, made = tmp_path_factory.mktemp("build"), {}

    def stage(name: str, dtype: str) -> object:
        if (name, dtype) not in made:
            if len(made) > 2:
                made.pop(next(iter(made))).close()
            task = Task(name, dtype, "cuda")
            made[name, dtype] = fitness(load(name), task, workload_set="cpu", folder=folder)
        return made[name, dtype]

    yield stage
    for one in made.values():
        one.close()


@lru_cache
def naive(name: str) -> Kernel:
    return Kernel(name, "cuda", load(name).ancestor("naive", "cuda").read_text())


def judged(stages, name: str, dtype: str, source: str, *, until: Level = Level.FULL) -> Evaluation:  # type: ignore[no-untyped-def]
    """The last level that a kernel reached, confirmed only if `until` says so."""
    stage, kernel = stages(name, dtype), Kernel(name, "cuda", source)
    built = stage.build(kernel)
    if isinstance(built, Evaluation):
        return built
    return judge(stage, kernel, Anchor(naive(name), 0.0, 0.0), race=False, until=until)[-1]


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", sorted(folders()))
def test_every_naive_kernel_is_correct_and_as_fast_as_itself(stages, name: str, dtype: str) -> None:  # type: ignore[no-untyped-def]
    found = judged(stages, name, dtype, naive(name).source)
    assert (found.status, found.level) == (Status.CORRECT, Level.FULL), found.message
    assert abs(found.log_ratio) < 0.2  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(("name", "feature"), [(name, f) for name, kernels in FEATURES.items() for f in kernels])
def test_all_that_a_plan_can_say(stages, name: str, feature: str, dtype: str) -> None:  # type: ignore[no-untyped-def]
    found = judged(stages, name, dtype, FEATURES[name][feature])
    assert (found.status, found.level) == (Status.CORRECT, Level.FULL), found.message


def test_no_launch_outlives_its_measurement(stages) -> None:  # type: ignore[no-untyped-def]
    found = judged(stages, "relu", "fp32", OUTLIVED)
    assert (found.status, found.level) == (Status.CORRECT, Level.FULL), found.message
    assert min(timing.latency_us for timing in found.timings) > 0.95e-3 * OUTLIVED_NS


def test_a_gain_that_nominal_inputs_alone_have_is_flagged(stages) -> None:  # type: ignore[no-untyped-def]
    found = judged(stages, "relu", "fp32", NOMINAL_ALONE, until=Level.CONFIRMED)
    assert (found.status, found.level) == (Status.CORRECT, Level.CONFIRMED), found.message
    assert any("times less on" in reason for reason in found.facts["flagged"])


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_examples_for_tensor_cores_pass_the_whole_verdict(stages, name: str) -> None:  # type: ignore[no-untyped-def]
    if name == "cute" and not cutlass_folders():
        pytest.skip("nvidia-cutlass is not installed")
    found = judged(stages, "matrix_mul", "bf16", EXAMPLES[name].read_text(), until=Level.CONFIRMED)
    assert (found.status, found.level) == (Status.CORRECT, Level.CONFIRMED), found.message
    assert found.facts["tensor_cores"]


def test_where_emulation_cannot_go_a_spot_check_tells_right_from_wrong(stages) -> None:  # type: ignore[no-untyped-def]
    stage, source = stages("matrix_mul", "bf16"), EXAMPLES["wgmma"].read_text()
    mistake = source.replace("= store(d[i]);", "= store(d[i ^ 1]);")
    assert mistake != source and stage.emulate(Kernel("matrix_mul", "cuda", source)).lack
    right, wrong = (stage.spot_check(Kernel("matrix_mul", "cuda", text)) for text in (source, mistake))
    assert right.rejection is None and right.errors, right.rejection
    assert wrong.rejection and wrong.rejection.status is Status.WRONG and "c" in wrong.rejection.message


def test_a_better_kernel_is_confirmed_by_a_second_measurement(stages) -> None:  # type: ignore[no-untyped-def]
    stage, kernel = stages("softmax", "fp32"), Kernel("softmax", "cuda", SOFTMAX)
    assert isinstance(stage.build(kernel), Built)
    levels = judge(stage, kernel, Anchor(naive("softmax"), 0.0, 0.0), race=True)
    assert [e.level for e in levels] == [Level.SCREEN, Level.FULL, Level.CONFIRMED], levels[-1].message
    assert all(e.status is Status.CORRECT for e in levels), levels[-1].message
    assert levels[-1].log_speedup > np.log(2)
    assert abs(levels[-1].log_speedup - levels[0].log_speedup) < 0.2


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_what_misbehaves_gets_a_status_and_harms_nobody_else(stages, fault: str) -> None:  # type: ignore[no-untyped-def]
    body, status, text = FAULTS[fault]
    found = judged(stages, "softmax", "fp32", ROWS + body + "}\n")
    assert (found.status, text in found.message) == (Status(status), True), found
    assert judged(stages, "softmax", "fp32", SOFTMAX).status is Status.CORRECT


@pytest.mark.parametrize("case", sorted(REJECTED))
def test_state_and_the_devices_runtime_are_refused_before_anything_runs(stages, case: str) -> None:  # type: ignore[no-untyped-def]
    before, body, text = REJECTED[case]
    found = judged(stages, "softmax", "fp32", ROWS.replace('extern "C"', before + 'extern "C"') + body + "}\n")
    assert found.status is Status.INVALID
    assert text in found.message


def test_more_threads_than_registers_allow(stages) -> None:  # type: ignore[no-untyped-def]
    load_all = '    _Pragma("unroll") for (int i = 0; i < 99; i++) v[i] = load(in[i % cols]);\n    __syncthreads();\n'
    store_all = '    _Pragma("unroll") for (int i = 0; i < 99; i++) out[i % cols] = store(v[i] * v[(i * 37) % 99]);\n'
    source = ROWS.replace("[256]", "[1024]") + "    float v[99];\n" + load_all + store_all + "}\n"
    found = judged(stages, "softmax", "fp32", source)
    assert found.status is Status.RUNTIME_ERROR
    assert "more registers or shared memory than a block can have" in found.message


@pytest.mark.parametrize("after_s", [0.02, 0.1, 0.2, 0.4])
def test_who_kills_its_processes_does_not_make_a_right_kernel_wrong(stages, after_s: float) -> None:  # type: ignore[no-untyped-def]
    judged(stages, "softmax", "fp32", SOFTMAX)
    murder = threading.Timer(after_s, lambda: kill(runners()))
    murder.start()
    found = judged(stages, "softmax", "fp32", SOFTMAX)
    murder.join()
    assert found.status is Status.CORRECT, found.message


def test_a_confirmation_times_the_library_beside_the_kernel(stages) -> None:  # type: ignore[no-untyped-def]
    stage = stages("softmax", "fp32")
    found = judge(stage, stage.baseline, Anchor(stage.baseline, 0.0, 0.0), race=False)[-1]
    assert (found.level, found.status, found.library_lack) == (Level.CONFIRMED, Status.CORRECT, "")
    assert [t.workload for t in found.library_timings] == [t.workload for t in found.timings]
    assert all(t.anchor_latency_us > 0 and t.pairs >= LIBRARY_PAIRS.start for t in found.library_timings)


def test_a_call_that_the_host_queues_late_has_the_time_of_the_device_alone() -> None:
    import torch

    data = torch.ones(1 << 20, device="cuda")

    def slow() -> torch.Tensor:
        time.sleep(1e-3 * HOST_MS)
        return data + 1

    launch, elapsed_ns = QueuedCall(slow, None), None
    while elapsed_ns is None:
        _, elapsed_ns = launch.timed()
    assert 0 < elapsed_ns < 1e6 * HOST_MS / 2


EACH_ITS_OWN = """
import torch
from operators.libraries import call

def quick_on(wanted):
    def added(x, b, alpha):
        if not wanted(len(x)):
            torch.cuda._sleep(2_000_000)
        return b.add(x, alpha=alpha)
    return added

def small_alone(x, b, alpha):
    if len(x) > 50_000:
        raise ValueError("no kernel for it")
    return b.add(x, alpha=alpha)

LIBRARIES = (
    call("torch.wrong", lambda x, b: b + x),
    call("torch.slow", quick_on(lambda n: False)),
    call("torch.small", small_alone),
    call("torch.large", quick_on(lambda n: n > 50_000)),
)
"""


def test_each_workload_is_timed_beside_its_fastest_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_folder", lambda: tmp_path)
    folder = shutil.copytree(DATA / "axpb", tmp_path / "axpb")
    (folder / "libraries.py").write_text(EACH_ITS_OWN)
    stage = fitness(load(str(folder)), Task("axpb", "fp32", "cuda"), workload_set="cpu", folder=tmp_path)
    assert isinstance(stage, Pipeline)
    try:
        choice = stage.bench.library.choice()
        found = stage.confirm(stage.baseline)
    finally:
        stage.close()
    assert "out of bounds" in choice.tried[0].lack and "no kernel for it" in choice.tried[2].lacks["n=100001"]
    assert choice.settled, "a call that raises does so again"
    assert (found.status, found.library_lack) == (Status.CORRECT, "")
    told = [(t.workload, t.library) for t in found.library_timings]
    assert told == [("n=40000", "torch.small"), ("n=100001", "torch.large")]


WITHOUT_MANNERS = """
import os
import torch
from operators.libraries import call

class Beyond:
    def __init__(self, address):
        self.__cuda_array_interface__ = {"shape": (1 << 20,), "typestr": "|u1", "data": (address, False), "version": 3}

def overruns(x, b, alpha):
    own = torch.empty(512, dtype=torch.uint8, device="cuda")
    torch.as_tensor(Beyond(own.data_ptr()), device="cuda").fill_(0x7C)
    return b.add(x, alpha=alpha)

def overwrites(x, b, alpha):
    return b.add(x.zero_(), alpha=alpha)

def aborts(x, b):
    os.abort()

LIBRARIES = (
    call("torch.aborts", aborts),
    call("torch.overwrites", overwrites),
    call("torch.overruns", overruns),
    call("torch.add", lambda x, b, alpha: b.add(x, alpha=alpha)),
)
"""


def test_a_call_reaches_nothing_of_the_verifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan that torch.compile made wrote beyond its scratch memory once, over error bounds of the verifier."""
    monkeypatch.setattr(library, "_folder", lambda: tmp_path)
    folder = shutil.copytree(DATA / "axpb", tmp_path / "axpb")
    (folder / "libraries.py").write_text(WITHOUT_MANNERS)
    stage = fitness(load(str(folder)), Task("axpb", "fp32", "cuda"), workload_set="cpu", folder=tmp_path)
    assert isinstance(stage, Pipeline)
    try:
        tried = {trial.name: trial for trial in stage.bench.library.choice().tried}
        found = stage.confirm(stage.baseline)
    finally:
        stage.close()
    assert "its process ended with code -6" in tried["torch.aborts"].left_out
    assert "illegal memory access" in tried["torch.overwrites"].left_out
    assert tried["torch.add"].us and not tried["torch.add"].left_out
    assert (found.status, found.library_lack) == (Status.CORRECT, "")


def test_tasks_of_one_process_make_room_for_each_other(stages, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(gpu, "SPARE_SHARE", 1.0)
    for name in ("softmax", "gelu", "softmax"):
        found = judged(stages, name, "fp32", naive(name).source)
        assert found.status is Status.CORRECT, found.message


def test_evaluate_from_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.cu"
    file.write_text(SOFTMAX)
    command = [sys.executable, "-m", "evo.cli", "evaluate", "softmax", str(file), "--json"]
    done = subprocess.run([*command, "--workloads", "cpu"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr + done.stdout
    assert [level["status"] for level in json.loads(done.stdout)][-1] == "correct"
