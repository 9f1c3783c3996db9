"""The bundled operators: references against second implementations, bounds against real errors, naive kernels."""

from __future__ import annotations

import ctypes
import itertools
import math
import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

import numpy as np
import pytest
import scipy.ndimage
import scipy.sparse
import scipy.special
import torch

from fitness.bounds import Precision, analysed, element_bound
from fitness.cpu.build import FLAGS, LIBRARIES, LINK_FLAGS
from fitness.inputs import CANCELLATION, TORCH_DTYPES, Inputs, draw, families
from fitness.native import CXX
from fitness.verify import Case, Oracle
from operators.catalog import folders, functions, load
from operators.dtypes import DTYPES, resolve_dtype
from operators.expression import parse
from operators.plan import parse_plan
from operators.prelude import translation_unit
from operators.spec import Operator, Workload

NAMES = tuple(folders())
FACTS = {
    "sm_count": 132, "warp_size": 32, "max_shared_bytes": 232448, "l2_bytes": 50 * 2**20, "cpu_count": 2,
}  # fmt: skip


def _stencil(u: np.ndarray, rate: np.ndarray, **_: object) -> np.ndarray:
    v = u.copy()
    v[1:-1, 1:-1] += rate * scipy.ndimage.laplace(u)[1:-1, 1:-1]
    return v


SECOND: Mapping[str, Callable[..., np.ndarray]] = {
    "softmax": lambda x, **_: scipy.special.softmax(x, axis=1),
    "rms_norm": lambda x, weight, bias, eps, cols, **_: (
        weight * x / np.hypot(np.linalg.norm(x, axis=1, keepdims=True) / math.sqrt(cols), math.sqrt(eps)) + bias
    ),
    "gelu": lambda x, **_: x * scipy.special.ndtr(x),
    "matrix_mul": lambda a, b, **_: np.einsum("il,lj->ij", a, b, optimize=True),
    "spmv_csr": lambda row_offsets, col_indices, values, x, rows, cols, **_: (
        scipy.sparse.csr_matrix((values, col_indices, row_offsets), shape=(rows, cols)) @ x
    ),
    "stencil_2d": _stencil,
    "prefix_sum": lambda x, **_: np.array(list(itertools.accumulate(x))),
    "cross_entropy_loss": lambda predicted, target, **_: (
        -scipy.special.xlogy(target, np.maximum(predicted, 1e-8)).sum()
    ),
}
"""By people who never saw reference.py."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """On such small tensors the threads of torch mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=NAMES)
def operator(request: pytest.FixtureRequest) -> Operator:
    return load(request.param)


def drawn(
    operator: Operator, workload: Workload, *, family: str = "nominal", dtype: str = "fp32", seed: int = 0
) -> Inputs:
    rng = np.random.default_rng(seed)
    return draw(operator, functions(operator.folder), dims=workload.dims, dtype=dtype, family=family, rng=rng)


def arguments(operator: Operator, inputs: Inputs, *, dtype: str = "fp32") -> dict[str, object]:
    """What the functions of reference.py that get tensors of the task's dtype may name."""
    scalars = {s.name: s.value for s in operator.scalars}
    return {**inputs.dims, **scalars, **inputs.tensors, "dtype": DTYPES[dtype], "rng": np.random.default_rng(1)}


def wide(operator: Operator, inputs: Inputs, *, dtype: str = "fp32") -> dict[str, object]:
    """What the fp64 functions are called with."""
    tensors = {n: t.double() if t.is_floating_point() else t for n, t in inputs.tensors.items()}
    return arguments(operator, inputs, dtype=dtype) | tensors


