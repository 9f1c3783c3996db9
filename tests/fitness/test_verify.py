"""The oracle: what it accepts, what it rejects, and what it says."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fitness.evaluation import CheckError
from fitness.oracle.bounds import (
    RMS_LIMIT,
    ErrorBound,
    Judgement,
    Precision,
    analysed,
    element_bound,
    naively,
    rms_limit,
)
from fitness.oracle.bounds import judge as compare
from fitness.oracle.cases import Case, Question, Trusted
from fitness.oracle.inputs import TORCH_DTYPES
from fitness.oracle.places import CpuPlace
from fitness.oracle.verify import Oracle, worst
from fitness.sandbox.memory import Region
from fitness.words import digits
from operators.catalog import functions, load
from operators.definition.spec import Workload
from operators.dtypes import DTYPES
from operators.errors import OperatorError
from tests.choosing import examples, some_slow
from tests.operators.sampling import SAMPLE

Sum = Callable[[np.ndarray], np.ndarray]
"""A sum over the last axis, in the type of its argument."""


def sequential(terms: np.ndarray) -> np.ndarray:
    return np.cumsum(terms, axis=-1, dtype=terms.dtype)[..., -1]


def pairwise(terms: np.ndarray) -> np.ndarray:
    while terms.shape[-1] > 1:
        if terms.shape[-1] % 2:
            terms = np.concatenate([terms, np.zeros_like(terms[..., :1])], axis=-1)
        terms = terms[..., ::2] + terms[..., 1::2]
    return terms[..., 0]


def blocked(terms: np.ndarray) -> np.ndarray:
    parts = [sequential(terms[..., i : i + 32]) for i in range(0, terms.shape[-1], 32)]
    return sequential(np.stack(parts, axis=-1))


def wider(terms: np.ndarray) -> np.ndarray:
    return terms.astype(np.longdouble).sum(axis=-1).astype(terms.dtype)


def kahan(terms: np.ndarray) -> np.ndarray:
    total, low = np.zeros_like(terms[..., 0]), np.zeros_like(terms[..., 0])
    for i in range(terms.shape[-1]):
        y = terms[..., i] - low
        t = total + y
        low = (t - total) - y
        total = t
    return total


SUMS: Sequence[Sum] = (sequential, pairwise, blocked, wider, kahan)


def fewer_bits(values: np.ndarray, bits: int) -> np.ndarray:
    mantissa, exponent = np.frexp(values.astype(np.float64))
    return np.ldexp(np.round(mantissa * 2.0**bits) * 2.0**-bits, exponent).astype(values.dtype)


def product(case: Question, total: Sum, *, bits: int = 53) -> np.ndarray:
    """A matrix product in the type of the inputs, from factors of so many bits."""
    a, b = (fewer_bits(case.inputs.tensors[n].numpy(), bits) for n in ("a", "b"))
    with np.errstate(invalid="ignore"):
        return total(a[:, None, :] * b.T[None, :, :])


def naive(question: Question) -> list[dict[str, np.ndarray]]:
    return [{"c": product(question, sequential)}]


def oracle(name: str, dtype: str = "fp32") -> Oracle:
    operator = load(name)
    return Oracle(operator, functions(operator.folder), dtype)


def matrix_case(
    m: int,
    n: int,
    k: int,
    family: str = "nominal",
    *,
    dtype: str = "fp32",
    seed: int = 0,
    trusted: Trusted | None = naive,
) -> tuple[Oracle, Case]:
    judge, rng = oracle("matrix_mul", dtype), np.random.default_rng(seed)
    workload = Workload("test", {"m": m, "n": n, "k": k})
    return judge, judge.case(workload, family, rng, at_end=False, trusted=trusted)


def filled(judge: Oracle, case: Question, outputs: Mapping[str, np.ndarray | torch.Tensor]) -> Region:
    """A work region that holds these outputs, in their own types."""
    work = Region(judge.work_sizes(case.dims), at_end=False)
    for tensor in judge.operator.outputs:
        kind = TORCH_DTYPES[judge.element(tensor).name]
        value = torch.as_tensor(outputs[tensor.name])
        held = torch.frombuffer(work.view(tensor.name), dtype=kind) if value.numel() else torch.empty(0)
        held[:] = value.reshape(-1)
    return work


def errors(judge: Oracle, case: Case, outputs: Mapping[str, np.ndarray | torch.Tensor]) -> list[CheckError]:
    return list(judge.errors(case, filled(judge, case, outputs)))


def wrong(judge: Oracle, case: Case, outputs: Mapping[str, np.ndarray | torch.Tensor]) -> bool:
    return any(error.wrong for error in errors(judge, case, outputs))


def library(judge: Oracle, case: Case) -> dict[str, torch.Tensor]:
    values = {**case.inputs.dims, **{s.name: s.value for s in judge.operator.scalars}, **case.inputs.tensors}
    result = judge.functions.library(values | {"prepared": judge.functions.prepare(values)})
    return result if isinstance(result, dict) else {judge.operator.outputs[0].name: result}


# --- right sums, wrong sums ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("total", SUMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", some_slow(["fp32", "fp64"], 1))
@examples(15)
@given(
    family=st.sampled_from(["nominal", "scaled", "integers", "structured", "mixture", "cancellation"]),
    k=st.integers(1, 300),
    seed=st.integers(0, 2**32),
)
def test_sums_in_any_order_are_right(total: Sum, dtype: str, family: str, k: int, seed: int) -> None:
    judge, case = matrix_case(11, 13, k, family, dtype=dtype, seed=seed)
    [error] = errors(judge, case, {"c": product(case, total)})
    assert not error.wrong, error


@pytest.mark.parametrize("trusted", [naive, None])
@pytest.mark.parametrize("total", SUMS, ids=lambda f: f.__name__)
def test_so_they_are_without_a_naive_kernel_and_in_long_sums(total: Sum, trusted: Trusted | None) -> None:
    judge, case = matrix_case(8, 10, 4096, trusted=trusted)
    assert not wrong(judge, case, {"c": product(case, total)})


@examples(25)
@given(dtype=st.sampled_from(["fp32", "fp64"]), k=st.integers(2, 300), seed=st.integers(0, 2**32))
def test_what_is_no_product_is_rejected(dtype: str, k: int, seed: int) -> None:
    judge, case = matrix_case(11, k, k, dtype=dtype, seed=seed)
    right = product(case, sequential)
    spoiled = right.copy()
    place = seed % right.size
    spoiled.flat[place] = case.expected["c"][place] + 8 * case.allowed["c"][place]
    for found in (np.zeros_like(right), np.full_like(right, right.mean()), case.inputs.tensors["a"], spoiled):
        assert wrong(judge, case, {"c": found})
    assert [e.first_bad for e in errors(judge, case, {"c": spoiled})] == [place]


@pytest.mark.parametrize("family", ["nominal", "cancellation"])
@pytest.mark.parametrize(("bits", "times"), [(11, 20), (13, 5), (16, 1)])
def test_products_of_fewer_bits_are_found_in_long_sums(family: str, bits: int, times: float) -> None:
    judge, case = matrix_case(12, 10, 3000, family)
    [error] = errors(judge, case, {"c": product(case, sequential, bits=bits)})
    assert error.rms_ratio > times


def test_the_bounds_of_elements_alone_would_let_them_pass() -> None:
    judge, case = matrix_case(12, 10, 3000)
    [error] = errors(judge, case, {"c": product(case, sequential, bits=14)})
    assert error.mismatches == 0
    assert error.wrong


PRECISIONS = ("fp64", "fp32", "fp16", "bf16")


@pytest.mark.parametrize(
    ("name", "dtype"),
    some_slow([(n, dtype) for dtype in PRECISIONS for n in SAMPLE], {*zip(SAMPLE, PRECISIONS * 2, strict=True)}),
)
def test_the_next_lower_precision_is_rejected_for_every_operator(name: str, dtype: str) -> None:
    if not any(dtype in names for names in load(name).dtypes.values()):
        pytest.skip(f"no {dtype}")
    judge, rng = oracle(name, dtype), np.random.default_rng(0)
    lower = {"fp64": 24, "fp32": 11, "fp16": 8, "bf16": 4}[dtype]
    tried = 0
    for workload in judge.operator.hidden:
        case = judge.case(workload, "nominal", rng, at_end=True)
        right = {n: y.astype(np.float64) for n, y in case.expected.items()}
        rounded = {n: fewer_bits(y, lower) for n, y in right.items()}
        assert not wrong(judge, case, right), "the right values, rounded to the output's type"
        if all(np.array_equal(right[n], rounded[n]) for n in right) or min(map(len, right.values())) < 16:
            continue
        tried += 1
        assert wrong(judge, case, rounded), workload.name
    assert tried > 0 or name == "cross_entropy_loss"  # one result, in which chance may hide a rounding


@pytest.mark.parametrize("name", some_slow(SAMPLE, ("matrix_mul", "softmax", "spmv_csr")))
def test_libraries_are_right_and_zeros_and_copies_are_not(name: str) -> None:
    for dtype in load(name).dtypes["cpu"]:
        judge = oracle(name, dtype)
        for seed, workload in enumerate(judge.operator.hidden):
            case = judge.case(workload, "nominal", np.random.default_rng(seed), at_end=True)
            right = library(judge, case)
            assert not wrong(judge, case, right), (dtype, workload.name)
            if any(len(y) and y.any() for y in case.expected.values()):
                assert wrong(judge, case, {n: torch.zeros_like(y) for n, y in right.items()})
                assert wrong(judge, case, {n: torch.full_like(y, math.nan) for n, y in right.items()})


def test_a_float_in_an_fp64_task_is_wrong_in_every_element() -> None:
    judge, case = matrix_case(9, 9, 50, dtype="fp64")
    [error] = errors(judge, case, {"c": case.expected["c"].astype(np.float32).astype(np.float64)})
    assert error.mismatches > 70


def test_equal_terms_that_round_alike_are_right() -> None:
    judge = oracle("matrix_mul")
    workload = Workload("test", {"m": 2, "n": 2, "k": 2**14})
    for seed in range(12):  # one of six structures is constant
        case = judge.case(workload, "structured", np.random.default_rng(seed), at_end=False, trusted=naive)
        assert not wrong(judge, case, {"c": product(case, sequential)})


# --- the gate on all errors together ---------------------------------------------------------------------------------


def test_noise_within_bounds_is_rejected_when_trusted_kernels_have_less() -> None:
    judge, case = matrix_case(40, 50, 256)
    noise = np.random.default_rng(1).uniform(-0.9, 0.9, 2000)
    work = filled(judge, case, {"c": case.expected["c"] + noise * case.allowed["c"]})
    [error] = judge.errors(case, work)
    assert error.mismatches == 0
    assert error.max_ratio < 1 < error.rms_ratio
    assert error.wrong
    text = judge.describe(error, case, work)
    assert "no element of `c` is out of bounds" in text
    assert f"{digits(error.rms_ratio)} times larger than rounding to fp32 explains" in text
    assert "\n" not in text


@given(
    rms=st.floats(0.0, 1.0),
    usual=st.floats(0.0, 0.2),
    independent=st.integers(0, 10**6),
    one_of_many=st.booleans(),
    dtype=st.sampled_from(("fp32", "bf16")),
)
def test_what_errs_as_a_trusted_kernel_did_is_within_the_limit(
    rms: float, usual: float, independent: int, one_of_many: bool, dtype: str
) -> None:
    """Sums of equal terms, in the order in which threads come to add them, err seven times as much as in another."""
    precision = Precision(DTYPES[dtype], DTYPES["fp32"], DTYPES[dtype])
    limits = ErrorBound(np.ones(1), least_rms=usual / 4, usual_rms=usual)
    trusted = [Judgement(rms, rms, 0, None, independent)]
    limit = rms_limit(precision, limits, trusted, naive=True, one_of_many=one_of_many)
    assert limit >= RMS_LIMIT[dtype] * rms


@examples(40)
@given(m=st.integers(1, 8), n=st.integers(1, 8), k=st.integers(17, 400), seed=st.integers(0, 2**32))
def test_few_results_never_fail_by_chance(m: int, n: int, k: int, seed: int) -> None:
    judge, case = matrix_case(m, n, k, seed=seed)
    for total in (pairwise, blocked, sequential):
        reverse = total(
            case.inputs.tensors["a"].numpy()[:, None, ::-1] * case.inputs.tensors["b"].numpy().T[None, :, ::-1]
        )
        assert not wrong(judge, case, {"c": reverse})


def cut_off(products: np.ndarray, at_once: int) -> np.ndarray:
    """Sums of rows as tensor cores make them: after every `at_once` terms what fp32 does not hold is cut off."""
    cut = np.zeros(len(products))
    for part in products.astype(np.float64).reshape(len(products), -1, at_once).sum(axis=2).T:
        rounded = (cut + part).astype(np.float32)
        towards_zero = np.nextafter(rounded, np.float32(0))
        cut = np.where(np.abs(rounded) > np.abs(cut + part), towards_zero, rounded).astype(np.float64)
    return cut


@pytest.mark.parametrize("terms", [256, 4096])
def test_sums_that_tensor_cores_cut_off_pass_where_inputs_have_16_bits(terms: int) -> None:
    rng = np.random.default_rng(terms)
    a, b = (torch.from_numpy(rng.uniform(-1, 1, (1000, terms))).bfloat16().double().numpy() for _ in range(2))
    products = (a * b).astype(np.float32)
    exact = products.sum(axis=1, dtype=np.float64)
    y64, s = exact / 2**10, np.abs(products).sum(axis=1, dtype=np.float64)  # as if the sum itself had cancelled
    cut = cut_off(products, 16)
    precision = Precision(DTYPES["bf16"], DTYPES["fp32"], DTYPES["bf16"])
    limits = element_bound(precision, y64, s, terms=terms, roundoffs=analysed(precision, terms, "cancellation"))
    totals = (sequential(products), cut, cut.astype(np.float16))
    naive, tensor, half = (compare(y64 + (total - exact), y64, limits.allowed) for total in totals)
    limit = rms_limit(precision, limits, [naive], naive=True)
    assert tensor.rms_ratio < limit < half.rms_ratio


def test_a_trusted_kernel_that_is_wrong_sets_no_standard() -> None:
    def broken(question: Question) -> list[dict[str, np.ndarray]]:
        return [{"c": product(question, sequential)}, {"c": 2 * product(question, sequential)}]

    _, right = matrix_case(40, 50, 256)
    _, spoiled = matrix_case(40, 50, 256, trusted=broken)
    assert spoiled.rms_limit == right.rms_limit


def test_the_worst_of_many_checks_counts_both_gates() -> None:
    checks = [CheckError("w", "y", "nominal", 0.5, 0), CheckError("w", "y", "nominal", 0.3, 0, None, 2.0)]
    assert worst(checks) == (checks[1],)
    assert checks[1].wrong
    assert not checks[0].wrong


def tf32(values: np.ndarray, *, cut: bool = False) -> np.ndarray:
    """The TF32 numbers as fp32 holds them; rounded to nearest, or cut off."""
    bits = values.astype(np.float32).view(np.uint32) + np.uint32(0 if cut else 0x1000)
    return (bits & np.uint32(0xFFFFE000)).view(np.float32)


@pytest.mark.parametrize("terms", [256, 4096])
def test_on_tensor_cores_products_in_parts_pass_and_lone_ones_do_not(terms: int) -> None:
    rng = np.random.default_rng(terms)
    a, b = (rng.uniform(-1, 1, (1000, terms)).astype(np.float32) for _ in range(2))
    exact = (a.astype(np.float64) * b).sum(axis=1)
    s = np.abs(a.astype(np.float64) * b).sum(axis=1)
    precision = Precision(DTYPES["fp32"], DTYPES["fp32"], DTYPES["fp32"])
    roundoffs = analysed(precision, terms, "nominal")
    totals = (sequential(a * b), cut_off(a.astype(np.float64) * b, 8), cut_off(tf32(a).astype(np.float64) * tf32(b), 8))
    for tensor_cores in (False, True):
        limits = element_bound(
            precision, exact, s, terms=terms, roundoffs=roundoffs, sums=True, tensor_cores=tensor_cores
        )
        naive, parts, lone = (compare(total, exact, limits.allowed) for total in totals)
        limit = rms_limit(precision, limits, [naive], naive=True)
        assert limit < lone.rms_ratio
        assert (parts.rms_ratio < limit) == (tensor_cores or terms == 256)


def three_products(case: Question) -> np.ndarray:
    """A product of fp32 matrices on tensor cores for TF32: of what is rounded, and of what is left, cut off."""
    a, b = (case.inputs.tensors[name].numpy() for name in ("a", "b"))
    a_high, b_high = (np.where(np.isfinite(x), tf32(x), x) for x in (a, b))
    with np.errstate(invalid="ignore"):
        a_low, b_low = (
            np.where(np.isfinite(x), tf32(x - y, cut=True), np.float32(0)) for x, y in ((a, a_high), (b, b_high))
        )
        large, *small = (
            sequential(x[:, None, :] * y.T[None, :, :]) for x, y in ((a_high, b_high), (a_high, b_low), (a_low, b_high))
        )
        rest = small[0] + small[1]
        return large + np.where(np.isfinite(rest), rest, np.float32(0))


@pytest.mark.parametrize("family", ["nominal", "scaled", "structured", "specials", "mixture", "cancellation"])
@pytest.mark.parametrize("k", some_slow([96, 1, 5, 320], 1))
def test_three_products_of_tf32_are_a_product_of_fp32_and_one_is_not(family: str, k: int) -> None:
    for seed in range(6):
        judge, case = matrix_case(33, 31, k, family, seed=seed)
        [error] = errors(judge, case, {"c": three_products(case)})
        assert not error.wrong, error
        if family == "nominal":
            assert wrong(judge, case, {"c": product(case, sequential, bits=11)})


def three_products_of_bf16(case: Question) -> np.ndarray:
    """A product of fp32 matrices of numbers in two parts of eight bits each, which hold 16 or 17 bits of 24."""
    parts = []
    for name in ("a", "b"):
        whole = case.inputs.tensors[name]
        high = whole.bfloat16().float()
        parts.append((high.numpy(), (whole - high).bfloat16().float().numpy()))
    (a, a_low), (b, b_low) = parts
    large, *small = (sequential(x[:, None, :] * y.T[None, :, :]) for x, y in ((a, b), (a, b_low), (a_low, b)))
    found: np.ndarray = large + (small[0] + small[1])
    return found


@pytest.mark.parametrize("k", [512, 4096])
def test_what_few_elements_carry_shows_products_of_two_parts_of_bf16(k: int) -> None:
    """Sums of this length hide their errors on tensor cores, where they are twice as fast as those of TF32."""
    operator = load("matrix_mul")
    judge = Oracle(operator, functions(operator.folder), "fp32", WithTensorCores())
    hidden = 0
    for seed, family in enumerate(("nominal", *["few"] * 6)):
        case = judge.case(
            Workload("test", {"m": 8, "n": 9, "k": k}), family, np.random.default_rng(seed), at_end=False, trusted=naive
        )
        assert not wrong(judge, case, {"c": three_products(case)})
        hidden += not wrong(judge, case, {"c": three_products_of_bf16(case)})
    assert hidden == 1  # on nominal inputs


# --- one long sum ----------------------------------------------------------------------------------------------------


def sum_case(name: str, family: str, seed: int, n: int = 250_001) -> tuple[Oracle, Case, np.ndarray]:
    """A case of an operator that makes one number of two vectors, and its terms in fp32."""
    judge = oracle(name)

    def terms(question: Question) -> np.ndarray:
        x, y = (question.inputs.tensors[t].numpy() for t in "xy")
        return x * y if name == "dot_product" else (x - y) ** 2 / np.float32(n)

    def naive(question: Question) -> list[dict[str, np.ndarray]]:
        return [{judge.operator.outputs[0].name: sequential(terms(question))}]

    case = judge.case(Workload("test", {"n": n}), family, np.random.default_rng(seed), at_end=False, trusted=naive)
    return judge, case, terms(case)


@pytest.mark.parametrize("name", ["dot_product", "mse_loss"])
def test_one_number_of_a_long_sum_has_bounds_that_bite(name: str) -> None:
    """Nothing passes what is timed: zero, one term in 16 skipped, all but the last sixteenth."""
    found: dict[str, int] = dict.fromkeys(("zero", "skipped", "begun"), 0)
    for seed in range(5):
        judge, case, terms = sum_case(name, "nominal", seed)
        output = judge.operator.outputs[0].name
        for total in (sequential, pairwise, wider):
            assert not wrong(judge, case, {output: total(terms)})
        in_16 = np.arange(len(terms)) % 16 != seed
        found["zero"] += wrong(judge, case, {output: np.float32(0)})
        found["skipped"] += wrong(judge, case, {output: sequential(terms[in_16])})
        found["begun"] += wrong(judge, case, {output: sequential(terms[: len(terms) // 16 * 15])})
    assert min(found.values()) >= 4  # of a dot product's, a sixteenth may come to nothing


def test_what_few_elements_carry_is_exact_and_shows_fewer_bits() -> None:
    caught = 0
    for seed in range(10):
        judge, case, terms = sum_case("dot_product", "few", seed)
        assert not wrong(judge, case, {"product": blocked(terms)})
        x, y = (tf32(case.inputs.tensors[t].numpy()) for t in "xy")
        if np.abs(terms).any():
            caught += wrong(judge, case, {"product": sequential(x * y)})
            assert wrong(judge, case, {"product": sequential(terms) + np.float32(1)})
    assert caught >= 5  # rounding up and down may come to nothing


@pytest.mark.slow
def test_a_long_sum_that_the_naive_kernel_adds_in_a_row_may_err_as_that_does() -> None:
    """Equal terms: its roundings all go the same way."""
    n = 1 << 25
    rng = np.random.default_rng(0)
    precision = Precision(DTYPES["fp32"], DTYPES["fp32"], DTYPES["fp32"])
    terms = np.full(n, rng.uniform(0.1, 1), np.float32)
    exact = np.array([terms.astype(np.float64).sum()])
    row, halves = (np.array([total(terms)], np.float64) for total in (sequential, pairwise))
    asked = analysed(precision, n, "structured")
    for naive, passes in ((row, True), (halves, False)):
        roundoffs = naively(precision, n, asked, exact, exact, [naive])
        limits = element_bound(precision, exact, exact, terms=n, roundoffs=roundoffs)
        assert (compare(row, exact, limits.allowed).max_ratio <= 1) == passes
        assert compare(halves, exact, limits.allowed).max_ratio <= 1


class WithTensorCores(CpuPlace):
    """It holds outputs to what a GPU's kernels are held to."""

    target = "cuda"


