"""The statistics of paired timing: pure functions over measured pairs.

Samples of candidate and anchor alternate in random order, and only the logarithm of each pair's ratio is used, so that
drift of the machine cancels. Pairs are looked at after fixed counts only, against a boundary that keeps the error of
all looks together at `ALPHA` (Pocock, "Group sequential methods in the design and analysis of clinical trials",
Biometrika 64, 1977).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy.special import ndtr, stdtrit

ALPHA = 0.05
POCOCK = {1: 1.960, 2: 2.178, 3: 2.289, 4: 2.361, 5: 2.413}
"""Two-sided boundary for a number of equally spaced looks, at ALPHA."""
MEDIAN_EFFICIENCY = math.sqrt(math.pi / 2)
"""Standard error of a median over that of a mean, for normal data."""
MAD_TO_SIGMA = 1.4826
Z_POWER = 1.645
"""Standard errors between the boundary and a difference that is seen with 95 % probability."""
LN_RESOLUTION = 1e-4
"""No standard error is believed below this: the clock and the machine are not better."""


class Verdict(StrEnum):
    """What the pairs so far say of the candidate."""

    FASTER = "faster"
    SLOWER = "slower"
    EQUAL = "equal"
    """No difference worth more samples: the interval is as narrow as asked for, or leaves no room for a gain."""
    OPEN = "open"


@dataclass(frozen=True)
class Schedule:
    """When to look and when to stop."""

    looks: tuple[int, ...]
    """Pairs per workload at which the data may be looked at."""
    detectable: float
    """Stop when a difference of this log ratio would be seen with 95 % probability."""
    budget_s: float
    """Stop looking for more when the samples have taken so long."""
    least_gain: float = 0.0
    """Stop when the interval leaves no room for a gain of this log ratio; 0 to go on."""
    until_decided: bool = True
    """Stop also when it is clear which is faster; a measurement that will be reported goes on to its precision."""


SCREEN = Schedule(looks=(5, 10, 20), detectable=0.035, budget_s=0.6, least_gain=0.01)
CONFIRM = Schedule(looks=(10, 20, 40, 80), detectable=0.02, budget_s=3.0, until_decided=False)
REFERENCE = Schedule(looks=(10, 20, 40), detectable=0.02, budget_s=1.0, until_decided=False)
"""For the vendor's library, which nobody's place in an archive depends on."""


@dataclass(frozen=True)
class Ratio:
    """A log ratio and its standard error."""

    value: float
    se: float


def log_ratio(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """Median of ln(anchor / candidate) over (candidate, anchor) times, with a standard error that outliers barely move.

    The error is scaled so that normal quantiles apply to it even for few pairs.
    """
    center, se = median_with_error(np.log([anchor / candidate for candidate, anchor in pairs]))
    return Ratio(center, max(se, LN_RESOLUTION))


def median_with_error(values: np.ndarray) -> tuple[float, float]:
    """The median and its standard error, from the median absolute deviation; infinite for a single value."""
    center = float(np.median(values))
    sigma = MAD_TO_SIGMA * float(np.median(np.abs(values - center)))
    n = len(values)
    small_sample = float(stdtrit(n - 1, ndtr(1.96)) / 1.96) if n > 1 else math.inf
    return center, MEDIAN_EFFICIENCY * sigma / math.sqrt(n) * small_sample if n > 1 else math.inf


def mean(ratios: Sequence[Ratio]) -> Ratio:
    """Unweighted mean over workloads, errors taken as independent."""
    count = len(ratios)
    return Ratio(sum(r.value for r in ratios) / count, math.sqrt(sum(r.se**2 for r in ratios)) / count)


def smallest_detectable(se: float, schedule: Schedule = CONFIRM) -> float:
    """The log ratio that a measurement with this standard error would have seen with 95 % probability."""
    return (POCOCK[len(schedule.looks)] + Z_POWER) * se


def decide(ratio: Ratio, schedule: Schedule) -> Verdict:
    """The verdict at one look. A kernel is called faster or slower by chance in a share ALPHA of all measurements."""
    half = POCOCK[len(schedule.looks)] * ratio.se
    decided = schedule.until_decided and abs(ratio.value) > half
    hopeless = ratio.value + half < schedule.least_gain and schedule.least_gain > 0
    if smallest_detectable(ratio.se, schedule) > schedule.detectable and not decided and not hopeless:
        return Verdict.OPEN
    if abs(ratio.value) <= half:
        return Verdict.EQUAL
    return Verdict.FASTER if ratio.value > 0 else Verdict.SLOWER
