"""The relations that operators declare: what each constructor changes and what it then expects."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from operators.relations import Relation, added, permuted, replaced, scaled, sums_to

RNG = np.random.default_rng(0)
A, B = torch.randn(5, 7), torch.randn(7, 3)
TENSORS = {"a": A, "b": B}


def kept(relation: Relation, function: object, tensors: dict[str, torch.Tensor], *, tolerance: float = 1e-12) -> bool:
    """Whether an fp64 function keeps the relation."""
    wide = {n: t.double() for n, t in tensors.items()}
    changed = wide | {n: t.double() for n, t in relation.inputs.items()}
    expected = relation.expected(function(**wide))  # type: ignore[operator]
    found = function(**changed)  # type: ignore[operator]
    claims = {n: ~y.isnan() for n, y in expected.items()}
    return all(torch.allclose(found[n][claims[n]], y[claims[n]], atol=tolerance) for n, y in expected.items())


def product(a: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"c": a @ b}


def first_row_only(a: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:
    c = a @ b
    c[1:] = 0
    return {"c": c}


def test_a_product_keeps_permutations_of_rows_columns_and_terms() -> None:
    rows = permuted("rows", TENSORS, RNG, inputs={"a": 0}, outputs={"c": 0})
    columns = permuted("columns", TENSORS, RNG, inputs={"b": 1}, outputs={"c": 1})
    terms = permuted("terms", TENSORS, RNG, inputs={"a": 1, "b": 0}, outputs={})
    assert all(kept(r, product, TENSORS) for r in (rows, columns, terms))
    assert not kept(
        permuted("rows", TENSORS, RNG, inputs={"a": 0}, outputs={"c": 0}, reverse=True), first_row_only, TENSORS
    )
    assert torch.equal(rows.inputs["a"].sort(dim=0).values, A.sort(dim=0).values)


def test_permuted_axes_must_have_one_length() -> None:
    with pytest.raises(ValueError, match=r"terms: the permuted axes have the lengths \[5, 7\]; they must be equal"):
        permuted("terms", TENSORS, RNG, inputs={"a": 0, "b": 0}, outputs={})


@given(st.integers(-20, 20), st.booleans())
def test_powers_of_two_scale_a_product_without_any_rounding(exponent: int, negative: bool) -> None:
    factor = (-1.0 if negative else 1.0) * 2.0**exponent
    relation = scaled("scale", TENSORS, inputs={"a": factor}, outputs={"c": factor}, exact=True)
    assert kept(relation, product, TENSORS, tolerance=0.0)
    single = relation.expected({"c": (A @ B).double()})["c"]
    assert torch.equal((relation.inputs["a"] @ B).double(), single)


@pytest.mark.parametrize("factor", [0.0, 3.0, 0.1])
def test_other_factors_are_refused(factor: float) -> None:
    with pytest.raises(ValueError, match="of `a` is no power of two"):
        scaled("scale", TENSORS, inputs={"a": factor}, outputs={})


def test_adding_integers_adds_their_own_result() -> None:
    a, b = torch.randint(-4, 5, (5, 7)).float(), torch.randint(-4, 5, (7, 3)).float()
    delta = torch.randint(-4, 5, (5, 7)).float()
    tensors = {"a": a, "b": b}
    relation = added("sum", tensors, inputs={"a": delta}, outputs={"c": delta.double() @ b.double()}, exact=True)
    assert kept(relation, product, tensors, tolerance=0.0)
    assert not kept(relation, lambda a, b: {"c": (a @ b).abs()}, tensors)


def softmax(x: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"y": torch.softmax(x, dim=1)}


def test_a_softmax_ignores_shifts_and_sums_to_one() -> None:
    tensors = {"x": torch.randint(-5, 5, (4, 9)).float()}
    assert kept(added("shift", tensors, inputs={"x": torch.full((4, 1), 3.0)}, outputs={}), softmax, tensors)
    assert kept(sums_to("one", output="y", axis=1), softmax, tensors)
    assert not kept(sums_to("one", output="y", axis=1), lambda x: {"y": 1.01 * softmax(x)["y"]}, tensors)


def test_the_past_does_not_know_the_future() -> None:
    x = torch.randn(3, 8)
    later = torch.cat([x[:, :5], torch.randn(3, 3)], dim=1)
    mask = (torch.arange(8) < 5).expand(3, 8)
    relation = replaced("causal", {"x": x}, inputs={"x": later}, unaffected={"y": mask})
    assert kept(relation, lambda x: {"y": x.cumsum(1)}, {"x": x})
    assert not kept(relation, lambda x: {"y": x.flip(1).cumsum(1)}, {"x": x})
