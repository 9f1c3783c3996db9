"""Which kernels of a population a child is made from: what a mutator gets, and what a language model is shown."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from evo.individual import Individual
from evo.strategies.archive import Elite
from evo.strategies.kinship import Kinship
from evo.strategies.population import Population

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
