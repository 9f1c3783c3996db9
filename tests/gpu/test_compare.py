"""Outputs are judged on a GPU as on a processor, at every size that a block or a grid ends at."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fitness.cuda.oracle import MOST_BLOCKS, THREADS
from fitness.oracle.bounds import bound, judge
from tests.cuda.test_compare import NUMBERS, assert_same, magnitudes, sample

pytestmark = pytest.mark.gpu


SIZES = [0, 1, THREADS, THREADS + 1, 100_000, 3 * MOST_BLOCKS * THREADS + 7]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", SIZES)
def test_judgements_are_the_same(dtype: torch.dtype, size: int) -> None:
    for seed in range(3):
        values, expected, allowed = sample(size, seed)
        y = torch.from_numpy(values).to(dtype)
        there = [t.cuda() for t in (y, torch.from_numpy(expected), torch.from_numpy(allowed))]
        assert_same(judge(y.double().numpy(), expected, allowed), judge(*there))


@pytest.mark.parametrize("size", SIZES)
def test_bounds_are_the_same(size: int) -> None:
    y, s = magnitudes(size)
    one, two = bound(y, s, **NUMBERS), bound(torch.from_numpy(y).cuda(), torch.from_numpy(s).cuda(), **NUMBERS)
    np.testing.assert_allclose(two.allowed.cpu().numpy(), one.allowed, rtol=1e-13)
    assert (two.least_rms, two.usual_rms) == pytest.approx((one.least_rms, one.usual_rms), rel=1e-9)
