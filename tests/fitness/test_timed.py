"""Timed inputs and their company: which families are there, and that nothing tells them apart."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fitness.judging.timed_inputs import COMPANY, NOMINAL_SETS, TimedInputs, dealt, most_company, most_sets
from operators.drawing import NOMINAL

FAMILIES = ("nominal", "scaled", "integers", "structured", "specials", "mixture")


def timed(workloads: int, seed: int = 0) -> TimedInputs:
    names: Any = [SimpleNamespace(name=f"n={n}") for n in range(workloads)]
    return TimedInputs(
        names, FAMILIES, drawn, np.random.default_rng(seed), lambda case: drawn(case.workload, case.family),
        sets=[most_sets(FAMILIES, len(names))] * len(names),
    )  # fmt: skip


def drawn(workload: Any, family: str) -> Any:
    return SimpleNamespace(workload=workload, family=family)


class Bound:
    """A session that remembers what it was handed."""

    def __init__(self) -> None:
        self.slots: dict[int, Any] = {}

    def bind(self, slot: int, case: Any, *, at_end: bool) -> None:
        assert not at_end
        self.slots[slot] = case


@pytest.mark.parametrize("workloads", [1, 2, 3, 8])
def test_every_workload_has_timed_inputs_and_company_of_other_families(workloads: int) -> None:
    inputs = timed(workloads)
    assert [[timed.case.family for timed in sets] for sets in inputs.nominal] == [[NOMINAL] * NOMINAL_SETS] * workloads
    assert all(len(sets) == COMPANY and NOMINAL not in {c.family for c in sets} for sets in inputs.company)


def test_where_memory_is_short_a_workload_keeps_the_sets_that_it_may() -> None:
    names: Any = [SimpleNamespace(name=f"n={n}") for n in range(4)]
    inputs = TimedInputs(names, FAMILIES, drawn, np.random.default_rng(0), sets=[1, 2, 3, 4])
    for _ in range(2):
        assert [len(sets) for sets in inputs.nominal] == [1, 1, 2, 2]
        assert [len(sets) for sets in inputs.company] == [0, 1, 1, 2]
        for name in names * 3:
            inputs.join(drawn(name, "specials"))
    assert len(inputs.any_of_each()) == 4
    assert [len(company) for company in inputs.seated(Bound(), disguised=True).company] == [0, 1, 1, 2]  # type: ignore[arg-type]


@pytest.mark.parametrize("workloads", [1, 2, 3, 8])
def test_what_a_confirmation_brings_holds_every_family(workloads: int) -> None:
    inputs, rng = timed(workloads), np.random.default_rng(1)
    names = [sets[0].case.workload for sets in inputs.nominal]
    for workload, family in zip(names * inputs.most, dealt(FAMILIES, inputs.most * workloads, rng), strict=True):
        inputs.join(drawn(workload, family))
    assert {case.family for sets in inputs.company for case in sets} == {*FAMILIES} - {NOMINAL}
    assert all(len(sets) <= inputs.most for sets in inputs.company)
    assert all(case.workload is name for sets, name in zip(inputs.company, names, strict=True) for case in sets)


def test_neither_order_nor_numbers_of_slots_tell_company_from_timed_inputs() -> None:
    inputs, places = timed(2), set()
    for _ in range(50):
        session: Any = Bound()
        seat = inputs.seated(session, disguised=True)
        assert sorted(session.slots) == list(range(1, 1 + 2 * (NOMINAL_SETS + COMPANY)))
        assert all(session.slots[slot] is timed.case for sets in seat.nominal for slot, timed in sets)
        assert all(session.slots[slot] is case for sets in seat.company for slot, case in sets)
        places.add(tuple(sorted(slot for sets in seat.company for slot, _ in sets)))
    assert len(places) > 25


def test_a_session_that_needs_no_disguise_has_the_timed_inputs_alone_in_their_order() -> None:
    inputs, session = timed(2), Bound()
    seat = inputs.seated(session, disguised=False)  # type: ignore[arg-type]
    assert [slot for sets in seat.nominal for slot, _ in sets] == [1, 2, 3, 4]
    assert [*session.slots.values()] == [timed.case for sets in inputs.nominal for timed in sets]
    assert not any(seat.company)


def test_sessions_are_handed_what_a_set_holds_at_a_time() -> None:
    inputs = timed(2)
    sessions: list[Any] = [Bound(), Bound()]
    seats = [
        inputs.seated(session, disguised=disguised) for session, disguised in zip(sessions, (True, False), strict=True)
    ]
    before = inputs.nominal[1][0].case
    inputs.nominal[1][0].renew()
    for seat, session in zip(seats, sessions, strict=True):
        slot, case = seat.placed(1, 0)
        assert case is inputs.nominal[1][0].case is not before
        assert session.slots[slot] is case


def test_a_drawing_that_was_broken_off_leaves_no_inputs_without_their_answer() -> None:
    """A lack of memory between the two is met by giving memory back, and the verdict goes on with the same sets."""
    place = {"holds": 0}

    def renewed(case: Any) -> Any:
        place["holds"] += 1
        if place["holds"] == 1:
            raise MemoryError
        return SimpleNamespace(workload=case.workload, family=case.family, answers=place["holds"])

    name: Any = SimpleNamespace(name="n=1")
    inputs = TimedInputs([name], FAMILIES, drawn, np.random.default_rng(0), renewed, sets=[most_sets(FAMILIES, 1)])
    session: Any = Bound()
    seat = inputs.seated(session, disguised=False)
    _, torn = seat.nominal[0][0]
    with pytest.raises(MemoryError):
        torn.renew()
    slot, case = seat.placed(0, 0)
    assert session.slots[slot] is case is torn.case
    assert case.answers == place["holds"] == 2


def test_drawing_anew_changes_every_timed_set_and_no_company() -> None:
    inputs = timed(3)
    before, company = [[t.case for t in sets] for sets in inputs.nominal], [[*sets] for sets in inputs.company]
    inputs.redraw()
    assert not any(old is t.case for sets, olds in zip(inputs.nominal, before, strict=True)
                   for t, old in zip(sets, olds, strict=True))  # fmt: skip
    assert inputs.company == company


def test_the_library_keeps_its_inputs() -> None:
    inputs, session = timed(2), Bound()
    placed = inputs.placed(session, [1])  # type: ignore[arg-type]
    for sets in inputs.nominal:
        for one in sets:
            one.renew()
    assert [case for _, case in placed[0]] == inputs.standing(1) == list(session.slots.values())
    assert not {id(c) for c in inputs.standing(1)} & {id(t.case) for sets in inputs.nominal for t in sets}


@pytest.mark.parametrize("workloads", [1, 3])
def test_forms_of_one_family_leave_no_other_out(workloads: int) -> None:
    """Dealt inputs may name a family several times; a confirmation has company of every one even so."""
    deals = (*FAMILIES, "few", "few", "specials", "specials")
    for seed in range(20):
        count = most_company(deals, workloads) * workloads
        found = dealt(deals, count, np.random.default_rng(seed))
        assert len(found) == count and found.count("few") >= 2
        assert {*found} == {*deals} - {NOMINAL}
