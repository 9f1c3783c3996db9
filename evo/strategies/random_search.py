"""The control arm `random`: children of the naive kernel, made by chance, without selection."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from evo.archive import Elite
from evo.individual import Individual
from evo.strategies.control import ControlArm
from mutators.base import Request
from operators.spec import Operator, Task


class RandomSettings(BaseModel):
    """Settings of the strategy `random`."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    most_steps: int = Field(6, ge=1, le=32)
    """Rewrites per child: between 1 and this, equally likely."""


class RandomSearch(ControlArm[RandomSettings]):
    """Every child is the naive kernel after a random number of random rewrites, with random values of its tunables.

    It asks nothing more once it was told that no rewrite applies.
    """

    Settings = RandomSettings

    def __init__(self, operator: Operator, task: Task, *, seed: int, settings: Mapping[str, Any]) -> None:
        super().__init__(operator, task, seed=seed, settings=settings)
        self._barren = False

    def next(self, number: int, ancestor: Elite, rng: Random) -> Request | None:
        if self._barren:
            return None
        params = {"count": rng.randint(1, self.settings.most_steps), "random_values": True}
        return self.request(number, "transform", ancestor.kernel, rng, params)

    def heard(self, individual: Individual) -> None:
        self._barren = self._barren or individual.kernel is None
