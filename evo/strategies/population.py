"""A task's population: islands of archives (MAP-Elites: Mouret and Clune, arXiv:1504.04909), and migration;
which kernels of it a child is made from; and the sessions of agents that go on from them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from random import Random
from typing import Any

from pydantic import Field

from evo.individual import Individual
from evo.lineage import Latest, Lineage
from fitness.evaluation import Z95
from fitness.judging.base import Anchor
from fitness.judging.levels import LEAST_GAIN
from mutators.bandit import Arm
from mutators.base import Migration, Request, Trial, cannot_call_tools
from mutators.llm.settings import UserSettings, is_outside
from operators.kernel import Kernel

Cell = tuple[str, ...]
MARGIN = LEAST_GAIN
"""An elite is replaced only by a kernel faster by this log ratio, and by Z95 standard errors of the comparison."""


class AddStatus(Enum):
    """Effect of `Archive.add`; false when nothing happened."""

    REJECTED = "rejected"
    IMPROVED = "improved"
    NEW = "new"

    def __bool__(self) -> bool:
        return self is not AddStatus.REJECTED


@dataclass(frozen=True)
class Elite:
    """The best kernel known of one cell."""

    kernel: Kernel
    cell: Cell
    log_speedup: float
    log_speedup_se: float

    @property
    def stands_at(self) -> float:
        """The log speedup that it certainly has, by which elites are ranked: of many estimates the largest is the
        luckiest, and would be bred from most."""
        return self.log_speedup - Z95 * self.log_speedup_se

    def as_anchor(self) -> Anchor:
        """Return it as what others are timed beside."""
        return Anchor(self.kernel, self.log_speedup, self.log_speedup_se)


class Archive:
    """One island's cells. Only its owner adds to it."""

    def __init__(self) -> None:
        self._elites: dict[Cell, Elite] = {}
        self._ranked: tuple[Elite, ...] | None = ()
        """None after a change."""

    def __len__(self) -> int:
        return len(self._elites)

    def get(self, cell: Cell) -> Elite | None:
        """The elite of a cell."""
        return self._elites.get(cell)

    def add(self, elite: Elite, *, comparison_se: float) -> AddStatus:
        """Offer a correct kernel. `comparison_se`: standard error of its log ratio to the elite in place."""
        current = self._elites.get(elite.cell)
        if current and elite.log_speedup - current.log_speedup <= max(MARGIN, Z95 * comparison_se):
            return AddStatus.REJECTED
        self._elites[elite.cell] = elite
        self._ranked = None
        return AddStatus.IMPROVED if current else AddStatus.NEW

    def refile(self, kernel_id: str, axis: Cell) -> None:
        """Put an elite into the cell that ends with `axis`, as its own now does with something as long; if it is one.

        It has to beat the elite that is there, like any other.
        """
        found = next((elite for elite in self._elites.values() if elite.kernel.id == kernel_id), None)
        if found and (cell := (*found.cell[: -len(axis)], *axis)) != found.cell:
            del self._elites[found.cell]
            self._ranked = None
            self.add(replace(found, cell=cell), comparison_se=found.log_speedup_se)

    def clear(self) -> None:
        """Empty every cell."""
        self._elites.clear()
        self._ranked = ()

    def ranked(self) -> tuple[Elite, ...]:
        """Elites, those that stand highest first; ties by cell, so that the order does not depend on history."""
        if self._ranked is None:
            self._ranked = tuple(sorted(self._elites.values(), key=lambda e: (-e.stands_at, e.cell)))
        return self._ranked

    @property
    def best(self) -> Elite | None:
        """The one that stands highest."""
        return self.ranked()[0] if self._elites else None


TRIALS_PER_SOURCE = 100
SOURCES_REMEMBERED = 500
NEAR = 0.8
"""The share of the fastest kernel's speed from which a kernel is near it."""


