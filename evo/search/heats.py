"""Heats: of kernels that are tried side by side only the fastest goes on."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager


class Entrant:
    """A place in a heat, from its entry until it is known how fast it is, or that it is out."""

    def __init__(self, heat: Heat) -> None:
        self._heat = heat
        self._running = True

    async def wins(self, log_speedup: float) -> bool:
        """Return whether nothing else in the heat is faster; it waits until that is known of all who entered."""
        self._heat.best = max(self._heat.best, log_speedup)
        self.leave()
        await self._heat.over.wait()
        return log_speedup >= self._heat.best

    def leave(self) -> None:
        """The others do not wait for this one any longer."""
        if self._running:
            self._running = False
            self._heat.running -= 1
            if not self._heat.running:
                self._heat.over.set()


class Heat:
    """Kernels enter whenever they like, also while others wait for the end."""

    def __init__(self) -> None:
        self.running = 0
        """How many have neither a time nor left."""
        self.best = -math.inf
        """The greatest log speedup of any that ever ran."""
        self.over = asyncio.Event()
        """Set while none is running."""

    @contextmanager
    def entered(self) -> Iterator[Entrant]:
        """A place in it, for as long as it is examined; to leave early, or to fail, takes it out."""
        entrant = Entrant(self)
        self.running += 1
        self.over.clear()
        try:
            yield entrant
        finally:
            entrant.leave()
