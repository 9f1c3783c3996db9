"""The bundled operators: references against second implementations, bounds against real errors, naive kernels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import scipy.sparse
import torch

from fitness.oracle.bounds import judge
from fitness.oracle.cases import Case, Question
from fitness.oracle.inputs import CANCELLATION, TORCH_DTYPES, Inputs, draw, families
from fitness.oracle.verify import Oracle
from operators.catalog import folders, functions, load
from operators.definition.spec import Operator, Workload
from operators.dtypes import DTYPES, resolve_dtype
from operators.expression import parse
from operators.plan.reading import parse_plan
from tests.choosing import size, some_slow
from tests.operators.running import FACTS, Runner
from tests.operators.sampling import SAMPLE, every_operator, of_every_operator
from tests.operators.second import SECOND


@pytest.fixture(params=every_operator(("prefix_sum", "spmv_csr")))
def operator(request: pytest.FixtureRequest) -> Operator:
    """All of them with --slow."""
    found = load(request.param)
    if found.tolerance.bound == "bits":
        pytest.skip("what only moves values is compared bit by bit: tests/fitness/test_verify.py, admission")
    return found


@pytest.fixture(scope="session")
def naive_cpu(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return Runner(tmp_path_factory.mktemp("naive"))


def oracle(operator: Operator, dtype: str = "fp32") -> Oracle:
    return Oracle(operator, functions(operator.folder), dtype)


def drawn(
    operator: Operator, workload: Workload, *, family: str = "nominal", dtype: str = "fp32", seed: int = 0
) -> Inputs:
    rng = np.random.default_rng(seed)
    return draw(operator, functions(operator.folder), dims=workload.dims, dtype=dtype, family=family, rng=rng)


def asked(
    operator: Operator, workload: Workload, *, family: str = "nominal", dtype: str = "fp32", seed: int = 0
) -> Case:
    """The same inputs as `drawn`, and what is right and allowed."""
    return oracle(operator, dtype).case(workload, family, np.random.default_rng(seed), at_end=False)


def arguments(operator: Operator, inputs: Inputs, *, dtype: str = "fp32") -> dict[str, object]:
    """The arguments that functions of reference.py which get tensors of the task's dtype may name."""
    scalars = {s.name: s.value for s in operator.scalars}
    tensors = {n: t.clone() for n, t in inputs.tensors.items()}
    return {**inputs.dims, **scalars, **tensors, "dtype": DTYPES[dtype], "rng": np.random.default_rng(1)}


def wide(operator: Operator, inputs: Inputs, *, dtype: str = "fp32") -> dict[str, object]:
    """The arguments of the fp64 functions."""
    tensors = {n: t.double() if t.is_floating_point() else t.clone() for n, t in inputs.tensors.items()}
    return arguments(operator, inputs, dtype=dtype) | tensors


def by_name(operator: Operator, result: object) -> dict[str, torch.Tensor]:
    named = result if isinstance(result, Mapping) else {operator.outputs[0].name: result}
    return {n: y if isinstance(y, torch.Tensor) else torch.from_numpy(np.array(y)) for n, y in named.items()}


def library(operator: Operator, inputs: Inputs, dtype: str) -> dict[str, torch.Tensor]:
    offers, values = functions(operator.folder), arguments(operator, inputs, dtype=dtype)
    return by_name(operator, offers.library(values | {"prepared": offers.prepare(values)}))


def worst(case: Case, found: Mapping[str, torch.Tensor]) -> float:
    """Largest error as a multiple of what is allowed; infinite where NaN or an infinity is not met by the same."""
    return max(judge(flat(y), case.expected[n], case.allowed[n]).max_ratio for n, y in found.items())


def refused(case: Case, found: Mapping[str, torch.Tensor]) -> bool:
    """By the bound of an element or by that of all together."""
    judged = {n: judge(flat(y), case.expected[n], case.allowed[n]) for n, y in found.items()}
    return any(j.mismatches or case.quotient(n, j) > 1 for n, j in judged.items())


