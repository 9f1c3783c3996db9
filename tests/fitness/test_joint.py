"""Speedups that are fitted jointly: exact where pairs agree, moved and wider where they do not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitness.evaluation import Level
from fitness.joint import MOMENTS, Pair, _least_squares, fitted, underestimate

SE = 0.01


def pair(kernel: str, anchor: str, ratio: float, level: Level = Level.FULL, se: float = SE) -> Pair:
    return Pair(kernel, anchor, level, ratio, se)


@given(st.data())
def test_positions_are_those_of_weighted_least_squares(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 12))
    real = st.floats(-2, 2)
    pairs = [
        pair(str(k), "naive" if anchor < 0 else str(anchor), data.draw(real), se=data.draw(st.floats(0.01, 0.5)))
        for k in range(size)
        for anchor in data.draw(st.lists(st.integers(-1, k - 1), min_size=1, max_size=3))
    ]
    design = np.zeros((len(pairs), size))
    for row, each in enumerate(pairs):
        design[row, int(each.kernel_id)] = 1
        if each.anchor_id != "naive":
            design[row, int(each.anchor_id)] = -1
    weights = np.diag([each.log_ratio_se**-2 for each in pairs])
    covariance = np.linalg.inv(design.T @ weights @ design)
    expected = covariance @ design.T @ weights @ [each.log_ratio for each in pairs]
    found = _least_squares({str(k): k for k in range(size)}, pairs, [each.log_ratio_se**2 for each in pairs])
    assert [found[str(k)].log_speedup for k in range(size)] == pytest.approx(expected, abs=1e-8)
    assert [found[str(k)].se for k in range(size)] == pytest.approx(np.sqrt(np.diag(covariance)))


def test_a_chain_that_nothing_contradicts_adds_up() -> None:
    found = fitted("naive", [pair("a", "naive", 1.0), pair("b", "a", 0.5), pair("c", "b", 0.25, Level.SCREEN)])
    assert {kernel: position.log_speedup for kernel, position in found.items()} == pytest.approx(
        {"a": 1.0, "b": 1.5, "c": 1.75}
    )
    assert 3**0.5 * SE < found["c"].se < 3**0.5 * np.hypot(SE, MOMENTS[-1])


def test_a_confirmation_moves_all_that_were_timed_beside_an_anchor_of_bad_seconds() -> None:
    """24.5 times as fast as the naive kernel by its first pair, 12 times in truth; three children beside it."""
    children = [pair(f"child{n}", "anchor", 0.1 * n) for n in range(3)]
    pairs = [pair("anchor", "naive", np.log(24.5)), *children]
    alone = fitted("naive", pairs)
    confirmed = fitted("naive", [*pairs, pair("child2", "naive", np.log(12.0) + 0.2, Level.CONFIRMED)])
    assert alone["child1"].log_speedup == pytest.approx(np.log(24.5) + 0.1)
    assert "child2" not in confirmed, "a confirmed kernel keeps what was measured of it"
    for kernel in ("anchor", "child0", "child1"):
        true = alone[kernel].log_speedup - np.log(24.5 / 12.0)
        assert confirmed[kernel].log_speedup < alone[kernel].log_speedup - 0.2
        assert abs(confirmed[kernel].log_speedup - true) < 1.96 * confirmed[kernel].se
    again = fitted(
        "naive", [*pairs, *(pair(f"child{n}", "naive", np.log(12.0) + 0.1 * n, Level.CONFIRMED) for n in (1, 2))]
    )
    assert again["child0"].log_speedup == pytest.approx(np.log(12.0), abs=0.05), "two agree against one"
    assert again["child0"].se < 0.05


def test_a_screening_counts_only_until_the_kernel_was_measured_in_full() -> None:
    pairs = [pair("a", "naive", 1.2, Level.SCREEN), pair("a", "naive", 1.0)]
    assert fitted("naive", pairs)["a"].log_speedup == pytest.approx(1.0)


def chains(off: float) -> list[Pair]:
    """Twelve kernels, each a child of a child of the naive one, and confirmed: off from their chains by so much."""
    return [
        each
        for n in range(12)
        for each in (
            pair(f"a{n}", "naive", 1.0, se=0.003),
            pair(f"b{n}", f"a{n}", 0.5, se=0.003),
            pair(f"b{n}", "naive", 1.5 + (-1) ** n * off, Level.CONFIRMED, se=0.003),
        )
    ]


def test_intervals_are_as_wide_as_moments_of_pairs_differ() -> None:
    """A chain of two pairs is off from its confirmation by 3 %, where each pair knows of 0.3 %; or by nothing."""
    one_more = [pair("c", "naive", 1.0, se=0.003), pair("d", "c", 0.5, se=0.003)]
    alone, quiet, apart = (fitted("naive", [*known, *one_more])["d"].se for known in ([], chains(0.0), chains(0.03)))
    assert quiet < 0.007 < alone < 0.015 < apart < 0.03
    assert fitted("naive", [*chains(0.03), *one_more])["d"].log_speedup == pytest.approx(1.5, abs=1e-6)


def test_moments_of_one_wild_pair_are_no_wider_than_the_widest_that_is_known() -> None:
    wild = [*chains(0.0), pair("w", "naive", 1.0), pair("w", "naive", 2.0, Level.CONFIRMED)]
    assert fitted("naive", [*wild, pair("c", "naive", 1.0)])["c"].se <= np.hypot(SE, MOMENTS[-1])


def test_errors_grow_with_what_pairs_disagree_by() -> None:
    assert underestimate([]) == 1
    assert underestimate([0.5, -1.0] * 50) == 1
    assert underestimate([10.0] * 30) > 5
    noisy = [
        each
        for n in range(30)
        for each in (pair(f"k{n}", "naive", 1.0, Level.SCREEN), pair(f"k{n}", "naive", 1.0 + 0.2 * (-1) ** n))
    ]
    assert fitted("naive", noisy)["k0"].se > 5 * SE


def test_a_kernel_that_nothing_connects_with_the_baseline_has_no_position() -> None:
    assert set(fitted("naive", [pair("a", "lost", 1.0), pair("b", "naive", 1.0), pair("naive", "b", -1.0)])) == {"b"}
