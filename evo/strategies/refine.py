"""The strategy `refine`: a language model betters its own kernel again and again, in one conversation.

After KernelBench's iterative refinement (arXiv:2502.10517), ten turns with the last kernel, what became of it and a
profile, and Kevin (arXiv:2507.11948), whose chains of eight turns go on in one conversation with the model's own words.
Faithful: every kernel, slower or broken, is the one that the next turn starts from; a turn hears the verdict, messages
and times of the last one, and the profile of a correct kernel; the best of all turns counts. Different: the
conversation is kept whole, where KernelBench shows the last kernel alone and Kevin's models sum earlier thoughts up;
messages, profiles and prompts are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from evo.individual import Individual
from evo.strategies.base import StrategyContext
from evo.strategies.loop import LoopSettings, LoopStrategy, Recipe, needs_models


class RefineSettings(LoopSettings):
    """Settings of the strategy `refine`; its loops are conversations."""

    turns: int = Field(10, ge=1, le=1000)
    """Kernels that the model is asked for in one conversation."""


class Refinement(LoopStrategy[RefineSettings]):
    """Serial refinement: each turn shows the model what became of its last kernel, and asks for a better one.

    Every kernel, slower or broken, is the one that the next turn starts from. It is timed beside that one without a
    race, so that the model sees its times. The models take turns by conversation.
    """

    Settings = RefineSettings

    def __init__(self, context: StrategyContext, settings: Mapping[str, Any]) -> None:
        """It raises UserError without a model."""
        super().__init__(context, settings)
        self.width = self.settings.width
        needs_models(context, "refine")

    def recipe(self, number: int, start: Individual) -> Recipe | None:
        """Return one conversation."""
        return self._conversation(number, start) if number < self.settings.n else None

    def _conversation(self, number: int, start: Individual) -> Recipe:
        models, params = self.context.models, self.dialogue(self.settings.drafts)
        model, latest, rival, thread = models[number % len(models)], start.kernel, self.beside(start), ""
        for _ in range(self.settings.turns):
            assert latest
            child = yield self.child("refine", latest, models=[model], rival=rival, thread=thread, params=params)
            thread, latest = child.request.id, child.kernel or latest
            if child.correct:
                rival = self.beside(child)