def flat(y: torch.Tensor) -> np.ndarray:
    return np.ascontiguousarray(y.double().reshape(-1).numpy())


def answers(operator: Operator, case: Case) -> dict[str, torch.Tensor]:
    """The right outputs in fp64."""
    return {
        t.name: torch.from_numpy(case.expected[t.name].copy()).reshape(t.sizes(case.dims)) for t in operator.outputs
    }


def turns(operator: Operator, number: int, count: int) -> list[str]:
    """Some families; all of them over several numbers."""
    known = families(functions(operator.folder))
    return [known[(count * number + i) % len(known)] for i in range(count)]


# --- what the folders declare -----------------------------------------------------------------------------------------


NO_LIBRARY: frozenset[str] = frozenset()
"""Operators that no vendor has, alone or out of a few calls."""
NO_FP16 = frozenset(
    {
        "cross_entropy_loss",
        "matrix_power",
        "stencil_2d",
        "stencil_3d",
        "triangle_attention",
        "triangle_multiplication",
    }
)
"""Their `inputs(...)` knows no such type, and runs that began with it must find it as it was."""
ASTRA = ("fused_add_rms_norm", "merge_attn_states", "silu_and_mul")
"""The kernels whose published protocol is fp16."""


@of_every_operator
def test_sets_dtypes_and_files(operator: Operator) -> None:
    assert operator.dtypes["cpu"] == ("fp32", "fp64", *(["fp16"] if operator.name in ASTRA else []))
    assert operator.dtypes["cuda"] == ("fp32", "bf16", *([] if operator.name in NO_FP16 else ["fp16"]))
    assert {w.set for w in operator.workloads} >= {"published", "realistic", "cpu"}
    assert len(operator.workload_set("realistic")) == len(operator.workload_set("cpu")) == 3
    for target in ("cpu", "cuda"):
        assert operator.ancestor("naive", target).is_file()
    for name in ("reference", "relations"):
        assert functions(operator.folder).offers(name)
    assert functions(operator.folder).offers("library") == (operator.name not in NO_LIBRARY)


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


COUNTED: Mapping[str, frozenset[str]] = {
    "batched_matrix_mul": frozenset({"batch"}),
    "high_order_contraction": frozenset({"nx"}),
    "matrix_power": frozenset({"power"}),
    "max_pooling_2d": frozenset({"batch", "size", "stride", "pad"}),
    "tensor_matrix_mul": frozenset({"batch"}),
    "triangle_attention": frozenset({"batch", "heads"}),
    "triangle_multiplication": frozenset({"batch"}),
}
"""Dims that count passes, steps or the like, or are what others make them: no kernel asks for multiples of them."""


@of_every_operator
def test_a_kernel_that_needs_divisible_dims_has_hidden_shapes_to_be_tested_on(operator: Operator) -> None:
    sizes = set(operator.dims) - COUNTED.get(operator.name, frozenset())
    for divisor in (4, 8, 16, 32):
        fitting = [w for w in operator.hidden if all(w.dims[n] and w.dims[n] % divisor == 0 for n in sizes)]
        assert len(fitting) >= 6, divisor


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


EVEN = frozenset({"fft"})
"""Operators of powers of two."""


@of_every_operator
def test_hidden_shapes_are_odd_enough(operator: Operator) -> None:
    counted = COUNTED.get(operator.name, frozenset())
    for dim in set(operator.dims) - counted:
        sizes = {w.dims[dim] for w in operator.hidden}
        assert 1 in sizes
        assert operator.name in EVEN or any(s > 1 and s % 2 for s in sizes)
    assert len(operator.hidden) >= 12
    odd = [w for w in operator.hidden if any(s % 2 for n, s in w.dims.items() if n not in counted)]
    assert operator.name in EVEN or len(odd) >= 6


@of_every_operator
def test_floors_are_below_the_counts_and_above_nothing(operator: Operator) -> None:
    for workload in operator.workloads:
        for dtype in ("fp32", "fp64", "bf16"):
            env = operator.cost_environment(workload.dims, dtype)
            flops, floor = operator.flops.evaluate(env), operator.min_flops.evaluate(env)
            assert 0 <= floor <= flops
            assert operator.min_bytes.evaluate(env) > 0


