"""Judging tensors gives what judging arrays gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fitness.compare import bound, judge
from fitness.cuda import compare


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "CHUNK", 64)


@pytest.mark.parametrize("size", [0, 1, 5, 64, 1000])
@pytest.mark.parametrize("seed", range(10))
def test_judgements_are_the_same(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    expected = rng.standard_normal(size)
    allowed = np.abs(rng.standard_normal(size)) * 1e-3
    y = expected + rng.standard_normal(size) * 1e-3 * rng.choice([0.01, 0.3, 1.0])
    for values, special in (
        (expected, [np.inf, -np.inf, np.nan, 0.0]),
        (allowed, [np.inf, 0.0]),
        (y, [np.nan, np.inf]),
    ):
        for _ in range(rng.integers(4) if size else 0):
            values[rng.integers(size)] = rng.choice(special)
    for dtype in (np.float64, np.float32):
        found = y.astype(dtype)
        one = judge(found, expected, allowed)
        two = judge(*map(torch.from_numpy, (found, expected, allowed)))
        assert (one.mismatches, one.first_bad, one.independent) == (two.mismatches, two.first_bad, two.independent)
        assert two.max_ratio == pytest.approx(one.max_ratio, rel=1e-12)
        assert two.rms_ratio == pytest.approx(one.rms_ratio, rel=1e-9)


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_bounds_are_the_same(size: int) -> None:
    rng = np.random.default_rng(size)
    y = rng.standard_normal(size)
    s = np.abs(y) + rng.random(size)
    if size:
        y[0], s[-1] = np.inf, np.nan
    numbers = {
        "rounding": 1e-3, "growth": 1e-4, "eta": 1e-9, "y_limit": 2.0, "s_limit": 2.5, "usual_rounding": 1e-4,
        "usual_growth": 1e-5,
    }  # fmt: skip
    one, two = bound(y, s, **numbers), bound(torch.from_numpy(y), torch.from_numpy(s), **numbers)
    np.testing.assert_allclose(two.allowed.numpy(), one.allowed, rtol=1e-13)
    assert (two.least_rms, two.usual_rms) == pytest.approx((one.least_rms, one.usual_rms), rel=1e-9)


def test_sizes_must_agree() -> None:
    with pytest.raises(ValueError, match="3 values against 2 answers"):
        judge(torch.zeros(3), torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64))
