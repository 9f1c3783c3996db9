"""Sparse matrices as lists of entries: how they are drawn, multiplied and made to cancel, whatever their format."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators import drawing
from operators.dtypes import DType
from operators.relations import Relation, permuted, scaled
from operators.shared.sums import SMALL, coarse

CHUNK = {"cpu": 1 << 24, "cuda": 1 << 27}
"""Products that are held at once; a GPU needs many columns at a time, and has the memory."""


def places(length: int, count: int, rng: np.random.Generator, family: str, device: torch.device) -> Tensor:
    """For each of `count` entries the row (or column) of `length` that it falls into.

    Uniformly random for `nominal` inputs, which are the ones that are timed. Every other family draws one of three:
    uniform, one that holds half of the entries, or a power law whose exponent varies, over rows in random order, a
    part of which stay empty.
    """
    skew = "uniform" if family == "nominal" else rng.choice(["uniform", "long row", "power law"])
    if skew == "power law":
        weights = torch.arange(1, length + 1, dtype=torch.float64, device=device) ** -rng.uniform(0.5, 1.5)
        weights[1:] *= drawing.uniform(length - 1, rng, device) < 0.8
        sums = weights.cumsum(0)
        fallen = torch.searchsorted(sums, drawing.uniform(count, rng, device) * sums[-1])
        return drawing.permutation(length, rng, device)[fallen.clamp_(max=length - 1)]
    chosen = drawing.integers(0, length - 1, count, rng, device)
    if skew == "long row":
        chosen[: count // 2] = int(rng.integers(0, length))
    return chosen


def shuffled(values: Tensor, rng: np.random.Generator) -> Tensor:
    """In any order."""
    return values[drawing.permutation(len(values), rng, values.device)]


def offsets(chosen: Tensor, length: int) -> Tensor:
    """Where the entries of each row begin once they are sorted by it; int32, one more than rows."""
    counts = torch.bincount(chosen, minlength=length)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(torch.int32)


def indices(length: int, count: int, rng: np.random.Generator, device: torch.device) -> Tensor:
    """The other coordinate: uniformly random, so that entries are unsorted and repeat."""
    return drawing.integers(0, length - 1, count, rng, device, dtype=torch.int32)


def expanded(offset: Tensor) -> Tensor:
    """The row of every entry, from offsets."""
    return torch.arange(len(offset) - 1, device=offset.device).repeat_interleave(offset.diff())


def longest(row_indices: Tensor, rows: int) -> int:
    """Entries of the longest row."""
    return int(torch.bincount(row_indices.long(), minlength=rows).max())


def product(row_indices: Tensor, col_indices: Tensor, values: Tensor, x: Tensor, rows: int) -> Tensor:
    """The matrix times a vector, or times some columns at a time of a matrix."""
    if x.ndim == 1:
        return values.new_zeros(rows).index_add_(0, row_indices, values * x[col_indices])
    y = values.new_zeros(rows, x.shape[1])
    step = max(CHUNK[values.device.type] // max(len(values), 1), 1)
    for start in range(0, x.shape[1], step):
        part = x[:, start : start + step][col_indices] * values[:, None]
        y[:, start : start + step] = values.new_zeros(rows, part.shape[1]).index_add_(0, row_indices, part)
    return y


def zero_rows(row_indices: Tensor, values: Tensor, dtype: DType, rng: np.random.Generator) -> Tensor:
    """Values: in every row triples u, v, -(u + v), a third of it apart, and small ones; x must be constant."""
    order = None if bool((row_indices[1:] >= row_indices[:-1]).all()) else torch.argsort(row_indices, stable=True)
    small = values * SMALL
    lengths = torch.bincount(row_indices, minlength=1)
    starts = lengths.cumsum(0) - lengths
    triples = (lengths - lengths // 8 - 1).clamp_(min=0) // 3

    def each(of_row: Tensor) -> Tensor:
        return of_row.repeat_interleave(lengths)

    in_row = each(triples)
    place = torch.arange(len(row_indices), device=values.device) - each(starts)
    turn = place // in_row.clamp(min=1)
    number = place - turn * in_row
    is_small = (turn >= 3) | (in_row == 0)
    u, v = coarse((2, int(triples.sum()) + 1), dtype, rng, values.device)
    triple = torch.where(is_small, 0, each(triples.cumsum(0) - triples) + number)
    first, second = u[triple], v[triple]
    terms = torch.where(turn == 0, first, torch.where(turn == 1, second, -(first + second))).to(values.dtype)
    chosen = torch.where(is_small, small if order is None else small[order], terms)
    if order is None:
        return chosen
    return torch.empty_like(chosen).index_copy_(0, order, chosen)


def constant(x: Tensor) -> Tensor:
    """The first element, or row, everywhere."""
    return x[:1].expand_as(x).clone()


def linear(values: Tensor, x: Tensor, rng: np.random.Generator) -> list[Relation]:
    """The relations of a product in any format, with a vector or a matrix."""
    tensors = {"values": values, "x": x}
    found = [
        scaled("values doubled", tensors, inputs={"values": 2.0}, outputs={"y": 2.0}),
        scaled("x negated", tensors, inputs={"x": -1.0}, outputs={"y": -1.0}),
    ]
    if x.ndim == 2:
        found.append(permuted("columns of x in another order", tensors, rng, inputs={"x": 1}, outputs={"y": 1}))
    return found


def renamed_columns(col_indices: Tensor, x: Tensor, cols: int, rng: np.random.Generator) -> Relation:
    """The columns, and what they are multiplied with, in another order, where every entry tells its column."""
    order = drawing.permutation(cols, rng, x.device)
    renamed = {"col_indices": torch.argsort(order).to(torch.int32)[col_indices], "x": x[order]}
    return Relation("columns in another order", renamed, lambda found: found)


def csr_object(row_offsets: Tensor, col_indices: Tensor, values: Tensor, x: Tensor, rows: int) -> Tensor:
    """A vendor's matrix object for a product with x; outside of what is timed.

    A product of matrices in bf16 would keep the vendor's sums in bf16. And the vendor takes no more entries than a
    matrix has places: where entries repeat so often, it gets columns that nothing refers to.
    """
    import warnings

    if x.ndim == 2:
        values = values.to(torch.promote_types(values.dtype, torch.float32))
    cols = max(len(x), -(-len(values) // max(rows, 1)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that CSR tensors are new, and unchecked unless one says so
        # The checks would refuse rows that are unsorted or repeat a column.
        return torch.sparse_csr_tensor(row_offsets, col_indices, values, size=(rows, cols), check_invariants=False)


def vendors_product(matrix: Tensor, x: Tensor) -> Tensor:
    """The vendor's call for what `csr_object` made."""
    factor = x.to(matrix.dtype)
    if len(factor) < matrix.shape[1]:
        factor = torch.cat((factor, factor.new_zeros(matrix.shape[1] - len(factor), *factor.shape[1:])))
    return (matrix @ factor).to(x.dtype)


def csr_from_entries(row_indices: Tensor, col_indices: Tensor, values: Tensor, x: Tensor, rows: int) -> Tensor:
    """The same from entries in any order."""
    order = torch.argsort(row_indices, stable=True)
    counts = torch.bincount(row_indices.long(), minlength=rows)
    starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(torch.int32)
    return csr_object(starts, col_indices[order].to(torch.int32), values[order], x, rows)
