"""The evaluator of a search: its pool of workers, and all that is asked of them beside its requests."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import nullcontext
from typing import Generic, TypeVar

from evo.budget import RunClock
from evo.individual import Individual
from evo.search.confirmations import Confirmations
from evo.search.history import History
from evo.search.task import Outstanding, TakenProfile, TaskState
from evo.search.verdicts import Verdicts, can_be_profiled
from evo.store.reads import rows_of
from evo.workers.dispatch import RunPool
from evo.workers.pool import Waits
from mutators.base import Parent
from mutators.registry import asks_model
from operators.definition.spec import Task


class Evaluator:
    """Owns what workers are asked for: verdicts, profiles, rivals, confirmations."""

    def __init__(
        self, pool: RunPool, history: History, clock: RunClock, *, waits: Waits, profiles_wait: bool = False
    ) -> None:
        """For `waits` see `evo.workers.pool.tried`, for `profiles_wait` see `Profiles`."""
        self.pool = pool
        self.verdicts = Verdicts(pool, history.commit, history.now, waits)
        self.profiles = Profiles(self.verdicts, history, pool, waits=profiles_wait)
        self.rivals = Rivals(self.verdicts, history, pool, clock)
        self.confirmations = Confirmations(history, self.verdicts, pool, clock)
        self._history = history

    def recall(self, individual: Individual) -> None:
        """Take the verdict on a stored individual for known."""
        if individual.kernel and individual.evaluation:
            self.verdicts.recall(individual.request.task, individual.kernel, individual.evaluation)

    def restore(self) -> None:
        """Take note of what earlier sessions spent."""
        (spent,) = rows_of(self._history.store, "search.judged")
        self.verdicts.resume(**spent)


Key = TypeVar("Key")
Found = TypeVar("Found")


class Background(Generic[Key, Found]):
    """Owns jobs that run beside the requests; never more than a judge's share of the pool is at them."""

    def __init__(self, pool: RunPool) -> None:
        self._pool = pool
        self.running: dict[Key, asyncio.Task[Found]] = {}

    @property
    def has_room(self) -> bool:
        """Whether one more may begin."""
        return len(self.running) < self._pool.judges

    def begin(self, key: Key, work: Coroutine[None, None, Found]) -> asyncio.Task[Found]:
        """Run a job until it ends or all are cancelled."""
        task = self.running[key] = asyncio.ensure_future(work)
        task.add_done_callback(lambda _: self.running.pop(key))
        return task

    def cancel(self) -> None:
        """Cancel all of them: the search has another use for the time."""
        for task in self.running.values():
            task.cancel()


PATIENT_S = 600.0
"""Limit of a run's time from which rivals are compiled: it takes a task up to two minutes, once on a machine."""


class Rivals(Background[Task, None]):
    """Has the library's calls tried, once for each task that has something to confirm.

    At the end of a run there is no time to compile them.
    """

    def __init__(self, verdicts: Verdicts, history: History, pool: RunPool, clock: RunClock) -> None:
        super().__init__(pool)
        self._verdicts = verdicts
        self._states = history.states
        self._clock = clock
        self._begun: set[Task] = set()

    def want(self) -> list[asyncio.Task[None]]:
        """Begin with tasks of which a kernel leads that is not the naive one, as far as there is room; return these."""
        found: list[asyncio.Task[None]] = []
        for task, state in self._states.items() if self._clock.limit_s >= PATIENT_S else ():
            if not self.has_room:
                break
            if state.fastest and not state.led_by_baseline and task not in self._begun:
                self._begun.add(task)
                found.append(self.begin(task, self._verdicts.choose_rivals(task, state.baseline)))
        return found


class Profiles(Background[str, TakenProfile]):
    """Has kernels profiled that questions are about, each once; the keys are their ids."""

    def __init__(self, verdicts: Verdicts, history: History, pool: RunPool, *, waits: bool = False) -> None:
        """With `waits`, what finds no room waits for it, rather than for the next question about the kernel.

        So a cell of a comparison comes to know the same whenever it is interrupted.
        """
        super().__init__(pool)
        self._room = asyncio.Semaphore(pool.judges) if waits else None
        self._verdicts = verdicts
        self._history = history

    def want(self, asked: Outstanding) -> list[asyncio.Task[TakenProfile]]:
        """Begin to profile the kernels that a question shows, if they can be and were not; return the tasks."""
        state, request, params = asked.state, asked.request, asked.request.params
        if not asks_model(request) or params.get("profiler") == "none" or "profile_of" in params:
            return []
        begun = []
        for kernel_id, evaluation_id in asked.bound.sources[: 2 if request.mutator == "crossover" else 1]:
            known = kernel_id in state.profile_notes.profiles or kernel_id in self.running
            if known or not evaluation_id or not (self._room or self.has_room):
                continue
            kernel = self._history.parents.find((kernel_id, evaluation_id), baseline=state.baseline)
            if can_be_profiled(kernel):
                begun.append(self.begin(kernel_id, self._taken(state, kernel, evaluation_id)))
        return begun

    async def _taken(self, state: TaskState, parent: Parent, evaluation_id: str) -> TakenProfile:
        async with self._room or nullcontext():
            return await self._verdicts.take_profile(state, parent, evaluation_id)
