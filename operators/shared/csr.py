"""A sparse matrix (CSR) times a dense vector or matrix: the reference.py of both operators.

The columns of a row come in any order and may repeat; rows may be empty.
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
    row_offsets = sparse.offsets(sparse.places(rows, nnz, rng, family, device), rows)
    return {"row_offsets": row_offsets, "col_indices": sparse.indices(cols, nnz, rng, device)}


def data_dims(row_offsets: Tensor) -> dict[str, int]:
    return {"max_row_nnz": int(row_offsets.diff().max())}


def reference(row_offsets: Tensor, col_indices: Tensor, values: Tensor, x: Tensor, rows: int) -> Tensor:
    return sparse.product(sparse.expanded(row_offsets), col_indices, values, x, rows)


def magnitude(row_offsets: Tensor, col_indices: Tensor, values: Tensor, x: Tensor, rows: int) -> Tensor:
    return reference(row_offsets, col_indices, values.abs(), x.abs(), rows)


def prepare(row_offsets: Tensor, col_indices: Tensor, values: Tensor, x: Tensor, rows: int) -> Tensor:
    return sparse.csr_object(row_offsets, col_indices, values, x, rows)


def library(prepared: Tensor, x: Tensor) -> Tensor:
    return sparse.vendors_product(prepared, x)


def cancel(row_offsets: Tensor, values: Tensor, x: Tensor, dtype: DType, rng: np.random.Generator) -> dict[str, Tensor]:
    rows = sparse.expanded(row_offsets)
    return {"values": sparse.zero_rows(rows, values, dtype, rng), "x": sparse.constant(x)}


def relations(values: Tensor, x: Tensor, col_indices: Tensor, cols: int, rng: np.random.Generator) -> list[Relation]:
    return [*sparse.linear(values, x, rng), sparse.renamed_columns(col_indices, x, cols, rng)]
