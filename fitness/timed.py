"""The inputs of timed calls, and others in their midst that no kernel can tell from them.

Times are those of nominal inputs. A kernel that knew its timed calls could be right when it is checked and quick when
it is timed; so what is checked and what is timed is mixed. Inputs of other families, the company, lie in memory as the
timed ones do, are bound as they are, and are called in the midst of timed calls, from cold caches too; which is which
only the verifier knows. So a kernel that is quick on all that looks timed is seen to be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from itertools import count as counted

import numpy as np

from fitness.cases import Case
from fitness.device import Session
from fitness.inputs import FEW
from operators.spec import Workload

NOMINAL = "nominal"
NOMINAL_SETS = 2
"""Of each workload, which timed samples take turns with."""
COMPANY = 2
"""Sets of other families beside them, of each workload, before any are brought by checks."""

Placed = tuple[int, Case]
"""A slot of a session, and what was bound to it."""


@dataclass(frozen=True)
class Seat:
    """A session that was handed the inputs, each in a slot of its own."""

    session: Session
    nominal: Sequence[Sequence[Placed]]
    """By workload."""
    company: Sequence[Sequence[Placed]]
    """By workload; empty where nothing has to be found out."""


def dealt(families: Sequence[str], count: int, rng: np.random.Generator) -> list[str]:
    """So many families but the nominal one, as many different ones as there are, in random order.

    The one that shows most at large sizes, where sums are long, is among them as often as there is room for one more.
    """
    others = [family for family in families if family != NOMINAL] or [NOMINAL]
    rounds = -(-count // len(others))
    drawn = [str(family) for _ in range(rounds) for family in rng.permutation(others)][:count]
    others_at = [i for i in rng.permutation(len(drawn)) if drawn[i] != FEW]
    lacking = min(others.count(FEW), max(count - 1, 1)) - drawn.count(FEW)
    for index in others_at[: max(lacking, 0)]:
        drawn[index] = FEW
    return drawn


def most_company(families: Sequence[str], workloads: int) -> int:
    """How many sets of company a workload can have: so many workloads together have room for every family."""
    others = len({*families} - {NOMINAL})
    return max(COMPANY, -(-others // workloads))


class TimedInputs:
    """The inputs of one task's timed calls, by workload."""

    def __init__(
        self,
        workloads: Sequence[Workload],
        families: Sequence[str],
        draw: Callable[[Workload, str], Case],
        rng: np.random.Generator,
    ) -> None:
        """`rng` draws what no candidate may foresee."""
        self._rng = rng
        self.most = most_company(families, len(workloads))
        """Sets of company that a workload can have."""
        self.nominal: list[list[Case]] = [[] for _ in workloads]
        self.company: list[list[Case]] = [[] for _ in workloads]
        wanted = [(number, True, NOMINAL) for number in range(len(workloads)) for _ in range(NOMINAL_SETS)]
        drawn = dealt(families, COMPANY * len(workloads), rng)
        wanted += [(number % len(workloads), False, family) for number, family in enumerate(drawn)]
        for index in rng.permutation(len(wanted)):  # where a set lies in memory tells nothing either
            number, timed, family = wanted[index]
            (self.nominal if timed else self.company)[number].append(draw(workloads[number], family))

    def any_of_each(self) -> list[Case]:
        """One set of every workload, whichever."""
        pairs = zip(self.nominal, self.company, strict=True)
        return [both[int(self._rng.integers(len(both)))] for both in ([*mine, *other] for mine, other in pairs)]

    def join(self, case: Case) -> None:
        """Take a case into the company of its workload, in the place of the one that is there for longest."""
        for sets, company in zip(self.nominal, self.company, strict=True):
            if sets[0].workload.name == case.workload.name:
                company.append(case)
                del company[: -self.most]

    def seated(self, session: Session, *, disguised: bool) -> Seat:
        """Hand them to a session. Raises what the session raises.

        Disguised, there is company, and neither the order nor the numbers of slots tell which is which; otherwise the
        nominal sets are bound as `placed` does it.
        """
        if not disguised:
            return Seat(session, self.placed(session, range(len(self.nominal))), [[] for _ in self.nominal])
        sets = [(case, number, True) for number, cases in enumerate(self.nominal) for case in cases]
        sets += [(case, number, False) for number, cases in enumerate(self.company) for case in cases]
        sets = [sets[index] for index in self._rng.permutation(len(sets))]
        nominal: list[list[Placed]] = [[] for _ in self.nominal]
        company: list[list[Placed]] = [[] for _ in self.nominal]
        for slot, (case, number, timed) in enumerate(sets, 1):
            session.bind(slot, case, at_end=False)
            (nominal if timed else company)[number].append((slot, case))
        return Seat(session, nominal, company)

    def placed(self, session: Session, numbers: Sequence[int]) -> list[list[Placed]]:
        """Hand a session the nominal sets of the workloads with these numbers alone, and return them in that order.

        They are bound in their order, in slots that count from 1. Raises what the session raises.
        """
        slots = counted(1)
        found: list[list[Placed]] = [[(next(slots), case) for case in self.nominal[number]] for number in numbers]
        for slot, case in chain.from_iterable(found):
            session.bind(slot, case, at_end=False)
        return found
