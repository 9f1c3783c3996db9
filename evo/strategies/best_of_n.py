"""The control arm `best_of_n`: independent attempts from the naive kernel, of which the best is kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from evo.archive import Elite
from evo.individual import Individual
from evo.strategies.control import ControlArm
from evo.strategies.outages import Outages
from fitness.evaluation import Status
from mutators.base import Request
from operators.kernel import Kernel
from operators.spec import Operator, Task


class BestOfNSettings(BaseModel):
    """Settings of the strategy `best_of_n`."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    n: int = Field(64, ge=1)
    """Independent attempts."""
    steps: int | None = Field(None, ge=1, le=64)
    """Children in a row that make one attempt; none: 1 with language models, 4 without."""
    repairs: int = Field(0, ge=0, le=8)
    """How often a model is shown what was wrong with its child, before the attempt ends."""


@dataclass(frozen=True)
class _Child:
    """What an attempt asks for."""

    attempt: int
    place: int
    """In the row of children, from 1."""
    parent: Kernel
    failing: Kernel | None = None
    """To be repaired."""
    tries: int = 0
    """Repairs that were asked for."""


class BestOfN(ControlArm[BestOfNSettings]):
    """Each attempt is a chain that starts at the naive kernel; every child, fast or slow, is the parent of the next.

    With language models a child is one of their answers to `rewrite`, the models in turn, one that is unavailable left
    out; without, one random rewrite of `transform`. What one attempt found is never used in another. A child that fails
    ends its chain; one that was raced out does not, and one that a model can repair gets `repairs` chances. Attempts
    under way go on before new ones begin; when all are done, it asks nothing more.
    """

    Settings = BestOfNSettings

    def __init__(self, operator: Operator, task: Task, *, seed: int, settings: Mapping[str, Any]) -> None:
        super().__init__(operator, task, seed=seed, settings=settings)
        self._steps = self.settings.steps or (1 if self.models else 4)
        self._begun = 0
        self._outages = Outages()
        self._waiting: deque[_Child] = deque()
        self._pending: dict[int, _Child] = {}
        """By the number of the request."""

    def next(self, number: int, ancestor: Elite, rng: Random) -> Request | None:
        if self.models and not any(map(self._outages.askable, self.models)):
            return None
        if self._waiting:
            child = self._waiting.popleft()
        elif self._begun < self.settings.n:
            child = _Child(self._begun, 1, ancestor.kernel)
            self._begun += 1
        else:
            return None
        self._pending[number] = child
        if not self.models:
            return self.request(number, "transform", child.parent, rng, {"count": 1})
        mutator = "repair" if child.failing else "rewrite"
        model = {"model": self._model(child.attempt)}
        request = self.request(number, mutator, child.parent, rng, model, failing=child.failing)
        self._outages.asked(request)
        return request

    def _model(self, attempt: int) -> str:
        """The one whose turn it is, or the next one that can be asked."""
        turns = (self.models[(attempt + shift) % len(self.models)] for shift in range(len(self.models)))
        return next(filter(self._outages.askable, turns))

    def heard(self, individual: Individual) -> None:
        child = self._pending.pop(individual.request.number)
        self._outages.told(individual)
        if individual.unavailable:
            self._waiting.append(child)
            return
        kernel, evaluation = individual.kernel, individual.evaluation
        if kernel and evaluation and evaluation.verdict in (Status.CORRECT, Status.SLOWER):
            if child.place < self._steps:
                self._waiting.append(_Child(child.attempt, child.place + 1, kernel))
        elif self.models and child.tries < self.settings.repairs:
            from mutators.repair import REPAIRABLE  # with its templates: not needed by runs without models

            if kernel and evaluation and individual.fresh and evaluation.verdict in REPAIRABLE:
                self._waiting.append(replace(child, failing=kernel, tries=child.tries + 1))
            elif child.failing and kernel is None:  # the model had no answer: it may be asked again
                self._waiting.append(replace(child, tries=child.tries + 1))
