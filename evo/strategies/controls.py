"""The control arm `best_of_n`: independent attempts from the naive kernel, of which the best is kept.

Repeated sampling is KernelBench's baseline (arXiv:2502.10517): one prompt, N samples at a high temperature, the fastest
correct one. Faithful: an attempt is one answer, whose failure nobody is told of, and attempts know nothing of each
other. Different: the prompt is ours, with the naive kernel in place of the reference module, and says how often it was
asked before, as no two questions of a run are the same; and more can be asked of an attempt (`steps`, `repairs`,
`drafts`).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from evo.individual import Individual
from evo.strategies.base import StrategyContext
from evo.strategies.loop import Drafts, LoopStrategy, Recipe, Step
from fitness.evaluation import Status
from operators.errors import UserError
from operators.kernel import Kernel


class BestOfNSettings(BaseModel):
    """Settings of the strategy `best_of_n`."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    n: int = Field(64, ge=1)
    """Independent attempts."""
    steps: int | None = Field(None, ge=1, le=64)
    """Children in a row that make one attempt; none: 1 with language models, 4 without."""
    repairs: int = Field(0, ge=0, le=8)
    """How often a model is shown what was wrong with its child, before the attempt ends."""
    drafts: Drafts = "none"
    """How a draft is looked at before it is the child, so that the model mends it in the same dialogue: `none`, `build`
    (compiled) or `check` (run on a few small shapes besides, as in `islands`)."""


class BestOfN(LoopStrategy[BestOfNSettings]):
    """Each attempt is a chain that starts at the naive kernel; every child, fast or slow, is the parent of the next.

    With language models a child is one of their answers to `rewrite`, the models in turn, one that is unavailable left
    out; without, one random child of `transform`. What one attempt found is never used in another. A child that fails
    ends its chain; one that was raced out does not, and one that a model can repair gets `repairs` chances.
    """

    Settings = BestOfNSettings

    def __init__(self, context: StrategyContext, settings: Mapping[str, Any]) -> None:
        """It raises UserError where all attempts would be the same."""
        super().__init__(context, settings)
        if context.models and context.greedy and self.settings.n > 1:
            raise UserError(
                "the strategy best_of_n asks one question many times, and at temperature 0 every answer is the same: "
                "set llm.temperature above 0, or llm.seeds=true for a seed per sample"
            )

    def recipe(self, number: int, start: Individual) -> Recipe | None:
        """Return one attempt."""
        return self._attempt(number, start) if number < self.settings.n else None

    def _attempt(self, number: int, start: Individual) -> Recipe:
        models = self.context.models
        turns = [models[(number + shift) % len(models)] for shift in range(len(models))]
        kernel = start.kernel
        for _ in range(self.settings.steps or (1 if models else 4)):
            assert kernel
            if turns:
                child = yield self.child("rewrite", kernel, models=turns, params=self._dialogue())
                child = yield from self._repaired(child, kernel, turns)
            else:
                child = yield self.child("transform", kernel, params={"count": 1})
            if not _works(child):
                return
            kernel = child.kernel

    def _repaired(
        self, child: Individual, parent: Kernel, models: list[str]
    ) -> Generator[Step, Individual, Individual]:
        """What becomes of a child that a model may mend."""
        from mutators.asking.repair import REPAIRABLE  # with its templates: not needed by runs without models

        failing: Kernel | None = None
        for _ in range(self.settings.repairs):
            evaluation = child.evaluation
            if _works(child):
                break
            if child.kernel and evaluation and child.fresh and evaluation.verdict in REPAIRABLE:
                failing = child.kernel
            elif failing is None or child.kernel:  # else the model had no answer: it may be asked again
                break
            child = yield self.child("repair", failing, parent, models=models, params=self._dialogue())
        return child

    def _dialogue(self) -> Mapping[str, Any]:
        """How an answer comes about: without repairs, of whatever kind, it is a single one."""
        is_single = self.settings.repairs == 0 and self.settings.drafts == "none"
        return self.dialogue(self.settings.drafts, tries=1 if is_single else None)


def _works(child: Individual) -> bool:
    """Whether the next child can be made from it."""
    return bool(child.evaluation and child.evaluation.verdict in (Status.CORRECT, Status.SLOWER))
