"""Words of prompts on a GPU, and the example that they show, on one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fitness.cuda.compile.nvrtc import cutlass_folders
from fitness.evaluation import Level, Status
from fitness.judging.base import Anchor, Built
from fitness.judging.levels import judge
from fitness.targets import fitness, measured_device
from mutators.prompts import informed
from operators.catalog import load
from operators.definition.spec import Task
from operators.kernel import Kernel

DATA = Path(__file__).parents[1] / "data"

pytestmark = pytest.mark.gpu


def test_the_machine_is_told_with_measured_peaks() -> None:
    device = measured_device("cuda")
    assert device.peaks and device.peaks.read_gb_s > 100 and 0 < device.peaks.empty_us < 100
    lines = informed.machine(device, "bf16")
    assert any("registers of 32 bits" in line for line in lines) and any("GB/s read" in line for line in lines)


@pytest.mark.parametrize(
    "example", [*informed.EXAMPLES["cuda"], *informed.EXAMPLES[informed.CUTE]], ids=lambda e: e.file
)
def test_the_examples_of_prompts_pass_the_whole_verdict(example: informed.Example, tmp_path: Path) -> None:
    operator = load(str(DATA / example.operator))
    if not example.fits(load("softmax"), measured_device("cuda")):
        pytest.skip(f"it needs {example.needs}")
    if "cute" in example.file and not cutlass_folders():
        pytest.skip("nvidia-cutlass is not installed")
    kernel = Kernel(operator.name, "cuda", example.source)
    stage = fitness(operator, Task(operator.name, "bf16", "cuda"), workload_set="realistic", folder=tmp_path)
    try:
        built = stage.build(kernel)
        assert isinstance(built, Built), built
        found = judge(stage, kernel, Anchor(stage.baseline, 0.0, 0.0), race=False)[-1]
    finally:
        stage.close()
    assert (found.status, found.level) == (Status.CORRECT, Level.CONFIRMED), found.message
    assert found.speedup and found.speedup > 2
