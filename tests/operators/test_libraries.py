"""The library calls that operators declare: all make the right result, CuPy's with numpy and scipy in its place."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.ndimage
import scipy.signal
import scipy.sparse
import scipy.special
import torch

from fitness.judging.library import handed, taken
from operators.catalog import declared_libraries, folders, functions, load
from operators.libraries import CONVERTED, UNNAMED
from operators.shared import cusparse
from tests.choosing import some_slow
from tests.operators.test_operator_folders import arguments, asked, worst

NO_STAND_IN = {"cupy.cublas.dgmm", "torch.nn.functional.scaled_dot_product_attention (cuDNN)", "torch.mm (out_dtype)"}
"""Calls that only a GPU can try."""


def stand_ins() -> dict[str, ModuleType]:
    """The modules whose interface CuPy's have."""
    parts = ("fft", "ndimage", "signal", "special", "sparse")
    return {
        "cupy": np, "cupyx": ModuleType("cupyx"), "cupyx.scipy": scipy, "cupy.linalg": np.linalg,
        **{f"cupyx.scipy.{part}": getattr(scipy, part) for part in parts},
    }  # fmt: skip


@pytest.mark.parametrize("name", some_slow(folders(), 6))
def test_every_declared_call_is_right(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, stand_in in stand_ins().items():
        monkeypatch.setitem(sys.modules, module, stand_in)
    fake_cusparse(monkeypatch)
    operator = load(name)
    offers = functions(operator.folder)
    declared = declared_libraries(operator.folder)
    assert UNNAMED not in [each.name for each in declared]
    case = asked(operator, operator.hidden[-1], seed=3)
    for each in declared:
        if each.kind == "compiled" or each.name in NO_STAND_IN or (each.dtypes and "fp32" not in each.dtypes):
            continue
        values = arguments(operator, case.inputs)
        arrays = "numpy" if each.arrays == "cupy" else each.arrays
        made = taken(offers.bound(each, handed(values, arrays))(), [t.name for t in operator.outputs])
        for tensor in operator.outputs:
            assert tuple(made[tensor.name].shape) == tensor.sizes(case.dims), each.name
        if operator.tolerance.bound == "bits":  # whose answers are words
            right = offers.reference(values)
            for output, y in right.items():
                assert made[output].contiguous().numpy().tobytes() == y.contiguous().numpy().tobytes(), each.name
        else:
            assert worst(case, made) <= 1, each.name


# --- cuSPARSE ---------------------------------------------------------------------------------------------------------


def fake_cusparse(monkeypatch: pytest.MonkeyPatch) -> None:
    """The used part of CuPy's bindings, on pointers into this process's memory."""
    types = {0: ctypes.c_float, 1: ctypes.c_double}

    def array(pointer: int, count: int, kind: type[Any] = ctypes.c_int32) -> np.ndarray:
        return np.ctypeslib.as_array((kind * count).from_address(pointer)) if count else np.zeros(0)

    def compressed(make: Any) -> Any:
        def create(rows: int, cols: int, nnz: int, *rest: int) -> Any:
            starts, indices, values, *kinds, kind = rest
            assert kinds == [cusparse.INT32, cusparse.INT32, cusparse.FROM_ZERO]
            length = (rows if make is scipy.sparse.csr_array else cols) + 1
            parts = (array(values, nnz, types[kind]), array(indices, nnz), array(starts, length))
            return make(parts, shape=(rows, cols))

        return create

    def coo(rows: int, cols: int, nnz: int, first: int, second: int, values: int, *kinds: int) -> Any:
        assert kinds[:2] == (cusparse.INT32, cusparse.FROM_ZERO)
        row, col = array(first, nnz), array(second, nnz)
        assert (np.diff(row) >= 0).all()
        return scipy.sparse.coo_array((array(values, nnz, types[kinds[2]]), (row, col)), shape=(rows, cols))

    def dense(rows: int, cols: int, stride: int, pointer: int, kind: int, order: int) -> np.ndarray:
        assert (stride, order) == (cols, cusparse.ROW_MAJOR)
        return array(pointer, rows * cols, types[kind]).reshape(rows, cols)

    def product(_: int, operation: int, *rest: Any) -> None:
        one, matrix, x, zero, y, kind, _way, _workspace = rest[-8:]
        assert [array(p, 1, types[kind])[0] for p in (one, zero)] == [1, 0]
        y[...] = (matrix.T if operation == cusparse.TRANSPOSED else matrix) @ x

    library = SimpleNamespace(
        createCsr=compressed(scipy.sparse.csr_array), createCsc=compressed(scipy.sparse.csc_array), createCoo=coo,
        createDnVec=lambda count, pointer, kind: array(pointer, count, types[kind]), createDnMat=dense,
        spMV_bufferSize=lambda *_: 0, spMM_bufferSize=lambda *_: 8, spMV=product, spMM=product,
        destroyDnVec=lambda _: None, destroyDnMat=lambda _: None, destroySpMat=lambda _: None,
    )  # fmt: skip
    device = SimpleNamespace(get_cusparse_handle=lambda: 1)
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs", SimpleNamespace(cusparse=library))
    monkeypatch.setitem(sys.modules, "cupy.cuda", SimpleNamespace(device=device))
    monkeypatch.setattr(cusparse, "on_torchs_stream", contextlib.nullcontext)


def test_cusparse_is_told_bf16_values_and_fp32_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cusparse(monkeypatch)
    library: Any = sys.modules["cupy_backends.cuda.libs"].cusparse  # type: ignore[attr-defined]
    told = []
    monkeypatch.setattr(library, "createCsr", lambda *of: told.append(of[-1]))
    monkeypatch.setattr(library, "createDnVec", lambda *of: told.append(of[-1]))
    monkeypatch.setattr(library, "spMV", lambda *of: told.append(of[-3]))
    x = torch.ones(3, dtype=torch.bfloat16)
    indices = (torch.tensor([0, 1], dtype=torch.int32), torch.tensor([2], dtype=torch.int32))
    cusparse.Product("csr", indices, x[:1], x, (1, 3), 2)()
    assert told == [cusparse.CUDA_TYPES[torch.bfloat16]] * 3 + [cusparse.CUDA_TYPES[torch.float32]]


@pytest.mark.parametrize("name", [f"sp{kind}_{form}" for kind in ("mv", "mm") for form in ("coo", "csc", "csr", "ell")])
def test_a_call_that_gets_other_indices_than_a_kernel_says_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cusparse(monkeypatch)
    library: Any = sys.modules["cupy_backends.cuda.libs"].cusparse  # type: ignore[attr-defined]
    given: list[int] = []
    for create in ("createCoo", "createCsc", "createCsr"):
        made = getattr(library, create)
        monkeypatch.setattr(library, create, lambda *of, made=made: (given.extend(of[3:5]), made(*of))[1])
    operator = load(name)
    values = arguments(operator, asked(operator, operator.hidden[-1], seed=3).inputs)
    own = {value.data_ptr() for value in values.values() if isinstance(value, torch.Tensor)}
    calls = [each for each in declared_libraries(operator.folder) if each.name.startswith("cusparse")]
    for each in calls:
        given.clear()
        functions(operator.folder).bound(each, handed(values, each.arrays))()
        assert given and own.issuperset(given) != each.name.endswith(CONVERTED), each.name
    assert calls