def chained(case: Question, first: int, *, blocks: int = 8) -> np.ndarray:
    """Products of parts on tensor cores in one accumulator, cut off after every 8 terms: three, or the last alone.

    So many blocks divide the sum.
    """
    a, b = (case.inputs.tensors[name].numpy() for name in "ab")
    a_high, b_high = tf32(a), tf32(b)
    a_low, b_low = tf32(a - a_high, cut=True), tf32(b - b_high, cut=True)
    shape = (blocks, a.shape[1] // (8 * blocks), 8)  # steps of a block, and terms that a step adds at once
    steps = [
        np.einsum("ibsl,bslj->sbij", x.astype(np.float64).reshape(-1, *shape), y.reshape(*shape, b.shape[1]))
        for x, y in ((a_low, b_high), (a_high, b_low), (a_high, b_high))[first:]
    ]
    chain = np.zeros(steps[0].shape[1:], np.float32)
    for parts in zip(*steps, strict=True):
        for part in parts:
            exact = chain + part
            chain = exact.astype(np.float32)
            chain = np.where(np.abs(chain) > np.abs(exact), np.nextafter(chain, np.float32(0)), chain)
    return chain.sum(axis=0, dtype=np.float32)


@pytest.mark.parametrize("k", [1024, 4096, 16384])
def test_three_products_may_lean_to_one_side_as_tensor_cores_cut_off_and_one_may_not(k: int) -> None:
    """Most numbers of the family are positive, so that sums grow all the way and every cut takes from them."""
    operator = load("matrix_mul")
    judge = Oracle(operator, functions(operator.folder), "fp32", WithTensorCores())
    for seed in range(3):
        shape = Workload("test", {"m": 5, "n": 7, "k": k})
        case = judge.case(shape, "unnoticed", np.random.default_rng(seed), at_end=False, trusted=naive_by_rows)
        assert not wrong(judge, case, {"c": chained(case, 0, blocks=1)})
        assert wrong(judge, case, {"c": chained(case, 2, blocks=1)}) or k > 4096


@pytest.mark.slow
def test_of_a_very_long_sum_three_products_pass_and_one_does_not() -> None:
    shape = Workload("test", {"m": 2, "n": 3, "k": 524288})
    operator, lone = load("matrix_mul"), 0
    judge = Oracle(operator, functions(operator.folder), "fp32", WithTensorCores())
    for seed, family in enumerate(("nominal", "few", "few", "scaled", "cancellation")):
        case = judge.case(shape, family, np.random.default_rng(seed), at_end=False, trusted=naive_by_rows)
        assert not wrong(judge, case, {"c": chained(case, 0)}), family
        if family == "few":
            lone += wrong(judge, case, {"c": chained(case, 2)})
    assert lone == 2


def naive_by_rows(question: Question) -> list[dict[str, np.ndarray]]:
    a, b = (question.inputs.tensors[name].numpy() for name in "ab")
    return [{"c": np.array([[sequential(row * column) for column in b.T] for row in a])}]


def test_infinity_less_its_first_part_is_no_number_and_may_stand_for_it() -> None:
    """Where products are made of parts; a finite number may not, and neither may NaN where parts are not allowed."""
    for seed in range(100):  # half of all cases have none
        judge, case = matrix_case(33, 31, 96, "specials", seed=seed)
        expected = case.expected["c"].astype(np.float32)
        with np.errstate(invalid="ignore"):
            assert not wrong(judge, case, {"c": expected + 0 * np.where(np.isinf(expected), expected, 0)})
        if np.isinf(expected).any():
            assert wrong(judge, case, {"c": np.where(np.isinf(expected), np.float32(3e38), expected)})
            return
    raise AssertionError("no infinity was drawn")


def test_a_softmax_without_the_largest_of_its_row_never_passes_what_few_carry() -> None:
    judge = oracle("softmax")
    for seed in range(10):
        case = judge.case(Workload("test", {"rows": 4, "cols": 4096}), "few", np.random.default_rng(seed), at_end=False)
        x = case.inputs.tensors["x"].numpy()
        for largest in (np.zeros((4, 1), np.float32), x[:, :64].max(axis=1, keepdims=True)):
            with np.errstate(over="ignore", invalid="ignore"):
                y = np.exp(x - largest)
                assert wrong(judge, case, {"y": y / y.sum(axis=1, keepdims=True)}) or x.max() <= 0


def test_a_sum_of_a_sorted_row_may_lean_to_one_side() -> None:
    """It leans as a softmax does that multiplies its sum, with every larger term, by a factor that is nearly 1."""
    judge = oracle("softmax")
    operator, rng, leant = judge.operator, np.random.default_rng(0), 0.0
    for _ in range(8):
        case = judge.case(Workload("test", {"rows": 32, "cols": 6112}), "structured", rng, at_end=False)
        x = case.inputs.tensors["x"].numpy()
        largest, total = np.full(32, -np.inf, np.float32), np.zeros(32, np.float32)
        for column in x.T:
            above = np.maximum(largest, column)
            total = total * np.exp(largest - above) + np.exp(column - above)
            largest = above
        [error] = errors(judge, case, {operator.outputs[0].name: np.exp(x - largest[:, None]) / total[:, None]})
        assert not error.wrong, error
        leant = max(leant, error.max_ratio)
    assert leant > 0.002


def test_before_a_kernel_fails_by_the_rms_alone_it_is_looked_at_twice() -> None:
    judge, case = matrix_case(40, 50, 256)
    limit, asked = case.rms_limit["c"], []

    def wider() -> dict[str, float]:
        asked.append(limit)
        return {"c": 2 * limit}

    case = replace(case, second_look=wider)
    for share, looks, passes in ((0.9, 0, True), (1.5, 1, True), (3.0, 2, False)):
        case.rms_limit["c"] = limit
        off = np.where(np.arange(2000) % 2, 1, -1) * share * limit * case.allowed["c"]
        [error] = errors(judge, case, {"c": case.expected["c"] + off})
        assert error.wrong is not passes
        assert len(asked) == looks


# --- bits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "bf16"])
@pytest.mark.parametrize("family", ["nominal", "structured", "specials"])
def test_a_copy_keeps_signs_of_zeros_and_payloads(dtype: str, family: str) -> None:
    judge = oracle("matrix_copy", dtype)
    case = judge.case(Workload("test", {"rows": 7, "cols": 9}), family, np.random.default_rng(3), at_end=True)
    x = case.inputs.tensors["x"]
    assert x.isnan().any()
    assert ((x == 0) & x.signbit()).any()
    canonical = torch.where(x.isnan(), torch.full_like(x, math.nan), x)
    assert not wrong(judge, case, {"y": x})
    for found in (x + 0.0, canonical, torch.where(x == 0, torch.zeros_like(x), x), x.abs()):
        work = filled(judge, case, {"y": found})
        [error] = judge.errors(case, work)
        assert error.wrong
        text = judge.describe(error, case, work)
        assert "bit by bit" in text
        assert "\n" not in text


@pytest.mark.parametrize("name", ["matrix_transpose", "reverse_array"])
@pytest.mark.parametrize("dtype", ["fp64", "fp32", "bf16"])
def test_what_is_moved_is_moved_bit_by_bit(name: str, dtype: str) -> None:
    judge = oracle(name, dtype)
    for seed, workload in enumerate(judge.operator.hidden[:6]):
        case = judge.case(workload, "mixture", np.random.default_rng(seed), at_end=True)
        moved = judge.functions.reference(dict(case.inputs.tensors))
        right = {n: y.contiguous() for n, y in moved.items()}
        assert not wrong(judge, case, right)
        assert wrong(judge, case, {n: y + 0.0 for n, y in right.items()})


def test_the_place_of_a_wrong_bit_is_told_in_elements() -> None:
    judge = oracle("reverse_array", "fp64")
    case = judge.case(Workload("test", {"n": 9}), "nominal", np.random.default_rng(0), at_end=True)
    y = case.inputs.tensors["x"].flip(0).clone()
    y.view(torch.int64)[5] ^= 1
    work = filled(judge, case, {"y": y})
    [error] = judge.errors(case, work)
    assert "is [5]: " in judge.describe(error, case, work)


# --- integers and specials -------------------------------------------------------------------------------------------


def linear(
    tmp_path: Path, *, tolerance: str = 'bound = "rounding"\nterms = "n"', reference: str | None = None, more: str = ""
) -> Oracle:
    """A dot product as a user would declare it."""
    (tmp_path / "operator.toml").write_text(
        f"""
name = "dot"
family = "test"
formula = "y = sum a b"
dims = ["n"]
[dtypes]
cpu = ["fp32", "fp64"]
[[tensor]]
name = "a"
role = "in"
shape = ["n"]
distribution = "uniform(-1, 1)"
{more}
[[tensor]]
name = "b"
role = "in"
shape = ["n"]
distribution = "uniform(-1, 1)"
[[tensor]]
name = "y"
role = "out"
shape = ["n"]
[[workload]]
set = "cpu"
dims = {{ n = 8 }}
[[hidden]]
dims = {{ n = 1 }}
[cost]
flops = "n"
min_flops = "n"
min_bytes = "8 * n"
[tolerance]
{tolerance}
"""
    )
    text = reference or "def reference(a, b):\n    return (a * b).cumsum(0)\n"
    (tmp_path / "reference.py").write_text(
        text + "def magnitude(a, b):\n    return (a * b).abs().cumsum(0)\n" * ("magnitude" not in text)
    )
    operator = load(str(tmp_path))
    return Oracle(operator, functions(operator.folder), "fp32")


def dot_case(judge: Oracle, family: str, *, n: int = 200, seed: int = 0) -> Case:
    return judge.case(Workload("test", {"n": n}), family, np.random.default_rng(seed), at_end=False)


def test_sums_of_integers_are_exact_where_the_operator_says_so(tmp_path: Path) -> None:
    judge = linear(tmp_path, tolerance='bound = "rounding"\nterms = "n"\nexact_integers = true')
    case = dot_case(judge, "integers")
    right = case.expected["y"]
    assert not wrong(judge, case, {"y": right})
    for place in range(0, right.size, 17):
        next_one = right.astype(np.float32)
        next_one[place] = np.nextafter(next_one[place], np.float32(9e9))
        assert wrong(judge, case, {"y": next_one})
    assert (case.allowed["y"] == 0).all()
    assert (dot_case(judge, "nominal").allowed["y"] > 0).all()


def test_exact_integers_need_the_size_of_sums(tmp_path: Path) -> None:
    reference = "def reference(a, b):\n    return a * b\nmagnitude = None\n"
    judge = linear(tmp_path, tolerance='bound = "rounding"\nexact_integers = true', reference=reference)
    with pytest.raises(OperatorError, match=r"`def magnitude\(\.\.\.\)` is missing; exact_integers needs"):
        dot_case(judge, "integers")


def test_infinities_and_nan_must_be_the_same(tmp_path: Path) -> None:
    judge = linear(tmp_path, more='specials = ["inf", "nan"]')
    seen = set()
    for seed in range(20):
        case = dot_case(judge, "specials", seed=seed)
        y = case.expected["y"]
        assert not wrong(judge, case, {"y": y})
        for kind, other in (
            (np.isnan(y), math.inf),
            (np.isnan(y), 0.0),
            (y == math.inf, -math.inf),
            (np.isinf(y), 3e38),
        ):
            if kind.any():
                seen.add(other)
                assert wrong(judge, case, {"y": np.where(kind, other, y)})
        finite = np.isfinite(y)
        if finite.any():
            assert wrong(judge, case, {"y": np.where(finite, math.nan, y)})
    assert len(seen) == 4


def test_sums_that_may_overflow_on_the_way_may_be_anything(tmp_path: Path) -> None:
    judge = linear(tmp_path, more='specials = ["huge"]')
    inputs = "import torch\ndef inputs(n, dtype, rng, family):\n    return {'a': torch.full((n,), 2.0**126)}\n"
    (tmp_path / "loud").mkdir()
    loud = linear(
        tmp_path / "loud",
        more='specials = ["huge"]',
        reference=inputs + "def reference(a, b):\n    return (a * b).cumsum(0)\n",
    )
    case = dot_case(loud, "specials")
    assert math.isinf(case.allowed["y"][-1])
    assert not wrong(loud, case, {"y": np.where(np.isinf(case.allowed["y"]), math.inf, case.expected["y"])})
    assert np.isfinite(dot_case(judge, "nominal").allowed["y"]).all()


def test_a_reference_that_is_not_finite_is_refused_unless_it_was_asked_for(tmp_path: Path) -> None:
    judge = linear(tmp_path, reference="import torch\ndef reference(a, b):\n    return a / torch.zeros_like(b)\n")
    for family in ("nominal", "specials"):
        with pytest.raises(OperatorError, match="made values of `y` that are not finite"):
            dot_case(judge, family)


# --- measured bounds -------------------------------------------------------------------------------------------------


def test_a_measured_bound_follows_the_trusted(tmp_path: Path) -> None:
    judge = linear(tmp_path, tolerance='bound = "measured"\nterms = "n"')
    workload = Workload("test", {"n": 400})

    def case(error: float) -> Case:
        def trusted(question: Question) -> list[dict[str, np.ndarray]]:
            a, b = (question.inputs.tensors[n].double().numpy() for n in ("a", "b"))
            return [{"y": (a * b).cumsum() + error * 2.0**-24 * np.abs(a * b).cumsum()}]

        return judge.case(workload, "nominal", np.random.default_rng(0), at_end=False, trusted=trusted)

    def roundoffs(made: Case) -> float:
        y, s = (
            np.abs(made.expected["y"][-1]),
            np.abs(np.prod([made.inputs.tensors[n].double().numpy() for n in "ab"], 0)).sum(),
        )
        return float((made.allowed["y"][-1] - 1.01 * 2.0**-24 * y) / s * 2**24)

    assert roundoffs(case(0)) == pytest.approx(4 * 0.25 * 20, rel=0.01)  # not less than four times a plain sum's
    assert roundoffs(case(30)) == pytest.approx(4 * 30, rel=0.05)
    assert roundoffs(case(1e6)) == pytest.approx(4 * 16 * 20, rel=0.01)  # no measure any more


# --- probes and relations --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", some_slow([*SAMPLE, "upper_triangular_matrix_mul"], ("gelu", "spmv_csr", "upper_triangular_matrix_mul"))
)
def test_a_probe_changes_few_inputs_in_place_and_the_results_with_them(name: str) -> None:
    judge, rng = oracle(name), np.random.default_rng(0)
    workload = max(judge.operator.hidden, key=lambda w: math.prod(w.dims.values()))
    case = judge.case(workload, "nominal", rng, at_end=True)
    region, addresses = case.region, {n: case.region.address_of(n) for n in case.region.extents}
    for _ in range(4):
        probed = judge.probe(case, rng)
        assert probed.region is region
        assert {n: region.address_of(n) for n in region.extents} == addresses
        changed = 0
        for tensor, new in probed.inputs.tensors.items():
            changed += int((case.inputs.tensors[tensor] != new).sum())
            assert name in SAMPLE or torch.equal(new, new.triu()), "what is zero stays so"
            assert torch.equal(torch.frombuffer(region.view(tensor), dtype=new.dtype), new.reshape(-1))
        assert 1 <= changed <= 1024
        assert not wrong(judge, probed, library(judge, probed))
        assert wrong(judge, probed, library(judge, case)), "the old results"
        case = probed


