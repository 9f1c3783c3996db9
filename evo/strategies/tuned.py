"""Any strategy, and after it the tuning of its best kernel: what it found gets as many trials as that of others."""

from __future__ import annotations

from collections.abc import Sequence

from evo.individual import Individual
from evo.strategies.archive import Cell, Elite
from evo.strategies.base import Leader, Rival, Strategy, StrategyContext
from evo.strategies.population import elite_of
from evo.strategies.tuning import Tuning
from fitness.profiling import Profile
from mutators.base import Kind, Request, Trial

LAST_TRIALS = -1
"""What is wanted by an ask that only trials of tunables may answer, because all else is used up; see `Tuned`."""


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
        """Of the trials."""

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
        if elite and individual.fresh and elite.log_speedup > _log_speedup(self.best):
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
        return max(filter(None, (self._strategy.best, self._best)), key=_log_speedup, default=None)

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


def _log_speedup(elite: Elite | None) -> float:
    return elite.log_speedup if elite else float("-inf")
