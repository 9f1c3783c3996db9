"""Strategies that read like their descriptions: generators that yield requests and are sent what became of them."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar, Generic, Literal, TypeVar

from pydantic import Field

from evo.individual import Individual
from evo.strategies.base import Ancestors, Chooser, Outages, Rival, StrategyContext
from evo.strategies.population import Archive, Cell, Elite, elite_of
from mutators.asking.dialogue import DRAFTS
from mutators.base import Kind, Request
from mutators.llm.settings import UserSettings
from operators.errors import UserError
from operators.kernel import Kernel

SettingsT = TypeVar("SettingsT", bound=UserSettings)
LoopSettingsT = TypeVar("LoopSettingsT", bound="LoopSettings")


class PlainStrategy(Chooser, Generic[SettingsT]):
    """A `Strategy` whose subclasses say what comes after the operator's own kernels, and hear what became of it.

    Those take turns where a child begins from one; in most runs there is the naive one alone.
    """

    Settings: ClassVar[type[UserSettings]]

    def __init__(self, context: StrategyContext, settings: Mapping[str, Any]) -> None:
        """`settings` are those of the class `Settings`; it raises pydantic's ValidationError for others."""
        self.context = context
        self.settings: SettingsT = self.Settings(**settings)  # type: ignore[assignment]
        self.ancestors = Ancestors(context)
        self._best = Archive()
        """An archive of a single cell."""

    @abstractmethod
    def next(self, number: int, ancestor: Individual, rng: Random) -> Request | None:
        """Return the next request; None while there is none. Nothing changes by that."""

    def taken(self, request: Request) -> None:
        """Take note that one of these requests is asked for; see `Chooser.take`."""

    def heard(self, individual: Individual) -> None:
        """Learn what became of one of these requests."""

    def choose(self, number: int) -> Request | None:
        """See `Chooser.choose`."""
        if (request := self.ancestors.request(number)) or self.ancestors.naive is None:
            return request
        return self.next(number, self.start(number), self.context.rng(number))

    def take(self, request: Request) -> None:
        """See `Chooser.take`."""
        if request.kind is Kind.ANCESTOR:
            self.ancestors.take()
        else:
            self.taken(request)

    def start(self, number: int) -> Individual:
        """Return the operator's kernel that a request of this number begins from; one at least must be correct."""
        known = list(self.ancestors.individuals.values())
        return known[number % len(known)]

    def tell(self, individual: Individual) -> str:
        """See `Strategy.tell`."""
        elite = elite_of(individual)
        if individual.request.kind is Kind.ANCESTOR:
            self.ancestors.tell(individual)
        elif individual.request.kind is not Kind.GUEST:
            self.heard(individual)
        if elite is None or not individual.fresh:
            return individual.status
        return self._best.add(replace(elite, cell=()), comparison_se=elite.log_speedup_se).value

    def rival(self, request: Request, cell: Cell) -> Rival:
        """Return the best kernel so far, to be raced: see `Strategy.rival`."""
        return Rival(self.best.as_anchor(), race=True) if self.best else Rival()

    @property
    def best(self) -> Elite | None:
        """The fastest kernel it knows."""
        return self._best.best


Params = Mapping[str, Any] | Callable[[Random], Mapping[str, Any]]
"""A mutator's settings, or what draws them from the randomness of their request."""


Drafts = Literal["none", "build", "check"]
"""Look at drafts in the dialogue in which they are written: see `mutators.asking.dialogue.DRAFTS`."""


class LoopSettings(UserSettings):
    """Number of loops that ask models."""

    n: int = Field(16, ge=1)
    """Loops, independent of each other; the search ends with the last one, if its budget does not end it before."""
    width: int = Field(1, ge=1, le=1024)
    """Number of them that go on side by side."""


