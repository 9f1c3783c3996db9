"""Outputs are judged on a GPU as on a processor, at every size that a block or a grid ends at."""

from __future__ import annotations

import pytest
import torch

from fitness.cuda.oracle import MOST_BLOCKS, THREADS
from fitness.oracle.bounds import judge
from tests.cuda.test_compare import assert_same, sample

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [0, 1, THREADS, THREADS + 1, 100_000, 3 * MOST_BLOCKS * THREADS + 7])
def test_judgements_are_the_same(dtype: torch.dtype, size: int) -> None:
    for seed in range(3):
        values, expected, allowed = sample(size, seed)
        y = torch.from_numpy(values).to(dtype)
        there = [t.cuda() for t in (y, torch.from_numpy(expected), torch.from_numpy(allowed))]
        assert_same(judge(y.double().numpy(), expected, allowed), judge(*there))