def answer(
    operator: Operator, inputs: Inputs, *, family: str = "nominal", dtype: str = "fp32"
) -> tuple[torch.Tensor, torch.Tensor]:
    """The reference and the error that is allowed beside it."""
    offers, values = functions(operator.folder), wide(operator, inputs, dtype=dtype)
    expected = offers.reference(values)
    magnitude = offers.magnitude(values | {"outputs": expected})
    assert magnitude is not None
    tensor = operator.outputs[0]
    y, s = expected[tensor.name], magnitude[tensor.name]
    assert y.dtype == s.dtype == torch.float64
    assert y.shape == s.shape == tensor.sizes(inputs.dims)
    precision = Precision(resolve_dtype(tensor.dtype, dtype), resolve_dtype("ACC", dtype), DTYPES[dtype])
    terms = max(operator.tolerance.terms.evaluate(inputs.dims), 1)
    flat = [np.ascontiguousarray(t.reshape(-1).numpy()) for t in (y, s)]
    limits = element_bound(precision, *flat, terms=terms, roundoffs=analysed(precision, terms, family))
    return y, torch.from_numpy(limits.allowed).reshape(y.shape)


def worst(found: torch.Tensor, y: torch.Tensor, allowed: torch.Tensor) -> float:
    """Largest error as a multiple of what is allowed; infinite where NaN or an infinity is not met by the same."""
    error = (found.double() - y).abs() / allowed
    same = (found.double() == y) | (found.isnan() & y.isnan())
    error = torch.where(y.isfinite() & found.isfinite(), error, torch.where(same, 0.0, math.inf))
    return float(error.max()) if found.numel() else 0.0


def turns(operator: Operator, number: int, count: int) -> list[str]:
    """Some families; all of them over several numbers."""
    known = families(functions(operator.folder))
    return [known[(count * number + i) % len(known)] for i in range(count)]


# --- what the folders declare -----------------------------------------------------------------------------------------


def test_sets_dtypes_and_files(operator: Operator) -> None:
    assert operator.dtypes == {"cpu": ("fp32", "fp64"), "cuda": ("fp32", "bf16")}
    assert {w.set for w in operator.workloads} == {"published", "realistic", "cpu"}
    assert len(operator.workload_set("realistic")) == len(operator.workload_set("cpu")) == 3
    for target in ("cpu", "cuda"):
        assert operator.ancestor("naive", target).is_file()
    for name in ("reference", "magnitude", "library", "relations"):
        assert functions(operator.folder).offers(name)


def test_the_published_grids_are_the_benchmarks() -> None:
    softmax = {(w.dims["rows"], w.dims["cols"]): w.weight for w in load("softmax").workload_set("published")}
    assert softmax == {(2**r, 2**c): 2.0 ** (r + c) for r in (4, 5, 6, 7) for c in (8, 10, 12, 14)}
    gemm = {tuple(w.dims.values()): w.weight for w in load("matrix_mul").workload_set("published")}
    assert gemm == {(2**m, 2048, 4096): 2.0 ** (m + 11 + 12) for m in (6, 8, 10, 12, 14)}
    spmv = [
        (w.dims["rows"], w.dims["cols"], w.dims["nnz"], w.weight) for w in load("spmv_csr").workload_set("published")
    ]
    entries = [20971, 41943, 83886, 167772, 335544, 671088]
    assert spmv == [(2**r, 2048, nnz, nnz) for r, nnz in zip(range(10, 16), entries, strict=True)]
    grid = {tuple(w.dims.values()): w.weight for w in load("stencil_2d").workload_set("published")}
    assert grid == {(2**x, 2**y): 2.0 ** (x + y) for x in (10, 12, 14) for y in (10, 12, 14)}


@pytest.mark.parametrize(
    ("name", "exponents", "power"),
    [
        ("rms_norm", range(6, 11), 1),
        ("gelu", range(10, 19, 2), 1),
        ("prefix_sum", range(10, 19, 2), 2),
        ("cross_entropy_loss", range(14, 23, 2), 1),
    ],
)
def test_the_published_vectors_are_the_benchmarks(name: str, exponents: range, power: int) -> None:
    workloads = load(name).workload_set("published")
    assert [math.prod(w.dims.values()) for w in workloads] == [2**e for e in exponents]
    assert [w.weight for w in workloads] == [2.0 ** (power * e) for e in exponents]


