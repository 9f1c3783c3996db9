"""The statistics of comparisons between strategies."""

from __future__ import annotations

import math

import pytest

from tests.bench.arms import Score, estimate, summary


def score(strategy: str, operator: str, seed: int, speedup: float) -> Score:
    log_speedup = math.log(speedup)
    known = {"operator": operator, "strategy": strategy, "seed": seed, "log_speedup": log_speedup}
    return known | {"curve": [0.0, log_speedup / 2, log_speedup], "candidates": 10, "refuted": 0, "seconds": 1.0}


def test_the_geometric_mean_lies_in_its_intervals_and_those_over_operators_are_wider() -> None:
    found = estimate([[0.1, 0.2, 0.15], [1.1, 1.0, 1.2], [0.5, 0.6, 0.4]])
    assert found["geomean"] == pytest.approx(math.exp((0.15 + 1.1 + 0.5) / 3), rel=1e-3)
    (low, high), (low_operators, high_operators) = found["interval"], found["interval_operators"]
    assert low_operators < low < found["geomean"] < high < high_operators


def test_without_any_spread_an_interval_is_a_point() -> None:
    assert estimate([[0.0, 0.0]])["interval"] == [1.0, 1.0]


def test_strategies_are_compared_on_what_all_of_them_have_finished() -> None:
    scores = [score("a", o, n, 4.0) for o in ("x", "y") for n in range(3)]
    scores += [score("b", o, n, 2.0) for o in ("x", "y") for n in range(3) if (o, n) != ("y", 1)]
    found = summary(scores, ["a", "b"])
    assert found["seeds"] == 2
    assert found["strategies"]["a"]["geomean"] == pytest.approx(4.0, rel=1e-3)
    assert found["strategies"]["b"]["geomean_by"]["half"] == pytest.approx(math.sqrt(2.0), rel=1e-3)
    assert found["against"]["b"]["geomean"] == pytest.approx(2.0, rel=1e-3)
    assert found["against"]["b"]["wins"] == "4 of 4"
