"""What the control arms share: they start from the operator's own kernels, select nothing, and keep the best."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from random import Random
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel

from evo.archive import Archive, Cell, Elite
from evo.individual import Individual
from evo.population import elite_of
from evo.strategies.base import ANCESTOR, GIVEN, Ancestors, request_rng
from fitness.base import Anchor
from mutators.base import Request, Trial
from operators.kernel import Kernel
from operators.spec import Operator, Task

SettingsT = TypeVar("SettingsT", bound=BaseModel)


class ControlArm(ABC, Generic[SettingsT]):
    """A `Strategy` whose subclasses say what comes after the operator's own kernels, and hear what became of it.

    Those take turns where a child begins from one; in most runs there is the naive one alone.
    """

    Settings: ClassVar[type[BaseModel]]

    def __init__(self, operator: Operator, task: Task, *, seed: int, settings: Mapping[str, Any]) -> None:
        self.operator = operator
        self.task = task
        self.seed = seed
        own = {name: value for name, value in settings.items() if name not in GIVEN}
        self.settings: SettingsT = self.Settings(**own)  # type: ignore[assignment]
        self.workload_set = settings["workload_set"]
        self.models: tuple[str, ...] = tuple(settings.get("models", ()))
        self.ancestors = Ancestors(task, settings)
        self._best = Archive()
        """Of a single cell."""
        self._number = 0

    @abstractmethod
    def next(self, number: int, ancestor: Elite, rng: Random) -> Request | None:
        """The next request; None, and nothing has changed, while there is none."""

    def heard(self, individual: Individual) -> None:
        """What became of one of these requests."""

    def ask(self, count: int) -> list[Request]:
        requests: list[Request] = []
        while len(requests) < count:
            rng = request_rng(self.seed, self.task, self._number)
            request = self.ancestors.request(self._number)
            if request is None and self.ancestors.naive:
                correct = list(self.ancestors.correct.values())
                request = self.next(self._number, correct[self._number % len(correct)], rng)
            if request is None:
                break
            requests.append(request)
            self._number += 1
        return requests

    def tell(self, individual: Individual) -> str:
        elite = elite_of(individual)
        if individual.request.mutator == ANCESTOR:
            self.ancestors.tell(individual, elite)
        else:
            self.heard(individual)
        if elite is None or not individual.fresh:
            return individual.status
        champion = Elite(elite.kernel, (), elite.log_speedup, elite.log_speedup_se)
        return self._best.add(champion, comparison_se=elite.log_speedup_se).value

    def anchor(self, request: Request, cell: Cell) -> Anchor | None:
        return self.best.as_anchor() if self.best else None

    @property
    def best(self) -> Elite | None:
        return self._best.best

    def request(
        self,
        number: int,
        mutator: str,
        parent: Kernel,
        rng: Random,
        params: Mapping[str, Any],
        trials: tuple[Trial, ...] = (),
        failing: Kernel | None = None,
    ) -> Request:
        """A request for a child of one parent, or for what becomes of its child that fails."""
        given = {"workload_set": self.workload_set}
        ids = (failing.id, parent.id) if failing else (parent.id,)
        return Request(self.task, number, mutator, ids, rng.getrandbits(63), {**params, **given}, trials)
