"""The strategy `refine`: a language model betters its own kernel again and again, in one conversation.

After KernelBench's iterative refinement (arXiv:2502.10517), ten turns with the last kernel, what became of it and a
profile, and Kevin (arXiv:2507.11948), whose chains of eight turns go on in one conversation with the model's own words.
Faithful: every kernel, slower or broken, is the one that the next turn starts from; a turn hears the verdict, messages
and times of the last one, and the profile of a correct kernel; the best of all turns counts. Different: the
conversation is kept whole, where KernelBench shows the last kernel alone and Kevin's models sum earlier thoughts up;
messages, profiles and prompts are ours.
"""

from __future__ import annotations

from pydantic import Field

from evo.individual import Individual
from evo.strategies.loop import DraftedSettings, ModelLoops, Recipe


class RefineSettings(DraftedSettings):
    """Settings of the strategy `refine`; its loops are conversations."""

    turns: int = Field(10, ge=1, le=1000)
    """Kernels that the model is asked for in one conversation."""


class Refinement(ModelLoops[RefineSettings]):
    """Serial refinement: each turn shows the model what became of its last kernel, and asks for a better one.

    Every kernel, slower or broken, is the one that the next turn starts from. It is timed beside that one without a
    race, so that the model sees its times.
    """

    Settings = RefineSettings
    name = "refine"

    def loop(self, start: Individual, model: str) -> Recipe:
        """Return one conversation."""
        params = self.dialogue(self.settings.drafts)
        latest, rival, thread = start.kernel, self.beside(start), ""
        for _ in range(self.settings.turns):
            assert latest
            child = yield self.child("refine", latest, models=[model], rival=rival, thread=thread, params=params)
            thread, latest = child.request.id, child.kernel or latest
            if child.correct:
                rival = self.beside(child)