@pytest.mark.parametrize("divisor", [4, 8, 16, 32])
def test_a_kernel_that_needs_divisible_dims_has_hidden_shapes_to_be_tested_on(operator: Operator, divisor: int) -> None:
    fitting = [w for w in operator.hidden if all(size and size % divisor == 0 for size in w.dims.values())]
    assert len(fitting) >= 6


@pytest.mark.parametrize(
    ("name", "requires"),
    [
        ("softmax", "cols >= 1024"),
        ("softmax", "cols <= 1024"),
        ("softmax", "cols % 4 == 0 and rows % 4 == 0"),
        ("matrix_mul", "m % 128 == 0 and n % 128 == 0 and k % 64 == 0"),
        ("matrix_mul", "k % 8 == 0 and n % 8 == 0"),
        ("spmv_csr", "nnz >= rows"),
        ("spmv_csr", "rows % 32 == 0"),
        ("rms_norm", "cols % 8 == 0"),
        ("rms_norm", "cols <= 1024"),
        ("gelu", "n % 32 == 0"),
        ("gelu", "n >= 1024"),
        ("stencil_2d", "nx >= 3 and ny >= 3"),
        ("stencil_2d", "ny % 32 == 0"),
        ("prefix_sum", "n <= 1024"),
        ("prefix_sum", "n % 1024 == 0 or n <= 1024"),
        ("cross_entropy_loss", "classes % 16 == 0"),
        ("cross_entropy_loss", "classes >= 256"),
    ],
)
def test_usual_predicates_leave_six_hidden_shapes(name: str, requires: str) -> None:
    operator = load(name)
    predicate = parse(requires, operator.dims)
    assert sum(bool(predicate.evaluate(w.dims)) for w in operator.hidden) >= 6


def test_hidden_shapes_are_odd_enough(operator: Operator) -> None:
    for size in operator.dims:
        sizes = {w.dims[size] for w in operator.hidden}
        assert 1 in sizes
        assert any(s > 1 and s % 2 for s in sizes)
    assert len(operator.hidden) >= 12
    assert len([w for w in operator.hidden if any(s % 2 for s in w.dims.values())]) >= 6


def test_floors_are_below_the_counts_and_above_nothing(operator: Operator) -> None:
    for workload in operator.workloads:
        for dtype in ("fp32", "fp64", "bf16"):
            env = operator.cost_environment(workload.dims, dtype)
            flops, floor = operator.flops.evaluate(env), operator.min_flops.evaluate(env)
            assert 0 < floor <= flops <= 2 * floor
            assert operator.min_bytes.evaluate(env) > 0


# --- references ------------------------------------------------------------------------------------------------------


def test_the_reference_agrees_with_a_second_implementation(operator: Operator) -> None:
    for seed, workload in enumerate(operator.hidden):
        for family in turns(operator, seed, 3):
            inputs = drawn(operator, workload, family=family, seed=seed)
            y, allowed = answer(operator, inputs)
            arrays = {n: v.numpy() if isinstance(v, torch.Tensor) else v for n, v in wide(operator, inputs).items()}
            with np.errstate(all="ignore"):
                second = torch.from_numpy(np.asarray(SECOND[operator.name](**arrays)))
            assert worst(second, y, allowed) < 1e-6, (workload.name, family)


@pytest.mark.parametrize("dtype", ["fp32", "fp64", "bf16"])
def test_the_library_call_is_within_the_bound(operator: Operator, dtype: str) -> None:
    if (operator.name, dtype) == ("spmv_csr", "bf16"):
        pytest.skip("torch has no sparse bf16 product on the CPU")
    offers = functions(operator.folder)
    for seed, workload in enumerate(operator.hidden):
        inputs = drawn(operator, workload, dtype=dtype, seed=seed)
        y, allowed = answer(operator, inputs, dtype=dtype)
        values = arguments(operator, inputs, dtype=dtype)
        found = offers.library(values | {"prepared": offers.prepare(values)})
        assert found.dtype == TORCH_DTYPES[resolve_dtype(operator.outputs[0].dtype, dtype).name]
        assert worst(found, y, allowed) <= 1, workload.name


