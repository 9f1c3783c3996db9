"""A sparse matrix (CSC) times a dense vector or matrix: the reference.py of both operators.

The rows of a column come in any order and may repeat; columns and rows may be empty.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators import drawing
from operators.dtypes import DType
from operators.relations import Relation
from operators.shared import sparse


def inputs(
    rows: int, cols: int, nnz: int, rng: np.random.Generator, family: str, device: torch.device
) -> dict[str, Tensor]:
    """Columns are uniform or skewed, and so are rows."""
    col_offsets = sparse.offsets(sparse.places(cols, nnz, rng, family, device), cols)
    row_indices = sparse.shuffled(sparse.places(rows, nnz, rng, family, device), rng)
    return {"col_offsets": col_offsets, "row_indices": row_indices.to(torch.int32)}


def data_dims(row_indices: Tensor, rows: int) -> dict[str, int]:
    return {"max_row_nnz": sparse.longest(row_indices, rows)}


def reference(col_offsets: Tensor, row_indices: Tensor, values: Tensor, x: Tensor, rows: int) -> Tensor:
    return sparse.product(row_indices, sparse.expanded(col_offsets), values, x, rows)


def magnitude(col_offsets: Tensor, row_indices: Tensor, values: Tensor, x: Tensor, rows: int) -> Tensor:
    return reference(col_offsets, row_indices, values.abs(), x.abs(), rows)


def prepare(col_offsets: Tensor, row_indices: Tensor, values: Tensor, x: Tensor, rows: int) -> Tensor:
    # torch turns CSC into CSR before it multiplies.
    return sparse.csr_from_entries(row_indices, sparse.expanded(col_offsets), values, x, rows)


def library(prepared: Tensor, x: Tensor) -> Tensor:
    return sparse.vendors_product(prepared, x)


def cancel(row_indices: Tensor, values: Tensor, x: Tensor, dtype: DType, rng: np.random.Generator) -> dict[str, Tensor]:
    return {"values": sparse.zero_rows(row_indices.long(), values, dtype, rng), "x": sparse.constant(x)}


def relations(values: Tensor, x: Tensor, row_indices: Tensor, rows: int, rng: np.random.Generator) -> list[Relation]:
    order = drawing.permutation(rows, rng, x.device)
    renamed = {"row_indices": torch.argsort(order).to(torch.int32)[row_indices]}
    return [
        *sparse.linear(values, x, rng),
        Relation("rows in another order", renamed, lambda found: {"y": found["y"][order]}),
    ]
