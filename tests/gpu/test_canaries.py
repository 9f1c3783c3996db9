"""Tricks that have to run to be found out, against the real evaluator; those that are refused need no GPU."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
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

Stages = Callable[[str], Any]


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    """An operator's stage, on small workloads; that of the last operator is closed."""
    made: dict[str, Any] = {}

    def stage(operator: str) -> Any:
        if operator not in made:
            for other in list(made):
                made.pop(other).close()
            task, folder = Task(operator, "fp32", "cuda"), tmp_path_factory.mktemp("b")
            made[operator] = fitness(load(operator), task, workload_set="cpu", folder=folder)
        return made[operator]

    yield stage
    for one in made.values():
        one.close()


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


def by_operator(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (CANARIES[name].operator, name))


@pytest.mark.parametrize("name", by_operator(name for name in RUNNING if name not in MARKS))
def test_it_comes_to_what_it_should(stages: Stages, name: str) -> None:
    canary = CANARIES[name]
    check(judged(stages(canary.operator), canary.source), canary)


@pytest.mark.parametrize("name", by_operator(TWINS))
def test_it_is_right_without_its_trick(stages: Stages, name: str) -> None:
    canary = CANARIES[name]
    found = judged(stages(canary.operator), canary.twin)
    assert found.status is Status.CORRECT, found.message


@pytest.mark.parametrize("name", by_operator(MARKS.keys() & set(RUNNING)))
def test_no_mark_is_found_and_none_is_held_against_the_next_kernel(stages: Stages, name: str) -> None:
    stage, after = stages("gelu"), Kernel("gelu", "cuda", AFTER[name.partition(" ")[0]])
    check(judged(stage, CANARIES[name].source), CANARIES[name])
    assert isinstance(stage.build(after), Built)
    assert stage.screen(after, Anchor(stage.baseline, 0.0, 0.0), race=False).status is Status.CORRECT


@pytest.mark.parametrize("name", RIGHT)
def test_what_they_are_made_of_is_right(stages: Stages, name: str) -> None:
    found = judged(stages("gelu"), RIGHT[name])
    assert found.status is Status.CORRECT, found.message


@pytest.mark.parametrize("share", [0.4, 0.8])
def test_a_clock_that_shows_a_part_of_the_time_gains_nothing(stages: Stages, share: float) -> None:
    """The case stands for a kernel that has reached the memory of the events that its process measures by."""
    stage, kernel = stages("gelu"), Kernel("gelu", "cuda", gelu("y[i] = store(right);"))
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
