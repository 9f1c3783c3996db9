"""Sparse matrix (CSR) times dense vector.

The columns of a row come in any order and may repeat; rows may be empty.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor


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