def test_the_bound_rejects_zeros_one_wrong_element_and_the_next_lower_precision(operator: Operator) -> None:
    for seed, workload in enumerate(operator.hidden):
        inputs = drawn(operator, workload, seed=seed)
        y, allowed = answer(operator, inputs)
        if not y.count_nonzero():
            continue
        assert worst(torch.zeros_like(y), y, allowed) > 1
        spoiled = y.clone()
        spoiled.view(-1)[-1] += 8 * allowed.view(-1)[-1]
        assert worst(spoiled, y, allowed) > 1
        if y.numel() >= 32 and workload.dims.get("cols") != 1:  # the softmax of one column is 1 in every precision
            assert worst(y.float().bfloat16(), y, allowed) > 1, workload.name
            assert worst(y.half(), y, allowed) > 1, workload.name


@pytest.mark.parametrize("cols", [1, 64, 1000, 4096, 65536])
def test_the_softmax_bound_holds_for_plain_sums_whatever_the_scale_of_a_row(cols: int) -> None:
    operator, rng = load("softmax"), np.random.default_rng(cols)
    for exponent in range(-16, 13, 2):
        x = (rng.uniform(-1, 1, (8, cols)) * 2.0**exponent).astype(np.float32)
        exponentials = np.exp(x - x.max(axis=1, keepdims=True))
        plain = exponentials / np.cumsum(exponentials, axis=1)[:, -1:]
        inputs = Inputs({"x": torch.from_numpy(x)}, {"rows": 8, "cols": cols})
        assert worst(torch.from_numpy(plain), *answer(operator, inputs)) <= 0.8


# --- cancellation and relations ---------------------------------------------------------------------------------------


SUMS: Mapping[str, Callable[..., torch.Tensor]] = {
    "matrix_mul": lambda a, b, **_: a.abs() @ b.abs(),
    "spmv_csr": lambda row_offsets, col_indices, values, x, rows, cols, **_: torch.from_numpy(
        scipy.sparse.csr_matrix((values.abs(), col_indices, row_offsets), shape=(rows, cols)) @ x.abs().numpy()
    ),
    "rms_norm": lambda bias, rows, **_: 2 * bias.abs().expand(rows, -1),
    "stencil_2d": lambda u, **_: u.abs().max().expand(u.shape),
    "prefix_sum": lambda x, **_: x.abs().cumsum(0),
    "cross_entropy_loss": lambda predicted, target, **_: (target * predicted.clamp(min=1e-8).log()).abs().sum(),
}
"""By operator, the magnitudes of what is added up."""
LARGE: Mapping[str, dict[str, int]] = {
    "matrix_mul": {"m": 40, "n": 72, "k": 104},
    "spmv_csr": {"rows": 32, "cols": 64, "nnz": 2048},
    "rms_norm": {"rows": 24, "cols": 1000},
    "stencil_2d": {"nx": 96, "ny": 160},
    "prefix_sum": {"n": 4000},
    "cross_entropy_loss": {"classes": 4000},
}


@pytest.mark.parametrize("dtype", ["fp32", "fp64", "bf16"])
@pytest.mark.parametrize("name", SUMS)
def test_sums_cancel_and_lower_precision_shows(name: str, dtype: str) -> None:
    operator = load(name)
    for seed in range(10):
        inputs = drawn(operator, Workload("test", LARGE[name]), family=CANCELLATION, dtype=dtype, seed=seed)
        y, _ = answer(operator, inputs, dtype=dtype)
        assert y.isfinite().all()
        inner = (slice(1, -1),) * y.ndim if name == "stencil_2d" else ...
        assert float((SUMS[name](**wide(operator, inputs)) / y.abs())[inner].nanmedian()) >= 1000


def test_every_operator_with_sums_of_either_sign_cancels(operator: Operator) -> None:
    assert functions(operator.folder).offers("cancel") == (operator.name in SUMS)


