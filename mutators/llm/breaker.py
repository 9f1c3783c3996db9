"""A model that can no longer be asked is put aside, and tried again with one call at a time, ever more seldom.

The pattern is known as a circuit breaker (Nygard, Release It!, 2007).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

LONGEST_PAUSE_S = 600.0


class Breaker:
    """Whether one model may be asked. Lives in one event loop."""

    def __init__(self, pause_s: float, *, now: Callable[[], float] = time.monotonic) -> None:
        """`pause_s`: before the first trial of a model that was put aside; it doubles with each trial that fails."""
        self.out = False
        """Whether the model is put aside."""
        self.held: set[asyncio.Task[Any]] = set()
        """Tasks that wait for it."""
        self._first_pause_s = pause_s
        self._now = now
        self._trying = False
        self._answered_at = float("-inf")
        self._out_since = float("-inf")
        self._retry_at = 0.0
        self._changed = asyncio.Event()
        """Set, and replaced by a new one, when something changed for the tasks that wait."""

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[bool]:
        """Wait until the model may be asked; True: as the one trial of a model that is put aside."""
        while self.out and (self._trying or self._now() < self._retry_at):
            await self._wait()
        trial = self._trying = self.out
        try:
            yield trial
        finally:
            if trial:
                self._trying = False
                self._tell()

    def answered(self, began: float) -> bool:
        """The provider answered a call that began then (by this object's clock); whether that brought the model back.

        Calls that were under way when the model was put aside say nothing of now.
        """
        self._answered_at = self._now()
        if not self.out or began < self._out_since:
            return False
        self.out = False
        self._tell()
        return True

    def silent_since(self, began: float) -> bool:
        """Whether no call was answered after this moment."""
        return self._answered_at < began

    def failed(self, began: float, at_least_s: float = 0.0) -> bool:
        """A call that began then could not be answered, nor would others; whether that is news.

        The next trial is made after a pause, `at_least_s` seconds if the provider asked for so much.
        """
        news = not self.out
        if not news and began < self._out_since:
            return False
        if news:
            self.out, self._out_since = True, self._now()
            self.pause_s = self._first_pause_s
        else:
            self.pause_s *= 2
        self.pause_s = min(max(self.pause_s, at_least_s), LONGEST_PAUSE_S)
        self._retry_at = self._now() + self.pause_s
        self._tell()
        return news

    async def _wait(self) -> None:
        changed = self._changed
        left = None if self._trying else self._retry_at - self._now()
        task = asyncio.current_task()
        assert task
        self.held.add(task)
        try:
            async with asyncio.timeout(left):
                await changed.wait()
        except TimeoutError:
            pass
        finally:
            self.held.discard(task)

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