class DraftedSettings(LoopSettings):
    """The same, and what the drafts of their models go through."""

    drafts: Drafts = "none"
    """Look at a draft before it is the child, so that the model mends it in the same dialogue, which costs no
    evaluation: `none` (as published: it is the verdict that tells), `build` (compiled) or `check` (run on a few small
    shapes besides, as in `islands`)."""


UNNAMED: Mapping[str, Any] = {"role": "", "template": "", "context": (), "thread": ""}
"""Values of these fields in a request whose step does not say."""


@dataclass(frozen=True)
class Step:
    """Step that a recipe yields: a request that is not made before its turn comes, when its number is known."""

    kind: Kind
    mutator: str
    kernels: tuple[Kernel, ...]
    """The parents, the principal one first."""
    params: Params
    models: tuple[str, ...]
    """Those that may answer it; the first one that is not out of reach is asked. None: no model is."""
    rival: Rival | None
    """Kernel that the child is timed against; None: the best kernel so far, in a race."""
    named: Mapping[str, Any]
    """Further fields of its request: role, template, context, thread."""

    def wants(self, request: Request) -> bool:
        """Return whether this is its request, whatever the details."""
        parents = tuple(kernel.id for kernel in self.kernels)
        is_alike = (self.kind, self.mutator, parents) == (request.kind, request.mutator, request.parents)
        is_named = all(getattr(request, name) == value for name, value in {**UNNAMED, **self.named}.items())
        return is_alike and is_named and request.model in (self.models or ("",))


Recipe = Generator[Step, Individual, None]
"""One loop. It depends on nothing but its arguments and what it is sent; it changes nothing before its first step, for
it may be begun in vain, and begun again. What it wants to remember is in its own variables: a resume sends the same
outcomes again."""


@dataclass
class _Loop:
    """A recipe under way, and what it wants next."""

    recipe: Recipe
    step: Step