# --- references ------------------------------------------------------------------------------------------------------


def test_every_operator_has_a_second_implementation() -> None:
    assert set(SECOND) == set(folders())


def test_the_reference_agrees_with_a_second_implementation(operator: Operator) -> None:
    for seed, workload in enumerate(operator.hidden):
        for family in turns(operator, seed, 3):
            case = asked(operator, workload, family=family, seed=seed)
            values = wide(operator, case.inputs)
            arrays = {n: v.numpy() if isinstance(v, torch.Tensor) else v for n, v in values.items()}
            with np.errstate(all="ignore"):
                found = by_name(operator, SECOND[operator.name](**arrays))
            assert worst(case, found) < 1e-6, (workload.name, family)


@pytest.mark.parametrize("dtype", some_slow(["fp32", "fp64", "bf16"], 1))
def test_the_library_call_is_within_the_bound(operator: Operator, dtype: str) -> None:
    if operator.name in NO_LIBRARY:
        pytest.skip("no vendor has it")
    if (operator.family, dtype) == ("sparse", "bf16"):
        pytest.skip("torch has no sparse bf16 product on the CPU")
    for seed, workload in enumerate(operator.hidden):
        case = asked(operator, workload, dtype=dtype, seed=seed)
        found = library(operator, case.inputs, dtype)
        for tensor in operator.outputs:
            assert found[tensor.name].dtype == TORCH_DTYPES[resolve_dtype(tensor.dtype, dtype).name]
            assert tuple(found[tensor.name].shape) == tensor.sizes(case.dims)
        assert worst(case, found) <= 1, workload.name


def test_the_bound_rejects_zeros_one_wrong_element_and_the_next_lower_precision(operator: Operator) -> None:
    tried = passed = 0
    for seed, workload in enumerate(operator.hidden):
        case = asked(operator, workload, seed=seed)
        right = answers(operator, case)
        assert worst(case, right) == 0
        for name, y in right.items():
            if not y.count_nonzero():
                continue
            assert worst(case, right | {name: torch.zeros_like(y)}) > 1
            spoiled = y.clone()
            spoiled.view(-1)[-1] += max(8 * case.allowed[name][-1], 1e-3 * abs(float(y.view(-1)[-1])), 1e-30)
            assert worst(case, right | {name: spoiled}) > 1
            for lower in (y.float().bfloat16(), y.half()):
                if y.numel() >= 32 and not torch.equal(lower.double(), y):
                    tried += 1
                    passed += not refused(case, right | {name: lower})
    # A shape may leave nothing but rounding, as one channel does of its norm; a verdict has all of them.
    assert passed <= tried / 20
    assert tried > 0 or max(len(y) for y in case.expected.values()) == 1


@pytest.mark.parametrize("cols", [1, 64, 1000, 4096, 65536])
def test_the_softmax_bound_holds_for_plain_sums_whatever_the_scale_of_a_row(cols: int) -> None:
    operator, rng = load("softmax"), np.random.default_rng(cols)
    for exponent in range(-16, 13, 2):
        x = (rng.uniform(-1, 1, (8, cols)) * 2.0**exponent).astype(np.float32)
        exponentials = np.exp(x - x.max(axis=1, keepdims=True))
        plain = exponentials / np.cumsum(exponentials, axis=1)[:, -1:]
        judge_, dims = oracle(operator), {"rows": 8, "cols": cols}
        question = judge_._question(
            Workload("test", dims), "nominal", Inputs({"x": torch.from_numpy(x)}, dims), at_end=False
        )
        assert worst(judge_._answered(question, None), {"y": torch.from_numpy(plain)}) <= 0.8


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
        case = asked(operator, Workload("test", LARGE[name]), family=CANCELLATION, dtype=dtype, seed=seed)
        [y], inputs = answers(operator, case).values(), case.inputs
        assert y.isfinite().all()
        inner = (slice(1, -1),) * y.ndim if name == "stencil_2d" else ...
        assert float((SUMS[name](**wide(operator, inputs)) / y.abs())[inner].nanmedian()) >= 1000


