"""Tokens and dollars of language models: reserved before a call, settled after it, never above the limits."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from mutators.base import OutOfBudget


@dataclass
class Reservation:
    """What one attempt may cost at most, and what became of it."""

    tokens: int
    cost_usd: float
    lost: bool = True
    """Whether it ended without anybody telling what it cost: so until it is settled or freed."""
    tokens_in: int = 0
    tokens_out: int = 0
    paid_usd: float = 0.0

    def settle(self, tokens_in: int, tokens_out: int, cost_usd: float) -> None:
        """The provider told what it cost."""
        self.lost = False
        self.tokens_in, self.tokens_out, self.paid_usd = tokens_in, tokens_out, cost_usd

    def free(self) -> None:
        """The provider turned it away: nothing is owed."""
        self.lost = False


@dataclass
class Ledger:
    """Limits and spending of all sessions of a run. Lives in one event loop.

    No attempt begins unless it fits beside everything that is spent, lost or reserved; so the limits hold as long as
    no attempt costs more than was reserved for it.
    """

    limit_tokens: float = math.inf
    limit_usd: float = math.inf
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    lost_tokens: int = 0
    """Upper bound of what attempts without a known end were billed; counted against the limit."""
    lost_usd: float = 0.0
    attempts: int = 0
    reserved_tokens: int = 0
    reserved_usd: float = 0.0
    refusal: str = ""
    """Why an attempt was turned away for good; empty while none was."""
    _closed: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    """Set, and replaced by a new one, when a reservation ends."""

    @property
    def tokens(self) -> int:
        """All that counts against the limit, reservations apart."""
        return self.tokens_in + self.tokens_out + self.lost_tokens

    @property
    def dollars(self) -> float:
        """All that counts against the limit, reservations apart."""
        return self.cost_usd + self.lost_usd

    @asynccontextmanager
    async def reserve(self, tokens: int, cost_usd: float) -> AsyncIterator[Reservation]:
        """Room for one attempt; waits while calls in flight might leave some. Raises OutOfBudget.

        Whoever leaves without having settled or freed the reservation has lost it, in whatever way they leave.
        """
        while self._excess(tokens, cost_usd, in_flight=True):
            if problem := self._excess(tokens, cost_usd, in_flight=False):
                self.refusal = problem
                raise OutOfBudget(problem)
            await self._closed.wait()
        self.reserved_tokens += tokens
        self.reserved_usd += cost_usd
        reservation = Reservation(tokens, cost_usd)
        try:
            yield reservation
        finally:
            self._close(reservation)
            self._closed.set()
            self._closed = asyncio.Event()

    def _excess(self, tokens: int, cost_usd: float, *, in_flight: bool) -> str:
        """Which limit an attempt would break, with all that is in flight or without; empty: none."""
        total = self.tokens + tokens + (self.reserved_tokens if in_flight else 0)
        if total > self.limit_tokens:
            return f"{self.tokens} of {self.limit_tokens:g} tokens are spent, and the next call may take {tokens}"
        dollars = self.dollars + cost_usd + (self.reserved_usd if in_flight else 0.0)
        if dollars > self.limit_usd:
            return f"{self.dollars:.4g} of {self.limit_usd:g} dollars are spent; the next call may cost {cost_usd:.4g}"
        return ""

    def _close(self, reservation: Reservation) -> None:
        self.attempts += 1
        self.reserved_tokens -= reservation.tokens
        # Sums of floats leave crumbs; with nothing reserved there is nothing.
        self.reserved_usd = self.reserved_usd - reservation.cost_usd if self.reserved_tokens else 0.0
        self.tokens_in += reservation.tokens_in
        self.tokens_out += reservation.tokens_out
        self.cost_usd += reservation.paid_usd
        if reservation.lost:
            self.lost_tokens += reservation.tokens
            self.lost_usd += reservation.cost_usd
