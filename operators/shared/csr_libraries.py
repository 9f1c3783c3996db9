"""Libraries' calls for a sparse matrix in CSR times a dense vector or matrix."""

from __future__ import annotations

from typing import Any

import scipy.sparse
from torch import Tensor

from operators.libraries import NARROW, LibraryCall, call, own
from operators.shared.cusparse import sparse_calls


def csr(row_offsets: Tensor, col_indices: Tensor, values: Tensor, x: Tensor, rows: int, cols: int) -> tuple[Any, ...]:
    return (row_offsets, col_indices), values, x, (rows, cols)


def scipys(row_offsets: Any, col_indices: Any, values: Any, rows: int, cols: int) -> Any:
    return scipy.sparse.csr_array((values, col_indices, row_offsets), shape=(rows, cols))


def library_calls(ndim: int) -> tuple[LibraryCall, ...]:
    """Return the calls for x of so many axes."""
    return (
        own("torch.sparse_csr_tensor @", composed_in=NARROW if ndim == 2 else ()),
        *sparse_calls("csr", csr, ndim=ndim),
        call("scipy.sparse.csr_array @", lambda prepared, x: prepared @ x, prepare=scipys),
    )
