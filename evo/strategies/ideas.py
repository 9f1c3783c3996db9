"""Ideas of language models whose tunables are tried before they are judged: a good idea may come with a bad number."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from evo.individual import Individual
from evo.strategies.archive import Elite
from fitness.evaluation import Status
from mutators.bandit import Arm

SETTLED = (Status.CORRECT, Status.SLOWER)
"""Verdicts on answers whose tunables are worth a trial: those that are right."""


@dataclass
class Idea:
    """A model's answer, and what its settings have shown so far."""

    answer: Elite
    """See `as_parent`."""
    arm: Arm
    parents: tuple[str, ...]
    """Ids of the kernels that the answer was made from."""
    best_log_speedup: float
    """Of these."""
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
