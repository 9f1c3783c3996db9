"""The last act of a run: each task's leader is measured a second time, independently, and what it may replace."""

from __future__ import annotations

import asyncio
import heapq
import json
import math
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from evo import rows as records
from evo.budget import RunClock
from evo.rows import Row
from evo.search.history import History
from evo.search.task import TaskState
from evo.search.verdicts import Verdicts
from evo.workers.dispatch import RunPool
from evo.workers.pool import Undone
from fitness.evaluation import Level
from fitness.install import can_be_tried, versions
from operators.definition.spec import Task
from operators.errors import OperatorError

MOST_SHARE = 0.3
"""Largest share of the time limit reserved for final confirmations."""
SPARE = 1.3
"""Safety factor on the expected duration of a confirmation."""
LEAST_OF_EXPECTED = 0.5
"""A confirmation starts only if at least this share of its expected duration is left."""
NAMED = 3
"""Operators that are named of those whose leaders are confirmed side by side."""
ATTEMPTS = 5
"""Number of a task's leaders that may fail their confirmation before a search ends without a confirmed best."""
FAILURES = 2
"""Number of a leader's confirmations whose comparison with rivals may fail with the same packages: a fault may pass."""


class Confirmations:
    """Confirms leaders, the greatest gain first, and says how much time that will take.

    As many are confirmed side by side as kernels can be timed at once: two that share a device would each take longer,
    and both be lost where the time is enough for one.
    """

    def __init__(self, history: History, verdicts: Verdicts, pool: RunPool, clock: RunClock) -> None:
        self._history = history
        self._states = history.states
        self._verdicts = verdicts
        self._pool = pool
        self._clock = clock
        self._queue: deque[tuple[TaskState, int]] = deque()
        """Tasks whose leader is to be confirmed, each with how often that was tried."""
        self._champions: deque[tuple[TaskState, str]] = deque()
        """Champions that are to be confirmed, by their kernels' ids."""
        self._running: list[str] = []
        """Operators whose leader is being confirmed."""

    def needed_s(self) -> float:
        """Return what confirming the leaders would take now, as far as the time limit allows; 0 without a limit.

        A naive kernel that leads is no discovery: it is confirmed if there is time left.
        """
        waiting = [
            state
            for state in self._states.values()
            if state.fastest and state.fastest[1] not in state.confirmed and not state.led_by_baseline
        ]
        waiting.sort(key=lambda state: -state.fastest[0] if state.fastest else 0.0)
        if not waiting:
            return 0.0
        needed_s = SPARE * _makespan(map(self.expected_s, waiting), self._pool.judges)
        return min(needed_s, MOST_SHARE * self._clock.limit_s) + self._clock.ending_s

    def expected_s(self, state: TaskState) -> float:
        """Return what a confirmation of one task will take: what one took, else by what all levels took in this run."""
        if state.confirm_s:
            return state.confirm_s
        states = self._states.values()
        known = [(each.confirm_s, each.guessed_confirm_s) for each in states if each.confirm_s]
        guessed = sum(guess for _, guess in known)
        scale = sum(took for took, guess in known if guess) / guessed if guessed else 1.0
        guess = state.guessed_confirm_s or max(each.guessed_confirm_s for each in states)
        return scale * guess or max((took for took, _ in known), default=0.0)

    @property
    def phase(self) -> str:
        """The phase of now, in words."""
        if not self._running:
            return "confirming"
        others = f" and {len(self._running) - NAMED} others" if len(self._running) > NAMED else ""
        waiting = f", {len(self._queue)} more to come" if self._queue else ""
        return f"confirming {', '.join(self._running[:NAMED])}{others}{waiting}"

    async def confirm_leaders(self, *, attempts: float = ATTEMPTS) -> None:
        """Give each task's leader a confirmation if it has none and there is time for one; on all devices at once.

        Without a time limit rivals are compiled before, and one whose confirmation lacks rivals is confirmed once more
        where these may be there now, see `may_say_more`. A leader that fails loses its place, and the next one is
        confirmed: `attempts` of each task at most. At last champions that the run began with are, where there is time
        and a new kernel is better: `evo champion` holds the two against each other at every size.
        """
        leaders = {row["task"]: row for row in self._history.leaders() if self._is_due(row)}
        found = [(state, leaders[str(state.task)]) for state in self._states.values() if str(state.task) in leaders]
        # The naive kernel comes after every other one, even one that is slower than it.
        found.sort(key=lambda each: (each[1]["kernel_id"] == each[0].baseline.id, -each[1]["log_speedup"]))
        self._queue.extend((state, 0) for state, _ in found)
        await asyncio.gather(*(self._work(attempts) for _ in range(self._pool.judges)))
        self._champions.extend(self._history.beaten_champions())
        await asyncio.gather(*(self._work_on_champions() for _ in range(self._pool.judges)))

    async def _work(self, attempts: float) -> None:
        """Confirm one leader after the other, until no task waits that there may be time for."""
        while self._queue:
            state, attempt = self._next()
            async with self._judged(state) as there_is_time:
                is_another = there_is_time and await self._confirm_leader(state)
                if is_another and attempt + 1 < attempts:
                    self._queue.append((state, attempt + 1))  # after those of other tasks

    async def _work_on_champions(self) -> None:
        while self._champions:
            state, kernel_id = self._champions.popleft()
            async with self._judged(state) as there_is_time:
                if there_is_time:
                    await self._confirm(state, kernel_id)

    @asynccontextmanager
    async def _judged(self, state: TaskState) -> AsyncIterator[bool]:
        """A task of which a kernel is confirmed meanwhile, if there may be time for it: it says so."""
        if self._clock.grace_s < LEAST_OF_EXPECTED * self.expected_s(state):
            yield False
            return
        name = state.task.operator
        self._running.append(name)
        try:
            yield True
        except OperatorError as error:
            await self._history.fail(state, str(error))
        except Undone:  # it stays unconfirmed, as for want of time
            pass
        finally:
            self._running.remove(name)

    def _next(self) -> tuple[TaskState, int]:
        """The first in the queue that there should be time for, else the shortest; it leaves the queue.

        Naive kernels come after all others, even after such as there may not be time for.
        """
        waiting = [each for each in self._queue if not each[0].led_by_baseline] or self._queue
        fitting = (each for each in waiting if self.expected_s(each[0]) <= self._clock.grace_s)
        chosen = next(fitting, None) or min(waiting, key=lambda each: self.expected_s(each[0]))
        self._queue.remove(chosen)
        return chosen

    @property
    def _is_patient(self) -> bool:
        return math.isinf(self._clock.limit_s)

    def _is_due(self, leader: Row) -> bool:
        return leader["level"] != Level.CONFIRMED.value or (self._is_patient and may_say_more(leader))

    async def _confirm_leader(self, state: TaskState) -> bool:
        """Give the leader of a task a confirmation; whether another one leads since then."""
        leader = next(filter(self._is_due, self._history.leaders(state.task)), None)
        if not leader:
            return False
        if self._is_patient:
            await self._verdicts.choose_rivals(state.task, state.baseline)
        leader = await self._confirm(state, leader["kernel_id"])
        return leader is not None and leader["level"] != Level.CONFIRMED.value

    async def _confirm(self, state: TaskState, kernel_id: str) -> Row | None:
        """Confirm a kernel; return the row of the task's leader from then on."""
        kernel = self._history.parents.find((kernel_id, ""), baseline=state.baseline).kernel
        last = await self._verdicts.confirm(state.task, kernel)
        state.took_confirm(kernel.id, last.stage_ms.get("confirm", 0.0) / 1e3 if last.correct else 0.0)
        name = f"{state.task}/final/{kernel_id}.{self._history.times_confirmed(state.task, kernel_id)}"
        rows = records.evaluation_rows(last, evaluation_id=name, request_id=None, at=self._history.now())
        await self._history.commit(rows)
        return await self._history.fit(state)


def may_say_more(leader: Row) -> bool:
    """Whether another confirmation of a confirmed leader may compare it with rivals that its last one lacks."""
    target = Task.parse(leader["task"]).target
    if leader["failed_with"]:
        here = versions(target)
        return [json.loads(kept or "{}") for kept in leader["failed_with"]].count(here) < FAILURES
    return any(can_be_tried(name, target) for name in (leader["untried"] or "").split("; ") if name)


def _makespan(jobs_s: Iterable[float], devices: int) -> float:
    """Return when the last of these jobs ends, taken up in their order by whichever device is free."""
    ends = [0.0] * devices
    for job_s in jobs_s:
        heapq.heapreplace(ends, ends[0] + job_s)
    return max(ends)
