"""Launches that may begin before the one ahead of them has ended (programmatic dependent launch)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fitness.cuda.compile.build import CudaBuild, compile_cuda
from fitness.cuda.running import launcher, runner_process
from fitness.cuda.running.arguments import program
from fitness.cuda.running.launcher import Launcher
from fitness.cuda.running.launching import ReadyLaunch
from fitness.emulator.target import emulated
from fitness.evaluation import Rejection, Status
from operators.catalog import load
from operators.kernel import Kernel
from operators.plan.reading import parse_plan
from tests.choosing import some_slow
from tests.gpu.kernels import OVERLAP, WAIT
from tests.operators.sample import FACTS

DIMS = {"rows": 4, "cols": 8}
RAW = 'asm volatile("griddepcontrol.wait;" ::: "memory");'


def test_a_launch_overlaps_only_another_of_the_same_call() -> None:
    operator = load("softmax")
    source = OVERLAP.replace('grid = ["rows"]', 'grid = ["rows"]\noverlap = true', 1)
    plan = parse_plan(source, operator, "cuda")
    assert [launch.overlap for launch in plan.launches] == [True, True]
    resolved = plan.resolve(operator, dtype="fp32", dims=DIMS, values={}, facts=FACTS)
    assert [step.overlap for step in resolved.steps] == [False, True]
    said = json.loads(resolved.canonical())["steps"]
    assert "overlap" not in said[0] and said[1]["overlap"], "digests of other plans are what they were"


@pytest.mark.parametrize("wait", some_slow([WAIT, RAW, "far();"], 1))
def test_it_compiles_where_it_waits_and_runs_in_emulation(wait: str) -> None:
    operator = load("softmax")
    far = f"__device__ __noinline__ void far() {{ {RAW} }}\ntemplate"
    kernel = Kernel("softmax", "cuda", OVERLAP.replace(WAIT, wait).replace("template", far, 1))
    assert isinstance(compile_cuda(kernel, operator, "bf16"), CudaBuild)
    assert not isinstance(emulated(kernel, operator, "bf16", shapes=2), Rejection)


def test_one_that_never_waits_is_refused() -> None:
    found = compile_cuda(Kernel("softmax", "cuda", OVERLAP.replace(WAIT, "")), load("softmax"), "fp32")
    assert isinstance(found, Rejection) and found.status is Status.INVALID
    assert "it may overlap the one before it, but never waits for that" in found.message


def test_the_driver_is_told_and_all_of_a_call_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import driver

    operator, told = load("softmax"), []

    def call(function: str, *arguments: Any) -> Any:
        told.append((function, arguments))
        if function == "GraphGetNodes":
            return (["a", "b"][: arguments[1]] if len(arguments) > 1 else [], 2)
        return None

    monkeypatch.setattr(launcher, "call", call)
    monkeypatch.setattr(runner_process, "call", call)
    one = Launcher.__new__(Launcher)
    one.cu, one.stream = driver, driver.CUstream(0)
    built = compile_cuda(Kernel("softmax", "cuda", OVERLAP), operator, "fp32")
    assert isinstance(built, CudaBuild)
    plan = parse_plan(OVERLAP, operator, "cuda")
    resolved = plan.resolve(operator, dtype="fp32", dims=DIMS, values={}, facts=FACTS)
    for launch in program(resolved, built.params, operator).calls:
        one.start(None, ReadyLaunch(driver, launch, [b"12345678" for _ in launch.args]))
    attributes = [[attribute.id for attribute in config.attrs] for _, (config, *_) in told]
    wanted = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    assert attributes == [[], [wanted]]
    assert told[1][1][0].attrs[0].value.programmaticStreamSerializationAllowed == 1
    told.clear()
    runner_process._join("graph")
    assert told[-1] == ("GraphAddEmptyNode", ("graph", ["a", "b"], 2))
