"""The library calls that operators declare: all make the right result, CuPy's with numpy and scipy in its place."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections import Counter
from collections.abc import Callable
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
from torch import Tensor

from fitness.judging.library import handed, taken
from operators.catalog import declared_libraries, folders, functions, load
from operators.errors import OperatorError
from operators.libraries import CONVERTED, UNNAMED
from operators.shared import cublas, cusparse
from tests.choosing import some_slow
from tests.operators.test_operator_folders import arguments, asked, worst

ATTENTION = "torch.nn.functional.scaled_dot_product_attention"
NO_STAND_IN = {
    "cupy.cublas.dgmm", "cupy.cublas.geam", "torch.mm (out_dtype)",
    *(f"{ATTENTION} ({kernel})" for kernel in ("cuDNN", "flash", "memory-efficient")),
}  # fmt: skip
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
    fake_rivals(monkeypatch)
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


# --- the extra `rivals` -----------------------------------------------------------------------------------------------


class FakeProduct:
    """nvmath's two classes of products. It reads no more of a matrix than its structure says is there."""

    def __init__(self, a: Tensor, b: Tensor, *, qualifiers: Any = ("general", "general"), options: Any = None) -> None:
        halves = {"lower": torch.tril, "upper": torch.triu, "symmetric": torch.tril}
        self._a = halves[qualifiers[0]](a) if qualifiers[0] in halves else a
        if qualifiers[0] == "symmetric":
            self._a = self._a + torch.tril(a, -1).T
        self._b = b

    def plan(self, preferences: Any = None) -> list[str]:
        return ["slow", "fast"]

    def execute(self, algorithm: str = "fast") -> Tensor:
        assert algorithm == "fast"
        return torch.matmul(self._a, self._b)


def algorithm(write: Callable[[dict[str, Any]], object]) -> Callable[..., Callable[..., int]]:
    """One of cuda.compute's makers of an object, which tells what memory it needs and then gets it."""

    def make(**build: Any) -> Callable[..., int]:
        def run(*, temp_storage: Tensor | None, stream: Any = None, **arguments: Any) -> int:
            assert {name: arguments[name] for name in build if name in arguments} == {
                name: value for name, value in build.items() if name in arguments
            }
            if temp_storage is not None:
                assert temp_storage.nbytes == 77 and hasattr(stream, "__cuda_stream__")
                write(arguments)
            return 77

        return run

    return make


def fake_rivals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The used parts of the packages of the extra `rivals`."""
    monkeypatch.setattr(cublas.TunedProduct, "_time_ms", lambda self, each, caches: 1.0 if each == "fast" else 2.0)
    monkeypatch.setattr(
        cublas, "_cuda", SimpleNamespace(get_device_properties=lambda _: SimpleNamespace(L2_cache_size=8))
    )
    kinds = {"GeneralMatrixQualifier": "general", "SymmetricMatrixQualifier": "symmetric"}
    linalg = SimpleNamespace(
        Matmul=FakeProduct,
        FillMode=SimpleNamespace(LOWER="lower", UPPER="upper"),
        TriangularMatrixQualifier=SimpleNamespace(create=lambda uplo: uplo),
        matrix_qualifiers_dtype=object,
        **{name: SimpleNamespace(create=lambda kind=kind: kind) for name, kind in kinds.items()},
    )
    functional = torch.nn.functional
    modules = {
        "nvmath.linalg": linalg,
        "nvmath.linalg.advanced": SimpleNamespace(Matmul=FakeProduct),
        "cuda.compute": SimpleNamespace(
            OpKind=SimpleNamespace(PLUS="+"),
            SortOrder=SimpleNamespace(ASCENDING="up"),
            make_radix_sort=algorithm(lambda a: a["d_out_keys"].copy_(a["d_in_keys"].sort().values)),
            make_inclusive_scan=algorithm(lambda a: a["d_out"].copy_(a["d_in"].cumsum(0) + float(a["init_value"][0]))),
        ),
        "liger_kernel.ops.softmax": SimpleNamespace(_softmax_forward=lambda x: (functional.softmax(x, 1), None)),
        "liger_kernel.ops.layer_norm": SimpleNamespace(
            layer_norm_forward=lambda x, w, b, eps: (functional.layer_norm(x, x.shape[1:], w, b, eps), None)
        ),
        "liger_kernel.ops.swiglu": SimpleNamespace(
            swiglu_fused_gate_up_forward=lambda x: (x, functional.silu(x.chunk(2, 1)[0]) * x.chunk(2, 1)[1])
        ),
        "liger_kernel.ops.fused_add_rms_norm": SimpleNamespace(
            fused_add_rms_norm_forward=lambda x, r, w, eps, offset, mode: (
                functional.rms_norm(x + r, x.shape[1:], w, eps), x + r, offset, mode,
            )
        ),
    }  # fmt: skip
    for module, stand_in in modules.items():
        monkeypatch.setitem(sys.modules, module, stand_in)


def test_the_fastest_algorithm_is_found_once_for_operands_of_the_same_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_rivals(monkeypatch)
    monkeypatch.setattr(cublas, "_fastest", {})
    times = Counter[str]()

    def time_ms(product: cublas.TunedProduct, algorithm: str, caches: Tensor) -> float:
        times[algorithm] += 1
        return float("inf") if algorithm == "slow" else float(times[algorithm])

    monkeypatch.setattr(cublas.TunedProduct, "_time_ms", time_ms)
    for _ in range(2):
        a, b = torch.randn(3, 4), torch.randn(4, 5)
        assert torch.equal(cublas.TunedProduct(a, b)(), a @ b)
    assert times == {"slow": cublas.ROUNDS, "fast": cublas.ROUNDS}


def test_what_the_extra_lacks_is_told_with_where_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvmath.linalg", None)
    operator = load("lower_triangular_matrix_mul")
    trmm = next(each for each in declared_libraries(operator.folder) if each.name.endswith("(trmm)"))
    assert not trmm.serves("cpu", "fp32") and not trmm.serves("cuda", "bf16") and trmm.serves("cuda", "fp32")
    with pytest.raises(OperatorError, match=r"nvmath.linalg cannot be imported .*the extra `rivals`"):
        functions(operator.folder).bound(trmm, {"a": torch.ones(2, 2), "b": torch.ones(2, 2)})


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
    cusparse.Product("csr", 2, indices, x[:1], x, (1, 3))()
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
