"""MSKernelBench's score."""

from __future__ import annotations

import pytest

from evo.report.scoreboard import p_score
from operators.catalog import load


def test_large_sizes_weigh_more() -> None:
    operator = load("relu")
    published = [w for w in operator.workloads if w.set == "published"]
    sizes = [w.dims["n"] for w in published]
    speedups = {w.name: 1.0 for w in published}
    assert p_score(operator, speedups) == pytest.approx(1.0)
    speedups[max(published, key=lambda w: w.dims["n"]).name] = 3.0
    assert p_score(operator, speedups) == pytest.approx((sum(sizes) + 2 * max(sizes)) / sum(sizes))


def test_a_size_without_a_speedup_leaves_no_score() -> None:
    operator = load("relu")
    assert p_score(operator, {w.name: 1.0 for w in operator.workloads if w.set == "cpu"}) is None
