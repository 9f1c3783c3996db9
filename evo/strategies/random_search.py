"""The control arm `random`: random children of the naive kernel, without selection."""

from __future__ import annotations

from random import Random
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from evo.individual import Individual
from evo.strategies.loop import LoopStrategy, Recipe


class RandomSettings(BaseModel):
    """Settings of the strategy `random`."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    most_steps: int = Field(6, ge=1, le=32)
    """Transforms per child: between 1 and this, equally likely."""


class RandomSearch(LoopStrategy[RandomSettings]):
    """Every child is the naive kernel after a random number of random transforms, with random values of its tunables.

    It asks nothing more once it was told that no transform applies.
    """

    Settings = RandomSettings
    _barren = False

    def recipe(self, number: int, start: Individual) -> Recipe | None:
        """Return a loop of a single child."""
        return None if self._barren else self._single(start)

    def _single(self, start: Individual) -> Recipe:
        assert start.kernel
        child = yield self.child("transform", start.kernel, params=self._drawn)
        self._barren = self._barren or child.kernel is None

    def _drawn(self, rng: Random) -> dict[str, Any]:
        return {"count": rng.randint(1, self.settings.most_steps), "random_values": True}
