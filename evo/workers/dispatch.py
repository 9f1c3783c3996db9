"""The jobs that wait for an evaluation worker, where their tasks are at home, and which of them a free worker takes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Generic, TypeVar

from evo.workers.jobs import Job
from evo.workers.worker import RunContext, WorkerSpec
from operators.definition.spec import Task

W = TypeVar("W")
Key = tuple[RunContext, Task]
"""A task of a run."""
KEEP = 0.7
"""The weight of earlier jobs of a task beside the latest one, in the estimate of its usual time."""
MOVING_S = 5.0
"""Seconds that moving in takes, as long as a task's first job is under way."""
FURTHER = 0.25
"""The assumed time of a further job, as a share of what moving in took."""


@dataclass
class _Home(Generic[W]):
    workers: list[W] = field(default_factory=list)
    visited: set[W] = field(default_factory=set)
    """Workers that have done a job of the task."""
    moving_s: float = MOVING_S
    """Seconds of the first job on the last worker that it was new to."""
    usual_s: float | None = None
    """Seconds of other jobs; None: there were none."""


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
        """The number of tasks that are at home with a worker."""
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
        """The task with waiting jobs, one entry per job, that another worker had better take over; often none."""
        jobs = Counter(waiting)
        behind_s = defaultdict(float, {worker: self._left_s(*at, now_s) for worker, at in self._at.items()})
        for key, many in jobs.items():
            workers = self.of(key)
            for worker in workers:
                behind_s[worker] += many * self._usual_s(key) / len(workers)
        gains_s = {
            key: min(behind_s[worker] for worker in workers) - self._homes[key].moving_s
            for key in jobs
            if (workers := self.of(key))
        }
        best = max(gains_s, key=lambda key: (gains_s[key], jobs[key]), default=None)
        return best if best is not None and gains_s[best] > 0 else None

    def _left_s(self, key: Key, began_s: float, now_s: float) -> float:
        """The time that a job will still take: the rest of its usual time, or when that is over, as long again as it
        took so far.

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


@dataclass(frozen=True, eq=False)
class Waiting(Generic[W]):
    """A job that waits for a worker."""

    job: Job[Any]
    key: Key
    """The run's task that it is for."""
    machine: str
    """Whose disk holds what is built of its kernel; empty where that does not matter."""
    ticket: int
    """Jobs are served in the order of their tickets."""
    turn: asyncio.Future[W]
    """It gets the worker."""

    @property
    def at_home(self) -> bool:
        """Whether it needs what a worker holds of its task."""
        return not self.job.builds


class WaitingJobs(Generic[W]):
    """Jobs that wait, whatever run they belong to.

    A worker takes the jobs of tasks that are at home with it, then those of a task that it takes over, see `Homes`. Of
    these, those come first that continue a kernel already under way: so a verdict does not wait behind a queue of new
    kernels. Then, for a worker that only judges, those of the task that it was at last: where a GPU's memory is short,
    each change of the task costs a drawing of inputs. Then the others by age, of which some, as `Job.yields`
    says, let younger ones go before them.
    """

    def __init__(self, homes: Homes[W]) -> None:
        self._homes = homes
        self._last: dict[W, Key] = {}
        """The task that each worker was at last."""
        self._jobs: list[Waiting[W]] = []
        self._tickets = count()

    def add(self, job: Job[Any], context: RunContext, machine: str) -> Waiting[W]:
        """A job joins the queue; `discard` takes it out again."""
        ticket = next(self._tickets) + (job.yields + 1 if job.yields else 0)
        waiting = Waiting(job, (context, job.task), machine, ticket, asyncio.get_running_loop().create_future())
        self._jobs.append(waiting)
        return waiting

    def discard(self, waiting: Waiting[W]) -> None:
        """A job that is served, or no longer wanted, leaves the queue; nothing happens for one that has left."""
        if waiting in self._jobs:
            self._jobs.remove(waiting)

    def serve(self, spec: WorkerSpec, worker: W) -> bool:
        """A free worker goes to a job that it can do, rather to one of its machine; False where none waits for it."""
        able = [w for w in self._jobs if spec.does(w.job) and not w.turn.done()]
        mine = [w for w in able if not w.at_home or not self._homes.of(w.key) or worker in self._homes.of(w.key)]
        if not mine and (key := self._homes.most_behind((w.key for w in able), time.monotonic())):
            mine = [w for w in able if w.key == key]
        if not mine:
            return False
        chosen = min(mine, key=lambda w: self._place(w, spec, self._last.get(worker)))
        self._jobs.remove(chosen)
        if chosen.at_home:
            self._last[worker] = chosen.key
        if chosen.at_home and worker not in self._homes.of(chosen.key):
            # Where more jobs of the same task wait, there is work for both workers.
            self._homes.settle(chosen.key, worker, alone=all(w.key != chosen.key for w in able if w is not chosen))
        chosen.turn.set_result(worker)
        return True

    def _place(self, waiting: Waiting[W], spec: WorkerSpec, last: Key | None) -> tuple[bool, bool, bool, int]:
        """A job's place in the queue for a worker, the lowest first."""
        elsewhere = waiting.key != last or waiting.job.yields > 0 or spec.compiles
        return not waiting.job.continues, waiting.machine != spec.machine, elsewhere, waiting.ticket

    def forget(self, worker: W) -> None:
        """A worker is gone."""
        self._last.pop(worker, None)
        self._homes.leave(worker)

    def refuse(self, error: Callable[[Job[Any]], Exception | None]) -> None:
        """The jobs that have an `error` end with it."""
        for waiting in self._jobs:
            if not waiting.turn.done() and (found := error(waiting.job)):
                waiting.turn.set_exception(found)
