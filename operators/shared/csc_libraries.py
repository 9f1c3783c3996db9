"""Libraries' calls for a sparse matrix in CSC times a dense vector or matrix."""

from __future__ import annotations

from typing import Any

import scipy.sparse
from torch import Tensor

from operators.libraries import NARROW, LibraryCall, call, own
from operators.shared.cusparse import sparse_calls


def csc(col_offsets: Tensor, row_indices: Tensor, values: Tensor, x: Tensor, rows: int, cols: int) -> tuple[Any, ...]:
    return (col_offsets, row_indices), values, x, (rows, cols)


def scipys(col_offsets: Any, row_indices: Any, values: Any, rows: int, cols: int) -> Any:
    return scipy.sparse.csc_array((values, row_indices, col_offsets), shape=(rows, cols))


def library_calls(ndim: int) -> tuple[LibraryCall, ...]:
    """Return the calls for x of so many axes; torch's is CSR, which is made before."""
    return (
        own("torch.sparse_csr_tensor @", composed_in=NARROW if ndim == 2 else (), converted=True),
        *sparse_calls("csc", csc, ndim=ndim),
        *sparse_calls("csrT", csc, ndim=ndim),
        call("scipy.sparse.csc_array @", lambda prepared, x: prepared @ x, prepare=scipys),
    )