@pytest.mark.parametrize("name", SAMPLE)
def test_every_operator_with_sums_of_either_sign_cancels(name: str) -> None:
    assert functions(load(name).folder).offers("cancel") == (name in SUMS)


def test_references_keep_the_relations(operator: Operator) -> None:
    judging, rng = oracle(operator), np.random.default_rng(0)
    found = set()
    for seed, workload in enumerate(operator.hidden):
        for family in turns(operator, seed, 1):
            case = judging.case(workload, family, rng, at_end=False)
            for related in judging.relations(case, rng):
                found.add(related.relation.name)
                before, after = answers(operator, related.before), answers(operator, related.after)
                with np.errstate(invalid="ignore"):
                    assert judging.related_problem(related, before, after) is None
    assert found


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


@pytest.mark.parametrize("dtype", some_slow(["fp32", "fp64"], 1))
def test_naive_cpp_is_right_on_every_hidden_shape(operator: Operator, dtype: str, naive_cpu: Runner) -> None:
    for seed, workload in enumerate(operator.hidden):
        for family in turns(operator, seed, 3):
            case = asked(operator, workload, family=family, seed=seed, dtype=dtype)
            assert worst(case, naive_cpu.run(operator, case.inputs, dtype)) <= 1, (workload.name, family)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp64", "fp32"])
def test_naive_cpp_is_right_on_the_cpu_workloads(operator: Operator, dtype: str, naive_cpu: Runner) -> None:
    """A plain sum of many squares loses the small ones: as in a verdict, the bound knows what the naive one is off."""

    def trusted(question: Question) -> list[dict[str, torch.Tensor]]:
        return [naive_cpu.run(operator, question.inputs, dtype)]

    for workload in operator.workload_set("cpu"):
        rng = np.random.default_rng(0)
        case = oracle(operator, dtype).case(workload, "nominal", rng, at_end=False, trusted=trusted)
        assert worst(case, naive_cpu.run(operator, case.inputs, dtype)) <= 1, workload.name


@pytest.mark.parametrize("name", some_slow(ASTRA, 1))
def test_naive_cpp_of_kernels_that_were_published_in_fp16_is_right_in_it(name: str, naive_cpu: Runner) -> None:
    test_naive_cpp_is_right_on_every_hidden_shape(load(name), "fp16", naive_cpu)


@of_every_operator
def test_the_plans_of_all_ancestors_resolve_everywhere(operator: Operator) -> None:
    for path in (*operator.folder.glob("*.cpp"), *operator.folder.glob("*.cu")):
        target = "cpu" if path.suffix == ".cpp" else "cuda"
        plan = parse_plan(path.read_text(), operator, target, name=path.name)
        supported = 0
        for workload in (*operator.workloads, *operator.hidden):
            dims = {**workload.dims, **dict.fromkeys(operator.data_dims, 1)}
            for dtype in operator.dtypes[target]:
                if not plan.supports(operator, dims, {}, FACTS, dtype):
                    assert path.stem != "naive"
                    continue
                supported += workload.set == "hidden"
                if supported % size(1, 4) == 0:
                    assert plan.resolve(operator, dtype=dtype, dims=dims, values={}, facts=FACTS).steps
        assert supported >= 12, "six hidden shapes of each dtype"


@of_every_operator
def test_every_setting_of_the_naive_cuda_tunables_resolves(operator: Operator) -> None:
    plan = parse_plan(operator.ancestor("naive", "cuda").read_text(), operator, "cuda")
    for name, values in plan.tune.items():
        for value in values:
            for workload in (*operator.workloads, *operator.hidden)[:: size(1, 4)]:
                dims = {**workload.dims, **dict.fromkeys(operator.data_dims, 1)}
                plan.resolve(operator, dtype="fp32", dims=dims, values={name: value}, facts=FACTS)
