"""The requests under way that wait for a language model, and what of it is paid."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from mutators.llm.outside import Models, Tasks


class Questions:
    """Knows which of the running requests are at a model, so that a search can wait for what is paid, and no more."""

    def __init__(self, client: Models | None) -> None:
        """`client` None: answers come from elsewhere, and none of them is known to be under way."""
        self._client = client
        self._quiet_since: float | None = None
        self.thinking: Tasks = set()
        """Those that wait for a model."""
        self.late = False
        """Whether there is no time left for what models may still answer."""

    async def check(self) -> None:
        """See `LLM.check`: it raises UserError where no model can be asked at all."""
        if self._client:
            await self._client.library.check()

    @property
    def paid(self) -> Tasks:
        """Those whose answer is under way; others wait for their turn, or for somebody outside."""
        return self.thinking & self._client.library.under_way() if self._client else set()

    @property
    def held(self) -> Tasks:
        """Those whose model is put aside, so that nothing of theirs is under way."""
        return self._client.library.held() if self._client else set()

    @property
    def outside(self) -> Tasks:
        """Those that wait for an answer from outside, which may never come."""
        return self.thinking & self._client.outside.waiting if self._client else set()

    @property
    def idle(self) -> Tasks:
        """Those of which nothing is under way: nobody is at them who would have to be waited for."""
        return self.held | self.outside

    def quiet_s(self, running: Tasks, now: float) -> float | None:
        """For how long nothing has run but questions to models outside; None while anything else runs."""
        if running - self.outside:
            self._quiet_since = None
            return None
        self._quiet_since = now if self._quiet_since is None else self._quiet_since
        return now - self._quiet_since

    def be_late(self) -> None:
        """Let no further question be sent; answers under way are worth keeping."""
        self.late = True
        if self._client:
            self._client.library.finish()

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Count the current task among those that wait for a model."""
        task = asyncio.current_task()
        assert task
        self.thinking.add(task)
        try:
            yield
        finally:
            self.thinking.discard(task)

    async def until_answered(self, limit_s: float, now: Callable[[], float]) -> AsyncIterator[int]:
        """Wait for answers that are paid, `limit_s` at most; tell how many are missing, every second at least."""
        end = now() + limit_s
        while (paid := self.paid) and (left := end - now()) > 0:
            yield len(paid)
            await asyncio.wait(paid, timeout=min(left, 1.0), return_when=asyncio.FIRST_COMPLETED)
