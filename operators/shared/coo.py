"""A sparse matrix (COO) times a dense vector or matrix: the reference.py of both operators.

Entries come in any order and may repeat, which adds them up; rows may be empty.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators.dtypes import DType
from operators.relations import Relation
from operators.shared import sparse


def inputs(
    rows: int, cols: int, nnz: int, rng: np.random.Generator, family: str, device: torch.device
) -> dict[str, Tensor]:
    row_indices = sparse.shuffled(sparse.places(rows, nnz, rng, family, device), rng)
    return {"row_indices": row_indices.to(torch.int32), "col_indices": sparse.indices(cols, nnz, rng, device)}


def data_dims(row_indices: Tensor, rows: int) -> dict[str, int]:
    return {"max_row_nnz": sparse.longest(row_indices, rows)}


def reference(row_indices: Tensor, col_indices: Tensor, values: Tensor, x: Tensor, rows: int) -> Tensor:
    return sparse.product(row_indices, col_indices, values, x, rows)


def magnitude(row_indices: Tensor, col_indices: Tensor, values: Tensor, x: Tensor, rows: int) -> Tensor:
    return reference(row_indices, col_indices, values.abs(), x.abs(), rows)


def prepare(row_indices: Tensor, col_indices: Tensor, values: Tensor, x: Tensor, rows: int) -> Tensor:
    # Sorted: torch multiplies with COO matrices only after it has sorted them.
    return sparse.csr_from_entries(row_indices, col_indices, values, x, rows)


def library(prepared: Tensor, x: Tensor) -> Tensor:
    return sparse.vendors_product(prepared, x)


def cancel(row_indices: Tensor, values: Tensor, x: Tensor, dtype: DType, rng: np.random.Generator) -> dict[str, Tensor]:
    return {"values": sparse.zero_rows(row_indices.long(), values, dtype, rng), "x": sparse.constant(x)}


def relations(values: Tensor, x: Tensor, col_indices: Tensor, cols: int, rng: np.random.Generator) -> list[Relation]:
    return [*sparse.linear(values, x, rng), sparse.renamed_columns(col_indices, x, cols, rng)]
