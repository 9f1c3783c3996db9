"""Tricks that have to run to be found out, against the real evaluator; those that are refused need no GPU."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from fitness.cuda.running.runner import CudaRunner
from fitness.evaluation import Evaluation, Level, Status
from fitness.judging.base import Anchor, Built
from fitness.judging.levels import judge
from fitness.targets import fitness
from operators.catalog import load
from operators.definition.spec import Task
from operators.kernel import Kernel
from tests.gpu.canaries import RIGHT, Canary, gelu
from tests.gpu.every import CANARIES, RUNNING, TWINS
from tests.gpu.marks import AFTER, MARKS

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The operator's stage; tests with one operator come one after the other."""
    operator = getattr(request, "param", "gelu")
    task, folder = Task(operator, "fp32", "cuda"), tmp_path_factory.mktemp("b")
    made = fitness(load(operator), task, workload_set="cpu", folder=folder)
    yield made
    made.close()


def judged(stage: Any, source: str) -> Evaluation:
    """The last level reached; a kernel that passes everything is confirmed."""
    kernel = Kernel(stage.task.operator, "cuda", source)
    built = stage.build(kernel)
    if isinstance(built, Evaluation):
        return built
    return judge(stage, kernel, Anchor(stage.baseline, 0.0, 0.0), race=False)[-1]


def check(found: Evaluation, canary: Canary) -> None:
    """It ran, and was found out in the words that it should be; or it is right, as what it counts on never came."""
    if not canary.says:
        assert (found.status, found.level) == (Status.CORRECT, Level.CONFIRMED), found.message
    else:
        assert found.verdict not in (Status.CORRECT, Status.INVALID, Status.COMPILE_ERROR), found
        assert re.search(canary.says, found.message), found.message


def by_operator(names: Iterable[str]) -> pytest.MarkDecorator:
    cases = [pytest.param(CANARIES[name].operator, name, id=name) for name in names]
    return pytest.mark.parametrize(("stage", "name"), cases, indirect=["stage"])


@by_operator(name for name in RUNNING if name not in MARKS)
def test_it_comes_to_what_it_should(stage: Any, name: str) -> None:
    check(judged(stage, CANARIES[name].source), CANARIES[name])


@by_operator(TWINS)
def test_it_is_right_without_its_trick(stage: Any, name: str) -> None:
    found = judged(stage, CANARIES[name].twin)
    assert found.status is Status.CORRECT, found.message


@by_operator(name for name in RUNNING if name in MARKS)
def test_no_mark_is_found_and_none_is_held_against_the_next_kernel(stage: Any, name: str) -> None:
    after = Kernel("gelu", "cuda", AFTER[name.partition(" ")[0]])
    check(judged(stage, CANARIES[name].source), CANARIES[name])
    assert isinstance(stage.build(after), Built)
    assert stage.screen(after, Anchor(stage.baseline, 0.0, 0.0), race=False).status is Status.CORRECT


@pytest.mark.parametrize("name", RIGHT)
def test_what_they_are_made_of_is_right(stage: Any, name: str) -> None:
    found = judged(stage, RIGHT[name])
    assert found.status is Status.CORRECT, found.message


@pytest.mark.parametrize("share", [0.4, 0.8])
def test_a_clock_that_shows_a_part_of_the_time_gains_nothing(stage: Any, share: float) -> None:
    """As if a kernel had reached the memory of the events that its process measures by."""
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
