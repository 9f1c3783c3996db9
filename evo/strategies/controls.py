"""Controls that a search must beat: best of n, one shot, random search, tuning alone."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from pydantic import Field

from evo.individual import Individual
from evo.strategies.base import StrategyContext
from evo.strategies.loop import Drafts, LoopStrategy, PlainStrategy, Recipe, Step, needs_models
from evo.strategies.population import TRIALS_PER_SOURCE, Elite, elite_of
from evo.strategies.tuning import Tuning
from fitness.judging.levels import TIMED
from mutators.base import Kind, Request, Trial
from mutators.llm.settings import UserSettings
from mutators.transforms.mutator import transform_names
from operators.errors import UserError
from operators.kernel import Kernel


class BestOfNSettings(UserSettings):
    """Settings of the strategy `best_of_n`."""

    n: int = Field(64, ge=1)
    """Independent attempts."""
    steps: int | None = Field(None, ge=1, le=64)
    """Children in a row that make one attempt; none: 1 with language models, 4 without."""
    repairs: int = Field(0, ge=0, le=8)
    """Times that a model is shown what was wrong with its child, before the attempt ends."""
    drafts: Drafts = "none"
    """Look at a draft before it is the child, so that the model mends it in the same dialogue: `none`, `build`
    (compiled) or `check` (run on a few small shapes besides, as in `islands`)."""


class BestOfN(LoopStrategy[BestOfNSettings]):
    """Each attempt is a chain that starts at the naive kernel; every child, fast or slow, is the parent of the next.

    With language models a child is one of their answers to `rewrite`, the models in turn, one that is unavailable left
    out; without, one random child of `transform`. What one attempt found is never used in another. A child that fails
    ends its chain; one that was raced out does not, and one that a model can repair gets `repairs` chances. Its models
    are shown no profile, as KernelBench's samples have none: no profiler runs.
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
        """The outcome of a child that a model may mend."""
        from mutators.asking.mutators import REPAIRABLE  # with its templates: not needed by runs without models

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
        """The params of the dialogue for an answer: without repairs, of whatever kind, it is a single one."""
        is_single = self.settings.repairs == 0 and self.settings.drafts == "none"
        return {"profiler": "none", **self.dialogue(self.settings.drafts, tries=1 if is_single else None)}


def _works(child: Individual) -> bool:
    """Whether the next child can be made from it."""
    return bool(child.evaluation and child.evaluation.verdict in TIMED)


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


class RandomSettings(UserSettings):
    """Settings of the strategy `random`."""

    most_steps: int = Field(6, ge=1, le=32)
    """Transforms per child: between 1 and this, equally likely."""


class RandomSearch(LoopStrategy[RandomSettings]):
    """Every child is the naive kernel after a random number of random transforms, with random values of its tunables.

    It asks nothing more once it was told that no transform applies.
    """

    Settings = RandomSettings
    _exhausted = False

    def recipe(self, number: int, start: Individual) -> Recipe | None:
        """Return a loop of a single child."""
        return None if self._exhausted else self._single(start)

    def _single(self, start: Individual) -> Recipe:
        assert start.kernel
        child = yield self.child("transform", start.kernel, params=self._drawn)
        self._exhausted = self._exhausted or child.kernel is None

    def _drawn(self, rng: Random) -> dict[str, Any]:
        return {"count": rng.randint(1, self.settings.most_steps), "random_values": True}


class TuneOnlySettings(UserSettings):
    """Settings of the strategy `tune_only`."""

    rewrites: bool = True
    """Whether the naive kernel's children by a single transform are tuned besides the naive kernel itself, which often
    declares no tunables."""
    explore: float = Field(0.3, ge=0, le=1)
    """Share of draws in which a file is drawn from all alike rather than by the rank of its best setting."""
    trials: int = Field(TRIALS_PER_SOURCE, ge=1, le=TRIALS_PER_SOURCE)
    """Requests for settings of one file."""


@dataclass
class _TunedFile:
    """One source file and what is known of its settings."""

    kernel: Kernel
    trials: list[Trial]
    best: float
    asked: int = 0
    exhausted: bool = False


class TuneOnly(PlainStrategy[TuneOnlySettings]):
    """First every transform of the naive kernel, once; then values for the tunables that these files declare, and the
    operator's other kernels if the run starts from them.

    A file is tuned if it was correct with its defaults. No such child is ever transformed again, so that it asks
    nothing more once every setting of every file was asked for.
    """

    Settings = TuneOnlySettings

    def __init__(self, context: StrategyContext, settings: Mapping[str, Any]) -> None:
        super().__init__(context, settings)
        self._openings = transform_names(context.task.target) if self.settings.rewrites else ()
        self._files: dict[str, _TunedFile] = {}
        """By source id, in the order of their tells."""
        self._asked: dict[int, _TunedFile] = {}
        """By the number of a request under way."""
        self._tuning = Tuning(self.context)

    def next(self, number: int, ancestor: Individual, rng: Random) -> Request | None:
        """See `PlainStrategy.next`."""
        opening = number - len(self.ancestors)
        if opening < len(self._openings):
            params = {"rewrite": self._openings[opening]}
            naive = self.ancestors.correct["naive"].kernel
            return self.context.request(number, "transform", [naive.id], rng, params)
        left = [f for f in self._files.values() if not f.exhausted and f.asked < self.settings.trials]
        if not left or not self._tuning.left:
            return None
        left.sort(key=lambda file: -file.best)
        pressure = 1.0 if rng.random() < self.settings.explore else 2.0
        file = rng.choices(left, [pressure**-rank for rank in range(len(left))])[0]
        parents, trials = [file.kernel.id], tuple(file.trials)
        params = self._tuning.params(file.kernel)
        return self.context.request(number, "tune", parents, rng, params, kind=Kind.TRIAL, trials=trials)

    def taken(self, request: Request) -> None:
        """See `PlainStrategy.taken`."""
        if request.kind is not Kind.TRIAL:
            return
        self._tuning.take(1)
        file = next((file for file in self._files.values() if file.kernel.id in request.parents), None)
        if file:
            file.asked += 1
            self._asked[request.number] = file
            self._tuning.asked(request, file.kernel)

    def tell(self, individual: Individual) -> str:
        """See `Strategy.tell`."""
        status = super().tell(individual)
        elite = elite_of(individual)
        if elite and individual.request.kind is Kind.ANCESTOR:
            self._consider(elite)
        return status

    def heard(self, individual: Individual) -> None:
        """See `PlainStrategy.heard`."""
        kernel, evaluation = individual.kernel, individual.evaluation
        elite = elite_of(individual)
        self._tuning.told(individual)
        if individual.request.kind is Kind.CHILD:
            if elite:  # also one that is the same program with its defaults
                self._consider(elite)
            return
        file = self._asked.pop(individual.request.number, None)
        if file is None:
            return
        if kernel is None or evaluation is None:
            file.exhausted = True
            return
        file.trials.append(Trial(dict(kernel.values), evaluation.estimate))
        if elite:
            file.best = max(file.best, elite.log_speedup)

    def _consider(self, elite: Elite) -> None:
        """Take a file up, if it declares something to choose; once."""
        if elite.kernel.source_id in self._files:
            return
        tunable = self._tuning.tunable(elite.kernel)
        trials = [Trial(dict(elite.kernel.values), elite.log_speedup)]
        self._files[elite.kernel.source_id] = _TunedFile(elite.kernel, trials, elite.log_speedup, exhausted=not tunable)
