"""Sessions of agents as a strategy of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from evo.individual import Individual
from evo.strategies.base import StrategyContext
from evo.strategies.loop import LoopSettings, ModelLoops, Recipe
from evo.strategies.population import FRUITLESS, AgentSettings
from mutators.base import cannot_call_tools
from mutators.llm.settings import is_outside
from operators.errors import UserError


class AgentAloneSettings(AgentSettings, LoopSettings):
    """Settings of the strategy `agent`; its loops are lines of versions."""

    sessions: int = Field(16, ge=1, le=1000)
    """Conversations, one after the other, of one line."""


class AgentAlone(ModelLoops[AgentAloneSettings]):
    """Lines of sessions, each from the best version of its line."""

    Settings = AgentAloneSettings
    name = "agent"

    def __init__(self, context: StrategyContext, settings: Mapping[str, Any]) -> None:
        """It raises UserError without a model that may call tools."""
        super().__init__(context, settings)
        self.models = [model for model in context.models if not is_outside(model)]
        if not self.models:
            raise UserError(
                "the strategy agent needs a model that calls tools, which answers from outside cannot; see `evo mcp`"
            )

    def loop(self, start: Individual, model: str) -> Recipe:
        """Return one line of versions."""
        best = start
        for _ in range(self.settings.sessions):
            thread, fruitless = "", 0
            for _ in range(self.settings.kernels):
                assert best.kernel
                params = self.settings.params(fruitless)
                child = yield self.child("agent", best.kernel, models=[model], thread=thread, params=params)
                if cannot_call_tools(child.failure):
                    return
                if child.kernel is None:
                    break
                is_better = child.correct and child.log_speedup >= best.log_speedup
                best, fruitless, thread = child if is_better else best, 0 if is_better else fruitless + 1, child.id
                if fruitless >= FRUITLESS:
                    break
