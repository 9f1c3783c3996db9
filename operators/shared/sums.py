"""Sums that cancel: inputs whose large terms annul each other, so that the rounding of every partial sum shows.

All of it is drawn in the task's own type: u, v and -(u + v) are so coarse that none of them is rounded.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators import drawing
from operators.dtypes import DType

SMALL = 2.0**-12
"""Remainder of the terms that do not cancel."""


def coarse(shape: int | tuple[int, ...], dtype: DType, rng: np.random.Generator, device: torch.device) -> Tensor:
    """Values of [-1, 1], so coarse that the sum of two is a number of the type. In fp32, or fp64 for that type."""
    steps = round(0.25 / dtype.unit_roundoff)
    whole, wide = (torch.int64, torch.float64) if dtype.name == "fp64" else (torch.int32, torch.float32)
    # Exact, since it divides by a power of two.
    return drawing.integers(-steps, steps, shape, rng, device, dtype=whole).to(wide).mul_(1 / steps)


def zero_sums(values: Tensor, dtype: DType, rng: np.random.Generator) -> Tensor:
    """Rows of terms: triples u, v, -(u + v) in any order; an eighth of them, at least one, are small."""
    return _with_triples(values, _triples(values.shape[1], rng, values.device), dtype, rng)


def zero_product(left: Tensor, right: Tensor, dtype: DType, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """left [m, k] and right [k, n] with triples of terms u y + v y - (u + v) y, whose products round differently."""
    first, second, third = triples = _triples(left.shape[1], rng, left.device)
    right = right.clone()
    right[second] = right[third] = right[first]
    return _with_triples(left, triples, dtype, rng), right


def zero_neighbours(rows: int, columns: int, dtype: DType, rng: np.random.Generator, device: torch.device) -> Tensor:
    """A plane in which the four neighbours of every point sum to nothing. In fp32, or fp64 for that type.

    With d = i + j, e = i - j and a sign s(k) = -s(k + 2), the neighbours of a(d) s(e) + b(e) s(d) cancel for any a, b:
    above and left in a, above and right in b, and so on, so that no two of them need be equal.
    """
    count = rows + columns
    a, b = coarse((2, count + 1), dtype, rng, device)
    sign = torch.where(torch.arange(count + 1, device=device) % 4 < 2, 1, -1).to(a.dtype)

    def along_d(values: Tensor) -> Tensor:
        """The value of d at every place: a view."""
        return values[: count - 1].unfold(0, columns, 1)

    def along_e(values: Tensor) -> Tensor:
        """The value of e + columns."""
        return values[1:count].flip(0).unfold(0, columns, 1).flip(0)

    plane = along_d(a) * along_e(sign)
    plane += along_e(b) * along_d(sign)
    return plane


def _triples(terms: int, rng: np.random.Generator, device: torch.device) -> Tensor:
    """Places of terms [3, triples]."""
    count = max(terms - terms // 8 - 1, 0) // 3
    return drawing.permutation(terms, rng, device)[: 3 * count].reshape(3, count)


def _with_triples(values: Tensor, places: Tensor, dtype: DType, rng: np.random.Generator) -> Tensor:
    changed = values * SMALL
    shape = (len(values), places.shape[1])
    u, v = (coarse(shape, dtype, rng, values.device) for _ in range(2))
    for place, term in zip(places, (u, v, -(u + v)), strict=True):
        changed.index_copy_(1, place, term.to(values.dtype))
    return changed
