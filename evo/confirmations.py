"""The last act of a run: each task's leader is measured a second time, independently."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from evo import records
from evo.journal import Journal
from evo.parents import Parents
from evo.pool import Pool
from evo.records import Rows
from evo.task_state import TaskState
from evo.verdicts import Verdicts
from fitness.evaluation import Level
from operators.errors import OperatorError
from operators.spec import Task

TIME_SHARE = 0.25
"""Of the time limit, kept at most for confirming the leaders at the end."""
ATTEMPTS = 5
"""How many of a task's leaders may fail their confirmation before the run ends without a confirmed best."""


class Confirmations:
    """Confirms leaders, and says how much time that will take."""

    def __init__(
        self,
        states: Mapping[Task, TaskState],
        store: Journal,
        pool: Pool,
        verdicts: Verdicts,
        parents: Parents,
        *,
        commit: Callable[[Rows], Awaitable[None]],
        give_up: Callable[[TaskState, str], Awaitable[None]],
        now: Callable[[], float],
    ) -> None:
        """`give_up` hears of a task whose operator turns out to be at fault, and why."""
        self._states = states
        self._store = store
        self._pool = pool
        self._verdicts = verdicts
        self._parents = parents
        self._commit = commit
        self._give_up = give_up
        self._now = now

    def reserved_s(self, limit_s: float) -> float:
        """Return what confirming the leaders would take now, by the evaluations that there were.

        `limit_s` is the run's time limit, 0 without one.
        """
        usual = max(state.expected_confirm_s for state in self._states.values())
        waiting = [
            state.expected_confirm_s or usual
            for state in self._states.values()
            if state.fastest and state.fastest[1] not in state.confirmed
        ]
        return min(max((*waiting, sum(waiting) / self._pool.judges)), TIME_SHARE * limit_s)

    async def confirm_leaders(self, place: str) -> None:
        """Give each task's leader a confirmation if it has none; on all devices at once.

        `place` tells these confirmations from those of other sessions.
        """
        await asyncio.gather(*(self._confirm_leader(state, place) for state in self._states.values()))

    async def _confirm_leader(self, state: TaskState, place: str) -> None:
        try:
            for attempt in range(ATTEMPTS):
                sql = "select kernel_id, level from best where task = ?"
                leader = self._store.rows(sql, [str(state.task)]).to_pylist()
                if not leader or leader[0]["level"] == Level.CONFIRMED.value:
                    break
                await self._confirm(state, leader[0]["kernel_id"], f"{place}.{attempt}")
        except OperatorError as error:
            await self._give_up(state, str(error))

    async def _confirm(self, state: TaskState, kernel_id: str, place: str) -> None:
        kernel = self._parents.find((kernel_id, ""), baseline=state.baseline).kernel
        last = await self._verdicts.confirm(state, kernel)
        name = f"{state.task}/final/{place}"
        await self._commit(records.evaluation_rows(last, evaluation_id=name, request_id=None, at=self._now()))
