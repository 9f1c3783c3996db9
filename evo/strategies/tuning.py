"""Tuning of a population's best kernels: which, when, for which ideas, and as a strategy's last act."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from evo.individual import Individual
from evo.lineage import Latest
from evo.strategies.base import Leader, Rival, Strategy, StrategyContext
from evo.strategies.population import Cell, Elite, elite_of
from fitness.profiling.profiles import Profile
from mutators.bandit import Arm
from mutators.base import Kind, Request, Trial
from operators.errors import PlanError
from operators.kernel import Kernel
from operators.plan.reading import parse_plan

FILES = 500
"""Files whose best settings are remembered, the latest."""
SIBLINGS = 2
"""Similar files whose best settings a request names."""


@dataclass
class _File:
    """One source file with tunables."""

    tune: Mapping[str, tuple[int, ...]]
    best: float | None = None
    """The log speedup of its best setting."""
    values: Mapping[str, int] = field(default_factory=dict)
    """The values of that setting, defaults included."""
    under_way: dict[int, int] = field(default_factory=dict)
    """Seeds of the requests for its settings that are not told yet, by number."""

    @property
    def defaults(self) -> dict[str, int]:
        """The values that the file's author would set."""
        return {name: values[0] for name, values in self.tune.items()}


class Tuning:
    """Knows the files of one task that declare tunables."""

    def __init__(self, context: StrategyContext) -> None:
        self._context = context
        self._files: Latest[str, _File] = Latest(FILES)
        """By source id, those that were asked for or told of."""
        self._read = lru_cache(FILES)(self._parsed)
        self._asked: dict[int, _File] = {}
        """By the number of a request for a setting that is not told yet."""
        self.left = math.inf if context.trials is None else context.trials
        """Settings that may still be taken."""

    def take(self, count: int) -> int:
        """Take as many settings of `count` as are left to be asked for; return how many that is."""
        taken = int(min(count, self.left))
        self.left -= taken
        return taken

    def tunable(self, kernel: Kernel) -> bool:
        """Whether the kernel's file declares anything to choose."""
        return self._file(kernel) is not None

    def params(self, kernel: Kernel) -> dict[str, Any]:
        """Return what a request for a setting of this kernel's file is told besides its trials."""
        file = self._file(kernel)
        if file is None:
            return {}
        told: dict[str, Any] = {"siblings": self._siblings(file), "under_way": list(file.under_way.values())}
        return {name: value for name, value in told.items() if value}

    def asked(self, request: Request, kernel: Kernel) -> None:
        """Take note of a request for a setting of this kernel's file."""
        if file := self._kept(kernel):
            file.under_way[request.number] = request.seed
            self._asked[request.number] = file

    def told(self, individual: Individual) -> None:
        """Learn what became of a request, whatever it asked for."""
        request, kernel, evaluation = individual.request, individual.kernel, individual.evaluation
        if asked := self._asked.pop(request.number, None):
            del asked.under_way[request.number]
        if kernel is None or evaluation is None or evaluation.estimate is None:
            return
        file = self._kept(kernel)
        if file and (file.best is None or evaluation.estimate > file.best):
            file.best, file.values = evaluation.estimate, {**file.defaults, **kernel.values}

    def _siblings(self, file: _File) -> list[dict[str, int]]:
        """The best settings in the files that share most values with this one, of faster files first among equals."""
        found: list[tuple[int, float, dict[str, int]]] = []
        for other in self._files.values():
            if other and other.best is not None and other is not file:
                values = {name: value for name, value in other.values.items() if value in file.tune.get(name, ())}
                if not values.items() <= file.defaults.items():
                    found.append((-len(values), -other.best, values))
        found.sort(key=lambda entry: entry[:2])
        distinct = {tuple(sorted(values.items())): values for *_, values in found}
        return list(distinct.values())[:SIBLINGS]

    def _kept(self, kernel: Kernel) -> _File | None:
        """The kernel's file as the latest of those that are remembered."""
        file = self._file(kernel)
        if file:
            self._files.put(kernel.source_id, file)
        return file

    def _file(self, kernel: Kernel) -> _File | None:
        """The state of the kernel's file; None: it has nothing to choose. To look changes nothing."""
        if known := self._files.get(kernel.source_id):
            return known
        plan, end, _ = kernel.source.partition("*/")  # most children keep their parent's, and reading it takes long
        tune = self._read(plan + end, kernel.target)
        return _File(tune) if any(len(values) > 1 for values in tune.values()) else None

    def _parsed(self, header: str, target: str) -> Mapping[str, tuple[int, ...]]:
        try:
            plan = parse_plan(header, self._context.operator, target)
        except PlanError:
            return {}
        return plan.for_dtype(self._context.task.dtype).tune


LAST_TRIALS = -1
"""Number that is wanted by an ask which only trials of tunables may answer, because all else is used up; see
`Tuned`."""