def test_a_probe_reaches_inout_tensors_of_a_case_that_is_bound() -> None:
    judge, rng = oracle("sorting"), np.random.default_rng(0)
    case = judge.case(Workload("test", {"n": 50}), "nominal", rng, at_end=False)
    work = Region(judge.work_sizes(case.dims), at_end=False)
    judge.restore(case, work)
    before = judge.outputs(case, work)["x"]
    probed = judge.probe(case, rng)
    judge.restore(case, work)  # as the session does, which knows the first case only
    after = judge.outputs(case, work)["x"]
    assert not torch.equal(before, after)
    assert torch.equal(after, probed.inputs.tensors["x"].double())


def test_a_probe_of_what_moves_nothing_is_still_a_case() -> None:
    judge, rng = oracle("spmv_csr"), np.random.default_rng(0)
    empty = judge.case(Workload("test", {"rows": 5, "cols": 3, "nnz": 0}), "nominal", rng, at_end=False)
    assert not wrong(judge, judge.probe(empty, rng), {"y": np.zeros(5)})


def wide_outputs(judge: Oracle, case: Question, outputs: Mapping[str, object]) -> dict[str, torch.Tensor]:
    return judge.outputs(case, filled(judge, case, outputs))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", some_slow(SAMPLE, 3))
@pytest.mark.parametrize("dtype", some_slow(["fp32", "fp64"], 1))
def test_libraries_keep_every_relation(name: str, dtype: str) -> None:
    judge = oracle(name, dtype)
    for seed, workload in enumerate(judge.operator.hidden[::3]):
        family, rng = ("nominal", "integers")[seed % 2], np.random.default_rng(seed)
        case = judge.case(workload, family, rng, at_end=True)
        before = wide_outputs(judge, case, library(judge, case))
        for related in judge.relations(case, rng):
            after = before
            if related.after is not case:
                assert related.after.region is not case.region
                after = wide_outputs(judge, related.after, library(judge, related.after))
            problem = judge.related_problem(related, before, after)
            assert problem is None, problem


