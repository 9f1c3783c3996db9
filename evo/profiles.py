"""Profiles that are taken beside a search: for the next question about a kernel, while nothing waits for them."""

from __future__ import annotations

import asyncio

from evo.parents import Parents
from evo.pool import Pool
from evo.task_state import Bound, TaskState
from evo.verdicts import TakenProfile, Verdicts, can_be_profiled
from mutators.base import Request
from mutators.registry import asks_model


class Profiles:
    """Has kernels profiled that questions are about, each once, and never more than a judge's share of the pool."""

    def __init__(self, verdicts: Verdicts, parents: Parents, pool: Pool) -> None:
        self._verdicts = verdicts
        self._parents = parents
        self._pool = pool
        self.running: dict[str, asyncio.Task[TakenProfile]] = {}
        """By kernel id, the profiles that are being taken."""

    def want(self, state: TaskState, request: Request, bound: Bound) -> asyncio.Task[TakenProfile] | None:
        """Begin to profile the principal parent of a question, if it can be and was not; return the task."""
        if not (bound.sources and asks_model(request)) or len(self.running) >= self._pool.judges:
            return None
        kernel_id, evaluation_id = bound.sources[0]
        if not evaluation_id or kernel_id in state.profiles or kernel_id in self.running:
            return None
        parent = self._parents.find(bound.sources[0], baseline=state.baseline)
        if not can_be_profiled(parent):
            return None
        task = asyncio.ensure_future(self._verdicts.take_profile(state, parent, evaluation_id))
        self.running[kernel_id] = task
        task.add_done_callback(lambda _: self.running.pop(kernel_id))
        return task

    def cancel(self) -> None:
        """Cancel all of them: no further question will be asked that they could serve."""
        for task in self.running.values():
            task.cancel()
