"""Dealing of a stage's cases: every family, every kind of special value, whatever chance would have."""

from __future__ import annotations

import numpy as np
import pytest

from fitness.judging.pipeline import hand, revealing
from fitness.judging.timed_inputs import dealt
from fitness.oracle.inputs import FEW, OVERWHELMING, SPECIALS, carriers, overwhelming
from fitness.oracle.verify import Oracle
from operators.catalog import functions, load
from operators.definition.spec import Workload
from operators.drawing import NOMINAL

SHAPES = [Workload("test", {"n": n}) for n in (3, 8, 100, 1023)]


def oracle(name: str) -> Oracle:
    operator = load(name)
    return Oracle(operator, functions(operator.folder), "fp32")


@pytest.mark.parametrize("name", ["dot_product", "softmax", "matrix_copy"])
def test_specials_are_dealt_once_for_every_kind_that_hides_others(name: str) -> None:
    judge = oracle(name)
    kinds = overwhelming(judge.operator, "fp32")
    assert {*kinds} <= {*OVERWHELMING}
    assert judge.deals.count(SPECIALS) == max(len(kinds), 1)
    assert judge.deals.count(FEW) == max(len(carriers(judge.operator, "fp32")), 1)
    assert {*judge.deals} == {*judge.families}


@pytest.mark.parametrize("count", [3, 10, 24])
def test_a_stage_has_all_that_reveals_and_a_round_has_everything(count: int) -> None:
    deals = oracle("dot_product").deals
    orders: set[tuple[str, ...]] = set()
    for seed in range(20):
        cases = hand(SHAPES, count, deals, np.random.default_rng(seed), first=revealing(deals))
        families = [family for _, family in cases]
        assert len(cases) == max(count, len(revealing(deals)))
        assert sorted(families[: len(revealing(deals))]) == sorted(revealing(deals))
        assert [w for w, _ in cases[: len(SHAPES)]] == SHAPES
        orders.add(tuple(families))
        if count >= len(deals) + len(revealing(deals)):
            begin = len(revealing(deals))
            assert sorted(families[begin : begin + len(deals)]) == sorted(deals)
    assert len(orders) > 1


def test_as_many_draws_of_specials_as_there_are_kinds_hold_them_all() -> None:
    """Whichever kind a stage begins with, and whatever other families it draws in between."""
    judge, rng = oracle("dot_product"), np.random.default_rng(0)
    assert overwhelming(judge.operator, "fp32") == ("inf", "nan")
    found: list[str] = []
    for number in range(12):
        if number % 3 == 0:
            judge.case(SHAPES[2], "scaled", rng, at_end=False)
        case = judge.case(SHAPES[2], SPECIALS, rng, at_end=False)
        tensors = case.inputs.tensors.values()
        held = {kind for kind in ("inf", "nan") if any(bool(getattr(t, f"is{kind}")().any()) for t in tensors)}
        assert len(held) == 1
        found += held
    assert all({*found[i : i + 2]} == {"inf", "nan"} for i in range(len(found) - 1))


def test_tensors_take_turns_to_carry() -> None:
    judge, rng = oracle("dot_product"), np.random.default_rng(0)
    found: list[str] = []
    for _ in range(6):
        tensors = judge.case(SHAPES[3], FEW, rng, at_end=False).inputs.tensors
        found += [name for name, t in tensors.items() if float(t.abs().max()) > 100]
    assert [*found[:2]] * 3 == found
    assert {*found} == {"x", "y"}


@pytest.mark.parametrize("count", [1, 2, 6, 9])
def test_few_are_always_among_what_large_sizes_are_dealt(count: int) -> None:
    deals = oracle("dot_product").deals
    places: set[int] = set()
    assert deals.count(FEW) == 2
    for seed in range(30):
        families = dealt(deals, count, np.random.default_rng(seed))
        assert len(families) == count and NOMINAL not in families
        assert families.count(FEW) >= min(2, max(count - 1, 1))
        places.add(families.index(FEW))
    assert len(places) > 1 or count == 1
