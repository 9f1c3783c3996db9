"""The base of published agent loops as strategies: casts of models, and prompts by role.

Each of them is a module beside this one, `astra`, `cudamaster`, `cutegen`, `cudaforge`, with its templates in a folder
of `mutators.prompts` of the same name, a template for each role. What all of them share with the engine's own evolution
(`islands`) is everything but the recipe: evaluator, model client, budget, ledger, replay, what prompts say of machine,
operator and verification, the manual of the kernel file for roles that write one (those that write words are told what
such a file is, in four lines), and how far a kernel is from what the machine allows, for the roles that choose what to
change. The ways in which every one of them differs from its source, therefore:

* Kernels are files with a plan (no host code), verified and timed by our evaluator, on our operators and workloads.
* Candidates are judged one by one, each beside the kernel that it was made from, and nothing is raced, as these loops
  want the times of slower kernels too.
* Profiles are of the loop's own choice of metrics, where it has one, unless the run's setting `profile` is another than
  its default.
* A loop that has ended begins anew, `n` times, so that a budget that is larger than what one takes is not left over;
  `width` of them go on side by side.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import Field

from evo.individual import Individual
from evo.strategies.base import StrategyContext
from evo.strategies.loop import DraftedSettings, ModelLoops, Recipe, Step
from fitness.profiling.metric_sets import PROVIDER
from mutators.asking.mutators import REPAIRABLE
from operators.errors import UserError, unknown
from operators.kernel import Kernel

Variant = Literal["faithful", "repaired"]


class CastSettings(DraftedSettings):
    """Settings that all loops with several roles have."""

    roles: dict[str, str] = Field(default_factory=dict)
    """Models by role; roles that are not named are played by the run's models, which take turns by loop."""


CastSettingsT = TypeVar("CastSettingsT", bound=CastSettings)


class PublishedLoop(ModelLoops[CastSettingsT]):
    """Loops that have casts. Subclasses say their roles and their name, which is that of the folder of their
    templates."""

    roles: ClassVar[Collection[str]]
    """Roles that models are called for, each by the template of its name."""

    def __init__(self, context: StrategyContext, settings: Mapping[str, Any]) -> None:
        """It raises UserError where no model is there to play the roles."""
        super().__init__(context, settings)
        for role, model in self.settings.roles.items():
            if role not in self.roles:
                raise UserError(unknown("role", role, self.roles))
            if model not in context.models:
                raise UserError(f"settings.roles: {role} is to be {model}, which is none of the run's models (--llm)")

    def profiling(self, individual: Individual, seen: set[str]) -> Recipe:
        """Have a correct kernel profiled, and wait for it: prompts that are asked for after that show what was found.

        It is done once for each, and not in a run that does without profiles. `seen` is the loop's own memory of it.
        """
        kernel = kernel_of(individual)
        if individual.correct and individual.fresh and kernel.id not in seen and self.context.profiler != "none":
            seen.add(kernel.id)
            yield self.profile(kernel)


@dataclass(frozen=True)
class Cast:
    """The models that play the roles of one loop, and what may be asked of them."""

    strategy: PublishedLoop[Any]
    model: str
    """The model of the roles that no setting gives to another one."""

    def model_of(self, role: str) -> str:
        """Return the model that plays a role."""
        return str(self.strategy.settings.roles.get(role, self.model))

    def words(
        self,
        role: str,
        *shown: Individual,
        template: str = "",
        about: Sequence[Individual] = (),
        shows: str = "none",
        **params: Any,
    ) -> Step:
        """Return the step that asks for words: kernels are `shown`, and what became of earlier steps is told `about`.

        `shows` is a choice of metrics (`fitness.profiling.metric_sets`) of the first kernel's profile, as far as there
        is one. Without a `template` it is the one that is called like the role.
        """
        return self.strategy.say(
            self._template(template or role),
            *map(kernel_of, shown),
            params={**self._shown(shows), **params},
            models=[self.model_of(role)],
            role=role,
            context=_ids(about),
        )

    def code(
        self,
        role: str,
        parent: Individual,
        *,
        template: str = "",
        about: Sequence[Individual] = (),
        before: Individual | None = None,
        thread: str = "",
        shows: str = "none",
        **params: Any,
    ) -> Step:
        """Return the step that asks for a child of `parent`; `before` is what a failing parent was made from.

        With a `thread`, the conversation of that request goes on. Otherwise see `words`.
        """
        mends = not thread and parent.evaluation is not None and parent.evaluation.verdict in REPAIRABLE
        kernels = [parent, *([before] if before and mends else [])]
        return self.strategy.child(
            "refine" if thread else "repair" if mends else "rewrite",
            *map(kernel_of, kernels),
            params={**self._shown(shows), **self.strategy.dialogue(self.strategy.settings.drafts), **params},
            models=[self.model_of(role)],
            rival=self.strategy.beside(parent),
            role=role,
            template=self._template(template or role),
            context=_ids(about),
            thread=thread,
        )

    def _shown(self, own: str) -> dict[str, str]:
        """The loop's own choice of metrics, unless the run wants another one."""
        chosen = self.strategy.context.profiler
        return {"profiler": own if chosen == PROVIDER or own == "none" else chosen}

    def _template(self, name: str) -> str:
        return f"{self.strategy.name}/{name}"


def kernel_of(individual: Individual) -> Kernel:
    """Return the kernel of an individual that has one."""
    assert individual.kernel
    return individual.kernel


def fastest(individuals: Sequence[Individual]) -> Individual:
    """Return the fastest correct one, of equals the first; where none is correct, the last one."""
    correct = [each for each in individuals if each.correct]
    return max(correct, key=lambda each: each.log_speedup) if correct else individuals[-1]


def _ids(individuals: Sequence[Individual]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.id for each in individuals))
