"""Stalls of a search: they are noticed, reported, and what is stuck is started again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, Literal, NoReturn, Protocol

from evo import rows as records
from evo.search.models import Questions
from evo.search.schedule import Errand, InFlight
from evo.workers.pool import Pool

RESTARTS_AFTER = 3
"""Multiples of the stall limit until what is stuck is restarted, and again until the next restart."""

WATCH_EVERY_S = 1.0

Alarm = Literal["", "stalled", "restart"]


class Watchdog:
    """A limit on the time in which nothing moves. It reads the clock that it is given, and acts on nothing itself."""

    def __init__(self, limit_s: float, now: Callable[[], float]) -> None:
        self._limit_s = limit_s
        self._now = now
        self._moved_at = now()
        self._next_alarm = 1
        """In limits since something moved."""

    @property
    def still_s(self) -> float:
        """Seconds since something moved."""
        return self._now() - self._moved_at

    def moved(self) -> None:
        """Something came to an end: a verdict, an answer, a profile, a confirmation."""
        self._moved_at = self._now()
        self._next_alarm = 1

    async def watch(self, alarm: Callable[[Alarm], Awaitable[None]]) -> NoReturn:
        """Call `alarm` whenever one is due, until it is cancelled."""
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            if due := self.check():
                await alarm(due)

    def check(self) -> Alarm:
        """The alarm that is due now: to be told when a limit has passed, then to restart every RESTARTS_AFTER
        limits."""
        if self.still_s < self._next_alarm * self._limit_s:
            return ""
        if self._next_alarm == 1:
            self._next_alarm = RESTARTS_AFTER
            return "stalled"
        self._next_alarm += RESTARTS_AFTER
        return "restart"


WAITED_S = 10.0
"""A search that has not moved for so long stores what it waits for."""


class Commit(Protocol):
    """It stores rows; `moves` says whether they are a sign that the search gets on."""

    def __call__(self, rows: Any, *, moves: bool = True) -> Awaitable[None]: ...


class Standstill:
    """Answers the alarms of a watchdog."""

    def __init__(
        self,
        watchdog: Watchdog,
        pool: Pool,
        flight: InFlight,
        questions: Questions,
        *,
        stall_s: float,
        spawn: Callable[[Errand], None],
        commit: Commit,
        say: Callable[[str], None],
        now: Callable[[], float],
    ) -> None:
        """`spawn` begins a request anew; a worker that was at one job for `stall_s` is stuck."""
        self._watchdog = watchdog
        self._pool = pool
        self._flight = flight
        self._questions = questions
        self._stall_s = stall_s
        self._spawn = spawn
        self._commit = commit
        self._say = say
        self._now = now
        self._told = ""
        """Text that was stored last, without the seconds."""

    @property
    def waits(self) -> str:
        """The event that the search waits for, in words; empty where nothing is under way."""
        questions, jobs = self._questions, [str(job) for job in self._pool.jobs()]
        held, outside = questions.thinking & questions.held, questions.outside
        others = questions.thinking - held - outside
        requests = len(self._flight.tasks - questions.thinking) - len(jobs)
        parts = (
            f"{len(others)} answers of models" if others else "",
            f"{len(held)} questions to models that are put aside" if held else "",
            f"{len(outside)} answers from outside" if outside else "",
            f"workers: {', '.join(jobs)}" if jobs else "",
            f"a worker, with {requests} requests" if requests > 0 and self._pool.jobs() else "",
        )
        return "; ".join(filter(None, parts))

    async def tell(self) -> None:
        """Store what the search waits for, once nothing has moved for a while, and when it becomes something else."""
        if self._watchdog.still_s < WAITED_S:
            self._told = ""
        elif (counted := re.sub(r"\d+ s", "", waits := self.waits)) != self._told:
            self._told = counted
            await self._commit(records.event_rows(records.WAITS, {"for": waits}, at=self._now()), moves=False)

    async def alarm(self, alarm: Alarm) -> None:
        """Say that nothing moves; restart what is stuck if it is time for that."""
        still_s, thinking = self._watchdog.still_s, len(self._questions.thinking)
        jobs, restarted = [str(job) for job in self._pool.jobs()], []
        if alarm == "restart":
            restarted = [str(job) for job in self._pool.restart(self._stall_s)] or self._restart_requests()
        what = f"under way: {', '.join(jobs) or 'nothing'}; {thinking} questions wait for models"
        more = f"; restarted: {', '.join(restarted)}" if restarted else ""
        self._say(f"nothing has moved for {still_s:.0f} s; {what}{more}")
        detail = {"still_s": still_s, "jobs": jobs, "thinking": thinking, "restarted": restarted}
        await self._commit(records.event_rows(alarm, detail, at=self._now()), moves=False)

    def _restart_requests(self) -> list[str]:
        """Begin every request anew that waits for neither a worker nor a model; return their ids.

        None ever should: this is for faults that are not known yet.
        """
        stuck = self._flight.give_up(but=self._questions.thinking)
        for errand in stuck if not self._questions.late else ():
            self._spawn(errand)
        return [errand.request.id for errand in stuck]
