"""The statistics of paired timing, on simulated noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fitness.judging.timing import (
    CONFIRM,
    SCREEN,
    LogRatio,
    RaceResult,
    decide,
    location,
    log_ratio,
    mean,
    usually_above,
)
from tests.choosing import some_slow


def simulated_verdict(rng: np.random.Generator, true_log_ratio: float, sigma: float) -> RaceResult:
    """The result of a screening of three workloads with lognormal noise of `sigma` per pair."""
    pairs: list[list[tuple[float, float]]] = [[], [], []]
    verdict = RaceResult.OPEN
    for look in SCREEN.looks:
        for workload in pairs:
            while len(workload) < look:
                anchor = 100.0
                workload.append((anchor * math.exp(-true_log_ratio + sigma * rng.standard_normal()), anchor))
        verdict = decide(mean([log_ratio(p) for p in pairs]), SCREEN)
        if verdict is not RaceResult.OPEN:
            break
    return verdict


@pytest.mark.parametrize("sigma", some_slow([0.01, 0.05, 0.2], 1))
def test_a_kernel_against_itself_is_seldom_called_different(sigma: float) -> None:
    rng = np.random.default_rng(1)
    verdicts = [simulated_verdict(rng, 0.0, sigma) for _ in range(600)]
    false_calls = sum(v in (RaceResult.FASTER, RaceResult.SLOWER) for v in verdicts)
    assert false_calls / len(verdicts) <= 0.07  # 5 % nominal, and the noise of 600 simulations


def test_two_states_of_a_machine_make_no_difference() -> None:
    """A neighbour that comes and goes makes half of all calls 1.45 times slower."""
    rng = np.random.default_rng(5)
    false_calls = 0
    for _ in range(400):
        slow = 0.37 * rng.integers(2, size=(3, 40, 2)) + 0.01 * rng.standard_normal((3, 40, 2))
        called = False
        for look in (10, 20, 40):
            ratio = mean([log_ratio([tuple(pair) for pair in np.exp(w[:look])]) for w in slow])
            called = called or abs(ratio.value) > 2.289 * ratio.se
        false_calls += called
    assert false_calls / 400 <= 0.07


def test_the_estimate_is_that_of_wilcoxon_s_test() -> None:
    """For 10 values the 95 % interval goes from the 9th to the 47th of the 55 means of two (tables: 9 and 47)."""
    values = np.array([0.3, -1.2, 0.8, 2.1, -0.4, 1.7, 0.1, -0.9, 1.1, 0.6])
    means = sorted((a + b) / 2 for i, a in enumerate(values) for b in values[i:])
    center, se = location(values)
    assert center == pytest.approx(means[27])
    assert 1.96 * se == pytest.approx(max(means[27] - means[8], means[46] - means[27]))


def test_an_accusation_needs_many_witnesses() -> None:
    rng = np.random.default_rng(6)
    assert not usually_above(np.full(5, 1e6), 50e3)
    assert usually_above(np.full(15, 1e6), 50e3)
    honest = [usually_above(300e3 * rng.standard_cauchy(30), 0.0) for _ in range(2000)]
    assert sum(honest) <= 2


def test_a_real_difference_is_found() -> None:
    rng = np.random.default_rng(2)
    slower = [simulated_verdict(rng, -0.08, 0.05) for _ in range(200)]
    faster = [simulated_verdict(rng, 0.08, 0.05) for _ in range(200)]
    assert RaceResult.FASTER not in slower
    assert set(slower) <= {RaceResult.SLOWER, RaceResult.EQUAL}
    assert slower.count(RaceResult.SLOWER) >= 100  # the others were not worth more samples
    assert faster.count(RaceResult.FASTER) >= 190


def test_sampling_stops_where_no_gain_is_left_to_find() -> None:
    assert decide(LogRatio(-0.05, 0.024), SCREEN) is RaceResult.EQUAL  # somewhere between -10 % and +0.5 %
    assert decide(LogRatio(0.0, 0.024), SCREEN) is RaceResult.OPEN  # could still be 5 % faster


def test_the_ratio_is_positive_for_the_faster_candidate() -> None:
    assert log_ratio([(50.0, 100.0)] * 5).value == pytest.approx(math.log(2))


def test_an_outlier_barely_moves_the_ratio_or_its_error() -> None:
    rng = np.random.default_rng(3)
    clean = [(100 * math.exp(0.01 * rng.standard_normal()), 100.0) for _ in range(20)]
    dirty = [*clean[:-1], (5000.0, 100.0)]
    assert abs(log_ratio(dirty).value - log_ratio(clean).value) < 0.01
    assert log_ratio(dirty).se < 3 * log_ratio(clean).se


def test_errors_of_workloads_add_in_quadrature() -> None:
    assert mean([LogRatio(0.2, 0.03), LogRatio(0.4, 0.04)]) == LogRatio(pytest.approx(0.3), pytest.approx(0.025))


def test_a_measurement_for_the_record_does_not_stop_when_it_is_merely_decided() -> None:
    clear_but_imprecise = LogRatio(1.0, 0.1)
    assert decide(clear_but_imprecise, SCREEN) is RaceResult.FASTER
    assert decide(clear_but_imprecise, CONFIRM) is RaceResult.OPEN
    assert decide(LogRatio(1.0, 0.001), CONFIRM) is RaceResult.FASTER
