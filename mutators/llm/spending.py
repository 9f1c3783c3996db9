"""Calls, tokens and dollars of language models: reserved before a call, settled after it, never above the limits."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from mutators.base import Call, OutOfBudget

OUTLIER = 2.0
"""A call that may cost more than so many times the usual one does not speak for others."""


class TooLarge(Exception):
    """One call is too large for what is left of the budget, though usual ones fit; the text says which budget."""


@dataclass
class Reservation:
    """Largest cost of one attempt, and what became of it."""

    model: str
    tokens: int
    cost_usd: float
    lost: bool = True
    """Whether it ended without its cost being known: so until it is settled or freed."""
    tokens_in: int = 0
    tokens_out: int = 0
    paid_usd: float = 0.0
    told: bool = False
    """Whether what it cost is known, rather than an upper bound."""
    answered: bool = False
    """Whether an answer came."""

    def settle(self, tokens_in: int, tokens_out: int, cost_usd: float, *, told: bool = True) -> None:
        """The provider told what it cost; or did not (`told` false), and this is what it can be at most."""
        self.lost, self.answered = False, True
        self.tokens_in, self.tokens_out, self.paid_usd, self.told = tokens_in, tokens_out, cost_usd, told

    def free(self) -> None:
        """The provider turned it away: nothing is owed."""
        self.lost = False


@dataclass
class Tally:
    """Tokens of one model's attempts, beside what they might have cost at most."""

    most_tokens: int = 0
    """The upper bound on tokens of attempts whose cost is known."""
    tokens: int = 0
    """The tokens that these really cost."""
    lost_tokens: int = 0

    @property
    def likely_tokens(self) -> float:
        """The tokens that are lost, if it cost the same part of its upper bound as known attempts; all of it while
        nothing is."""
        return self.lost_tokens * (self.tokens / self.most_tokens if self.most_tokens else 1.0)


@dataclass
class Spending:
    """Limits and spending of all sessions of a run. Lives in one event loop.

    No attempt begins unless it fits beside everything that is spent, lost or reserved; so the limits hold as long as
    no attempt costs more than was reserved for it.
    """

    limit_tokens: float = math.inf
    limit_usd: float = math.inf
    limit_calls: float = math.inf
    counts_lost: bool = True
    """Whether what is lost counts against the limits: in a comparison, no arm pays for a provider's failures."""
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    lost_tokens: int = 0
    """Upper bound of what attempts without a known end were billed."""
    lost_usd: float = 0.0
    attempts: int = 0
    calls: int = 0
    """Answers that came."""
    reserved_calls: int = 0
    reserved_tokens: int = 0
    reserved_usd: float = 0.0
    admitted: int = 0
    """Calls for which something was reserved, and the sums of that."""
    admitted_tokens: int = 0
    admitted_usd: float = 0.0
    tallies: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    """By model."""
    refusal: str = ""
    """Why an attempt was turned away for good; empty while none was."""
    _closed: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    """Set, and replaced by a new one, when a reservation ends."""

    @property
    def tokens(self) -> int:
        """Tokens that count against the limit: sent, received and, as a rule, lost; not reserved."""
        return self.tokens_in + self.tokens_out + (self.lost_tokens if self.counts_lost else 0)

    @property
    def dollars(self) -> float:
        """Dollars that count against the limit: paid and, as a rule, lost; not reserved."""
        return self.cost_usd + (self.lost_usd if self.counts_lost else 0.0)

    @property
    def likely_lost_tokens(self) -> int:
        """The likely tokens of attempts without a known end, going by each model's other attempts."""
        return round(sum(tally.likely_tokens for tally in self.tallies.values()))

    @asynccontextmanager
    async def reserve(self, model: str, tokens: int, cost_usd: float) -> AsyncIterator[Reservation]:
        """Room for one attempt; waits while calls in flight might leave some. Raises OutOfBudget and TooLarge.

        A block that is left without having settled or freed the reservation has lost it, in any way that it is left.
        """
        while self._excess(tokens, cost_usd, in_flight=True):
            if problem := self._excess(tokens, cost_usd, in_flight=False):
                if self._alone(tokens, cost_usd):
                    raise TooLarge(problem)
                self.refusal = problem
                raise OutOfBudget(problem)
            await self._closed.wait()
        self.reserved_calls += 1
        self.reserved_tokens += tokens
        self.reserved_usd += cost_usd
        self.admitted += 1
        self.admitted_tokens += tokens
        self.admitted_usd += cost_usd
        reservation = Reservation(model, tokens, cost_usd)
        try:
            yield reservation
        finally:
            self._close(reservation)
            self._closed.set()
            self._closed = asyncio.Event()

    def charge(self, call: Call, most_tokens: int) -> None:
        """Count an answer from outside, for which nothing was reserved; `most_tokens` was written down beforehand."""
        self.attempts += call.attempts
        self.calls += 1
        self.tokens_in += call.tokens_in
        self.tokens_out += call.tokens_out
        self.cost_usd += call.cost_usd
        if not call.usage_doubt:
            self.tallies[call.model].most_tokens += most_tokens
            self.tallies[call.model].tokens += call.tokens_in + call.tokens_out

    def _alone(self, tokens: int, cost_usd: float) -> bool:
        """Whether an attempt that does not fit is much larger than the usual one, which does."""
        if not self.admitted:
            return False  # there is no usual attempt yet to compare it with
        usual_tokens, usual_usd = self.admitted_tokens / self.admitted, self.admitted_usd / self.admitted
        if self._excess(usual_tokens, usual_usd, in_flight=False):
            return False
        return tokens > OUTLIER * usual_tokens or cost_usd > OUTLIER * usual_usd

    def _excess(self, tokens: float, cost_usd: float, *, in_flight: bool) -> str:
        """Which limit an attempt would break, with all that is in flight or without; empty: none."""
        if self.calls + (self.reserved_calls if in_flight else 0) >= self.limit_calls:
            return f"{self.calls} of {self.limit_calls:g} calls of language models are made"
        total = self.tokens + tokens + (self.reserved_tokens if in_flight else 0)
        if total > self.limit_tokens:
            return f"{self.tokens} of {self.limit_tokens:g} tokens are spent, and the next call may take {tokens:.0f}"
        dollars = self.dollars + cost_usd + (self.reserved_usd if in_flight else 0.0)
        if dollars > self.limit_usd:
            return f"{self.dollars:.4g} of {self.limit_usd:g} dollars are spent; the next call may cost {cost_usd:.4g}"
        return ""

    def _close(self, reservation: Reservation) -> None:
        self.attempts += 1
        self.calls += reservation.answered
        self.reserved_calls -= 1
        self.reserved_tokens -= reservation.tokens
        # Sums of floats leave crumbs; with nothing reserved there is nothing.
        self.reserved_usd = self.reserved_usd - reservation.cost_usd if self.reserved_tokens else 0.0
        self.tokens_in += reservation.tokens_in
        self.tokens_out += reservation.tokens_out
        self.cost_usd += reservation.paid_usd
        tally = self.tallies[reservation.model]
        if reservation.told:
            tally.most_tokens += reservation.tokens
            tally.tokens += reservation.tokens_in + reservation.tokens_out
        if reservation.lost:
            self.lost_tokens += reservation.tokens
            self.lost_usd += reservation.cost_usd
            tally.lost_tokens += reservation.tokens
