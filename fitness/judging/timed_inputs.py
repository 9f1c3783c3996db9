"""The inputs of timed calls, and others in their midst that no kernel can tell from them.

Times are those of nominal inputs. A kernel that kept what it computed could be quick on inputs that it has seen; so
where a process outlives a call (`Device.forgets` is false), nominal inputs are drawn anew, in place, before every timed
call. Where drawing costs more than timing, a set serves several calls, and `fitness.judging.paired` holds calls on
inputs that were seen before against first ones.

A kernel that knew its timed calls could be right when it is checked and quick when it is timed; so what is checked and
what is timed is mixed. Inputs of other families, the company, lie in memory as the
timed ones do, are bound as they are, and are called in the midst of timed calls, from cold caches too; which is which
only the verifier knows. So a kernel that is quick on all that looks timed is seen to be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from itertools import count as counted

import numpy as np

from fitness.judging.device import KernelSession
from fitness.oracle.cases import Case
from fitness.oracle.inputs import FEW
from operators.definition.spec import Workload
from operators.drawing import NOMINAL

NOMINAL_SETS = 2
"""Nominal sets of each workload, which timed samples take turns with."""
COMPANY = 2
"""Sets of other families beside them, of each workload, before any are brought by checks."""

LEAST_SETS = 2
"""Sets of a workload that remain where memory runs out: one that is timed, and one of company."""
STANDING_SETS = 1
"""Nominal sets of each workload that stay as they are, for a library whose operands may be converted before."""
Placed = tuple[int, Case]
"""A slot of a session, and what was bound to it."""


class TimedSet:
    """One set of nominal inputs in memory that stays the same, whatever it holds at a time."""

    def __init__(self, case: Case, renewed: Callable[[Case], Case] | None = None) -> None:
        """`renewed` draws other inputs like those of a case in their place; None: they stay."""
        self._case = case
        self._renewed = renewed
        self._torn = False
        """Whether a drawing was broken off, by a lack of memory perhaps, and left inputs without their answer."""

    @property
    def case(self) -> Case:
        """The inputs that lie there, with their answer; drawn anew after a drawing that was broken off."""
        if self._torn:
            self.renew()
        return self._case

    @property
    def renewable(self) -> bool:
        """Whether `renew` changes anything."""
        return self._renewed is not None

    def renew(self) -> None:
        """Draw other inputs in the same place. Sessions learn of it when `Seat.placed` next hands them the set."""
        if self._renewed is not None:
            self._torn = True
            self._case = self._renewed(self._case)
            self._torn = False

    def replace(self, case: Case) -> None:
        """Let another case, in memory of its own, take the place of this one."""
        self._case, self._torn = case, False


class Seat:
    """A session that was handed the inputs, each in a slot of its own."""

    def __init__(
        self,
        session: KernelSession,
        nominal: Sequence[Sequence[tuple[int, TimedSet]]],
        company: Sequence[Sequence[Placed]],
    ) -> None:
        """Both are by workload, and bound; `company` is empty where nothing has to be found out."""
        self.session = session
        self.nominal = nominal
        self.company = company
        self._bound = {slot: timed.case for sets in nominal for slot, timed in sets}

    def placed(self, number: int, which: int) -> Placed:
        """One of a workload's nominal sets, as it is now. Raises what the session raises."""
        slot, timed = self.nominal[number][which]
        if self._bound[slot] is not timed.case:
            self.session.bind(slot, timed.case, at_end=False)
            self._bound[slot] = timed.case
        return slot, timed.case

    def instead(self, number: int, case: Case) -> Placed:
        """Hand the session another case in the place of a workload's first nominal set, which `placed` puts back.

        Raises what the session raises.
        """
        slot, _ = self.nominal[number][0]
        self.session.bind(slot, case, at_end=False)
        self._bound[slot] = case
        return slot, case


def dealt(families: Sequence[str], count: int, rng: np.random.Generator) -> list[str]:
    """This many families but the nominal one, as many different ones as there are, in random order.

    The one that shows most at large sizes, where sums are long, is among them as often as it is dealt, as long as there
    is room for one more.
    """
    others = [family for family in families if family != NOMINAL] or [NOMINAL]
    first = [FEW] * min(others.count(FEW), max(count - 1, 1))
    first += [str(family) for family in rng.permutation(sorted({*others} - {FEW}))]
    while len(first) < count:
        first += [str(family) for family in rng.permutation(others)]
    return [first[i] for i in rng.permutation(count)]


