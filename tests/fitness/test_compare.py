"""Whole buffers against answers: the native comparison does what its description says, element by element."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitness.oracle.bounds import bound, judge
from tests.choosing import examples

NUMBERS = st.floats(-4, 4, width=32) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e30])
BOUNDS = st.sampled_from([0.0, 1e-310, 1e-3, 0.5, math.inf])


def ratio(y: float, want: float, allowed: float) -> float:
    """One element, as a person would say it."""
    if not math.isfinite(want):
        return 0.0 if y == want or (math.isnan(y) and math.isnan(want)) else math.inf
    if math.isinf(allowed) or y == want:
        return 0.0
    if allowed == 0 or not math.isfinite(y):
        return math.inf
    return abs(y - want) / allowed


@examples(60)
@given(st.data(), st.sampled_from([1, 7, 255, 256, 257, 700]), st.sampled_from([np.float32, np.float64]))
def test_every_element_counts_wherever_it_stands(data: st.DataObject, size: int, kind: type) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    want = rng.uniform(-1, 1, size).astype(np.float32).astype(np.float64)
    y, allowed = (want + rng.uniform(-1e-4, 1e-4, size)).astype(kind), np.full(size, 1e-3)
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, size - 1))
        y[place], want[place], allowed[place] = data.draw(NUMBERS), data.draw(NUMBERS), data.draw(BOUNDS)
    ratios = [ratio(*map(float, element)) for element in zip(y, want, allowed, strict=True)]
    found = judge(y, want, allowed)
    assert found.max_ratio == pytest.approx(max(ratios))
    assert found.mismatches == sum(r > 1 for r in ratios)
    assert found.first_bad == next((i for i, r in enumerate(ratios) if r > 1), None)
    squares = sum(r * r for r in ratios if math.isfinite(r))
    assert found.rms_ratio == pytest.approx(math.sqrt(squares / size))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_blocks_add_up_to_one_whole(kind: type) -> None:
    rng, size = np.random.default_rng(1), 40 * 256 + 77
    want = rng.uniform(-1, 1, size).astype(np.float32).astype(np.float64)
    y, allowed = (want + rng.uniform(-1e-4, 1e-4, size)).astype(kind), rng.uniform(1e-3, 2e-3, size)
    errors = y - want
    changes = np.count_nonzero((errors[1:] < 0) != (errors[:-1] < 0))
    found = judge(y, want, allowed)
    assert found.max_ratio == np.max(np.abs(errors) / allowed)
    assert found.rms_ratio == pytest.approx(math.sqrt(np.mean(np.square(errors / allowed))), rel=1e-12)
    assert (found.mismatches, found.first_bad, found.independent) == (0, None, min(2 * changes + 1, size))
    wrong = [255, 256, 3 * 256 + 17, size - 1]
    for count in range(len(wrong)):
        y[wrong[-1 - count]] += 1
        found = judge(y, want, allowed)
        assert (found.mismatches, found.first_bad) == (count + 1, wrong[-1 - count])


def test_independent_errors_are_told_from_those_of_whole_rows() -> None:
    rng = np.random.default_rng(0)
    want, allowed = np.zeros(20_000), np.ones(20_000)
    apart = judge(rng.uniform(-0.5, 0.5, 20_000), want, allowed)
    together = judge(np.repeat(rng.uniform(-0.5, 0.5, 20), 1000), want, allowed)
    assert 19_000 < apart.independent <= 20_000
    assert 5 < together.independent < 40
    assert judge(np.full(20_000, 0.1), want, allowed).independent == 1


def test_nothing_is_compared_with_nothing() -> None:
    found = judge(np.empty(0), np.empty(0), np.empty(0))
    assert (found.max_ratio, found.rms_ratio, found.mismatches, found.first_bad) == (0, 0, 0, None)
    with pytest.raises(ValueError, match="3 values against 2 answers and 3 bounds"):
        judge(np.zeros(3), np.zeros(2), np.zeros(3))


def test_a_bound_has_three_parts_and_gives_up_where_sums_overflow() -> None:
    y = np.array([1.0, -2.0, 0.0, 9.0, 1.0, math.inf, math.nan])
    s = np.array([3.0, 4.0, 1.0, 9.0, 1e9, math.inf, math.nan])
    found = bound(
        y, s, rounding=0.1, growth=0.01, eta=0.5, y_limit=8, s_limit=1e6, usual_rounding=0.05, usual_growth=0.002
    )
    np.testing.assert_allclose(found.allowed[:3], [0.63, 0.74, 0.51])
    assert found.allowed[3:5].tolist() == [math.inf, math.inf]
    assert found.allowed[5:].tolist() == [0.0, 0.0]
    usual = [(0.05 + 0.006) / 0.63, (0.1 + 0.008) / 0.74, 0.002 / 0.51, 0, 0, 0, 0]
    assert found.usual_rms == pytest.approx(math.sqrt(np.mean(np.square(usual))))
    least = [0.05 / 0.63, 0.1 / 0.74, 0, 0, 0, 0, 0]
    assert found.least_rms == pytest.approx(math.sqrt(np.mean(np.square(least))))


def test_bounds_of_many_elements_are_those_of_each() -> None:
    rng, size = np.random.default_rng(2), 4099
    y, s = rng.standard_normal(size), np.abs(rng.standard_normal(size))
    numbers = {"rounding": 1e-7, "growth": 1e-6, "eta": 1e-30, "y_limit": 1e38, "s_limit": 1e38}
    found = bound(y, s, **numbers, usual_rounding=5e-8, usual_growth=2e-7)
    allowed = 1e-7 * np.abs(y) + 1e-6 * s + 1e-30
    np.testing.assert_allclose(found.allowed, allowed, rtol=1e-14)
    usual = (5e-8 * np.abs(y) + 2e-7 * s) / allowed
    assert found.usual_rms == pytest.approx(math.sqrt(np.mean(np.square(usual))), rel=1e-12)
    assert found.least_rms == pytest.approx(math.sqrt(np.mean(np.square(5e-8 * np.abs(y) / allowed))), rel=1e-12)
