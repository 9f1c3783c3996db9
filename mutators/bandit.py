"""The choice of mutator and model, which learns what brings the most speed for its price.

A discounted, budgeted Thompson sampling. Budgeted: an arm is worth its reward divided by its cost, and the chance that
an arm is chosen is the chance that it is the best such ratio (Xia et al., Thompson Sampling for Budgeted Multi-armed
Bandits, IJCAI 2015, arXiv:1505.00146). Discounted: what was learned fades, because what pays at the start of a search
does not pay at its end (Raj and Kalyani, arXiv:1707.09727). Every arm keeps a small share, as in adaptive pursuit
(Thierens, GECCO 2005). Requests that overlap differ by themselves, since every choice is a draw.

A choice may have a context, such as what limits the kernel that is to be changed. What an arm did in other contexts is
then its prior there: its rates in several contexts are draws from one beta distribution, whose strength is the
likeliest one (empirical Bayes with partial pooling; Gelman et al., Bayesian Data Analysis, 3rd edition, chapter 5). So
contexts count as far as they are seen to matter, and few data in one of them do not hurt.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

PRIOR_GAINS, PRIOR_TRIES = 0.1, 2.0
"""Assumed gain and tries of an unknown arm: enough for every arm to be tried."""
GAIN_CEILING = 2.0
"""A gain counts for at most so many times the usual one: one lucky strike must not hide what the others bring."""
SHARED_TRIES = (8.0, 24.0, math.inf)
"""The tries that an arm's results in other contexts may be worth in one context; infinite: contexts do not matter."""
OVERHEAD = 0.25
"""Every try is charged this part of the average cost besides its own: a place in the queue is never free."""


@dataclass(frozen=True, order=True)
class Arm:
    """Choice that a request can be made of."""

    mutator: str
    model: str = ""
    """Empty for mutators that ask no language model."""


@dataclass
class Record:
    """Record of one arm, recent tries weighing more."""

    tries: float = 0.0
    rewards: float = 0.0
    """Sum of the rewards, each between 0 and 1."""
    cost_usd: float = 0.0


class Bandit:
    """Learns from tells, in their order; draws from the caller's generator. O(arms) a call."""

    def __init__(self, *, memory: float = 300.0, least_share: float = 0.1, usd_per_hour: float = 3.0) -> None:
        """`memory`: tries after which a lesson has faded to a third (1/e). `least_share`: part of the choices that is
        spread evenly over all arms. `usd_per_hour`: what an evaluator's hour is worth, so that seconds and dollars add.
        """
        self.discount = 1.0 - 1.0 / memory
        self.least_share = least_share
        self.usd_per_second = usd_per_hour / 3600.0
        self.records: dict[Arm, Record] = {}
        self._within: dict[tuple[str, Arm], Record] = {}
        """The same of each context apart."""
        self._gains = Record()
        """The number of tries that gained something, and the sum of their gains."""

    def choose(self, arms: Sequence[Arm], rng: Random, contexts: Mapping[Arm, str] | None = None) -> Arm:
        """One of `arms`, which must not be empty; those that are not possible right now are simply left out.

        `contexts` says of arms in what context they would be used; those that it leaves out are used in any.
        """
        if rng.random() < self.least_share:
            return rng.choice(arms)
        usual, of, shared = self._usual_cost_usd(), contexts or {}, self._shared_tries() if contexts else 0.0
        return max(arms, key=lambda arm: self._draw(self._known(arm, of.get(arm, ""), shared), usual, rng))

    def learn(self, arm: Arm, *, gain: float, seconds: float, cost_usd: float, context: str = "") -> None:
        """The outcome of one try: `gain` in log speedup over its parents, 0 for one that brought nothing."""
        for record in (*self.records.values(), *self._within.values(), self._gains):
            record.tries *= self.discount
            record.rewards *= self.discount
            record.cost_usd *= self.discount
        reward = 0.0
        if gain > 0.0:
            self._gains.tries += 1.0
            self._gains.rewards += gain
            reward = min(1.0, gain / (GAIN_CEILING * self._gains.rewards / self._gains.tries))
        for record in self._records(arm, context):
            record.tries += 1.0
            record.rewards += reward
            record.cost_usd += seconds * self.usd_per_second + cost_usd

    def _records(self, arm: Arm, context: str) -> list[Record]:
        """The records that a try counts in."""
        records = [self.records.setdefault(arm, Record())]
        return [*records, self._within.setdefault((context, arm), Record())] if context else records

    def _known(self, arm: Arm, context: str, shared: float) -> Record:
        """The record of an arm in a context: its tries there, and those elsewhere as a given number of tries."""
        whole = self.records.get(arm, Record())
        if not context:
            return whole
        here = self._within.get((context, arm), Record())
        elsewhere = max(whole.tries - here.tries, 0.0)
        weight = min(1.0, shared / elsewhere) if elsewhere else 0.0
        return Record(
            here.tries + weight * elsewhere,
            here.rewards + weight * max(whole.rewards - here.rewards, 0.0),
            here.cost_usd + weight * max(whole.cost_usd - here.cost_usd, 0.0),
        )

    def _shared_tries(self) -> float:
        """The likeliest of SHARED_TRIES, going by how much what arms did differs between contexts."""
        return max(SHARED_TRIES, key=lambda strength: sum(self._evidence(strength, *each) for each in self._seen()))

    def _seen(self) -> Iterator[tuple[float, float, float]]:
        """The rate at which an arm pays, and how often it did and did not in a context, for each arm and context."""
        for (_, arm), here in self._within.items():
            whole = self.records[arm]
            rate = (PRIOR_GAINS + whole.rewards) / (PRIOR_TRIES + whole.tries)
            yield min(max(rate, 1e-4), 1.0 - 1e-4), here.rewards, max(here.tries - here.rewards, 0.0)

    @staticmethod
    def _evidence(strength: float, rate: float, paid: float, not_paid: float) -> float:
        """The log likelihood where a context's rate is drawn around the arm's, as narrowly as `strength` tries tell."""
        if strength == math.inf:
            return paid * math.log(rate) + not_paid * math.log(1.0 - rate)
        one, other = strength * rate, strength * (1.0 - rate)
        return _log_beta(one + paid, other + not_paid) - _log_beta(one, other)

    def _usual_cost_usd(self) -> float:
        """The mean cost of a try over all arms; 1 while nothing has cost anything, when only ratios matter."""
        tries = sum(record.tries for record in self.records.values())
        cost_usd = sum(record.cost_usd for record in self.records.values())
        return cost_usd / tries if tries and cost_usd else 1.0

    def _draw(self, record: Record, usual: float, rng: Random) -> float:
        """The arm's possible worth per dollar: a draw from what is known of its rewards, over its cost."""
        gains = PRIOR_GAINS + record.rewards
        reward = rng.betavariate(gains, max(PRIOR_TRIES + record.tries - gains, 1e-3))
        cost_usd = (PRIOR_TRIES * usual + record.cost_usd) / (PRIOR_TRIES + record.tries)
        return reward / (cost_usd + OVERHEAD * usual)


def _log_beta(one: float, other: float) -> float:
    return math.lgamma(one) + math.lgamma(other) - math.lgamma(one + other)
