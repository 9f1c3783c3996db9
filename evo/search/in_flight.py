"""What a search has under way: tasks of the event loop, and the requests that they work on."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from dataclasses import dataclass
from typing import Any

from evo.search.history import Done
from evo.search.task import Bound, TaskState
from mutators.base import Kind, Request
from mutators.llm.outside import Tasks


@dataclass(frozen=True)
class Errand:
    """A request with what it needs to be worked on, now or later."""

    state: TaskState
    request: Request
    bound: Bound


class InFlight:
    """Owns the running tasks. Whatever it began, it also ends: nothing is left behind by a search that stops."""

    def __init__(self) -> None:
        self._begun: dict[asyncio.Task[Any], None] = {}
        """Everything under way, in the order in which it began."""
        self.judging: dict[str, str] = {}
        """By id of a request whose kernel may still be charged as an evaluation, from its build to its tell: the
        kernel's id."""
        self._errands: dict[asyncio.Task[Any], Errand] = {}
        """What each of the tasks works on, for those that work on a request."""

    @property
    def tasks(self) -> Tasks:
        """Everything under way: requests, profiles, confirmations."""
        return set(self._begun)

    def add(self, *tasks: asyncio.Task[Any]) -> None:
        """Own tasks that work on no request."""
        self._begun.update(dict.fromkeys(tasks))

    def begin(self, errand: Errand, work: Coroutine[Any, Any, Done | None]) -> None:
        """Let a request be worked on."""
        errand.state.in_flight += 1
        task = asyncio.ensure_future(work)
        self._errands[task] = errand
        task.add_done_callback(self._ended)
        self.add(task)

    def at(self, kernel_ids: Collection[str]) -> Tasks:
        """Return the tasks that have one of these kernels judged."""
        return {task for task, errand in self._errands.items() if self.judging.get(errand.request.id) in kernel_ids}

    def has(self, state: TaskState, kind: Kind) -> bool:
        """Return whether a request of such a kind is worked on for a task."""
        return any(errand.state is state and errand.request.kind is kind for errand in self._errands.values())

    def cancel(self, *, but: Tasks) -> None:
        """Cancel everything but these tasks."""
        for task in self.tasks - but:
            task.cancel()

    def give_up(self, *, but: Tasks) -> list[Errand]:
        """Cancel all requests but these tasks; return them."""
        stuck = {task: errand for task, errand in self._errands.items() if task not in but}
        for task in stuck:
            task.cancel()
        return list(stuck.values())

    async def wait(self, timeout_s: float) -> list[asyncio.Task[Any]]:
        """Wait until something ends or the time is over; return what ended, but for what was cancelled.

        What ended together comes in the order in which it began, which is then its order in the history.
        """
        if not self._begun:
            await asyncio.sleep(timeout_s)
            return []
        done, _ = await asyncio.wait(self._begun, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        ended = [task for task in self._begun if task in done]
        for task in ended:
            del self._begun[task]
        return [task for task in ended if not task.cancelled()]

    async def abandon(self) -> None:
        """Cancel everything, and wait for its end."""
        self.cancel(but=set())
        await asyncio.gather(*self._begun, return_exceptions=True)
        self._begun.clear()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        errand = self._errands.pop(task)
        errand.state.in_flight -= 1
        if task.cancelled() or task.exception() or task.result() is None:  # what is told is counted until then
            self.judging.pop(errand.request.id, None)
