"""What strategies without a population share: they start from the operator's own kernels and keep the best."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from random import Random
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel

from evo.individual import Individual
from evo.strategies.archive import Archive, Cell, Elite
from evo.strategies.base import Ancestors, Chooser, Rival, StrategyContext
from evo.strategies.population import elite_of
from mutators.base import Kind, Request

SettingsT = TypeVar("SettingsT", bound=BaseModel)


class PlainStrategy(Chooser, Generic[SettingsT]):
    """A `Strategy` whose subclasses say what comes after the operator's own kernels, and hear what became of it.

    Those take turns where a child begins from one; in most runs there is the naive one alone.
    """

    Settings: ClassVar[type[BaseModel]]

    def __init__(self, context: StrategyContext, settings: Mapping[str, Any]) -> None:
        """`settings` are those of the class `Settings`; it raises pydantic's ValidationError for others."""
        self.context = context
        self.settings: SettingsT = self.Settings(**settings)  # type: ignore[assignment]
        self.ancestors = Ancestors(context)
        self._best = Archive()
        """Of a single cell."""

    @abstractmethod
    def next(self, number: int, ancestor: Individual, rng: Random) -> Request | None:
        """Return the next request; None while there is none. Nothing changes by that."""

    def taken(self, request: Request) -> None:
        """Take note that one of these requests is asked for; see `Chooser.take`."""

    def heard(self, individual: Individual) -> None:
        """Learn what became of one of these requests."""

    def choose(self, number: int) -> Request | None:
        """See `Chooser.choose`."""
        if (request := self.ancestors.request(number)) or self.ancestors.naive is None:
            return request
        return self.next(number, self.start(number), self.context.rng(number))

    def take(self, request: Request) -> None:
        """See `Chooser.take`."""
        if request.kind is Kind.ANCESTOR:
            self.ancestors.take()
        else:
            self.taken(request)

    def start(self, number: int) -> Individual:
        """Return the operator's kernel that a request of this number begins from; one at least must be correct."""
        told = list(self.ancestors.told.values())
        return told[number % len(told)]

    def tell(self, individual: Individual) -> str:
        """See `Strategy.tell`."""
        elite = elite_of(individual)
        if individual.request.kind is Kind.ANCESTOR:
            self.ancestors.tell(individual, elite)
        elif individual.request.kind is not Kind.GUEST:
            self.heard(individual)
        if elite is None or not individual.fresh:
            return individual.status
        champion = Elite(elite.kernel, (), elite.log_speedup, elite.log_speedup_se)
        return self._best.add(champion, comparison_se=elite.log_speedup_se).value

    def rival(self, request: Request, cell: Cell) -> Rival:
        """Return the best kernel so far, to be raced: see `Strategy.rival`."""
        return Rival(self.best.as_anchor(), race=True) if self.best else Rival()

    @property
    def best(self) -> Elite | None:
        """The fastest kernel it knows."""
        return self._best.best
