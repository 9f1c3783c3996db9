"""Libraries' calls for a sparse matrix in COO times a dense vector or matrix."""

from __future__ import annotations

from typing import Any

import scipy.sparse
import torch
from torch import Tensor

from operators.libraries import NARROW, LibraryCall, call, own
from operators.shared.cusparse import sparse_calls


def coo(row_indices: Tensor, col_indices: Tensor, values: Tensor, x: Tensor, rows: int, cols: int) -> tuple[Any, ...]:
    """cuSPARSE wants rows in order."""
    order = torch.argsort(row_indices, stable=True)
    return (row_indices[order], col_indices[order]), values[order], x, (rows, cols)


def scipys(row_indices: Any, col_indices: Any, values: Any, rows: int, cols: int) -> Any:
    return scipy.sparse.coo_array((values, (row_indices, col_indices)), shape=(rows, cols))


def library_calls(ndim: int) -> tuple[LibraryCall, ...]:
    """Return the calls for x of so many axes; torch's is CSR, which is made before, as is the order of cuSPARSE's."""
    return (
        own("torch.sparse_csr_tensor @", composed_in=NARROW if ndim == 2 else (), converted=True),
        *sparse_calls("coo", coo, ndim=ndim, converted=True),
        call("scipy.sparse.coo_array @", lambda prepared, x: prepared @ x, prepare=scipys),
    )
