"""The control arm `random`: children of the naive kernel, made by chance, without selection."""

from __future__ import annotations

from random import Random

from pydantic import BaseModel, ConfigDict, Field

from evo.archive import Elite
from evo.strategies.control import ControlArm
from mutators.base import Request


class RandomSettings(BaseModel):
    """Settings of the strategy `random`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    most_steps: int = Field(6, ge=1, le=32)
    """Rewrites per child: between 1 and this, equally likely."""


class RandomSearch(ControlArm[RandomSettings]):
    """Every child is the naive kernel after a random number of random rewrites, with random values of its tunables."""

    Settings = RandomSettings

    def next(self, number: int, ancestor: Elite, rng: Random) -> Request:
        params = {"count": rng.randint(1, self.settings.most_steps), "random_values": True}
        return self.request(number, "transform", ancestor.kernel, rng, params)
