"""Tricks that have to run to be found out, against the real evaluator; those that are refused need no GPU."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

import pytest

from fitness.cuda.running.runner import CudaRunner
from fitness.evaluation import Evaluation, Level, Status
from fitness.judging.base import Anchor, Built
from fitness.judging.levels import judge
from fitness.targets import fitness
from operators.catalog import load
from operators.definition.spec import Task
from operators.kernel import Kernel
from tests.gpu.canaries import CANARIES, RIGHT, Canary, gelu
from tests.gpu.marks import AFTER, MARKS

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    made = fitness(load("gelu"), Task("gelu", "fp32", "cuda"), workload_set="cpu", folder=tmp_path_factory.mktemp("b"))
    yield made
    made.close()


def judged(stage, source: str) -> Evaluation:  # type: ignore[no-untyped-def]
    """The last level reached; a kernel that passes everything is confirmed."""
    kernel = Kernel("gelu", "cuda", source)
    built = stage.build(kernel)
    if isinstance(built, Evaluation):
        return built
    return judge(stage, kernel, Anchor(stage.baseline, 0.0, 0.0), race=False)[-1]


def running(canaries: Mapping[str, Canary]) -> list[str]:
    """Names of those that have to run."""
    return sorted(name for name, canary in canaries.items() if not canary.structural)


def check_found_out(found: Evaluation, canary: Canary) -> None:
    """It ran, and was found out in the words that it should be."""
    assert found.verdict not in (Status.CORRECT, Status.INVALID, Status.COMPILE_ERROR), (found.status, found.message)
    assert re.search(canary.says, found.message), found.message


@pytest.mark.parametrize("name", running(CANARIES))
def test_it_is_found_out(stage, name: str) -> None:  # type: ignore[no-untyped-def]
    check_found_out(judged(stage, CANARIES[name].source), CANARIES[name])


@pytest.mark.parametrize("name", running(MARKS))
def test_no_mark_is_found_and_none_is_held_against_the_next_kernel(stage, name: str) -> None:  # type: ignore[no-untyped-def]
    canary, after = MARKS[name], Kernel("gelu", "cuda", AFTER[name.partition(" ")[0]])
    found = judged(stage, canary.source)
    if not canary.says:
        assert (found.status, found.level) == (Status.CORRECT, Level.CONFIRMED), found.message
    else:
        check_found_out(found, canary)
    assert isinstance(stage.build(after), Built)
    assert stage.screen(after, Anchor(stage.baseline, 0.0, 0.0), race=False).status is Status.CORRECT


@pytest.mark.parametrize("name", RIGHT)
def test_what_they_are_made_of_is_right(stage, name: str) -> None:  # type: ignore[no-untyped-def]
    found = judged(stage, RIGHT[name])
    assert found.status is Status.CORRECT, found.message


@pytest.mark.parametrize("share", [0.4, 0.8])
def test_a_clock_that_shows_a_part_of_the_time_gains_nothing(stage, share: float) -> None:  # type: ignore[no-untyped-def]
    """The case stands for a kernel that has reached the memory of the events that its process measures by."""
    kernel = Kernel("gelu", "cuda", gelu("y[i] = store(right);"))
    ours = stage.device.prepare(kernel).build.cubin
    honest = stage.screen(kernel, Anchor(stage.baseline, 0.0, 0.0), race=False)
    run, load, liars = CudaRunner.run, CudaRunner.load, set()

    def shown(self: CudaRunner, slot: int, **how: object) -> tuple[int, int]:
        elapsed_ns, seen_ns = run(self, slot, **how)  # type: ignore[arg-type]
        return (round(share * elapsed_ns) if self in liars else elapsed_ns), seen_ns

    def loaded(self: CudaRunner, cubin: bytes, *what: object) -> None:
        load(self, cubin, *what)  # type: ignore[arg-type]
        (liars.add if cubin == ours else liars.discard)(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CudaRunner, "run", shown)
        patch.setattr(CudaRunner, "load", loaded)
        found = stage.screen(kernel, Anchor(stage.baseline, 0.0, 0.0), race=False)
    assert liars
    assert found.status in (Status.CORRECT, Status.QUARANTINED), found.message
    if found.status is Status.CORRECT:
        assert found.log_ratio - honest.log_ratio < 3 * math.hypot(found.log_ratio_se, honest.log_ratio_se)