def test_references_keep_the_relations(operator: Operator) -> None:
    oracle, rng = Oracle(operator, functions(operator.folder), "fp32"), np.random.default_rng(0)
    found = set()
    for seed, workload in enumerate(operator.hidden):
        for family in turns(operator, seed, 1):
            case = oracle.case(workload, family, rng, at_end=False)
            for related in oracle.relations(case, rng):
                found.add(related.relation.name)
                before, after = shaped(operator, related.before), shaped(operator, related.after)
                with np.errstate(invalid="ignore"):
                    assert oracle.related_problem(related, before, after) is None
    assert found


def shaped(operator: Operator, case: Case) -> dict[str, torch.Tensor]:
    """The right outputs."""
    return {t.name: torch.from_numpy(case.expected[t.name]).reshape(t.sizes(case.dims)) for t in operator.outputs}


# --- the structure of sparse inputs -----------------------------------------------------------------------------------


def structures(rows: int, cols: int, nnz: int, family: str, count: int) -> list[np.ndarray]:
    """Lengths of the rows of several drawn matrices."""
    operator = load("spmv_csr")
    workload = Workload("test", {"rows": rows, "cols": cols, "nnz": nnz})
    lengths = []
    for seed in range(count):
        inputs = drawn(operator, workload, family=family, seed=seed)
        offsets, columns = inputs.tensors["row_offsets"].numpy(), inputs.tensors["col_indices"].numpy()
        assert offsets[0] == 0
        assert offsets[-1] == nnz
        assert columns.min() >= 0
        assert columns.max() < cols
        lengths.append(np.diff(offsets))
        assert lengths[-1].min() >= 0
        assert inputs.dims["max_row_nnz"] == lengths[-1].max()
    return lengths


def test_timed_matrices_are_uniform() -> None:
    for lengths in structures(1000, 500, 20_000, "nominal", 5):
        assert lengths.max() < 60
        assert lengths.std() == pytest.approx(math.sqrt(20), rel=0.2)


def test_checked_matrices_have_long_rows_empty_rows_and_power_laws() -> None:
    drawn_lengths = structures(1000, 500, 20_000, "scaled", 24)
    longest = np.array([lengths.max() for lengths in drawn_lengths])
    empty = np.array([(lengths == 0).sum() for lengths in drawn_lengths])
    assert (longest < 60).any(), "uniform"
    assert (longest > 9_000).any(), "half of all entries in one row"
    assert ((longest > 100) & (longest < 9_000) & (empty > 150)).any(), "a power law"


def test_no_shape_has_more_entries_than_places() -> None:
    operator = load("spmv_csr")
    for workload in (*operator.workloads, *operator.hidden):
        rows, cols, nnz = workload.dims.values()
        assert nnz <= rows * cols, "cuSPARSE refuses more"


def test_columns_are_unsorted_and_repeat() -> None:
    operator = load("spmv_csr")
    inputs = drawn(operator, Workload("test", {"rows": 4, "cols": 50, "nnz": 400}))
    offsets, columns = inputs.tensors["row_offsets"].numpy(), inputs.tensors["col_indices"].numpy()
    for start, end in itertools.pairwise(offsets):
        row = columns[start:end]
        assert (np.diff(row) < 0).any()
        assert len(set(row)) < len(row)


def test_the_same_seed_draws_the_same_matrix() -> None:
    operator = load("spmv_csr")
    first, again, other = (drawn(operator, operator.hidden[-1], family="scaled", seed=seed) for seed in (3, 3, 4))
    assert all(torch.equal(first.tensors[name], again.tensors[name]) for name in first.tensors)
    assert not torch.equal(first.tensors["col_indices"], other.tensors["col_indices"])


# --- naive kernels ---------------------------------------------------------------------------------------------------


C_TYPES = {"fp32": ctypes.c_float, "fp64": ctypes.c_double}
Naive = Callable[[Operator, Inputs, str], torch.Tensor]


