"""Repairs of failed kernels, and ports of kernels of other tasks."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from evo.individual import Individual
from evo.strategies.base import Leader
from evo.strategies.population import Elite
from operators.definition.spec import Task
from operators.kernel import Kernel

FAILURES_KEPT = 16
"""Failing kernels that wait for a repair; the latest."""


@dataclass(frozen=True)
class Failure:
    """A failing child of a model that may be mended."""

    kernel: Kernel
    parent: Elite
    """The good kernel that it was made from."""
    tries: int = 0


class Repairs:
    """Failures that wait for a repair."""

    def __init__(self, most_tries: int) -> None:
        """`most_tries`: requests that may be spent on one failing child, what becomes of it included."""
        self._most_tries = most_tries
        self._waiting: deque[Failure] = deque(maxlen=FAILURES_KEPT)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def any_untried(self) -> bool:
        """Whether one waits whose repair was not tried yet."""
        return any(failure.tries == 0 for failure in self._waiting)

    def oldest(self, *, untried: bool) -> Failure:
        """Return the one that has waited longest, of all or of those whose repair was not tried yet."""
        return next(f for f in self._waiting if not (untried and f.tries))

    def take(self, kernel_id: str) -> Failure | None:
        """Take out the failure that is this kernel, the one that has waited longest; None where there is none."""
        failure = next((failure for failure in self._waiting if failure.kernel.id == kernel_id), None)
        if failure:
            self._waiting.remove(failure)
        return failure

    def back(self, failure: Failure) -> None:
        """Let one wait again whose repair came to nothing for no fault of its own."""
        self._waiting.append(failure)

    def consider(self, individual: Individual, parent: Elite, mended: Failure | None) -> None:
        """Keep what a model made of a good kernel and what failed, as long as it has tries left.

        `mended` is the failure that the model was to mend, if it was.
        """
        tries = mended.tries + 1 if mended else 0
        if tries >= self._most_tries:
            return
        from mutators.asking.mutators import REPAIRABLE  # with its templates: not needed by runs without models

        kernel, evaluation = individual.kernel, individual.evaluation
        if kernel and evaluation and individual.fresh and evaluation.verdict in REPAIRABLE:
            self._waiting.append(Failure(kernel, parent, tries))
        elif mended and kernel is None:  # the model had no answer: it may be asked again
            self._waiting.append(Failure(mended.kernel, parent, tries))


AS_IT_STANDS = ""
"""In the place of a model's name: the kernel itself is tried."""
Way = tuple[Task, str]
"""The task that a kernel comes from, and the model that is to carry it over, or AS_IT_STANDS."""


@dataclass
class Ports:
    """Knows one task's leader and those of its relatives, and what of theirs was carried over. Pure: no randomness.

    A kernel of the same operator in another dtype is tried as it stands first; then models are asked. Each way is taken
    again only for a leader that is as much ahead of the one before as that was to be ahead of this task's own.
    """

    task: Task
    times: float
    """Factor by which a leader must be as far as this task's own; 0: nothing is carried over."""
    own: Leader | None = None
    others: dict[Task, Leader] = field(default_factory=dict)
    _taken: dict[Way, Leader] = field(default_factory=dict)
    """By way, the last leader that was carried over."""
    _open: dict[int, tuple[Way, Leader | None]] = field(default_factory=dict)
    """By number of a request that is not told yet: its way, and the leader that was carried over that way before."""
    _files: set[str] = field(default_factory=set)
    """Source ids of kernels that were told: they are known here."""

    def hear(self, leader: Leader) -> None:
        """Take note of the new leader of a task."""
        if leader.task == self.task:
            self.own = leader
        else:
            self.others[leader.task] = leader

    def told(self, individual: Individual) -> None:
        """Learn what became of a request, whatever it asked for."""
        if individual.kernel:
            self._files.add(individual.kernel.source_id)
        way, before = self._open.pop(individual.request.number, (None, None))
        if way and individual.unavailable:  # says nothing of the kernel: it may be carried over again
            del self._taken[way]
            if before:
                self._taken[way] = before

    def as_it_stands(self) -> Leader | None:
        """Return the leader that is to be tried without a model."""
        return self._best(AS_IT_STANDS)

    def source(self, model: str) -> Leader | None:
        """Return the leader whose design a model is to carry over."""
        return self._best(model)

    def asked(self, number: int, leader: Leader, model: str = AS_IT_STANDS) -> None:
        """Take note that a leader is carried over by the request of this number."""
        way = leader.task, model
        self._open[number] = way, self._taken.get(way)
        self._taken[way] = leader

    def _best(self, model: str) -> Leader | None:
        """The leader that is furthest ahead, of those whose way is to be taken."""
        if not self.times or self.own is None:
            return None
        found = [leader for leader in self.others.values() if self._promises(leader, self.own, model)]
        return max(found, key=lambda leader: (leader.ahead(self.own), str(leader.task))) if found else None  # type: ignore[arg-type]

    def _promises(self, leader: Leader, own: Leader, model: str) -> bool:
        least = math.log(self.times)
        before = self._taken.get((leader.task, model))
        if leader.ahead(own) <= least or (before and leader.ahead(before) <= least):
            return False
        known = leader.kernel.source_id in self._files
        if model == AS_IT_STANDS:
            return leader.task.operator == self.task.operator and not known
        under_way = (leader.task, AS_IT_STANDS) in (way for way, _ in self._open.values())
        return leader.kernel.source_id != own.kernel.source_id and not under_way
