"""The jobs that wait for an evaluation worker, and which of them a free worker takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Generic, TypeVar

from evo.workers.homes import Homes, Key
from evo.workers.worker import BUILD_JOBS, WorkerSpec

W = TypeVar("W")
CONTINUING = frozenset({"full", "confirm"})
"""Jobs that go on with a kernel which has cost an evaluator's time already."""
PROFILE_YIELDS = 16
"""Jobs that came later than a profile and go before it: no request waits for a profile, but it must come."""


@dataclass(frozen=True, eq=False)
class Waiting(Generic[W]):
    """A job that waits for a worker."""

    method: str
    key: Key
    """The task that it is for."""
    machine: str
    """Whose disk holds what is built of its kernel; empty where that does not matter."""
    ticket: int
    """Jobs are served in the order of their tickets."""
    turn: asyncio.Future[W]
    """It gets the worker."""

    @property
    def at_home(self) -> bool:
        """Whether it needs what a worker holds of its task."""
        return self.method not in BUILD_JOBS


class WaitingJobs(Generic[W]):
    """Jobs that wait, whatever run they belong to.

    A worker takes the jobs of tasks that are at home with it, then those of a task that it takes over, see `Homes`. Of
    these, those come first that continue a kernel already under way: so a verdict does not wait behind a queue of new
    kernels. Then, for a worker that only judges, those of the task that it was at last: where a GPU's memory is short,
    each change of the task costs a drawing of inputs. Then the others by age, of which a profile lets PROFILE_YIELDS
    younger ones go before it.
    """

    def __init__(self, homes: Homes[W]) -> None:
        self._homes = homes
        self._last: dict[W, Key] = {}
        """The task that each worker was at last."""
        self._jobs: list[Waiting[W]] = []
        self._tickets = count()

    def add(self, method: str, key: Key, machine: str) -> Waiting[W]:
        """A job joins the queue; `discard` takes it out again."""
        ticket = next(self._tickets) + (PROFILE_YIELDS + 1 if method == "profile" else 0)
        waiting = Waiting(method, key, machine, ticket, asyncio.get_running_loop().create_future())
        self._jobs.append(waiting)
        return waiting

    def discard(self, waiting: Waiting[W]) -> None:
        """A job that is served, or no longer wanted, leaves the queue; nothing happens for one that has left."""
        if waiting in self._jobs:
            self._jobs.remove(waiting)

    def serve(self, spec: WorkerSpec, worker: W) -> bool:
        """A free worker goes to a job that it can do, rather to one of its machine; False where none waits for it."""
        able = [w for w in self._jobs if w.method in spec.jobs and not w.turn.done()]
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
        elsewhere = waiting.key != last or waiting.method == "profile" or not BUILD_JOBS.isdisjoint(spec.jobs)
        return waiting.method not in CONTINUING, waiting.machine != spec.machine, elsewhere, waiting.ticket

    def forget(self, worker: W) -> None:
        """A worker is gone."""
        self._last.pop(worker, None)
        self._homes.leave(worker)

    def refuse(self, error: Callable[[str], Exception | None]) -> None:
        """The jobs whose method has an `error` end with it."""
        for waiting in self._jobs:
            if not waiting.turn.done() and (found := error(waiting.method)):
                waiting.turn.set_exception(found)
