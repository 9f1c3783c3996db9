"""Input families: what each of them is made of, in every dtype."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fitness.oracle.inputs import (
    BESIDE,
    CANCELLATION,
    DEPARTING,
    FAMILIES,
    FEW_MOST,
    OVERWHELMING,
    TORCH_DTYPES,
    Inputs,
    draw,
    families,
    sample,
)
from operators.catalog import functions, load
from operators.definition.spec import Distribution, Operator, Special, Tensor
from operators.dtypes import DTYPES
from operators.expression import parse
from tests.choosing import examples, some_slow


@pytest.fixture(scope="module", autouse=True, params=["numpy", "torch"])
def source(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whole tensors come from numpy, or as on a GPU from torch."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "torch":
            patch.setattr("operators.drawing._by_numpy", lambda device: False)
        yield


LAWS = ("uniform(-1, 1)", "uniform(0, 1)", "uniform(0.25, 0.75)", "normal(0, 1)", "normal(5, 2)", "integers(-3, 9)")
SIZES = {"rows": 40, "cols": 60}
FLOATS = ("fp64", "fp32", "fp16", "bf16")


def tensor(
    law: str = "uniform(-1, 1)", specials: tuple[Special, ...] = ("zero",), exponentiated: bool = False
) -> Tensor:
    shape = (parse("rows", ("rows", "cols")), parse("cols", ("rows", "cols")))
    return Tensor(
        "x", "in", "T", shape, Distribution.parse(law, ("rows", "cols")), specials, exponentiated=exponentiated
    )


def values(
    family: str, *, law: str = "uniform(-1, 1)", dtype: str = "fp32", seed: int = 0, **more: object
) -> torch.Tensor:
    shape = more.pop("shape", (40, 60))
    return sample(tensor(law, **more), DTYPES[dtype], shape, family, np.random.default_rng(seed), env=SIZES)  # type: ignore[arg-type]


def drawn(name: str, family: str, dtype: str = "fp32", seed: int = 0) -> Inputs:
    operator = load(name)
    dims = operator.hidden[-1].dims
    return draw(
        operator, functions(operator.folder), dims=dims, dtype=dtype, family=family, rng=np.random.default_rng(seed)
    )


@examples(80)
@given(
    st.sampled_from([*FAMILIES, CANCELLATION]),
    st.sampled_from(LAWS),
    st.sampled_from(FLOATS),
    st.lists(st.integers(0, 9), max_size=3),
    st.integers(0, 2**32),
)
def test_any_shape_law_and_dtype_gives_finite_values(
    family: str, law: str, dtype: str, shape: list[int], seed: int
) -> None:
    x = values(family, law=law, dtype=dtype, seed=seed, shape=tuple(shape))
    assert x.shape == tuple(shape)
    assert x.dtype == TORCH_DTYPES[dtype]
    assert x.isfinite().all()
    if family in ("nominal", "scaled") and law in ("uniform(0, 1)", "uniform(0.25, 0.75)"):
        assert (x >= 0).all()


def test_the_weights_of_a_layer_are_as_small_as_its_size_says() -> None:
    found = values("nominal", law="uniform(-1, 1) / sqrt(rows * cols)")
    assert 0.99 < float(found.abs().max()) * math.sqrt(40 * 60) <= 1
    assert float(values("nominal", law="normal(0, 1) / sqrt(cols)").std()) == pytest.approx(60**-0.5, rel=0.1)


def test_the_same_seed_draws_the_same_values() -> None:
    for family in FAMILIES:
        assert torch.equal(values(family, seed=3), values(family, seed=3))
        assert not all(torch.equal(values(family, seed=s), values(family, seed=9)) for s in range(4))


def test_fp64_values_use_all_their_bits() -> None:
    for law in ("uniform(-1, 1)", "normal(0, 1)"):
        x = values("nominal", law=law, dtype="fp64")
        assert (x != x.float().double()).double().mean() > 0.99


def test_scaled_rows_differ_by_powers_of_ten() -> None:
    sizes = values("scaled").abs().amax(dim=1)
    assert sizes.max() / sizes.min() > 1000
    assert values("scaled", dtype="fp16").isfinite().all()


def test_some_scaled_rows_have_sizes_that_other_families_leave_out() -> None:
    sizes = values("scaled", shape=(2000, 4)).abs().amax(dim=1)
    assert ((sizes > 2.0**20) & (sizes < 2.0**60)).any() and (sizes < 2.0**-30).any()


def test_rows_whose_scores_are_exponentiated_are_far_smaller_and_never_far_larger() -> None:
    sizes = values("scaled", shape=(2000, 4), exponentiated=True).abs().amax(dim=1)
    assert sizes.max() <= 2.0**12 and (sizes < 2.0**-30).any()


@pytest.mark.parametrize(("dtype", "bits"), [("fp32", 11), ("fp32", 8), ("fp64", 24)])
def test_unnoticed_numbers_lean_where_they_are_rounded_to_a_shorter_type(dtype: str, bits: int) -> None:
    def lost(family: str) -> float:
        """Sum of what rounding takes from each number, over the sum of its size."""
        x = values(family, law="normal(0, 1)", dtype=dtype, shape=(100, 400)).double()
        fraction, exponent = torch.frexp(x)
        rounded = torch.ldexp(torch.round(torch.ldexp(fraction, torch.tensor(bits))), exponent - bits)
        return float((x.abs() - rounded.abs()).sum() / x.abs().sum()) * 2**bits

    assert abs(lost("nominal")) < 0.02
    assert lost("unnoticed") > 0.1


def test_unnoticed_numbers_look_nominal_and_their_largest_lie_together() -> None:
    x = values("unnoticed", shape=(10_000,))
    assert x.abs().max() <= 1 and 0.7 < float((x > 0).double().mean()) < 0.8
    places = x.topk(16).indices
    assert places.max() - places.min() < BESIDE
    assert len(x.unique()) > 9_900


@pytest.mark.parametrize(
    ("law", "low", "high"),
    [("uniform(-1, 1)", -1, 1), ("uniform(0, 1)", 0, 1), ("normal(0, 1)", -2, 2), ("integers(-30, 30)", -2, 2),
     ("integers(3, 30)", 3, 7)],
)  # fmt: skip
def test_integers_are_small_and_of_the_laws_range(law: str, low: int, high: int) -> None:
    x = values("integers", law=law)
    assert sorted(set(x.flatten().tolist())) == list(range(low, high + 1))


@pytest.mark.parametrize("law", ["uniform(-0.044, 0.044)", "uniform(0, 0.3)", "normal(0, 0.02)"])
def test_integers_of_small_laws_are_multiples_of_a_power_of_two(law: str) -> None:
    """All weights of a layer would be zero otherwise, and so would its results."""
    x = values("integers", law=law)
    scaled = x / x[x != 0].abs().min()
    assert 3 <= len(x.unique()) <= 5 and scaled.equal(scaled.round()) and scaled.abs().max() <= 4
    assert x.max() > 0 and x.abs().max() <= 0.3


def test_a_law_without_integers_stays_nominal() -> None:
    x = values("integers", law="uniform(0.25, 0.75)")
    assert ((x >= 0.25) & (x <= 0.75)).all()


def test_structures_vary() -> None:
    constant = single = ordered = tied = 0
    for seed in range(60):
        x = values("structured", seed=seed)
        distinct = len(x.unique())
        constant += distinct == 1
        single += bool(((x != 0).sum(dim=1) <= 1).all())
        ordered += bool((x.diff(dim=1) >= 0).all() or (x.diff(dim=1) <= 0).all()) and distinct > 4
        tied += 1 < distinct <= 4
    assert min(constant, single, ordered, tied) >= 3


def test_no_zeros_where_a_tensor_declares_none() -> None:
    for family in ("structured", "specials", "mixture", "integers"):
        for law in ("uniform(0.25, 0.75)", "normal(0, 1)", "uniform(0, 3)"):
            for seed in range(20):
                assert (values(family, law=law, specials=(), seed=seed) != 0).all()


@pytest.mark.parametrize("law", ["uniform(3, 4)", "uniform(-4, -3)", "integers(2, 9)", "uniform(-1, 1)"])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_bounded_stays_in_its_range_in_every_family(law: str, family: str) -> None:
    bounds = Distribution.parse(law)
    bounded = replace(tensor(law, ()), bounded=True)
    for seed in range(20):
        found = sample(bounded, DTYPES["fp32"], (7, 33), family, np.random.default_rng(seed), env=SIZES)
        assert bounds.a <= found.min() <= found.max() <= bounds.b


def test_specials_are_few_and_only_those_declared() -> None:
    kinds: dict[str, int] = dict.fromkeys(("zero", "subnormal", "huge", "inf", "nan"), 0)
    tiny = torch.finfo(torch.float32).smallest_normal
    for seed in range(40):
        x = values("specials", specials=("zero", "subnormal", "huge", "inf", "nan"), seed=seed)
        found = {
            "zero": x == 0, "subnormal": (x != 0) & (x.abs() < tiny), "huge": (x.abs() > 1e30) & x.isfinite(),
            "inf": x.isinf(), "nan": x.isnan(),
        }  # fmt: skip
        assert 1 <= sum(int(places.sum()) for places in found.values()) <= 15
        for kind, places in found.items():
            kinds[kind] += bool(places.any())
        overwhelming = [kind for kind in OVERWHELMING if found[kind].any()]
        assert len(overwhelming) == 1  # a NaN hides an infinity
    assert all(5 < kinds[kind] < 40 for kind in OVERWHELMING)


def test_specials_have_numbers_of_any_size_that_other_families_lack() -> None:
    drawn_ = [values("specials", specials=("subnormal", "huge"), seed=seed).abs() for seed in range(40)]
    sizes = torch.cat([x[(x > 0) & x.isfinite()].log2() for x in drawn_])
    for exponent in (*range(-130, -50, 10), *range(50, 120, 10)):
        assert ((sizes >= exponent) & (sizes < exponent + 10)).any()


def test_few_elements_carry_what_few_bits_do_not_hold() -> None:
    shapes: set[int] = set()
    for seed in range(30):
        x = values("few", seed=seed)
        carriers = x[x != 0]
        assert (carriers % 2 != 0).all()
        longest = carriers.abs() >= 2**19
        assert (longest | (carriers.abs() >= 2**11) & (carriers.abs() < 2**12)).all()
        assert (carriers.abs() < 2**20).all()
        assert longest.sum() == 40  # one of each line
        found = (x != 0).sum(dim=int(np.argmax(x.shape)))
        assert 1 <= int(found.min()) <= int(found.max()) <= FEW_MOST
        shapes.add(int(found.max()) == 1)
    assert shapes == {True, False}


@pytest.mark.parametrize(("name", "m", "k"), [("matrix_mul", 8, 3000), ("matrix_mul", 300, 40)])
def test_one_tensor_carries_and_sums_of_the_others_are_exact(name: str, m: int, k: int) -> None:
    operator, carried = load(name), set()
    for seed in range(12):
        inputs = draw(
            operator, functions(operator.folder), dims={"m": m, "n": 9, "k": k}, dtype="fp32", family="few",
            rng=np.random.default_rng(seed),
        )  # fmt: skip
        a, b = (inputs.tensors[t].double() for t in "ab")
        assert float((a.abs() @ b.abs()).max()) < 2**24
        carried |= {t for t, x in (("a", a), ("b", b)) if float(x.abs().max()) >= 2**11}
    assert carried == {"a", "b"}


@pytest.mark.parametrize("dtype", FLOATS)
def test_specials_fit_their_type_and_their_laws_sign(dtype: str) -> None:
    for seed in range(20):
        x = values("specials", law="uniform(0, 1)", specials=("subnormal", "huge"), dtype=dtype, seed=seed)
        assert x.isfinite().all()
        assert (x >= 0).all()
        assert (x == 0).sum() <= 1  # a subnormal never rounds to zero


def test_mixtures_never_repeat_their_proportions() -> None:
    shares = {float((values("mixture", seed=seed) == 0).float().mean()) for seed in range(20)}
    assert len(shares) > 12


def test_cancellation_is_a_family_of_operators_that_have_sums() -> None:
    for name in ("matrix_mul", "softmax"):
        offers = functions(load(name).folder)
        assert (CANCELLATION in families(offers)) == offers.offers("cancel")


def test_sums_of_the_family_cancellation_cancel() -> None:
    if CANCELLATION not in families(functions(load("matrix_mul").folder)):
        pytest.skip("matrix_mul declares none")
    tensors = {n: t.double() for n, t in drawn("matrix_mul", CANCELLATION).tensors.items()}
    y = (tensors["a"] @ tensors["b"]).abs()
    s = tensors["a"].abs() @ tensors["b"].abs()
    assert float((s / y).median()) > 1000


def test_a_data_dim_fits_what_was_drawn() -> None:
    for family in FAMILIES:
        inputs = drawn("spmv_csr", family)
        assert inputs.dims["max_row_nnz"] == int(inputs.tensors["row_offsets"].diff().max())


def keeps(name: str, matrix: torch.Tensor) -> bool:
    """Whether a matrix is what the operator's tensors are declared to be; NaN equals itself."""
    other = {"symmetric": matrix.T, "upper": matrix.triu(), "lower": matrix.tril()}[name.partition("_")[0]]
    return torch.equal(matrix.nan_to_num(7.0), other.nan_to_num(7.0))