class Population:
    """Plain and single-threaded; its owner feeds it individuals in the order of the tells.

    An island whose best is no better for `patience` of its individuals, and that is the worst one, is emptied and
    starts again from the best of another one, as in FunSearch (Romera-Paredes et al., doi 10.1038/s41586-023-06924-6).
    """

    def __init__(self, *, islands: int, migration_interval: int, patience: int, cells: bool = True) -> None:
        """Without `cells` an island holds its best kernel alone."""
        self.islands = tuple(Archive() for _ in range(islands))
        self.migration_interval = migration_interval
        self.patience = patience
        self._cells = cells
        self.quiet = [0] * islands
        """Per island, individuals since its best became better, or since its restart."""
        self.migrations: list[Migration] = []
        """Migrations that no request has told of yet."""
        self.best: Elite | None = None
        """The fastest kernel of all islands."""
        self._trials: Latest[str, dict[tuple[tuple[str, int], ...], Trial]] = Latest(SOURCES_REMEMBERED)
        """By source file and setting."""
        self._added = 0

    def add(self, individual: Individual, island: int, axis: Cell = ()) -> AddStatus:
        """Offer an individual to an island's archive, which rejects duplicates and failures; all of them are trials.

        `axis` says where it lies along what cells have besides those of the evaluation.
        """
        self._remember(individual)
        self.quiet[island] += 1
        elite = elite_of(individual) if individual.fresh else None
        if elite:
            elite = replace(elite, cell=(*elite.cell, *axis) if self._cells else ())
        status = self._offer(individual, elite, island) if elite else AddStatus.REJECTED
        if elite:
            self._added += 1
            if self._added % self.migration_interval == 0:
                self._migrate()
        self._restart(island, Random(individual.request.seed))
        return status

    def refile(self, kernel_id: str, axis: Cell) -> None:
        """Put a kernel where it turned out to lie along an axis of the archives, wherever it is an elite."""
        for archive in self.islands if self._cells else ():
            archive.refile(kernel_id, axis)

    def elite(self, island: int, cell: Cell) -> Elite | None:
        """The kernel that a newcomer to this cell has to beat."""
        return self.islands[island].get(cell if self._cells else ())

    def find(self, kernel_id: str) -> Elite | None:
        """Return the elite that is this kernel; None where it is none, or none any more."""
        best = (self.best,) if self.best else ()
        everyone = (elite for elites in (best, *(each.ranked() for each in self.islands)) for elite in elites)
        return next((elite for elite in everyone if elite.kernel.id == kernel_id), None)

    def draw(self, island: int, rng: Random, *, pressure: float = 2.0) -> Iterator[Elite]:
        """Distinct elites of one island, the fast ones more likely first: rank r with weight pressure**-r.

        An island without any gives the fastest kernel of all.
        """
        pool = list(self.islands[island].ranked()) or ([self.best] if self.best else [])
        return _by_rank(pool, rng, pressure=pressure)

    def near_best(self, island: int, rng: Random) -> Iterator[Elite]:
        """Distinct elites at least NEAR times as fast as the fastest of all: the island's own, else all islands'.

        The fast ones come first more likely, as in `draw`. There is one as soon as there is any elite.
        """
        least = (self.best.stands_at if self.best else 0.0) + math.log(NEAR)
        for places in (self.islands[island : island + 1], self.islands):
            near = {elite.kernel.id: elite for place in places for elite in place.ranked() if elite.stands_at >= least}
            if near:
                pool = sorted(near.values(), key=lambda elite: (-elite.stands_at, elite.cell))
                return _by_rank(pool, rng, pressure=2.0)
        return _by_rank([self.best] if self.best else [], rng, pressure=2.0)

    def _remember(self, individual: Individual) -> None:
        """Take an individual for a trial of its source file's tunables; duplicates too, or they would be tried again.

        At most TRIALS_PER_SOURCE are kept of one file, and the files of SOURCES_REMEMBERED, the latest.
        """
        kernel, evaluation = individual.kernel, individual.evaluation
        if kernel is None or evaluation is None:
            return
        known = self._trials.get(kernel.source_id) or {}
        self._trials.put(kernel.source_id, known)
        setting = tuple(sorted(kernel.values.items()))
        if setting not in known or known[setting].log_speedup is None:
            known[setting] = Trial(dict(kernel.values), evaluation.estimate)
        if len(known) > TRIALS_PER_SOURCE:
            del known[next(iter(known))]

    def trials(self, kernel: Kernel) -> tuple[Trial, ...]:
        """The known settings of this kernel's source file, oldest first."""
        return tuple((self._trials.get(kernel.source_id) or {}).values())

    def _offer(self, individual: Individual, elite: Elite, island: int) -> AddStatus:
        evaluation = individual.evaluation
        assert evaluation is not None
        archive = self.islands[island]
        current, leader = archive.get(elite.cell), archive.best
        paired = current is not None and evaluation.anchor_id == current.kernel.id
        if paired and evaluation.log_ratio_se is not None:
            comparison_se = evaluation.log_ratio_se
        else:
            comparison_se = math.hypot(elite.log_speedup_se, current.log_speedup_se if current else 0.0)
        status = archive.add(elite, comparison_se=comparison_se)
        if status and (leader is None or elite.stands_at > leader.stands_at + MARGIN):
            self.quiet[island] = 0
        if status and (self.best is None or elite.stands_at > self.best.stands_at):
            self.best = elite
        return status

    def _migrate(self) -> None:
        """Every island offers its best to the next one."""
        if len(self.islands) < 2:
            return
        leaders = [island.best for island in self.islands]
        for index, leader in enumerate(leaders):
            if leader:
                self._send(leader, index, (index + 1) % len(self.islands), "migration")

    def _send(self, elite: Elite, source: int, island: int, kind: str) -> None:
        """Offer an elite of one island to another one, unless that has it already."""
        current = self.islands[island].get(elite.cell)
        if current is None or current.kernel.id != elite.kernel.id:
            outcome = self.islands[island].add(elite, comparison_se=elite.log_speedup_se)
            self.migrations.append(Migration(elite.kernel.id, source, island, kind, outcome.value))

    def _restart(self, island: int, rng: Random) -> None:
        """Empty the island and give it the best of another one, if it is stuck and the worst."""
        if self.quiet[island] < self.patience or len(self.islands) < 2:
            return
        bests = [archive.best for archive in self.islands]
        mine = bests[island]
        others = [(index, best) for index, best in enumerate(bests) if index != island and best]
        if mine is None or not others or any(mine.stands_at > best.stands_at for _, best in others):
            return
        self.quiet[island] = 0
        self.islands[island].clear()
        source, founder = rng.choice(others)
        self._send(founder, source, island, "restart")


