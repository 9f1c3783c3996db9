"""How large a difference between two arms a comparison can show: before it begins, and after it has ended.

The test is the sign-flip test over operators of `evo.compare.inference`. What it needs depends on how differently the
difference turns out from operator to operator: a standard deviation of the mean over an operator's tasks and seeds,
    sd^2 = sd_operators^2 + 2 sd_seeds^2 / (tasks of an operator x seeds)
on the scale of ln(speedup), the 2 because each of the two arms has its own luck with a seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import stats

ALPHA = 0.05
"""Of all arms of a comparison together."""
POWER = 0.8
EXACT_OPERATORS = 12
"""Up to so many the power is that of the test itself on normal differences; beyond it Student's law is as good."""
DRAWS = 1000
MOST_OPERATORS = 200
MOST_SEEDS = 32


@dataclass(frozen=True)
class Spread:
    """How much ln(speedup) varies, as standard deviations."""

    operators: float
    """Of the true difference of two arms from operator to operator."""
    seeds: float
    """Of one arm's winner at one task from seed to seed."""

    def of_operator(self, tasks: float, seeds: float) -> float:
        """Of what one operator says of the difference, with so many tasks of it and seeds."""
        return math.sqrt(self.operators**2 + 2 * self.seeds**2 / (tasks * seeds))


@dataclass(frozen=True)
class Size:
    """A size of comparison, and what it would show."""

    operators: int
    seeds: int
    detectable: float
    """Smallest difference seen at 80 % power, a log ratio; infinite: none, however large."""


def least_operators(arms: int) -> int:
    """How many operators it takes for any difference to be told from chance, with so many arms beside the reference.

    Of n operators the test has 2^n patterns of signs, so no p-value is below 2^(1-n); Holm's first step asks for
    ALPHA / arms.
    """
    return math.ceil(1 - math.log2(ALPHA / arms))


def nothing_concluded(operators: int, tested: Sequence[str]) -> str:
    """Why a comparison of so many operators gives no verdict of any arm, in words; empty: it may give some."""
    arms = max(len(tested), 1)
    few = (
        f"the test over operators needs {least_operators(arms)} for {arms} arm{'s' * (arms > 1)} "
        f"(2^(1-n) <= {ALPHA:g}/arms)"
        if operators < least_operators(arms)
        else ""
    )
    if not tested:
        return "it describes and concludes nothing: no arm is registered for a verdict" + (f"; {few}" if few else "")
    return f"nothing can be concluded with {operators} operators, however large a difference is: {few}" if few else ""


def detectable(sd: float, operators: int, arms: int) -> float:
    """Return the smallest log ratio that is told from chance at POWER, where operators differ by `sd`.

    It asks for what Holm's first step asks for: the first arm of `arms` to be told from the reference. Infinite: with
    so few operators none is, however large.
    """
    if operators < least_operators(arms):
        return math.inf
    return sd * _in_deviations(operators, ALPHA / arms)


def sizes(difference: float, spread: Spread, *, tasks: float, arms: int) -> Iterator[Size]:
    """For growing numbers of seeds, the fewest operators with which this log ratio would be seen.

    `tasks` are those of an operator. A number of seeds that spares no operator is left out, and so is one that asks for
    more than MOST_OPERATORS.
    """
    last = MOST_OPERATORS + 1
    for seeds in range(1, MOST_SEEDS + 1):
        sd = spread.of_operator(tasks, seeds)
        for operators in range(least_operators(arms), last):
            if (seen := detectable(sd, operators, arms)) <= difference:
                last = operators
                yield Size(operators, seeds, seen)
                break


@cache
def _in_deviations(operators: int, alpha: float) -> float:
    """The detectable difference as a multiple of the deviation between operators.

    Beyond EXACT_OPERATORS it is (t_(1 - alpha/2) + t_POWER) / sqrt(n), of n - 1 degrees of freedom (Bloom, "Minimum
    detectable effects", Evaluation Review 19, 1995). Of few the test's p-values are coarse, which costs power: there it
    is found by trying the test on DRAWS normal samples.
    """
    if operators > EXACT_OPERATORS:
        law = stats.t(operators - 1)
        return float(law.ppf(1 - alpha / 2) + law.ppf(POWER)) / math.sqrt(operators)
    noise = np.random.default_rng(operators).standard_normal((operators, DRAWS))
    signs = 1 - 2 * (
        (np.arange(2 ** (operators - 1))[:, None] >> np.arange(operators)) & 1
    )  # of both of a mirrored pair
    low, high = 0.0, 16.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        flipped = np.abs(signs @ (noise + middle))
        p_values = (flipped >= flipped[0] * (1 - 1e-12)).mean(axis=0)
        low, high = (low, middle) if (p_values <= alpha).mean() >= POWER else (middle, high)
    return high