RELATIONS = """
import torch
from operators.relations import scaled, permuted
def reference(a, b):
    return (a * b).cumsum(0)
def relations(a, b, rng):
    return [scaled("a doubled", {"a": a, "b": b}, inputs={"a": 2.0}, outputs={"y": 2.0}, exact=True)]
"""


def test_a_broken_relation_is_named_with_its_place(tmp_path: Path) -> None:
    judge = linear(tmp_path, reference=RELATIONS)
    case = dot_case(judge, "nominal")
    [related] = judge.relations(case, np.random.default_rng(0))
    y = torch.from_numpy(case.expected["y"]).float().double()
    assert judge.related_problem(related, {"y": y}, {"y": 2 * y}) is None
    near = 2 * y
    near[7] = torch.nextafter(near[7].float(), torch.tensor(9.0)).double()
    text = judge.related_problem(related, {"y": y}, {"y": near})
    assert text is not None
    assert "a doubled does not hold for 1 of 200 elements of `y`, the first at [7]" in text
    assert judge.related_problem(related, {"y": y}, {"y": near}, deterministic=False) is None
    far = 2 * y
    far[7] += 1
    assert judge.related_problem(related, {"y": y}, {"y": far}, deterministic=False) is not None


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return [3]", "relations() made a int, not Relations"),
        ("return [permuted('p', {'c': a}, rng, inputs={'c': 0}, outputs={})]",
         "changes `c` to torch.float32 [200], which is not what it was"),
    ],
)  # fmt: skip
def test_relations_of_another_kind_are_refused(tmp_path: Path, body: str, words: str) -> None:
    text = RELATIONS[: RELATIONS.index("def relations")] + f"def relations(a, b, rng):\n    {body}\n"
    judge = linear(tmp_path, reference=text)
    case = dot_case(judge, "nominal")
    with pytest.raises(OperatorError) as caught:
        list(judge.relations(case, np.random.default_rng(0)))
    assert words in str(caught.value)


