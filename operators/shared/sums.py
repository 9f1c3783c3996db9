"""Sums that cancel: inputs whose large terms annul each other, so that the rounding of every partial sum shows.

All of it is drawn in the task's own type: u, v and -(u + v) are so coarse that none of them is rounded.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from operators.dtypes import DType

SMALL = 2.0**-12
"""What remains of the terms that do not cancel."""


def coarse(shape: int | tuple[int, ...], dtype: DType, rng: np.random.Generator) -> np.ndarray:
    """Values of [-1, 1], so coarse that the sum of two is a number of the type. In fp32, or fp64 for that type."""
    steps = round(0.25 / dtype.unit_roundoff)
    whole, wide = (np.int64, np.float64) if dtype.name == "fp64" else (np.int32, np.float32)
    drawn = rng.integers(-steps, steps, shape, endpoint=True, dtype=whole)
    # Exact, since it divides by a power of two.
    return np.asarray(np.multiply(drawn, wide(1 / steps), dtype=wide, casting="same_kind"))


def zero_sums(values: Tensor, dtype: DType, rng: np.random.Generator) -> Tensor:
    """Rows of terms: triples u, v, -(u + v) in any order; an eighth of them, at least one, are small."""
    return _with_triples(values, _triples(values.shape[1], rng), dtype, rng)


def zero_product(left: Tensor, right: Tensor, dtype: DType, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """left [m, k] and right [k, n] with triples of terms u y + v y - (u + v) y, whose products round differently."""
    first, second, third = triples = _triples(left.shape[1], rng)
    right = right.clone()
    right[second] = right[third] = right[first]
    return _with_triples(left, triples, dtype, rng), right


def zero_neighbours(rows: int, columns: int, dtype: DType, rng: np.random.Generator) -> Tensor:
    """A plane in which the four neighbours of every point sum to nothing. In fp32, or fp64 for that type.

    With d = i + j, e = i - j and a sign s(k) = -s(k + 2), the neighbours of a(d) s(e) + b(e) s(d) cancel for any a, b:
    above and left in a, above and right in b, and so on, so that no two of them need be equal.
    """
    count = rows + columns
    a, b = coarse((2, count + 1), dtype, rng)
    sign = np.where(np.arange(count + 1) % 4 < 2, a.dtype.type(1), a.dtype.type(-1))

    def along_d(values: np.ndarray) -> np.ndarray:
        """The value of d at every place: a view."""
        return sliding_window_view(values[: count - 1], columns)

    def along_e(values: np.ndarray) -> np.ndarray:
        """The value of e + columns."""
        return sliding_window_view(values[1:count], columns)[:, ::-1]

    plane = along_d(a) * along_e(sign)
    plane += along_e(b) * along_d(sign)
    return torch.from_numpy(plane)


def _triples(terms: int, rng: np.random.Generator) -> Tensor:
    """Places of terms [3, triples]."""
    count = max(terms - terms // 8 - 1, 0) // 3
    return torch.from_numpy(rng.permutation(terms)[: 3 * count].reshape(3, count))


def _with_triples(values: Tensor, places: Tensor, dtype: DType, rng: np.random.Generator) -> Tensor:
    changed = values * SMALL
    shape = (len(values), places.shape[1])
    u, v = (torch.from_numpy(coarse(shape, dtype, rng)) for _ in range(2))
    for place, term in zip(places, (u, v, -(u + v)), strict=True):
        changed.index_copy_(1, place, term.to(values.dtype))
    return changed