@pytest.mark.parametrize("dtype", some_slow(FLOATS, 1))
@pytest.mark.parametrize("name", ["symmetric_matrix_mul", "upper_triangular_matrix_mul", "lower_triangular_matrix_mul"])
def test_every_family_and_relation_keeps_what_a_tensor_declares_of_its_matrices(name: str, dtype: str) -> None:
    offers = functions(load(name).folder)
    for seed, family in enumerate(families(offers)):
        tensors = drawn(name, family, dtype, seed).tensors
        assert all(keeps(name, matrix) and matrix.count_nonzero() for matrix in tensors.values()), family
        for relation in offers.relations({**tensors, "rng": np.random.default_rng(seed), "dtype": DTYPES[dtype]}):
            assert all(keeps(name, matrix) for matrix in relation.inputs.values()), relation.name


DEPARTED = 40
"""Draws of a family, of which some depart and some do not."""


def partial(name: str, **changed: object) -> Operator:
    """An operator of one input whose author told nothing of where it is defined."""
    operator = load(name)
    tensors = tuple(replace(t, **changed) if t.role == "in" else t for t in operator.tensors)  # type: ignore[arg-type]
    return replace(operator, tensors=tensors, partial=True)


def departed(operator: Operator, family: str) -> list[torch.Tensor]:
    offered, dims = functions(operator.folder), {"n": 1000}
    return [
        draw(operator, offered, dims=dims, dtype="fp32", family=family, rng=np.random.default_rng(seed)).tensors["x"]
        for seed in range(DEPARTED)
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_what_an_example_draws_of_one_sign_comes_of_both_where_nobody_declared_it(family: str) -> None:
    law = Distribution.parse("uniform(0, 1)", ("n",))
    below = [bool((x < 0).any()) for x in departed(partial("relu", distribution=law, specials=("zero",)), family)]
    assert (0 < sum(below) < DEPARTED) if family in DEPARTING else not any(below)
    for kept in (
        partial("relu", distribution=law, specials=("zero",), bounded=True),
        replace(partial("relu", distribution=law, specials=("zero",)), partial=False),
    ):
        assert not any(bool((x < 0).any()) for x in departed(kept, family))


def test_numbers_of_a_partial_operator_lie_far_from_zero_at_times() -> None:
    far = [float(x.double().mean().abs() / x.double().std()) for x in departed(partial("relu"), "scaled")]
    assert 5 <= sum(ratio > 4 for ratio in far) < DEPARTED
    assert 64 < max(far) < 2**11