# --- words and layout ------------------------------------------------------------------------------------------------


def test_a_wrong_element_is_described_by_place_value_and_bound() -> None:
    judge, case = matrix_case(6, 7, 20)
    y = case.expected["c"].astype(np.float32)
    y[9] += 1
    work = filled(judge, case, {"c": y})
    [error] = judge.errors(case, work)
    text = judge.describe(error, case, work)
    assert "1 of 42 elements of `c` are out of bounds, the first at [1, 2]" in text
    assert f"{y[9]:.9g}, expected {case.expected['c'][9]:.9g} within {case.allowed['c'][9]:.2g}" in text
    assert f"{digits(error.max_ratio)} times its bound" in text


def test_what_a_reference_does_to_its_arguments_stays_there(tmp_path: Path) -> None:
    judge = linear(tmp_path, reference="def reference(a, b):\n    a *= 2\n    return a * b / 2\n")
    case = dot_case(judge, "nominal")
    held = torch.frombuffer(case.region.view("a"), dtype=torch.float32)
    assert torch.equal(held, case.inputs.tensors["a"])
    expected = case.inputs.tensors["a"].double() * case.inputs.tensors["b"].double()
    np.testing.assert_allclose(case.expected["y"], expected.numpy())


def test_results_that_underflow_may_be_flushed() -> None:
    judge = oracle("softmax")
    case = judge.case(Workload("test", {"rows": 4, "cols": 50}), "scaled", np.random.default_rng(1), at_end=False)
    y = case.expected["y"]
    assert not wrong(judge, case, {"y": np.where(np.abs(y) < 2.0**-126, 0, y)})


def test_dtypes_without_a_numpy_type_are_read() -> None:
    judge = oracle("matrix_mul", "bf16")
    case = judge.case(Workload("test", {"m": 5, "n": 6, "k": 30}), "nominal", np.random.default_rng(0), at_end=False)
    assert not wrong(judge, case, {"c": case.expected["c"]})
    assert judge.outputs(case, filled(judge, case, {"c": case.expected["c"]}))["c"].shape == (5, 6)