def _by_rank(pool: list[Elite], rng: Random, *, pressure: float) -> Iterator[Elite]:
    """All of a pool, the first ones sooner more likely."""
    while pool:
        weights = [pressure**-rank for rank in range(len(pool))]
        yield pool.pop(rng.choices(range(len(pool)), weights)[0])


def elite_of(individual: Individual) -> Elite | None:
    """A correct individual as an archive holds it; None for any other."""
    kernel, evaluation = individual.kernel, individual.evaluation
    if kernel is None or evaluation is None or not evaluation.correct:
        return None
    assert evaluation.log_speedup is not None and evaluation.log_speedup_se is not None
    return Elite(kernel, evaluation.cell, evaluation.log_speedup, evaluation.log_speedup_se)


Pair = tuple[Elite, Elite | None]
"""A parent, and the second one if there is one."""


class Pairs:
    """Draws parents and partners from a population that others add to."""

    def __init__(self, population: Population, lineage: Lineage, *, abroad: float, focus: float) -> None:
        """`abroad`: how often a second parent is of another island; `focus`: how often a model is shown a kernel near
        the fastest.
        """
        self._population = population
        self._abroad = abroad
        self._focus = focus
        self._lineage = lineage

    def partner(self, parent: Elite, island: int, rng: Random) -> Elite | None:
        """Return a second parent with another source, of another island now and then."""
        islands = len(self._population.islands)
        shift = rng.randrange(1, islands) if islands > 1 else 0
        away = (island + shift) % islands
        places = (away, island) if rng.random() < self._abroad else (island, away)
        found: Iterator[Elite] = (elite for place in places for elite in self._population.draw(place, rng))
        return next((elite for elite in found if elite.kernel.source_id != parent.kernel.source_id), None)

    def shown(self, island: int, rng: Random) -> Pair:
        """Return what a model is asked to better, and a partner that has something to teach it, if there is one.

        The population must not be empty. A partner is faster on some workload, and neither of the two was made from
        the other.
        """
        if rng.random() < self._focus:
            parent = next(self._population.near_best(island, rng))
        else:
            parent = next(self._population.draw(island, rng, pressure=1.0))
        places = range(len(self._population.islands))
        others = (elite for place in places for elite in self._population.draw(place, rng))
        return parent, next((other for other in others if self._teaches(other, parent)), None)

    def _teaches(self, other: Elite, parent: Elite) -> bool:
        known = self._lineage
        return bool(known.wins(other.kernel, parent.kernel)) and not known.related(other.kernel, parent.kernel)

    def routes(self, parent: Elite) -> Iterator[tuple[Elite, dict[str, float]]]:
        """Elites of all islands that are faster than a parent on some workloads, and slower on others.

        With each come the logs of how many times as fast it is, of these workloads.
        """
        for island in self._population.islands:
            for other in island.ranked():
                gains = self._lineage.gains(other.kernel, parent.kernel)
                if gains and min(gains.values()) < 0 < max(gains.values()):
                    yield other, gains