def most_company(families: Sequence[str], workloads: int) -> int:
    """The number of sets of company that a workload can have: this many workloads together have room for every family,
    and for all forms of the one that shows most."""
    others = len({*families} - {NOMINAL, FEW}) + families.count(FEW)
    return max(COMPANY, -(-others // workloads))


def most_sets(families: Sequence[str], workloads: int) -> int:
    """The number of sets of inputs that are kept of each of so many workloads where memory is not short."""
    return NOMINAL_SETS + most_company(families, workloads)


class TimedInputs:
    """The inputs of one task's timed calls, by workload."""

    def __init__(
        self,
        workloads: Sequence[Workload],
        families: Sequence[str],
        draw: Callable[[Workload, str], Case],
        rng: np.random.Generator,
        renewed: Callable[[Case], Case] | None = None,
        *,
        sets: Sequence[int],
    ) -> None:
        """`rng` draws what no candidate may foresee; see `TimedSet` for `renewed`.

        `sets` is the number of sets that are kept of each workload, half of them nominal: `most_sets`, or fewer where
        memory is short.
        """
        self._rng = rng
        self._workloads = workloads
        self._draw = draw
        self._standing: dict[int, list[Case]] = {}
        self.most = most_company(families, len(workloads))
        """Sets of company that a workload can have."""
        nominal = [min(NOMINAL_SETS, -(-many // 2)) for many in sets]
        self._room = [many - timed for many, timed in zip(sets, nominal, strict=True)]
        """Sets of company that each workload keeps."""
        self.nominal: list[list[TimedSet]] = [[] for _ in workloads]
        self.company: list[list[Case]] = [[] for _ in workloads]
        wanted = [(number, True, NOMINAL) for number, many in enumerate(nominal) for _ in range(many)]
        places = [number for turn in range(COMPANY) for number, room in enumerate(self._room) if turn < room]
        wanted += [(at, False, family) for at, family in zip(places, dealt(families, len(places), rng), strict=True)]
        for index in rng.permutation(len(wanted)):  # where a set lies in memory tells nothing either
            number, timed, family = wanted[index]
            case = draw(workloads[number], family)
            if timed:
                self.nominal[number].append(TimedSet(case, renewed))
            else:
                self.company[number].append(case)

    def any_of_each(self) -> list[Case]:
        """One set of every workload, whichever."""
        mixed = [[*(t.case for t in mine), *other] for mine, other in zip(self.nominal, self.company, strict=True)]
        return [both[int(self._rng.integers(len(both)))] for both in mixed]

    def redraw(self) -> None:
        """Draw all nominal sets anew, with answers of their own, in other memory."""
        for workload, sets in zip(self._workloads, self.nominal, strict=True):
            for timed in sets:
                timed.replace(self._draw(workload, NOMINAL))

    def standing(self, number: int) -> list[Case]:
        """Nominal sets of a workload that stay as they are, drawn when they are first asked for."""
        if number not in self._standing:
            self._standing[number] = [self._draw(self._workloads[number], NOMINAL) for _ in range(STANDING_SETS)]
        return self._standing[number]

    def join(self, case: Case) -> None:
        """Take a case into the company of its workload, in the place of the one that is there for longest."""
        for sets, company, room in zip(self.nominal, self.company, self._room, strict=True):
            if sets[0].case.workload.name == case.workload.name:
                company.append(case)
                del company[: max(len(company) - room, 0)]

    def seated(self, session: KernelSession, *, disguised: bool) -> Seat:
        """Hand them to a session. Raises what the session raises.

        Disguised, there is company, and neither the order nor the numbers of slots tell which is which; otherwise the
        nominal sets are bound in their order, in slots that count from 1.
        """
        sets: list[tuple[TimedSet | Case, int]] = [(timed, n) for n, sets in enumerate(self.nominal) for timed in sets]
        if disguised:
            sets += [(case, number) for number, cases in enumerate(self.company) for case in cases]
            sets = [sets[index] for index in self._rng.permutation(len(sets))]
        slots: dict[TimedSet, int] = {}
        company: list[list[Placed]] = [[] for _ in self.nominal]
        for slot, (what, number) in enumerate(sets, 1):
            case = what.case if isinstance(what, TimedSet) else what
            session.bind(slot, case, at_end=False)
            if isinstance(what, TimedSet):
                slots[what] = slot
            else:
                company[number].append((slot, case))
        # In one order for all sessions, which are to be called on the same set.
        return Seat(session, [[(slots[timed], timed) for timed in sets] for sets in self.nominal], company)

    def placed(self, session: KernelSession, numbers: Sequence[int]) -> list[list[Placed]]:
        """Hand a session the standing sets of the workloads with these numbers alone, and return them in that order.

        They are bound in their order, in slots that count from 1. Raises what the session raises.
        """
        slots = counted(1)
        found: list[list[Placed]] = [[(next(slots), case) for case in self.standing(number)] for number in numbers]
        for slot, case in chain.from_iterable(found):
            session.bind(slot, case, at_end=False)
        return found
