"""Calls, tokens and dollars of language models: reserved before a call, settled after it, up to the limits.

A call begins where the most it may cost fits beside all that is spent, lost or reserved. Near the limit few would, as
an answer may take many times what answers do take. So the last calls of a budget begin, one at a time, where at least
LAST of the price that the model's calls have had is left. Budgets are spent to their end that way, by all loops alike,
and exceeded by less than one call may cost.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from mutators.base import Call, OutOfBudget

LAST = 0.5
"""Share of a call's price that must be left for it to begin: a half, so that a budget ends as often a little above its
limit as below, on average at it, whatever the calls of a loop cost."""
OUTLIER = 2.0
"""A call that costs more than so many times the usual one does not speak for others."""
Dollars = Callable[[float, float], float]
"""Dollars for so many tokens in and out."""


class TooLarge(Exception):
    """One call is too large for what is left of the budget, though usual ones fit; the text says which budget."""


@dataclass
class Reservation:
    """Largest cost of one attempt, and what became of it."""

    model: str
    most_in: int
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

    known: int = 0
    """Attempts whose cost is known."""
    most_in: int = 0
    """The upper bound on tokens of their questions..."""
    most_tokens: int = 0
    """...and on all their tokens."""
    tokens_in: int = 0
    """The tokens that these really cost."""
    tokens_out: int = 0
    lost_tokens: int = 0

    @property
    def likely_tokens(self) -> float:
        """The tokens that are lost, if it cost the same part of its upper bound as known attempts; all of it while
        nothing is."""
        return self.lost_tokens * ((self.tokens_in + self.tokens_out) / self.most_tokens if self.most_tokens else 1.0)

    def needed(self, most_in: int, most_out: int) -> tuple[float, float]:
        """The tokens, in and out, that must be left for an attempt: LAST of its price, by its question's length and by
        what earlier answers took; while none is known, all that it may cost."""
        if not self.known:
            return most_in, most_out
        return LAST * most_in * self.tokens_in / self.most_in, LAST * min(self.tokens_out / self.known, most_out)

    @property
    def usual(self) -> tuple[float, float]:
        """The same for a usual attempt; infinite while none is known."""
        if not self.known:
            return math.inf, math.inf
        return LAST * self.tokens_in / self.known, LAST * self.tokens_out / self.known

    def learn(self, most_in: int, most_tokens: int, tokens_in: int, tokens_out: int) -> None:
        """Count an attempt whose cost is known."""
        self.known += 1
        self.most_in += most_in
        self.most_tokens += most_tokens
        self.tokens_in += tokens_in
        self.tokens_out += tokens_out


@dataclass
class Spending:
    """Limits and spending of all sessions of a run. Lives in one event loop."""

    limit_tokens: float = math.inf
    limit_usd: float = math.inf
    limit_calls: float = math.inf
    cell: bool = False
    """Whether it is that of a comparison's cell: no arm pays there for a provider's failures, so that what is lost does
    not count against the limits, and no later session has more to spend."""
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
    tallies: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    """By model."""
    refusal: str = ""
    """Why an attempt was turned away for good; empty while none was."""
    _closed: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    """Set, and replaced by a new one, when a reservation ends."""

    @property
    def tokens(self) -> int:
        """Tokens that count against the limit: sent, received and, as a rule, lost; not reserved."""
        return self.tokens_in + self.tokens_out + (0 if self.cell else self.lost_tokens)

    @property
    def dollars(self) -> float:
        """Dollars that count against the limit: paid and, as a rule, lost; not reserved."""
        return self.cost_usd + (0.0 if self.cell else self.lost_usd)

    @property
    def likely_lost_tokens(self) -> int:
        """The likely tokens of attempts without a known end, going by each model's other attempts."""
        return round(sum(tally.likely_tokens for tally in self.tallies.values()))

    @asynccontextmanager
    async def reserve(self, model: str, most_in: int, most_out: int, dollars: Dollars) -> AsyncIterator[Reservation]:
        """Room for one attempt; waits while calls in flight might leave some. Raises OutOfBudget and TooLarge.

        A block that is left without having settled or freed the reservation has lost it, in any way that it is left.
        """
        tokens, cost_usd = most_in + most_out, dollars(most_in, most_out)
        while self._excess(tokens, cost_usd):
            tally = self.tallies[model]
            needed = tally.needed(most_in, most_out)
            if not self._excess(sum(needed), dollars(*needed)):
                break
            if problem := self._excess(sum(needed), dollars(*needed), in_flight=False):
                if sum(needed) > OUTLIER * sum(tally.usual) and not self._excess(
                    sum(tally.usual), dollars(*tally.usual), in_flight=False
                ):
                    raise TooLarge(problem)
                self.refusal = problem
                raise OutOfBudget(problem)
            await self._closed.wait()
        self.reserved_calls += 1
        self.reserved_tokens += tokens
        self.reserved_usd += cost_usd
        reservation = Reservation(model, most_in, tokens, cost_usd)
        try:
            yield reservation
        finally:
            self._close(reservation)
            self._closed.set()
            self._closed = asyncio.Event()

    def charge(self, call: Call, most_in: int, most_tokens: int) -> None:
        """Count an answer from outside, for which nothing was reserved; the most was written down beforehand."""
        self.attempts += call.attempts
        self.calls += 1
        self.tokens_in += call.tokens_in
        self.tokens_out += call.tokens_out
        self.cost_usd += call.cost_usd
        if not call.usage_doubt:
            self.tallies[call.model].learn(most_in, most_tokens, call.tokens_in, call.tokens_out)

    def _excess(self, tokens: float, cost_usd: float, *, in_flight: bool = True) -> str:
        """Which limit leaves no room for so much, beside all that is in flight or without; empty: none."""
        if self.calls + (self.reserved_calls if in_flight else 0) >= self.limit_calls:
            return f"{self.calls} of {self.limit_calls:g} calls of language models are made"
        total = self.tokens + tokens + (self.reserved_tokens if in_flight else 0)
        if total > self.limit_tokens:
            return f"{self.tokens} of {self.limit_tokens:g} tokens are spent, and the next call needs {tokens:.0f} left"
        dollars = self.dollars + cost_usd + (self.reserved_usd if in_flight else 0.0)
        if dollars > self.limit_usd:
            return (
                f"{self.dollars:.4g} of {self.limit_usd:g} dollars are spent; the next call needs {cost_usd:.4g} left"
            )
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
            tally.learn(reservation.most_in, reservation.tokens, reservation.tokens_in, reservation.tokens_out)
        if reservation.lost:
            self.lost_tokens += reservation.tokens
            self.lost_usd += reservation.cost_usd
            tally.lost_tokens += reservation.tokens
