"""Additions of NVIDIA's tools on a real GPU: counters of a profile, and kernels that pass every check by luck."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from fitness.cuda.profiling.tools import find_tool
from fitness.evaluation import Evaluation, Level, Status
from fitness.judging.base import Anchor
from fitness.judging.levels import judge
from fitness.profiling.counters import METRICS
from fitness.targets import fitness
from operators.catalog import load
from operators.definition.spec import Task
from operators.kernel import Kernel
from tests.gpu.kernels import AUDITED, FEATURES, SOFTMAX, TF32_PRODUCT, TWO_LAUNCHES

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    folder, made = tmp_path_factory.mktemp("build"), {}

    def stage(name: str) -> object:
        if name not in made:
            made[name] = fitness(load(name), Task(name, "fp32", "cuda"), workload_set="cpu", folder=folder)
        return made[name]

    yield stage
    for one in made.values():
        one.close()


def confirmed(stages, name: str, source: str) -> Evaluation:  # type: ignore[no-untyped-def]
    stage, kernel = stages(name), Kernel(name, "cuda", source)
    built = stage.build(kernel)
    if isinstance(built, Evaluation):
        return built
    return judge(stage, kernel, Anchor(stage.baseline, 0.0, 0.0), race=False)[-1]


@pytest.mark.skipif(not find_tool("ncu"), reason="no ncu")
def test_every_metric_exists_on_the_device() -> None:
    chip = ["--query-metrics", "--query-metrics-mode", "base"]
    text = subprocess.run([str(find_tool("ncu")), *chip], capture_output=True, text=True, timeout=120).stdout
    known = {line.split()[0] for line in text.splitlines() if line.strip()}
    asked = {name.split(".")[0] for name in METRICS if not name.startswith("launch__")}
    assert not asked - known


@pytest.mark.skipif(not find_tool("ncu"), reason="no ncu")
@pytest.mark.parametrize("name", ["softmax", "matrix_mul"])
def test_a_profile_holds_counters_and_says_what_they_mean(stages, name: str) -> None:  # type: ignore[no-untyped-def]
    stage = stages(name)
    kernel = stage.baseline
    timings = judge(stage, kernel, Anchor(kernel, 0.0, 0.0), race=False, until=Level.FULL)[-1].timings
    profile = stage.profile(kernel, timings)
    assert {m.name for m in profile.metrics} >= set(METRICS), profile.notes
    assert profile.bottleneck
    assert "Nsight Compute" in profile.notes[0]


@pytest.mark.skipif(not find_tool("ncu"), reason="no ncu")
def test_of_a_plan_with_many_launches_each_kind_has_its_share_and_limiter(stages) -> None:  # type: ignore[no-untyped-def]
    stage = stages("fft")
    kernel = stage.baseline
    timings = judge(stage, kernel, Anchor(kernel, 0.0, 0.0), race=False, until=Level.FULL)[-1].timings
    profile = stage.profile(kernel, timings)
    told = [note for note in profile.notes if "% of the time, limited by" in note]
    assert told, profile.notes
    shares = [float(note.rpartition(":")[2].split()[0]) for note in told]
    assert shares == sorted(shares, reverse=True) and 50 < sum(shares) <= 102


CHASE = "    for (int i = 0; i < 512; i++) at = (__float_as_int(load(x[at])) & 0x7fffffff) % total;"
"""Loads of which each needs the one before, from all of the input."""
CHASING = SOFTMAX.replace(
    "    ACC largest = -INFINITY;",
    "    int total = gridDim.x * cols, at = threadIdx.x % total;\n" + CHASE + "\n    ACC largest = -INFINITY;",
).replace("out[c] = store(", "if (at != 0x7ffffffe) out[c] = store(")


@pytest.mark.skipif(not find_tool("ncu"), reason="no ncu")
def test_the_line_is_quoted_at_which_warps_wait(stages) -> None:  # type: ignore[no-untyped-def]
    stage = stages("softmax")
    kernel = Kernel("softmax", "cuda", CHASING)
    found = judge(stage, kernel, Anchor(stage.baseline, 0.0, 0.0), race=False, until=Level.FULL)[-1]
    assert found.status is Status.CORRECT, found.message
    profile = stage.profile(kernel, found.timings)
    lines = [note for note in profile.notes if note.startswith("warps wait at line ")]
    assert 1 <= len(lines) <= 3, profile.notes
    number = CHASING.split("\n").index(CHASE) + 1
    assert lines[0].startswith(f"warps wait at line {number} ("), profile.notes
    assert lines[0].endswith(f"for loads from global or local memory): {CHASE.strip()}"), profile.notes
    share, of_these = (float(part.rpartition(" ")[2].lstrip("(")) for part in lines[0].split(" %")[:2])
    assert share > 50 and of_these > 50, profile.notes


@pytest.mark.skipif(not find_tool("ncu"), reason="no ncu")
def test_of_a_plan_with_two_kernels_lines_of_both_are_quoted(stages) -> None:  # type: ignore[no-untyped-def]
    stage = stages("softmax")
    kernel = Kernel("softmax", "cuda", TWO_LAUNCHES)
    found = judge(stage, kernel, Anchor(stage.baseline, 0.0, 0.0), race=False, until=Level.FULL)[-1]
    assert found.status is Status.CORRECT, found.message
    profile = stage.profile(kernel, found.timings)
    texts = TWO_LAUNCHES.split("\n")
    lines = [note for note in profile.notes if note.startswith("warps wait at line ")]
    assert lines, profile.notes
    for line in lines:
        number = int(line.split()[4])
        assert line.endswith(f": {texts[number - 1].strip()}"), line


@pytest.mark.skipif(not find_tool("compute-sanitizer"), reason="no compute-sanitizer")
@pytest.mark.parametrize("case", sorted(AUDITED))
def test_the_sanitizer_refuses_what_passes_by_luck(stages, case: str) -> None:  # type: ignore[no-untyped-def]
    source, tool, text = AUDITED[case]
    found = confirmed(stages, "softmax", source)
    assert found.level is Level.CONFIRMED
    assert f"compute-sanitizer's {tool}" in found.message, (found.status, found.message, found.facts.get("sanitizer"))
    assert text in found.message


@pytest.mark.skipif(not find_tool("compute-sanitizer"), reason="no compute-sanitizer")
@pytest.mark.parametrize(("name", "feature"), [(name, f) for name, kernels in FEATURES.items() for f in kernels])
def test_the_sanitizer_finds_nothing_in_right_kernels(stages, name: str, feature: str) -> None:  # type: ignore[no-untyped-def]
    found = confirmed(stages, name, FEATURES[name][feature])
    assert found.status is Status.CORRECT, found.message
    assert found.facts["sanitizer"].startswith("memcheck, racecheck, synccheck, initcheck find nothing")


def test_products_of_few_digits_are_named_and_refused_where_a_task_has_more(stages) -> None:  # type: ignore[no-untyped-def]
    found = confirmed(stages, "matrix_mul", TF32_PRODUCT)
    assert (found.status, found.facts["lower_precision"]) == (Status.WRONG, "tf32 tensor cores"), found.message


def test_a_right_kernel_passes_all_of_it(stages) -> None:  # type: ignore[no-untyped-def]
    found = confirmed(stages, "softmax", SOFTMAX)
    assert (found.status, found.level) == (Status.CORRECT, Level.CONFIRMED), found.message
