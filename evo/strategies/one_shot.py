"""The control arm `one_shot`: a single answer of a language model, and whatever it is worth.

It is KernelBench's first baseline (arXiv:2502.10517): one sample, and no feedback of any kind. Different: the prompt is
ours, with the naive kernel in place of the reference module, and the temperature is the run's (there: 0).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from evo.strategies.base import StrategyContext
from evo.strategies.controls import BestOfN, BestOfNSettings
from evo.strategies.loop import needs_models


class OneShotSettings(BestOfNSettings):
    """Settings of the strategy `one_shot`: those of `best_of_n`, with nothing to be chosen but `drafts`."""

    n: int = Field(1, ge=1, le=1)
    """One attempt."""
    steps: int | None = Field(1, ge=1, le=1)
    """One child."""
    repairs: int = Field(0, ge=0, le=0)
    """There are none."""


class OneShot(BestOfN):
    """`BestOfN` with n = 1 and no repairs."""

    Settings = OneShotSettings

    def __init__(self, context: StrategyContext, settings: Mapping[str, Any]) -> None:
        """It raises UserError without a model."""
        super().__init__(context, settings)
        needs_models(context, "one_shot")
