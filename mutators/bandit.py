"""The choice of mutator and model, which learns what brings the most speed for its price.

A discounted, budgeted Thompson sampling. Budgeted: an arm is worth its reward divided by its cost, and the chance that
an arm is chosen is the chance that it is the best such ratio (Xia et al., Thompson Sampling for Budgeted Multi-armed
Bandits, IJCAI 2015, arXiv:1505.00146). Discounted: what was learned fades, because what pays at the start of a search
does not pay at its end (Raj and Kalyani, arXiv:1707.09727). Every arm keeps a small share, as in adaptive pursuit
(Thierens, GECCO 2005). Requests that overlap differ by themselves, since every choice is a draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

PRIOR_GAINS, PRIOR_TRIES = 0.1, 2.0
"""What an arm that nothing is known of is taken to have done: enough for every arm to be tried."""
GAIN_CEILING = 2.0
"""A gain counts for at most so many times the usual one: one lucky strike must not hide what the others bring."""
OVERHEAD = 0.25
"""Every try is charged this part of the average cost besides its own: a place in the queue is never free."""


@dataclass(frozen=True, order=True)
class Arm:
    """What a request can be made of."""

    mutator: str
    model: str = ""
    """Empty for mutators that ask no language model."""


@dataclass
class Record:
    """What one arm did, recent tries weighing more."""

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
        self._gains = Record()
        """Of tries that gained something: how many, and the sum of their gains."""

    def choose(self, arms: Sequence[Arm], rng: Random) -> Arm:
        """One of `arms`, which must not be empty; those that are not possible right now are simply left out."""
        if rng.random() < self.least_share:
            return rng.choice(arms)
        usual = self._usual_cost_usd()
        return max(arms, key=lambda arm: self._draw(self.records.get(arm, Record()), usual, rng))

    def learn(self, arm: Arm, *, gain: float, seconds: float, cost_usd: float) -> None:
        """The outcome of one try: `gain` in log speedup over its parents, 0 for one that brought nothing."""
        for record in (*self.records.values(), self._gains):
            record.tries *= self.discount
            record.rewards *= self.discount
            record.cost_usd *= self.discount
        reward = 0.0
        if gain > 0.0:
            self._gains.tries += 1.0
            self._gains.rewards += gain
            reward = min(1.0, gain / (GAIN_CEILING * self._gains.rewards / self._gains.tries))
        record = self.records.setdefault(arm, Record())
        record.tries += 1.0
        record.rewards += reward
        record.cost_usd += seconds * self.usd_per_second + cost_usd

    def _usual_cost_usd(self) -> float:
        """The mean cost of a try over all arms; 1 while nothing has cost anything, when only ratios matter."""
        tries = sum(record.tries for record in self.records.values())
        cost_usd = sum(record.cost_usd for record in self.records.values())
        return cost_usd / tries if tries and cost_usd else 1.0

    def _draw(self, record: Record, usual: float, rng: Random) -> float:
        """What the arm may be worth per dollar: a draw from what is known of its rewards, over its cost."""
        gains = PRIOR_GAINS + record.rewards
        reward = rng.betavariate(gains, max(PRIOR_TRIES + record.tries - gains, 1e-3))
        cost_usd = (PRIOR_TRIES * usual + record.cost_usd) / (PRIOR_TRIES + record.tries)
        return reward / (cost_usd + OVERHEAD * usual)