class Tuned:
    """A strategy whose best kernel is tuned at the end: an ask for LAST_TRIALS begins that, and ends all else.

    The file is that of the strategy's best kernel by then; without tunables there is nothing to try. Trials come one
    after the other, each with what is known of those before it.
    """

    def __init__(self, strategy: Strategy, context: StrategyContext) -> None:
        """At most `context.trials` are asked for."""
        self._strategy = strategy
        self._context = context
        self._number = 0
        self._first: int | None = None
        """The number of the first trial; None before it."""
        self._tuning = Tuning(context)
        self._file: Elite | None = None
        self._trials: list[Trial] = []
        self._best: Elite | None = None
        """The best of the trials."""

    def ask(self, count: int) -> list[Request]:
        """See `Strategy.ask`; a count of LAST_TRIALS asks for a trial."""
        if count == LAST_TRIALS:
            trial = self._trial()
            requests = [trial] if trial else []
            self.asked(requests, count)
            return requests
        requests = self._strategy.ask(count) if self._first is None else []
        self._count(requests)
        return requests

    def asked(self, requests: Sequence[Request], count: int) -> None:
        """See `Strategy.asked`."""
        self._count(requests)
        if count != LAST_TRIALS:
            self._strategy.asked(requests, count)
            return
        for request in requests:
            if self._first is None:
                self._first, self._file = request.number, self._strategy.best
            self._tuning.take(1)
            if self._file:
                self._tuning.asked(request, self._file.kernel)

    def hear(self, leader: Leader) -> None:
        """See `Strategy.hear`."""
        self._strategy.hear(leader)

    def profiled(self, kernel_id: str, profile: Profile) -> None:
        """See `Strategy.profiled`."""
        self._strategy.profiled(kernel_id, profile)

    def tell(self, individual: Individual) -> str:
        """See `Strategy.tell`."""
        if self._first is None or individual.request.number < self._first:
            return self._strategy.tell(individual)
        kernel, evaluation, elite = individual.kernel, individual.evaluation, elite_of(individual)
        self._tuning.told(individual)
        if kernel is None or evaluation is None:
            self._tuning.left = 0  # every setting was tried
            return individual.status
        self._trials.append(Trial(dict(kernel.values), evaluation.estimate))
        if elite and individual.fresh and elite.stands_at > _stands_at(self.best):
            self._best = elite
        return individual.status

    def rival(self, request: Request, cell: Cell) -> Rival:
        """See `Strategy.rival`."""
        if self._first is None or request.number < self._first:
            return self._strategy.rival(request, cell)
        return Rival(self.best.as_anchor(), race=True) if self.best else Rival()

    @property
    def best(self) -> Elite | None:
        """The fastest kernel it knows."""
        return max(filter(None, (self._strategy.best, self._best)), key=_stands_at, default=None)

    def _count(self, requests: Sequence[Request]) -> None:
        self._number = max((self._number, *(request.number + 1 for request in requests)))

    def _trial(self) -> Request | None:
        file = self._file or self._strategy.best
        if file is None or not self._tuning.tunable(file.kernel) or not self._tuning.left:
            return None
        trials = (Trial(dict(file.kernel.values), file.log_speedup), *self._trials)
        return self._context.request(
            self._number, "tune", [file.kernel.id], self._context.rng(self._number), self._tuning.params(file.kernel),
            kind=Kind.TRIAL, trials=trials,
        )  # fmt: skip


def _stands_at(elite: Elite | None) -> float:
    return elite.stands_at if elite else float("-inf")


@dataclass
class Idea:
    """A model's answer, and what its settings have shown so far."""

    answer: Elite
    """See `as_parent`."""
    arm: Arm
    parents: tuple[str, ...]
    """Ids of the kernels that the answer was made from."""
    best_log_speedup: float
    """The best log speedup of these kernels."""
    gain: float
    """In log speedup over them: the largest of the settings so far; 0 where none is clearly faster."""
    seconds: float
    cost_usd: float
    left: int
    """Settings that may still be asked for."""
    under_way: int = 0

    @property
    def settled(self) -> bool:
        """Whether all that was to be tried is told."""
        return self.left <= 0 and not self.under_way

    def tried(self, individual: Individual, gain: float) -> None:
        """Learn what became of one of its settings, whose gain is counted like that of the answer."""
        self.under_way -= 1
        self.seconds += individual.seconds
        if individual.kernel is None:  # there is no other setting
            self.left = 0
        self.gain = max(self.gain, gain)


def as_parent(individual: Individual) -> Elite:
    """Return an answer as requests for its settings take it, also one that was raced out and is no elite."""
    kernel, evaluation = individual.kernel, individual.evaluation
    assert kernel and evaluation
    return Elite(kernel, evaluation.cell, evaluation.estimate or 0.0, evaluation.log_speedup_se or 0.0)


class Ideas:
    """Ideas that wait for trials of their settings, the oldest first."""

    def __init__(self) -> None:
        self._waiting: deque[Idea] = deque()

    def add(self, idea: Idea) -> None:
        """Take up an idea that has trials left."""
        self._waiting.append(idea)

    def next(self) -> Idea | None:
        """Return the idea that has the next trial; None where none waits."""
        return next((idea for idea in self._waiting if idea.left > 0), None)

    def take(self, kernel_id: str) -> Idea | None:
        """Count a trial of the idea whose answer this kernel is; return that, None where none of them waits."""
        while self._waiting and self._waiting[0].left <= 0:
            self._waiting.popleft()
        idea = next((idea for idea in self._waiting if idea.left > 0 and idea.answer.kernel.id == kernel_id), None)
        if idea:
            idea.left -= 1
            idea.under_way += 1
        return idea
