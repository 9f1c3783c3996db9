"""Libraries' calls for a sparse matrix in ELL times a dense vector or matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from operators.libraries import NARROW, LibraryCall, call, own
from operators.shared.cusparse import sparse_calls


def csr(col_ids: Tensor, values: Tensor, x: Tensor, rows: int, cols: int) -> tuple[Any, ...]:
    used = col_ids >= 0
    starts = torch.zeros(rows + 1, dtype=torch.int32, device=x.device)
    starts[1:] = used.sum(dim=1).cumsum(0)
    return (starts, col_ids[used]), values[used], x, (rows, cols)


def scipys(col_ids: Any, values: Any, rows: int, cols: int) -> Any:
    used = col_ids >= 0
    starts = np.concatenate([[0], used.sum(axis=1).cumsum()]).astype(np.int32)
    return scipy.sparse.csr_array((values[used], col_ids[used], starts), shape=(rows, cols))


def library_calls(ndim: int) -> tuple[LibraryCall, ...]:
    """Return the calls for x of so many axes. No library has plain ELL: all are CSR, which is made before."""
    return (
        own("torch.sparse_csr_tensor @", composed_in=NARROW if ndim == 2 else (), converted=True),
        *sparse_calls("csr", csr, ndim=ndim, converted=True),
        call("scipy.sparse.csr_array @", lambda prepared, x: prepared @ x, prepare=scipys, converted=True),
    )