@pytest.fixture(scope="session")
def naive_cpu(tmp_path_factory: pytest.TempPathFactory) -> Naive:
    """Runs naive.cpp through ctypes as its plan says."""
    folder = tmp_path_factory.mktemp("naive")

    @lru_cache
    def library(name: str, dtype: str) -> ctypes.CDLL:
        operator = load(name)
        source, target = folder / f"{name}-{dtype}.cpp", folder / f"{name}-{dtype}.so"
        text = operator.ancestor("naive", "cpu").read_text()
        plan = parse_plan(text, operator, "cpu")
        source.write_text(translation_unit(text, operator, plan, target="cpu", dtype=dtype, values={}))
        flags = [flag for flag in FLAGS if flag not in ("-fvisibility=hidden", "-w")]
        warnings = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-function")  # an operator may have nothing to store
        command = [CXX, *flags, *warnings, str(source), "-o", str(target), *LINK_FLAGS, *LIBRARIES]
        subprocess.run(command, check=True)
        return ctypes.CDLL(str(target))

    def run(operator: Operator, inputs: Inputs, dtype: str) -> torch.Tensor:
        plan = parse_plan(operator.ancestor("naive", "cpu").read_text(), operator, "cpu")
        resolved = plan.resolve(operator, dtype=dtype, dims=inputs.dims, values={}, facts=FACTS)
        output = torch.full(operator.outputs[0].sizes(inputs.dims), math.nan, dtype=TORCH_DTYPES[dtype])
        tensors = {**inputs.tensors, operator.outputs[0].name: output}
        scalars = {s.name: C_TYPES[resolve_dtype(s.dtype, dtype).name](s.value) for s in operator.scalars}
        assert not resolved.buffers
        for step in resolved.steps:
            values = [
                ctypes.c_void_p(tensors[a.name].data_ptr())
                if a.kind == "tensor"
                else scalars.get(a.name, ctypes.c_int(a.value or 0))
                for a in step.args
            ]
            getattr(library(operator.name, dtype), step.kernel)(*values)
        return output

    return run


@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
def test_naive_cpp_is_right_on_every_hidden_shape(operator: Operator, dtype: str, naive_cpu: Naive) -> None:
    for seed, workload in enumerate(operator.hidden):
        for family in turns(operator, seed, 3):
            inputs = drawn(operator, workload, family=family, seed=seed, dtype=dtype)
            y, allowed = answer(operator, inputs, family=family, dtype=dtype)
            assert worst(naive_cpu(operator, inputs, dtype), y, allowed) <= 1, (workload.name, family)


@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
def test_naive_cpp_is_right_on_the_cpu_workloads(operator: Operator, dtype: str, naive_cpu: Naive) -> None:
    for workload in operator.workload_set("cpu"):
        inputs = drawn(operator, workload, dtype=dtype)
        y, allowed = answer(operator, inputs, dtype=dtype)
        assert worst(naive_cpu(operator, inputs, dtype), y, allowed) <= 1, workload.name


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_the_plans_of_the_naive_kernels_resolve_everywhere(operator: Operator, target: str) -> None:
    path = operator.ancestor("naive", target)
    plan = parse_plan(path.read_text(), operator, target, name=path.name)
    for workload in (*operator.workloads, *operator.hidden):
        dims = {**workload.dims, **dict.fromkeys(operator.data_dims, 1)}
        for dtype in operator.dtypes[target]:
            assert plan.supports(operator, dims, {}, FACTS, dtype)
            resolved = plan.resolve(operator, dtype=dtype, dims=dims, values={}, facts=FACTS)
            assert len(resolved.steps) == 1


def test_every_setting_of_the_naive_cuda_tunables_resolves(operator: Operator) -> None:
    plan = parse_plan(operator.ancestor("naive", "cuda").read_text(), operator, "cuda")
    for name, values in plan.tune.items():
        for value in values:
            for workload in (*operator.workloads, *operator.hidden):
                dims = {**workload.dims, **dict.fromkeys(operator.data_dims, 1)}
                plan.resolve(operator, dtype="fp32", dims=dims, values={name: value}, facts=FACTS)
