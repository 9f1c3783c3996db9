"""What strategies without a population share: they start from the operator's own kernels and keep the best."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from random import Random
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel

from evo.archive import Archive, Cell, Elite
from evo.individual import Individual
from evo.population import elite_of
from evo.strategies.base import Ancestors, Rival, StrategyContext
from mutators.base import Kind, Request

SettingsT = TypeVar("SettingsT", bound=BaseModel)


class PlainStrategy(ABC, Generic[SettingsT]):
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
        self._number = 0

    @abstractmethod
    def next(self, number: int, ancestor: Individual, rng: Random) -> Request | None:
        """Return the next request; None, and nothing has changed, while there is none."""

    def heard(self, individual: Individual) -> None:
        """Learn what became of one of these requests."""

    def ask(self, count: int) -> list[Request]:
        """See `Strategy.ask`."""
        requests: list[Request] = []
        while len(requests) < count:
            request = self.ancestors.request(self._number)
            if request is None and self.ancestors.naive:
                told = list(self.ancestors.told.values())
                rng = self.context.rng(self._number)
                request = self.next(self._number, told[self._number % len(told)], rng)
            if request is None:
                break
            requests.append(request)
            self._number += 1
        return requests

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
