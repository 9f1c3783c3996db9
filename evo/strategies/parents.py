"""Which kernels of a population a child is made from: what a mutator gets, and what a language model is shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from evo.lineage import Lineage
from evo.strategies.population import Cell, Elite, Population
from mutators.bandit import Arm
from mutators.base import Request

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

    def routes(self, parent: Elite) -> Iterator[tuple[Elite, tuple[str, ...]]]:
        """Elites of all islands that are faster than a parent on some workloads, and slower on another, with those."""
        for island in self._population.islands:
            for other in island.ranked():
                faster = self._lineage.wins(other.kernel, parent.kernel)
                if faster and self._lineage.wins(parent.kernel, other.kernel):
                    yield other, faster


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
