"""Sparse matrix (CSR) times dense vector.

The columns of a row come in any order and may repeat; rows may be empty.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor

from operators.dtypes import DType
from operators.relations import Relation, scaled


def inputs(rows: int, cols: int, nnz: int, rng: np.random.Generator, family: str) -> dict[str, Tensor]:
    """The structure: entries at uniformly random places for `nominal` inputs, which are the ones that are timed.

    Every other family draws one of three: uniform, one row that holds half of the entries, or row lengths by a power
    law whose exponent varies, over rows in random order, a part of which stay empty.
    """
    skew = "uniform" if family == "nominal" else rng.choice(["uniform", "long row", "power law"])
    lengths = np.bincount(_rows_of_entries(rows, nnz, rng, skew), minlength=rows)
    row_offsets = np.zeros(rows + 1, dtype=np.int32)
    np.cumsum(lengths, out=row_offsets[1:])
    col_indices = rng.integers(0, cols, size=nnz, dtype=np.int32)
    return {"row_offsets": torch.from_numpy(row_offsets), "col_indices": torch.from_numpy(col_indices)}


def data_dims(row_offsets: Tensor) -> dict[str, int]:
    return {"max_row_nnz": int(row_offsets.diff().max())}


def reference(row_offsets: Tensor, col_indices: Tensor, values: Tensor, x: Tensor) -> Tensor:
    return _row_sums(row_offsets, values * x[col_indices])


def magnitude(row_offsets: Tensor, col_indices: Tensor, values: Tensor, x: Tensor) -> Tensor:
    return _row_sums(row_offsets, (values * x[col_indices]).abs())


def prepare(row_offsets: Tensor, col_indices: Tensor, values: Tensor, rows: int, cols: int) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that CSR tensors are new, and unchecked unless one says so
        # The checks would refuse rows that are unsorted or repeat a column.
        return torch.sparse_csr_tensor(row_offsets, col_indices, values, size=(rows, cols), check_invariants=False)


def library(prepared: Tensor, x: Tensor) -> Tensor:
    return prepared @ x


def cancel(
    row_offsets: Tensor, col_indices: Tensor, values: Tensor, dtype: DType, rng: np.random.Generator
) -> dict[str, Tensor]:
    """In every row, triples of entries u, v and -(u + v) in one column, a third of them apart, before small ones."""
    starts, lengths = row_offsets[:-1].numpy(), row_offsets.diff().numpy()
    row = np.repeat(np.arange(len(starts)), lengths)
    triples = np.maximum(lengths - lengths // 8 - 1, 0)[row] // 3
    place = np.arange(len(row)) - starts[row]
    turn, number = np.divmod(place, np.maximum(triples, 1))
    turn[triples == 0] = 3  # a small one
    leader = starts[row] + np.where(turn < 3, number, place)
    steps = round(0.25 / dtype.unit_roundoff)  # so fine that u + v is not rounded
    u, v = rng.integers(-steps, steps, (2, len(row)), endpoint=True)[:, leader] / steps
    chosen = np.choose(np.minimum(turn, 3), [u, v, -(u + v), values.double().numpy() * 2.0**-12])
    return {"col_indices": col_indices[torch.from_numpy(leader)], "values": torch.from_numpy(chosen).to(values.dtype)}


def relations(values: Tensor, col_indices: Tensor, x: Tensor, cols: int, rng: np.random.Generator) -> list[Relation]:
    tensors = {"values": values, "col_indices": col_indices, "x": x}
    order = torch.from_numpy(rng.permutation(cols))
    renamed = {"col_indices": torch.argsort(order).to(torch.int32)[col_indices], "x": x[order]}
    return [
        scaled("values doubled", tensors, inputs={"values": 2.0}, outputs={"y": 2.0}),
        scaled("x negated", tensors, inputs={"x": -1.0}, outputs={"y": -1.0}),
        Relation("columns in another order", renamed, lambda found: found),
    ]


def _rows_of_entries(rows: int, nnz: int, rng: np.random.Generator, skew: str) -> np.ndarray:
    """The row that each entry falls into."""
    if skew == "power law":
        exponent = rng.uniform(0.5, 1.5)
        weights = np.arange(1, rows + 1, dtype=np.float64) ** -exponent
        weights[1:] *= rng.random(rows - 1) < 0.8
        return rng.permutation(rows)[np.searchsorted(np.cumsum(weights), rng.uniform(0, weights.sum(), size=nnz))]
    places = rng.integers(0, rows, size=nnz)
    if skew == "long row":
        places[: nnz // 2] = rng.integers(0, rows)
    return places


def _row_sums(row_offsets: Tensor, products: Tensor) -> Tensor:
    rows = torch.arange(len(row_offsets) - 1, device=products.device).repeat_interleave(row_offsets.diff())
    return products.new_zeros(len(row_offsets) - 1).index_add_(0, rows, products)
