"""Evolution on islands of MAP-Elites archives: the engine's own search."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from evo.archive import Cell, Elite
from evo.individual import Individual
from evo.population import Population
from evo.strategies.base import ANCESTOR, request_rng
from fitness.base import Anchor
from mutators.base import Request
from mutators.catalog import mutator
from mutators.transform import rewrite_names
from operators.spec import Operator, Task


class IslandsSettings(BaseModel):
    """Settings of the strategy `islands`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    islands: int = Field(2, ge=1, le=64)
    migration_interval: int = Field(20, ge=1)
    """Correct individuals between two migrations."""
    explore: float = Field(0.2, ge=0, le=1)
    """How often a parent is drawn from all elites alike rather than by rank."""
    tune_share: float = Field(0.4, ge=0, le=1)
    """How often a parent with tunables left to try is tuned rather than rewritten."""
    long_step: float = Field(0.35, ge=0, lt=1)
    """Chance of each further rewrite after the first in one child."""
    most_steps: int = Field(4, ge=1, le=16)


class Islands:
    """Requests go to the islands in turn; parents are elites of their island, fast ones more likely.

    First of all the ancestor is rewritten once in every way there is: some rewrites only apply to a kernel that no
    other one has touched.
    """

    def __init__(self, operator: Operator, task: Task, *, seed: int, settings: Mapping[str, Any]) -> None:
        self.operator = operator
        self.task = task
        self.seed = seed
        self.settings = IslandsSettings(**{k: v for k, v in settings.items() if k != "workload_set"})
        self.workload_set = settings["workload_set"]
        self.population = Population(islands=self.settings.islands, migration_interval=self.settings.migration_interval)
        self._number = 0
        self._ancestor: Elite | None = None
        self._openings = list(rewrite_names(task.target))
        request_rng(seed, task, 0).shuffle(self._openings)

    def ask(self, count: int) -> list[Request]:
        requests: list[Request] = []
        while len(requests) < count:
            if self._number == 0:
                requests.append(self._request(0, ANCESTOR, (), Random(0), {"name": "naive"}))
            elif self.population.best is None:
                break  # nothing to start from until the ancestor is back
            else:
                requests.append(self._child(self._number))
            self._number += 1
        return requests

    def tell(self, individual: Individual) -> str:
        if not individual.fresh and individual.request.mutator != ANCESTOR:
            return individual.status
        status = self.population.add(individual, self._island(individual.request))
        if individual.request.mutator == ANCESTOR:
            self._ancestor = self.population.best
        return status.value

    def anchor(self, request: Request, cell: Cell) -> Anchor | None:
        elite = self.population.elite(self._island(request), cell)
        return elite.as_anchor() if elite else None

    @property
    def best(self) -> Elite | None:
        return self.population.best

    def _island(self, request: Request) -> int:
        return request.number % self.settings.islands

    def _child(self, number: int) -> Request:
        rng = request_rng(self.seed, self.task, number)
        if self._ancestor and number <= len(self._openings):
            params = {"rewrite": self._openings[number - 1], "workload_set": self.workload_set}
            return self._request(number, "transform", (self._ancestor,), rng, params)
        pressure = 1.0 if rng.random() < self.settings.explore else 2.0
        (parent,) = self.population.parents(number % self.settings.islands, rng, pressure=pressure)
        tuner = mutator("tune")
        if tuner.applies(parent.kernel, self.operator) and rng.random() < self.settings.tune_share:
            return self._request(number, "tune", (parent,), rng, {"workload_set": self.workload_set})
        steps = 1
        while steps < self.settings.most_steps and rng.random() < self.settings.long_step:
            steps += 1
        return self._request(number, "transform", (parent,), rng, {"count": steps, "workload_set": self.workload_set})

    def _request(
        self, number: int, name: str, parents: tuple[Elite, ...], rng: Random, params: Mapping[str, Any]
    ) -> Request:
        trials = self.population.trials(parents[0].kernel) if name == "tune" else ()
        ids = tuple(p.kernel.id for p in parents)
        return Request(self.task, number, name, ids, rng.getrandbits(63), params, trials)
