"""The control arm `best_of_n`: independent attempts from the naive kernel, of which the best is kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from random import Random
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from evo.archive import Elite
from evo.individual import Individual
from evo.strategies.control import ControlArm
from fitness.evaluation import Status
from mutators.base import Request
from operators.kernel import Kernel
from operators.spec import Operator, Task


class BestOfNSettings(BaseModel):
    """Settings of the strategy `best_of_n`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    n: int = Field(64, ge=1)
    """Independent attempts."""
    steps: int | None = Field(None, ge=1, le=64)
    """Children in a row that make one attempt; none: 1 with language models, 4 without."""


class BestOfN(ControlArm[BestOfNSettings]):
    """Each attempt is a chain that starts at the naive kernel; every child, fast or slow, is the parent of the next.

    With language models a child is one of their answers to `rewrite`, the models in turn; without, one random rewrite
    of `transform`. What one attempt found is never used in another. A child that fails ends its chain; one that was
    raced out does not. Attempts under way go on before new ones begin; when all are done, it asks nothing more.
    """

    Settings = BestOfNSettings

    def __init__(self, operator: Operator, task: Task, *, seed: int, settings: Mapping[str, Any]) -> None:
        super().__init__(operator, task, seed=seed, settings=settings)
        self._steps = self.settings.steps or (1 if self.models else 4)
        self._begun = 0
        self._waiting: deque[tuple[int, int, Kernel]] = deque()
        """Chains that go on: which, how many children it has, the last of them."""
        self._chains: dict[int, tuple[int, int]] = {}
        """By the number of a request under way, its chain and which child of it is made."""

    def next(self, number: int, ancestor: Elite, rng: Random) -> Request | None:
        if self._waiting:
            chain, made, parent = self._waiting.popleft()
        elif self._begun < self.settings.n:
            chain, made, parent = self._begun, 0, ancestor.kernel
            self._begun += 1
        else:
            return None
        self._chains[number] = chain, made + 1
        if self.models:
            return self.request(number, "rewrite", parent, rng, {"model": self.models[chain % len(self.models)]})
        return self.request(number, "transform", parent, rng, {"count": 1})

    def heard(self, individual: Individual) -> None:
        chain, made = self._chains.pop(individual.request.number)
        evaluation = individual.evaluation
        usable = evaluation is not None and evaluation.verdict in (Status.CORRECT, Status.SLOWER)
        if usable and individual.kernel and made < self._steps:
            self._waiting.append((chain, made, individual.kernel))
