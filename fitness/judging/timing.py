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
from scipy.special import bdtrc

from fitness.evaluation import Z95
from fitness.judging.levels import LEAST_GAIN

ALPHA = 0.05
POCOCK = {1: 1.960, 2: 2.178, 3: 2.289, 4: 2.361, 5: 2.413}
"""Two-sided boundary for a number of equally spaced looks, at ALPHA."""
Z_POWER = 1.645
"""Standard errors between the boundary and a difference that is seen with 95 % probability."""
LN_RESOLUTION = 1e-4
"""Least standard error that is believed: the clock and the machine are not better."""


class RaceResult(StrEnum):
    """Result of the pairs so far for the candidate."""

    FASTER = "faster"
    SLOWER = "slower"
    EQUAL = "equal"
    """No difference worth more samples: the interval is as narrow as asked for, or leaves no room for a gain."""
    OPEN = "open"


@dataclass(frozen=True)
class Schedule:
    """When to look and when to stop."""

    looks: tuple[int, ...]
    """Pairs per workload at which the data may be looked at; the first so many are measured however long they take."""
    detectable: float
    """Stop when a difference of this log ratio would be seen with 95 % probability."""
    budget_s: float
    """Have a last look when the samples have taken so long."""
    least_gain: float = 0.0
    """Stop when the interval leaves no room for a gain of this log ratio; 0 to go on."""
    until_decided: bool = True
    """Stop also when it is clear which is faster; a measurement that will be reported goes on to its precision."""
    renewal: float = 1.0
    """Most time that drawing new inputs may take, as a multiple of what samples take; beyond it sets serve again."""


ACCUSATION_ALPHA = 1e-4
"""Share of honest kernels whose clock is called false."""
SCREEN = Schedule(looks=(5, 10, 20), detectable=0.035, budget_s=0.4, least_gain=LEAST_GAIN, renewal=0.25)
"""Nothing rests on it but the choice of what is measured again, and no kernel that remembers inputs is slower for it.
So drawing may not double the time of a search's commonest measurement."""
ITSELF = Schedule(looks=(2,), detectable=math.inf, budget_s=0.0)
"""Schedule of the kernel that all others are compared with, beside itself: only its times are of interest."""
FULL = Schedule(looks=(10, 20, 40), detectable=0.02, budget_s=0.8, until_decided=False)
CONFIRM = Schedule(looks=(10, 20, 40, 80, 160), detectable=0.02, budget_s=4.0, until_decided=False, renewal=5.0)
"""Its inputs are all new for nearly every operator: see `tests.bench.gpu_inputs`."""


@dataclass(frozen=True)
class LogRatio:
    """A log ratio and its standard error."""

    value: float
    se: float
    common: float = 0.0
    """Part of the error that a kernel's workloads share: two processes that lie apart do so on all of them."""


@dataclass(frozen=True)
class ProcessSpread:
    """Spread between the clocks of processes that run the same kernel, as standard deviations of one process.

    No number of pairs averages it out, so it counts beside the noise of samples.
    """

    fixed_ns: float = 0.0
    """Part that does not depend on the kernel's time: it lies around the kernel between two readings of a clock."""
    share: float = 0.0
    """Share of the kernel's time: it depends on where its code and its memory happen to lie."""
    outside_ns: float = 0.0
    """Spread of the time that is seen beside a clock."""

    def common(self, *latencies_ns: float) -> float:
        """The standard deviation of a log ratio of processes whose kernels take so long, on all workloads."""
        return math.hypot(*(math.hypot(self.fixed_ns, self.outside_ns) / ns for ns in latencies_ns))

    def of(self, *latencies_ns: float) -> float:
        """The same, and what is of each workload alone."""
        return math.hypot(self.common(*latencies_ns), *(self.share for _ in latencies_ns))


def log_ratio(pairs: Sequence[tuple[float, float]]) -> LogRatio:
    """Location of ln(anchor / candidate) over (candidate, anchor) times, with its standard error."""
    center, se = location(np.log([anchor / candidate for candidate, anchor in pairs]))
    return LogRatio(center, max(se, LN_RESOLUTION))


def location(values: np.ndarray) -> tuple[float, float]:
    """The Hodges-Lehmann estimate, the median of all means of two values, and its standard error.

    The error is taken from the wider side of the distribution-free 95 % interval that belongs to Wilcoxon's signed rank
    test (Tukey's; Hollander and Wolfe, "Nonparametric Statistical Methods", section 3.3): random order makes the
    differences of equals symmetric, however the machine's noise looks, and that is all which the test assumes. Needs a
    third fewer samples than the median. Infinite for a single value.
    """
    n = len(values)
    if n < 2:
        return float(values[0]), math.inf
    first, second = np.triu_indices(n)
    means = np.sort((values[first] + values[second]) / 2)
    center = float(np.median(means))
    left_out = max(math.floor(len(means) / 2 - Z95 * math.sqrt(n * (n + 1) * (2 * n + 1) / 24)), 0)
    half = max(center - float(means[left_out]), float(means[-1 - left_out]) - center)
    return center, half / Z95


def usually_above(differences: np.ndarray, least: float) -> bool:
    """Whether more than half of all differences must exceed `least`, by a sign test at ACCUSATION_ALPHA."""
    above = int(np.count_nonzero(differences > least))
    return bool(bdtrc(above - 1, len(differences), 0.5) < ACCUSATION_ALPHA)


def mean(ratios: Sequence[LogRatio]) -> LogRatio:
    """Unweighted mean over workloads, errors taken as independent but for what the workloads share."""
    count = len(ratios)
    common = sum(r.common for r in ratios) / count
    own = math.sqrt(sum(max(r.se**2 - r.common**2, 0.0) for r in ratios)) / count
    return LogRatio(sum(r.value for r in ratios) / count, math.hypot(own, common), common)


def smallest_detectable(se: float, schedule: Schedule = CONFIRM) -> float:
    """The log ratio that a measurement with this standard error would have seen with 95 % probability."""
    return (POCOCK[len(schedule.looks)] + Z_POWER) * se


def decide(ratio: LogRatio, schedule: Schedule) -> RaceResult:
    """The result of one look. A kernel is called faster or slower at random in a share ALPHA of all measurements."""
    half = POCOCK[len(schedule.looks)] * ratio.se
    decided = schedule.until_decided and abs(ratio.value) > half
    hopeless = ratio.value + half < schedule.least_gain and schedule.least_gain > 0
    if smallest_detectable(ratio.se, schedule) > schedule.detectable and not decided and not hopeless:
        return RaceResult.OPEN
    if abs(ratio.value) <= half:
        return RaceResult.EQUAL
    return RaceResult.FASTER if ratio.value > 0 else RaceResult.SLOWER
