"""The control arm `tune_only`: what choosing values for tunables brings, without any search over structures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from evo.individual import Individual
from evo.strategies.archive import Elite
from evo.strategies.base import StrategyContext
from evo.strategies.plain import PlainStrategy
from evo.strategies.population import TRIALS_PER_SOURCE, elite_of
from evo.strategies.tuning import Tuning
from mutators.base import Kind, Request, Trial
from mutators.transforms.mutator import transform_names
from operators.kernel import Kernel


class TuneOnlySettings(BaseModel):
    """Settings of the strategy `tune_only`."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    rewrites: bool = True
    """Whether the naive kernel's children by a single transform are tuned besides the naive kernel itself, which often
    declares no tunables."""
    explore: float = Field(0.3, ge=0, le=1)
    """How often a file is drawn from all alike rather than by the rank of its best setting."""
    trials: int = Field(TRIALS_PER_SOURCE, ge=1, le=TRIALS_PER_SOURCE)
    """Requests for settings of one file."""


@dataclass
class _File:
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
        self._files: dict[str, _File] = {}
        """By source id, in the order of their tells."""
        self._asked: dict[int, _File] = {}
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
        trial = Trial(dict(elite.kernel.values), elite.log_speedup)
        self._files[elite.kernel.source_id] = _File(elite.kernel, [trial], elite.log_speedup, exhausted=not tunable)