UNPROFILED = "unprofiled"
"""The place along an archive's axis of kernels of which nothing is known."""


def arm_context(lineage: Lineage, arm: Arm, parents: Sequence[str]) -> str:
    """Return the context in which an arm is used on these kernels; empty: any.

    What limits a kernel says nothing of how to mend a failure.
    """
    return lineage.limited_by(parents[0]) if parents and arm.mutator != "repair" else ""


def archive_axis(lineage: Lineage, request: Request) -> Cell:
    """Return where a request's child lies along an archive's axis: it is taken to be limited like its parent."""
    return (next(filter(None, map(lineage.limited_by, request.parents)), UNPROFILED),)


# --- sessions of agents -----------------------------------------------------------------------------------------------


FRUITLESS = 2
"""Kernels in a row that gained nothing, after which a session ends."""


class AgentSettings(UserSettings):
    """Limits of one dialogue of the mutator `agent`, and of a session of several."""

    calls: int = Field(default=16, ge=1, le=200)
    """Answers of the model in one dialogue."""
    evaluations: int = Field(default=3, ge=0, le=100)
    """Drafts that are judged in it; each is charged as an evaluation."""
    tokens: int = Field(default=400_000, ge=1)
    """In and out, of all its answers."""
    usd: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Dollars for all answers of one dialogue; 0: no limit but the run's budget."""
    kernels: int = Field(default=4, ge=1, le=100)
    """Handed in one after the other in one conversation."""

    def params(self, fruitless: int) -> dict[str, Any]:
        """Return what the mutator is to know, after so many kernels in a row that gained nothing."""
        limits = self.model_dump(include=set(AgentSettings.model_fields) - {"kernels"})
        return limits | ({"stagnant": fruitless} if fruitless else {})


@dataclass(frozen=True)
class AgentSession:
    """A conversation that can go on."""

    thread: str
    """The request that it goes on with."""
    parent: Elite
    handed_in: int = 0
    fruitless: int = 0
    """Kernels in a row that were no faster than what they came from."""


class AgentSessions:
    """One session of each model at a time; all of it follows from asks and tells."""

    def __init__(self, settings: AgentSettings) -> None:
        self.settings = settings
        self._open: dict[str, AgentSession] = {}
        """By model, the session that may go on."""
        self._asked: dict[int, AgentSession] = {}
        """By number of the request, what it goes on with, or begins."""
        self._unable: set[str] = set()
        """Models that can call no tools."""

    def may_ask(self, model: str) -> bool:
        """Return whether the model can work with our tools, as far as is known; answers from outside cannot."""
        return model not in self._unable and not is_outside(model)

    def next(self, model: str, parent: Elite) -> AgentSession:
        """Return the session that a request goes on with; a new one begins with `parent`."""
        return self._open.get(model) or AgentSession("", parent)

    def take(self, request: Request, parent: Elite | None) -> Elite | None:
        """Take note of a request; return what it goes on from: `parent` where no session is open."""
        session = self._open.pop(request.model, None)
        if session is None and parent:
            session = AgentSession(request.thread, parent)
        if session:
            self._asked[request.number] = session
        return session.parent if session else None

    def tell(self, individual: Individual) -> None:
        """Learn what became of a request; a session goes on as long as it brings something."""
        session = self._asked.pop(individual.request.number, None)
        model = individual.request.model
        if session is None:
            return
        if individual.unavailable:  # says nothing of the session
            self._open.setdefault(model, session)
            return
        if cannot_call_tools(individual.failure):
            self._unable.add(model)
        if individual.kernel is None:
            return
        elite = elite_of(individual)
        gained = elite is not None and elite.log_speedup > session.parent.log_speedup
        goes_on = replace(
            session, thread=individual.id, parent=elite if elite and gained else session.parent,
            handed_in=session.handed_in + 1, fruitless=0 if gained else session.fruitless + 1,
        )  # fmt: skip
        if goes_on.handed_in < self.settings.kernels and goes_on.fruitless < FRUITLESS:
            self._open.setdefault(model, goes_on)
