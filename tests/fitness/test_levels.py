"""The order of a verdict's levels."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitness.evaluation import Evaluation, Level, Status
from fitness.judging.base import Anchor
from fitness.judging.levels import NEW_BEST, full_anchor, judge, next_level
from fitness.testing import ScriptedFitness
from operators.definition.spec import Task
from operators.kernel import Kernel

NAIVE, PARENT, CHILD = (Kernel("softmax", "cpu", name) for name in ("naive", "parent", "child"))
TASK = Task("softmax", "fp32", "cpu")
SEVERITY = list(Level)


def passed(level: Level, ratio: float, *, anchor: float = 0.0, se: float = 0.01) -> Evaluation:
    return Evaluation(
        CHILD.id, str(TASK), level, Status.CORRECT, "", anchor + ratio, se, PARENT.id, anchor, ratio, se
    )  # fmt: skip


def test_a_kernel_that_lost_its_race_goes_no_further_and_one_that_is_not_raced_does() -> None:
    slower = [passed(Level.SCREEN, -0.01)]
    assert next_level(slower, race=True, best=None) is None
    assert next_level(slower, race=False, best=None) is Level.FULL
    assert next_level([passed(Level.SCREEN, 0.001)], race=True, best=None) is None
    assert next_level([passed(Level.SCREEN, 0.02)], race=True, best=None) is Level.FULL


def test_only_what_a_place_hangs_on_is_measured_again() -> None:
    screened = [passed(Level.SCREEN, 0.5)]
    assert next_level(screened, race=False, best=0.6) is None
    assert next_level(screened, race=False, best=0.4) is Level.FULL
    assert next_level(screened, race=True, best=0.6) is Level.FULL


@pytest.mark.parametrize(
    ("gain", "se", "confirmed"),
    [(NEW_BEST + 0.01, 0.0, True), (NEW_BEST - 0.01, 0.0, False), (NEW_BEST + 0.01, 0.2, False), (0.5, 0.2, True)],
)
def test_only_a_clear_new_best_is_confirmed(gain: float, se: float, confirmed: bool) -> None:
    results = [passed(Level.SCREEN, 0.5), passed(Level.FULL, gain, anchor=1.0, se=se)]
    assert (next_level(results, race=True, best=1.0) is Level.CONFIRMED) == confirmed
    assert next_level(results, race=True, best=None) is Level.CONFIRMED


@pytest.mark.parametrize("level", SEVERITY)
@pytest.mark.parametrize("status", [Status.WRONG, Status.RUNTIME_ERROR, Status.QUARANTINED, Status.SLOWER])
def test_a_level_that_was_not_passed_is_the_last(level: Level, status: Status) -> None:
    assert next_level([Evaluation(CHILD.id, str(TASK), level, status)], race=False, best=None) is None


def test_where_the_baseline_stood_in_for_the_anchor_it_does_so_again() -> None:
    anchor, screened = Anchor(PARENT, 0.7, 0.01), passed(Level.SCREEN, 0.1)
    assert full_anchor(screened, anchor, NAIVE) is anchor
    assert full_anchor(replace(screened, anchor_id=NAIVE.id), anchor, NAIVE) == Anchor(NAIVE, 0.0, 0.0)


@given(
    st.one_of(st.floats(-2, 2), st.sampled_from([Status.WRONG, Status.TIMEOUT])),
    st.floats(-1, 1),
    st.booleans(),
    st.none() | st.floats(0, 2),
)
def test_levels_come_in_their_order_each_once_and_the_driver_orders_the_same(
    outcome: Status | float, known: float, race: bool, best: float | None
) -> None:
    stage, anchor = ScriptedFitness(TASK, NAIVE, lambda _: outcome), Anchor(PARENT, known, 0.01)
    results = judge(stage, CHILD, anchor, race=race, best=best)
    assert [e.level for e in results] == SEVERITY[: len(results)]
    assert all(e.correct for e in results[:-1])
    assert next_level(results, race=race, best=best) is None
    for count, found in enumerate(results):
        assert next_level(results[:count], race=race, best=best) is found.level
    if isinstance(outcome, float) and not race:
        full, confirmed = (best is None or outcome > best + least for least in (0.0, NEW_BEST))
        assert results[-1].level is (Level.CONFIRMED if confirmed else Level.FULL if full else Level.SCREEN)
