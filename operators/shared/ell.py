"""A sparse matrix (ELL) times a dense vector or matrix: the reference.py of both operators.

Row-major; the columns of a row come in any order and may repeat; column -1 pads what is left of a row, whose values are
arbitrary.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from operators import drawing
from operators.dtypes import DType
from operators.relations import Relation
from operators.shared import sparse


def inputs(
    rows: int, cols: int, slots: int, rng: np.random.Generator, family: str, device: torch.device
) -> dict[str, Tensor]:
    """Rows of any length up to all slots; but for `nominal` inputs also all empty but one, all full, or a power law."""
    row = torch.arange(rows, device=device)
    forms: list[Callable[[], Tensor]] = [
        lambda: drawing.integers(0, slots, rows, rng, device),
        lambda: torch.full_like(row, slots),
        lambda: torch.where(row == int(rng.integers(rows)), slots, 0),
        lambda: (slots / (1.0 + drawing.permutation(rows, rng, device)) ** rng.uniform(0.5, 1.5)).long(),
    ]
    lengths = forms[0 if family == "nominal" else rng.integers(len(forms))]()
    col_ids = drawing.integers(0, cols - 1, (rows, slots), rng, device, dtype=torch.int32)
    return {"col_ids": col_ids.masked_fill_(torch.arange(slots, device=device) >= lengths[:, None], -1)}


def reference(col_ids: Tensor, values: Tensor, x: Tensor, rows: int) -> Tensor:
    used = col_ids >= 0
    return sparse.product(used.nonzero()[:, 0], col_ids[used], values[used], x, rows)


def magnitude(col_ids: Tensor, values: Tensor, x: Tensor, rows: int) -> Tensor:
    return reference(col_ids, values.abs(), x.abs(), rows)


def prepare(col_ids: Tensor, values: Tensor, x: Tensor, rows: int) -> Tensor:
    # No vendor multiplies with plain ELL; this is CSR.
    used = col_ids >= 0
    return sparse.csr_from_entries(used.nonzero()[:, 0], col_ids[used], values[used], x, rows)


def library(prepared: Tensor, x: Tensor) -> Tensor:
    return sparse.vendors_product(prepared, x)


def cancel(col_ids: Tensor, values: Tensor, x: Tensor, dtype: DType, rng: np.random.Generator) -> dict[str, Tensor]:
    used, values = col_ids >= 0, values.clone()
    values[used] = sparse.zero_rows(used.nonzero()[:, 0], values[used], dtype, rng)
    return {"values": values, "x": sparse.constant(x)}


def relations(values: Tensor, x: Tensor, col_ids: Tensor, cols: int, rng: np.random.Generator) -> list[Relation]:
    order = drawing.permutation(cols, rng, x.device)
    place = torch.argsort(order).to(torch.int32)
    changed = torch.where(col_ids < 0, -1, place[col_ids.clamp(min=0)])
    renamed = {"col_ids": changed.to(torch.int32), "x": x[order]}
    return [*sparse.linear(values, x, rng), Relation("columns in another order", renamed, lambda found: found)]
