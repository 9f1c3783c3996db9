"""Words of verdicts: every figure has the digits that it is good for, and what is missing or unresolved says so."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitness.evaluation import interval95
from fitness.words import digits, estimate, fact, in_words, interval, of_bound, ratio, speedup, time_us


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"), (3.2e-5, "3.2e-05"), (0.00667, "0.00667"), (0.992, "0.992"), (1.0, "1.00"), (1.2, "1.20"),
        (13.99, "14.0"), (145.0, "145"), (999.7, "1000"), (2864.4, "2864"), (1e7, "1e+07"), (math.inf, "inf"),
    ],
)  # fmt: skip
def test_three_digits_are_shown(value: float, shown: str) -> None:
    assert digits(value) == shown


@given(st.floats(1e-9, 1e9))
def test_digits_are_near_enough(value: float) -> None:
    assert float(digits(value)) == pytest.approx(value, rel=5.01e-3)


def test_ratios_and_intervals() -> None:
    found = interval95(math.log(1.25), 0.02)
    assert found == pytest.approx((1.25, 1.25 * math.exp(-0.0392), 1.25 * math.exp(0.0392)))
    assert (ratio(1.25), interval(*found[1:])) == ("1.25x", "1.20 to 1.30")
    assert speedup(*found) == "1.25x (95 %: 1.20 to 1.30)"
    assert speedup(*found, ", 40 pairs") == "1.25x (95 %: 1.20 to 1.30, 40 pairs)"
    assert estimate(*found) == "1.25 (1.20 to 1.30)"
    assert estimate(*interval95(0.0, 0.0)) == "1.00"
    assert estimate(*interval95(math.log(1.02), 0.03)) == "1.02 (0.962 to 1.08, unresolved)"


def test_nothing_is_shown_as_a_dash() -> None:
    assert ratio(None) == time_us(None) == interval(None, 1.0) == interval(1.0, math.inf) == "-"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.034, "0.034 us"), (12.34, "12.3 us"), (2864.4, "2864.4 us"), (14_200.0, "14.20 ms"), (3.1e6 * 10, "31.00 s")],
)
def test_times_have_a_unit(value: float, shown: str) -> None:
    assert time_us(value) == shown


def test_other_words() -> None:
    assert in_words("compile_error") == "compile error"
    assert of_bound(0.12) == "0.120 of its bound"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, ""), ("none", ""), ([1], ""), (True, "yes"), (32, "32"), (0.5, "0.5"), ("tensor", "tensor"),
        ({"loads": 2, "stores": 0}, "loads 2"), (dict.fromkeys(map(str, range(9)), 1), ""),
    ],
)  # fmt: skip
def test_facts_that_say_nothing_are_not_told(value: object, shown: str) -> None:
    assert fact(value) == shown
