"""Which kernels of a population a child is made from: what a mutator gets, and what a language model is shown."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import TypeVar

from evo.individual import Individual
from evo.strategies.population import MARGIN, Cell, Elite, Population
from fitness.profiling.profiles import Profile
from mutators.bandit import Arm
from mutators.base import Request
from operators.kernel import Kernel

Value = TypeVar("Value")
KEPT = 20_000
"""Kernels that are remembered, the latest."""
Standing = tuple[float, float]
"""A log speedup over the baseline on one workload, and its standard error."""


class Kinship:
    """Tells of a task's kernels in their order; files that differ in tunables alone are one."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, str] = OrderedDict()
        """By kernel id, its source id."""
        self._parents: OrderedDict[str, frozenset[str]] = OrderedDict()
        """By source id, those of the kernels that it was made from."""
        self._standings: OrderedDict[str, Mapping[str, Standing]] = OrderedDict()
        """By kernel id and workload, of correct kernels."""

    def told(self, individual: Individual) -> None:
        """Learn of an individual."""
        kernel, evaluation = individual.kernel, individual.evaluation
        if kernel is None or evaluation is None:
            return
        _keep(self._files, kernel.id, kernel.source_id)
        if kernel.source_id not in self._parents:
            files = (self._files.get(parent) for parent in individual.request.parents)
            _keep(self._parents, kernel.source_id, frozenset(f for f in files if f and f != kernel.source_id))
        if evaluation.correct and individual.fresh and evaluation.timings:
            _keep(self._standings, kernel.id, self._standing(individual))

    def related(self, one: Kernel, other: Kernel) -> bool:
        """Whether one of the two was made from the other, however many steps ago, or both are the same file."""
        return self._descends(one, other) or self._descends(other, one)

    def wins_somewhere(self, kernel: Kernel, rival: Kernel) -> bool:
        """Whether a kernel is faster than its rival on some workload, by more than MARGIN and what noise explains."""
        mine, other = self._standings.get(kernel.id, {}), self._standings.get(rival.id, {})
        for workload in mine.keys() & other.keys():
            (log_speedup, error), (rival_speedup, rival_error) = mine[workload], other[workload]
            if log_speedup - rival_speedup > max(MARGIN, 1.96 * math.hypot(error, rival_error)):
                return True
        return False

    def _descends(self, kernel: Kernel, ancestor: Kernel) -> bool:
        seen, left = {kernel.source_id}, [kernel.source_id]
        while left:
            file = left.pop()
            if file == ancestor.source_id:
                return True
            new = self._parents.get(file, frozenset()) - seen
            seen |= new
            left += new
        return False

    def _standing(self, individual: Individual) -> dict[str, Standing]:
        """The log speedup on each workload: what its anchor has there, as far as that is known, and their ratio."""
        evaluation = individual.evaluation
        assert evaluation
        mean = evaluation.anchor_log_speedup or 0.0
        # A mean of exactly 0 is the baseline's own; what was measured of that besides is noise.
        known = self._standings.get(evaluation.anchor_id or "", {}) if mean else {}
        standings = {}
        for timing in evaluation.timings:
            base, error = known.get(timing.workload, (mean, 0.0))
            standings[timing.workload] = base + timing.log_ratio, math.hypot(error, timing.log_ratio_se)
        return standings


def _keep(known: OrderedDict[str, Value], key: str, value: Value) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > KEPT:
        known.popitem(last=False)


Pair = tuple[Elite, Elite | None]
"""A parent, and the second one if there is one."""


class Pairs:
    """Draws parents and partners from a population that others add to."""

    def __init__(self, population: Population, *, abroad: float, focus: float) -> None:
        """`abroad`: how often a second parent is of another island; `focus`: how often a model is shown a kernel near
        the fastest.
        """
        self._population = population
        self._abroad = abroad
        self._focus = focus
        self._kinship = Kinship()

    def told(self, individual: Individual) -> None:
        """Learn of an individual."""
        self._kinship.told(individual)

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
        known = self._kinship
        return known.wins_somewhere(other.kernel, parent.kernel) and not known.related(other.kernel, parent.kernel)


STEPS_BACK = 4
"""Number of ancestors searched for a profile: a change seldom moves a kernel into another class."""
UNPROFILED = "unprofiled"
"""The place along an archive's axis of kernels of which nothing is known."""


class Bottlenecks:
    """Follows a task's tells and profiles, in their order.

    Few kernels are profiled: those that models are asked about. Others count as limited like the nearest profiled
    ancestor, along principal parents.
    """

    def __init__(self) -> None:
        self._own: OrderedDict[str, str] = OrderedDict()
        """By kernel id, of those that were profiled."""
        self._parents: OrderedDict[str, str] = OrderedDict()
        """By kernel id, the principal parent's id."""

    def told(self, individual: Individual) -> None:
        """Learn of an individual."""
        kernel, parents = individual.kernel, individual.request.parents
        if kernel and kernel.id not in self._parents and (others := [each for each in parents if each != kernel.id]):
            self._parents[kernel.id] = others[0]
            if len(self._parents) > KEPT:
                self._parents.popitem(last=False)

    def profiled(self, kernel_id: str, profile: Profile) -> None:
        """Learn what a profiler said."""
        if profile.bottleneck:
            self._own[kernel_id] = profile.bottleneck.value
            if len(self._own) > KEPT:
                self._own.popitem(last=False)

    def of(self, kernel_id: str) -> str:
        """Return what limits a kernel, a name of `Bottleneck`; empty where it is not known."""
        for _ in range(STEPS_BACK + 1):
            if kernel_id in self._own:
                return self._own[kernel_id]
            if kernel_id not in self._parents:
                break
            kernel_id = self._parents[kernel_id]
        return ""

    def context(self, arm: Arm, parents: Sequence[str]) -> str:
        """Return the context in which an arm is used on these kernels; empty: any.

        What limits a kernel says nothing of how to mend a failure.
        """
        return self.of(parents[0]) if parents and arm.mutator != "repair" else ""

    def axis(self, request: Request) -> Cell:
        """Return where a request's child lies along an archive's axis: it is taken to be limited like its parent."""
        return (next(filter(None, map(self.of, request.parents)), UNPROFILED),)
