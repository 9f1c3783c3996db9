"""The watchdog of a search: it notices when nothing moves any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Literal

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

    async def alarms(self) -> AsyncIterator[Alarm]:
        """Give out each alarm as it becomes due, for ever."""
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            if due := self.check():
                yield due

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
