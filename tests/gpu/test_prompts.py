"""What prompts say of a GPU, and the example that they show, on one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fitness.base import Anchor
from fitness.evaluation import Level, Status
from fitness.levels import judge
from fitness.targets import fitness, measured_device
from mutators.prompts import informed
from operators.catalog import load
from operators.kernel import Kernel
from operators.spec import Task

SCORES = Path(__file__).parents[1] / "data" / "scores"

pytestmark = pytest.mark.gpu


def test_the_machine_is_told_with_measured_peaks() -> None:
    device = measured_device("cuda")
    assert device.peaks and device.peaks.read_gb_s > 100 and 0 < device.peaks.empty_us < 100
    lines = informed.machine(device, "bf16")
    assert any("registers of 32 bits" in line for line in lines) and any("GB/s read" in line for line in lines)


def test_the_example_of_prompts_passes_the_whole_verdict(tmp_path: Path) -> None:
    if not informed.example_fits(measured_device("cuda"), "cuda"):
        pytest.skip("the example is for Hopper")
    operator = load(str(SCORES))
    (example,) = informed.examples("cuda")
    kernel = Kernel("scores", "cuda", example.source)
    stage = fitness(operator, Task("scores", "bf16", "cuda"), workload_set="realistic", folder=tmp_path)
    try:
        built = stage.build(kernel)
        assert built.facts["tensor_cores"]
        found = judge(stage, kernel, Anchor(stage.baseline, 0.0, 0.0), race=False)[-1]
    finally:
        stage.close()
    assert (found.status, found.level) == (Status.CORRECT, Level.CONFIRMED), found.message
    assert found.speedup and found.speedup > 10
