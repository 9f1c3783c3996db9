"""The strategy `refine`: a language model betters its own kernel again and again, in one conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from evo.individual import Individual
from evo.strategies.base import StrategyContext
from evo.strategies.loop import LoopStrategy, Recipe
from operators.errors import UserError


class RefineSettings(BaseModel):
    """Settings of the strategy `refine`."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    n: int = Field(16, ge=1)
    """Conversations, independent of each other."""
    turns: int = Field(10, ge=1, le=100)
    """Kernels that the model is asked for in one conversation."""


class Refinement(LoopStrategy[RefineSettings]):
    """Serial refinement: each turn shows the model what became of its last kernel, and asks for a better one.

    Every kernel, slower or broken, is the one that the next turn starts from. It is timed beside that one without a
    race, so that the model sees its times. The models take turns by conversation.
    """

    Settings = RefineSettings

    def __init__(self, context: StrategyContext, settings: Mapping[str, Any]) -> None:
        super().__init__(context, settings)
        if not context.models:
            raise UserError("the strategy refine asks language models; name one, such as --llm openai/gpt-5")

    def recipe(self, number: int, start: Individual) -> Recipe | None:
        """Return one conversation."""
        return self._conversation(number, start) if number < self.settings.n else None

    def _conversation(self, number: int, start: Individual) -> Recipe:
        models = self.context.models
        model, latest, rival, thread = models[number % len(models)], start.kernel, self.beside(start), ""
        for _ in range(self.settings.turns):
            assert latest
            child = yield self.child("refine", latest, models=[model], rival=rival, thread=thread)
            thread, latest = child.request.id, child.kernel or latest
            if child.correct:
                rival = self.beside(child)