class LoopStrategy(PlainStrategy[SettingsT]):
    """A `Strategy` made of any number of recipes that run side by side, `width` of them at most.

    Those under way go on before new ones begin. A request that no model could be asked for is not the recipe's
    concern: its turn comes again when a model is back. It asks nothing more when no recipe is left.
    """

    independent = True
    """Prompts of one loop tell nothing of others, but what its own templates and contexts say."""
    width: int | None = None
    """The most recipes under way; None: as many as the driver has room for."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._begun = 0
        self._outages = Outages()
        self._waiting: deque[_Loop] = deque()
        """Loops whose next step was not asked for yet."""
        self._open: dict[int, _Loop] = {}
        """By the number of the request, loops that wait for its outcome."""

    @abstractmethod
    def recipe(self, number: int, start: Individual) -> Recipe | None:
        """Return the loop of this number (from 0), which starts from one of the operator's kernels; None: no more."""

    # --- what a recipe says -----------------------------------------------------------------------------------------

    def child(
        self,
        mutator: str,
        *kernels: Kernel,
        params: Params | None = None,
        models: Sequence[str] = (),
        rival: Rival | None = None,
        **named: Any,
    ) -> Step:
        """Return the step that asks a mutator for a child of these kernels.

        `named` are fields of `Request`: `role`, `template`, `context`, `thread`. A mutator that asks a language model
        asks the first of `models` that can be asked.
        """
        return Step(Kind.CHILD, mutator, kernels, params or {}, tuple(models), rival, named)

    def dialogue(self, drafts: Drafts, *, tries: int | None = None) -> Mapping[str, Any]:
        """Return params that say how a model's answer to one of these comes about.

        `tries` bounds the answers that are asked for until one can be used.
        """
        return {DRAFTS: drafts, **({"tries": tries} if tries else {})}

    def say(
        self, template: str, *kernels: Kernel, params: Params | None = None, models: Sequence[str], **named: Any
    ) -> Step:
        """Return the step that asks a language model for words, by a template of `mutators.prompts`."""
        return Step(Kind.SAY, "say", kernels, params or {}, tuple(models), None, {"template": template, **named})

    def profile(self, kernel: Kernel) -> Step:
        """Return the step that asks for what a profiler measures of a correct kernel."""
        return Step(Kind.PROFILE, "", (kernel,), {}, (), None, {})

    def beside(self, individual: Individual) -> Rival:
        """Return the pairing with an earlier child, without a race, so that all times are heard; see `Rival`."""
        elite = elite_of(individual)
        return Rival(elite.as_anchor() if elite else None)

    # --- ask and tell -----------------------------------------------------------------------------------------------

    def next(self, number: int, ancestor: Individual, rng: Random) -> Request | None:
        """See `PlainStrategy.next`: of the loop that waits longest and can be asked for, else of a new one."""
        for loop in self._waiting:
            if request := self._request(loop.step, number):
                return request
        if self.width is not None and len(self._open) + len(self._waiting) >= self.width:
            return None
        _, new = self._new(ancestor)
        return self._request(new.step, number) if new else None

    def taken(self, request: Request) -> None:
        """See `PlainStrategy.taken`. What becomes of a request that no loop wants is heard by none."""
        loop = next((loop for loop in self._waiting if loop.step.wants(request)), None)
        if loop:
            self._waiting.remove(loop)
        elif self.ancestors.individuals:
            begun, new = self._new(self.start(request.number))
            if new and new.step.wants(request):
                self._begun, loop = begun, new
        if loop:
            self._open[request.number] = loop
        self._outages.asked(request)

    def _new(self, start: Individual) -> tuple[int, _Loop | None]:
        """The next loop that has a first step, and how many are begun with it; None where there are no more."""
        begun = self._begun
        while recipe := self.recipe(begun, start):
            begun += 1
            if step := next(recipe, None):
                return begun, _Loop(recipe, step)
        return begun, None

    def _request(self, step: Step, number: int) -> Request | None:
        """The step's request; None while no model can be asked for it."""
        model = next(filter(self._outages.askable, step.models), "")
        if step.models and not model:
            return None
        rng = self.context.rng(number)
        params = step.params(rng) if callable(step.params) else step.params
        parents = [kernel.id for kernel in step.kernels]
        return self.context.request(
            number, step.mutator, parents, rng, params, kind=step.kind, model=model, **step.named
        )

    def heard(self, individual: Individual) -> None:
        """See `PlainStrategy.heard`."""
        loop = self._open.pop(individual.request.number, None)
        self._outages.told(individual)
        if loop is None:
            return
        if not individual.unavailable:
            try:
                loop = replace(loop, step=loop.recipe.send(individual))
            except StopIteration:
                return
        self._waiting.append(loop)

    def rival(self, request: Request, cell: Cell) -> Rival:
        """See `Strategy.rival`."""
        loop = self._open.get(request.number)
        return (loop.step.rival if loop else None) or super().rival(request, cell)


class ModelLoops(LoopStrategy[LoopSettingsT]):
    """A `LoopStrategy` of `n` loops that ask language models, which take turns by loop."""

    name: ClassVar[str]
    """The name of the strategy."""

    def __init__(self, context: StrategyContext, settings: Mapping[str, Any]) -> None:
        """It raises UserError without a model."""
        super().__init__(context, settings)
        needs_models(context, self.name)
        self.width = self.settings.width
        self.models: Sequence[str] = context.models

    def recipe(self, number: int, start: Individual) -> Recipe | None:
        """See `LoopStrategy.recipe`."""
        return self.loop(start, self.models[number % len(self.models)]) if number < self.settings.n else None

    @abstractmethod
    def loop(self, start: Individual, model: str) -> Recipe:
        """Return the loop of one model that starts from one of the operator's kernels."""


def needs_models(context: StrategyContext, strategy: str) -> None:
    """Raise UserError where a run has no language model, for a strategy that asks them."""
    if not context.models:
        raise UserError(f"the strategy {strategy} asks language models; name one, such as --llm openai/gpt-5")
