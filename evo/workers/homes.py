"""Where tasks are at home: the workers that hold their inputs, references, anchors and warm processes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from evo.workers.worker import RunContext
from operators.definition.spec import Task

W = TypeVar("W")
Key = tuple[RunContext, Task]
"""A task of a run."""
KEEP = 0.7
"""Of what was known of a task's jobs, so much counts beside the latest one."""
MOVING_S = 5.0
"""What moving in takes, as long as a task's first job is under way."""
FURTHER = 0.25
"""Of what moving in took, what a further job takes, before there was one."""


@dataclass
class _Home(Generic[W]):
    workers: list[W] = field(default_factory=list)
    visited: set[W] = field(default_factory=set)
    """Workers that have done a job of the task."""
    moving_s: float = MOVING_S
    """What the first job took on the last worker that it was new to."""
    usual_s: float | None = None
    """What others take; None: there were none."""


class Homes(Generic[W]):
    """Which workers each task is at home with, by run.

    A task's first job on a worker draws inputs and computes references, which takes longer than to judge a kernel. So
    its jobs wait for the worker that has them; another one takes the task over where its jobs, and others that wait for
    the same worker, would wait for longer than it takes to move in.
    """

    def __init__(self) -> None:
        self._homes: dict[Key, _Home[W]] = {}
        self._at: dict[W, tuple[Key, float]] = {}
        """The job that each worker is at, and since when."""

    def of(self, key: Key) -> Sequence[W]:
        """The workers that a task is at home with; none for a new one."""
        home = self._homes.get(key)
        return home.workers if home else ()

    def count(self, worker: W) -> int:
        """How many tasks are at home with a worker."""
        return sum(worker in home.workers for home in self._homes.values())

    def settle(self, key: Key, worker: W, *, alone: bool) -> None:
        """A worker is a task's home from now on: the only one, or one more."""
        home = self._homes.setdefault(key, _Home())
        home.workers = [worker] if alone else [*home.workers, worker]

    def begins(self, key: Key, worker: W, now_s: float) -> None:
        """A worker is at a job of a task from now on."""
        self._at[worker] = key, now_s

    def ends(self, worker: W) -> None:
        """It is at none any more."""
        self._at.pop(worker, None)

    def took(self, key: Key, worker: W, seconds: float) -> None:
        """A job of a task took so long on a worker."""
        home = self._homes.get(key)
        if home is None:
            return
        if worker not in home.visited:
            home.visited.add(worker)
            home.moving_s = seconds
        else:
            home.usual_s = seconds if home.usual_s is None else KEEP * home.usual_s + (1 - KEEP) * seconds

    def most_behind(self, waiting: Iterable[Key], now_s: float) -> Key | None:
        """Of the tasks whose jobs wait, one job each, the one that another worker had better take over; often none."""
        jobs = Counter(waiting)
        behind_s = defaultdict(float, {worker: self._left_s(*at, now_s) for worker, at in self._at.items()})
        for key, count in jobs.items():
            workers = self.of(key)
            for worker in workers:
                behind_s[worker] += count * self._usual_s(key) / len(workers)
        gains_s = {
            key: min(behind_s[worker] for worker in workers) - self._homes[key].moving_s
            for key in jobs
            if (workers := self.of(key))
        }
        best = max(gains_s, key=lambda key: (gains_s[key], jobs[key]), default=None)
        return best if best is not None and gains_s[best] > 0 else None

    def _left_s(self, key: Key, began_s: float, now_s: float) -> float:
        """How long a job will still take: what it usually does, or when that is over, as long again as it took so far.

        So no task waits for the limits of a job that hangs.
        """
        taken_s = now_s - began_s
        usual_s = self._usual_s(key) if key in self._homes else 0.0
        return usual_s - taken_s if taken_s < usual_s else taken_s

    def _usual_s(self, key: Key) -> float:
        home = self._homes[key]
        return FURTHER * home.moving_s if home.usual_s is None else home.usual_s

    def leave(self, worker: W) -> None:
        """A worker is gone, and what it held."""
        self.ends(worker)
        for home in self._homes.values():
            home.visited.discard(worker)
            home.workers = [other for other in home.workers if other is not worker]

    def end(self, context: RunContext) -> None:
        """A run has ended."""
        self._homes = {key: home for key, home in self._homes.items() if key[0] != context}
