"""cuSPARSE's products with vectors and matrices in each of its formats, by CuPy's bindings, on torch's tensors.

Tensors and not CuPy's arrays, since CuPy has no bf16 and its sparse matrices no 16-bit types, but cuSPARSE has. All but
the product itself is prepared: descriptors, the workspace, the memory of the result. Sums are fp32 in 16 bits. The
constants are those of cusparse.h and library_types.h, of CUDA 11.8 to 13.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from operators.cupy_stream import on_torchs_stream
from operators.libraries import LibraryCall, ready, with_arguments_of

CUDA_TYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 14}
INT32, FROM_ZERO, ROW_MAJOR = 2, 0, 2
PLAIN, TRANSPOSED = 0, 1
VECTOR_WAYS = {"csr": {"ALG1": 2, "ALG2": 3}, "coo": {"ALG1": 1, "ALG2": 4}, "csc": {"DEFAULT": 0}}
MATRIX_WAYS = {"csr": {"ALG2": 6, "ALG3": 12}, "coo": {"ALG4": 5}, "csc": {"DEFAULT": 0}}
"""By format, cuSPARSE's algorithms; of products of matrices those that are made for rows."""


class Product:
    """y = A x, ready to be called. A is given as the two index arrays of its format; rows and columns are its own."""

    def __init__(
        self, form: str, way: int, indices: tuple[Tensor, Tensor], values: Tensor, x: Tensor, shape: tuple[int, int]
    ) -> None:
        """`form`: csr (offsets of rows, columns), csc (offsets of columns, rows), coo (rows in order, columns), csrT.

        The last is csc as well, as the transpose of a matrix in csr. It raises what CuPy and cuSPARSE raise.
        """
        from cupy_backends.cuda.libs import cusparse

        first, second = indices
        self._kept = first, second, values, x
        self._library = cusparse
        self._way = way
        self._operation = TRANSPOSED if form == "csrT" else PLAIN
        self._y = x.new_empty((shape[0], *x.shape[1:]))
        kind = CUDA_TYPES[values.dtype]
        wide = torch.promote_types(values.dtype, torch.float32)
        self._compute = CUDA_TYPES[wide]
        self._factors = np.array([1, 0], np.float64 if wide is torch.float64 else np.float32)
        pointers = (len(values), first.data_ptr(), second.data_ptr(), values.data_ptr())
        stored = shape[::-1] if form == "csrT" else shape
        if form == "coo":
            self._matrix = cusparse.createCoo(*stored, *pointers, INT32, FROM_ZERO, kind)
        else:
            make = cusparse.createCsc if form == "csc" else cusparse.createCsr
            self._matrix = make(*stored, *pointers, INT32, INT32, FROM_ZERO, kind)
        self._in, self._out = (self._dense(each, kind) for each in (x, self._y))
        with on_torchs_stream():
            self._workspace = torch.empty(max(self._bytes(), 1), dtype=torch.uint8, device=x.device)

    def __call__(self) -> Tensor:
        """Return y, in the same memory every time."""
        with on_torchs_stream():
            self._product(*self._arguments(), self._workspace.data_ptr())
        return self._y

    def __del__(self) -> None:
        """A matrix that cuSPARSE refused has left no descriptors."""
        if hasattr(self, "_out"):
            free = self._library.destroyDnVec if self._y.ndim == 1 else self._library.destroyDnMat
            free(self._in)
            free(self._out)
            self._library.destroySpMat(self._matrix)

    def _dense(self, tensor: Tensor, kind: int) -> Any:
        if tensor.ndim == 1:
            return self._library.createDnVec(len(tensor), tensor.data_ptr(), kind)
        rows, cols = tensor.shape
        return self._library.createDnMat(rows, cols, cols, tensor.data_ptr(), kind, ROW_MAJOR)

    def _bytes(self) -> int:
        size = self._library.spMV_bufferSize if self._y.ndim == 1 else self._library.spMM_bufferSize
        return int(size(*self._arguments()))

    @property
    def _product(self) -> Callable[..., Any]:
        found: Callable[..., Any] = self._library.spMV if self._y.ndim == 1 else self._library.spMM
        return found

    def _arguments(self) -> tuple[Any, ...]:
        from cupy.cuda import device

        one, zero = (self._factors.ctypes.data + i * self._factors.itemsize for i in range(2))
        operations = (self._operation,) if self._y.ndim == 1 else (self._operation, PLAIN)
        matrix = (self._matrix, self._in, zero, self._out, self._compute, self._way)
        return (device.get_cusparse_handle(), *operations, one, *matrix)


def sparse_calls(form: str, matrix: Callable[..., Any], *, ndim: int, converted: bool = False) -> list[LibraryCall]:
    """Return cuSPARSE's algorithms for a format, by products with vectors (`ndim` 1) or matrices (2).

    `matrix` gets what it names of the operator's tensors and dims, as any preparation does, and returns the indices,
    values, x and shape that `Product` takes; what it has to sort or convert is not timed, and makes them `converted`.
    """
    ways = (VECTOR_WAYS if ndim == 1 else MATRIX_WAYS)[form.removesuffix("T")]
    if form == "csrT":
        ways = {"DEFAULT": 0}
    function = f"cusparseSp{'MV' if ndim == 1 else 'MM'}"
    return [
        ready(
            f"{function} ({form}, {name})",
            with_arguments_of(matrix, partial(Product, form, way)),
            converted=converted,
            targets=("cuda",),
        )
        for name, way in ways.items()
    ]
