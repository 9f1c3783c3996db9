"""A task's population: islands of archives, migration between them, and what tuning has found out."""

from __future__ import annotations

import math
from collections import OrderedDict
from random import Random

from evo.archive import AddStatus, Archive, Cell, Elite
from evo.individual import Individual
from mutators.base import Trial
from operators.kernel import Kernel

TRIALS_PER_SOURCE = 100
SOURCES_REMEMBERED = 2_000


class Population:
    """Plain and single-threaded; whoever holds it feeds it individuals in the order of the tells."""

    def __init__(self, *, islands: int, migration_interval: int) -> None:
        self.islands = tuple(Archive() for _ in range(islands))
        self.migration_interval = migration_interval
        self._best: Elite | None = None
        self._trials: OrderedDict[str, list[Trial]] = OrderedDict()
        self._added = 0

    @property
    def best(self) -> Elite | None:
        """The fastest kernel of all islands."""
        return self._best

    def add(self, individual: Individual, island: int) -> AddStatus:
        """Offer an individual to an island's archive, and remember it as a trial of its source file."""
        self._remember(individual)
        kernel, evaluation = individual.kernel, individual.evaluation
        if kernel is None or evaluation is None or not evaluation.correct:
            return AddStatus.REJECTED
        assert evaluation.log_speedup is not None and evaluation.log_speedup_se is not None
        elite = Elite(kernel, evaluation.cell, evaluation.log_speedup, evaluation.log_speedup_se)
        current = self.islands[island].get(elite.cell)
        paired = current is not None and evaluation.anchor_id == current.kernel.id
        if paired and evaluation.log_ratio_se is not None:
            comparison_se = evaluation.log_ratio_se
        else:
            comparison_se = math.hypot(elite.log_speedup_se, current.log_speedup_se if current else 0.0)
        status = self.islands[island].add(elite, comparison_se=comparison_se)
        if status and (self._best is None or elite.log_speedup > self._best.log_speedup):
            self._best = elite
        self._added += 1
        if self._added % self.migration_interval == 0:
            self._migrate()
        return status

    def elite(self, island: int, cell: Cell) -> Elite | None:
        """The kernel that a newcomer to this cell has to beat."""
        return self.islands[island].get(cell)

    def parents(self, island: int, rng: Random, count: int = 1, *, pressure: float = 2.0) -> list[Elite]:
        """Distinct elites of one island, the fast ones more likely: rank r with weight pressure**-r."""
        pool = self.islands[island].ranked() or ([self._best] if self._best else [])
        chosen: list[Elite] = []
        while pool and len(chosen) < count:
            weights = [pressure**-rank for rank in range(len(pool))]
            chosen.append(pool.pop(rng.choices(range(len(pool)), weights)[0]))
        return chosen

    def trials(self, kernel: Kernel) -> tuple[Trial, ...]:
        """What is known of the settings of this kernel's source file, oldest first."""
        return tuple(self._trials.get(kernel.source_id, ()))

    def _remember(self, individual: Individual) -> None:
        if individual.kernel is None or individual.evaluation is None:
            return
        known = self._trials.setdefault(individual.kernel.source_id, [])
        self._trials.move_to_end(individual.kernel.source_id)
        known.append(Trial(dict(individual.kernel.values), individual.evaluation.estimate))
        del known[:-TRIALS_PER_SOURCE]
        if len(self._trials) > SOURCES_REMEMBERED:
            self._trials.popitem(last=False)

    def _migrate(self) -> None:
        """Every island offers its best to the next one."""
        if len(self.islands) < 2:
            return
        leaders = [island.best for island in self.islands]
        for index, leader in enumerate(leaders):
            if leader:
                self.islands[(index + 1) % len(self.islands)].add(leader, comparison_se=leader.log_speedup_se)
