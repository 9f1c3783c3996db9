"""Sums that cancel: inputs whose large terms annul each other, so that the rounding of every partial sum shows.

All of it is drawn in the task's own type: u, v and -(u + v) are so coarse that none of them is rounded.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators.dtypes import DType

SMALL = 2.0**-12
"""What remains of the terms that do not cancel."""


def coarse(shape: int | tuple[int, ...], dtype: DType, rng: np.random.Generator) -> np.ndarray:
    """Values of [-0.25, 0.25]; the sum of two is a number of the type."""
    steps = round(0.25 / dtype.unit_roundoff)
    return np.asarray(rng.integers(-steps, steps, shape, endpoint=True) / steps)


def zero_sums(values: Tensor, dtype: DType, rng: np.random.Generator) -> Tensor:
    """Rows of terms: triples u, v, -(u + v) in any order; an eighth of them, at least one, are small."""
    rows, terms = values.shape
    triples = max(terms - terms // 8 - 1, 0) // 3
    first, second, third = rng.permutation(terms)[: 3 * triples].reshape(3, triples)
    u, v = coarse((rows, triples), dtype, rng), coarse((rows, triples), dtype, rng)
    changed = values.double().numpy() * SMALL
    changed[:, first], changed[:, second], changed[:, third] = u, v, -(u + v)
    return torch.from_numpy(changed).to(values.dtype)


def zero_product(left: Tensor, right: Tensor, dtype: DType, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """left [m, k] and right [k, n] with triples of terms u y + v y - (u + v) y, whose products round differently."""
    terms = left.shape[1]
    triples = max(terms - terms // 8 - 1, 0) // 3
    first, second, third = rng.permutation(terms)[: 3 * triples].reshape(3, triples)
    u, v = coarse((len(left), triples), dtype, rng), coarse((len(left), triples), dtype, rng)
    changed = left.double().numpy() * SMALL
    changed[:, first], changed[:, second], changed[:, third] = u, v, -(u + v)
    right = right.clone()
    right[second] = right[third] = right[first]
    return torch.from_numpy(changed).to(left.dtype), right
