"""The control arm: children of the ancestor, made by chance, without selection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from evo.archive import Archive, Cell, Elite
from evo.individual import Individual
from evo.strategies.base import ANCESTOR, request_rng
from fitness.base import Anchor
from mutators.base import Request
from operators.kernel import Kernel
from operators.spec import Operator, Task


class RandomSettings(BaseModel):
    """Settings of the strategy `random`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    most_steps: int = Field(6, ge=1, le=32)
    """Rewrites per child: between 1 and this, equally likely."""


class RandomSearch:
    """Every child is the ancestor after a random number of random rewrites, with random tunables."""

    def __init__(self, operator: Operator, task: Task, *, seed: int, settings: Mapping[str, Any]) -> None:
        self.task = task
        self.seed = seed
        self.settings = RandomSettings(**{k: v for k, v in settings.items() if k != "workload_set"})
        self.workload_set = settings["workload_set"]
        self._ancestor: Kernel | None = None
        self._archive = Archive()
        self._number = 0

    def ask(self, count: int) -> list[Request]:
        requests: list[Request] = []
        while len(requests) < count and (self._number == 0 or self._ancestor is not None):
            requests.append(self._request(self._number))
            self._number += 1
        return requests

    def tell(self, individual: Individual) -> str:
        kernel, evaluation = individual.kernel, individual.evaluation
        if kernel is None or evaluation is None or not evaluation.correct or not individual.fresh:
            return individual.status
        if individual.request.mutator == ANCESTOR:
            self._ancestor = kernel
        assert evaluation.log_speedup is not None and evaluation.log_speedup_se is not None
        elite = Elite(kernel, ("all",), evaluation.log_speedup, evaluation.log_speedup_se)
        return self._archive.add(elite, comparison_se=evaluation.log_speedup_se).value

    def anchor(self, request: Request, cell: Cell) -> Anchor | None:
        return self._archive.best.as_anchor() if self._archive.best else None

    @property
    def best(self) -> Elite | None:
        return self._archive.best

    def _request(self, number: int) -> Request:
        rng = request_rng(self.seed, self.task, number)
        if self._ancestor is None:
            return Request(self.task, number, ANCESTOR, (), rng.getrandbits(63), {"name": "naive"})
        params = {
            "count": rng.randint(1, self.settings.most_steps),
            "random_values": True,
            "workload_set": self.workload_set,
        }
        return Request(self.task, number, "transform", (self._ancestor.id,), rng.getrandbits(63), params)
