"""Speedups of many kernels, fitted jointly to all paired ratios that connect them.

A verdict is a chain of paired ratios that ends at the baseline: one pair that was timed in bad seconds moves the kernel
and all that were timed beside it, by a factor that no interval of theirs knows. A confirmation says what a kernel is
worth by another way. Weighted least squares over all pairs lets it move the kernel's relatives, and pairs that were
measured twice say how far the errors of all can be trusted.

A pair's calls also share their moment: clock rates, neighbours and where memory lies suit one kernel more than another,
and another moment suits the other. No repetition within it shows that, and the chains of a task do not add up. So each
pair has a variance besides that of its calls, which is estimated by how little they do (a random effect, by restricted
likelihood: Patterson and Thompson, 1971; DerSimonian and Laird, 1986).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from fitness.evaluation import Level, leaves_open

PASSES = 6
"""Number of times that variances are made anew from what the pairs disagree by."""
LEAST_SE = 1e-3
"""Least error of a pair, as a log ratio: no pair is worth all others together."""
SHARE = 0.9
"""Share of the pairs that were measured twice whose disagreement errors must explain: as they disagree where either of
the two was timed in bad seconds, this is what 95 % of single pairs are off by."""
PRIOR = 20
"""Number of pairs that are taken to have agreed as their errors say, before any was measured twice."""

MOMENTS = tuple(0.002 * 2**n for n in range(5))
"""Standard deviations, as log ratios, that moments of pairs may have: each is half as likely beforehand as the one
before it, 0.8 % in the mean square. A GPU shows 0.5 %, two shared cores 1 %."""


@dataclass(frozen=True)
class Pair:
    """The measurement of a level: a kernel is exp(log_ratio) times as fast as its anchor."""

    kernel_id: str
    anchor_id: str
    level: Level
    log_ratio: float
    log_ratio_se: float


@dataclass(frozen=True)
class Position:
    """The log speedup of a kernel over the baseline, and its standard error."""

    log_speedup: float
    se: float


def fitted(baseline_id: str, pairs: Iterable[Pair]) -> dict[str, Position]:
    """Return the positions of all kernels that are not confirmed and that pairs connect with the baseline.

    `pairs` are in the order of their measurement. A kernel counts with its confirmation, and with the most severe
    level besides that is no open question: one that got there by the times of a lesser level owes these to luck in
    part. A confirmation stands. All pairs have the variance of their moments besides. What pairs disagree by beyond
    that may be the fault of either of two: it is added to the error of both, so that the pair that most others
    contradict loses its weight (iteratively reweighted least squares).
    """
    known = _connected(baseline_id, pairs)
    confirmed = {kernel_id for kernel_id, level in known if level is Level.CONFIRMED}
    factor = underestimate(_disagreements(known))
    chosen, variances = [], []
    for (kernel_id, level), pair in known.items():
        full = known.get((kernel_id, Level.FULL))
        if full and (kernel_id, Level.SCREEN) in known:
            outdone = Level.FULL if leaves_open(full.log_ratio, full.log_ratio_se) else Level.SCREEN
        else:
            outdone = None
        if level is not outdone:
            chosen.append(pair)
            scale = 1.0 if level is Level.CONFIRMED else factor
            variances.append((scale * max(pair.log_ratio_se, LEAST_SE)) ** 2)
    order: dict[str, int] = {}
    for pair in chosen:
        order.setdefault(pair.kernel_id, len(order))
    moment = _moment_variance(order, chosen, variances)
    variances = [v + moment for v in variances]
    positions = _least_squares(order, chosen, variances)
    for _ in range(PASSES):
        widened = [
            v if pair.level is Level.CONFIRMED else v + 4 * max(_residual(pair, positions) ** 2 - v, 0.0)
            for pair, v in zip(chosen, variances, strict=True)
        ]
        positions = _least_squares(order, chosen, widened)
    return {kernel_id: found for kernel_id, found in positions.items() if kernel_id not in confirmed}


def underestimate(disagreements: Sequence[float]) -> float:
    """Return the factor by which errors of pairs are larger than they say; 1 where they are no larger.

    `disagreements` are of pairs that were measured twice, each in its standard errors. The factor is what it takes to
    explain SHARE of them, with PRIOR normal ones among them.
    """
    normal = [NormalDist().inv_cdf((n + 0.5) / PRIOR) for n in range(PRIOR)]
    sizes = sorted(map(abs, [*disagreements, *normal]))
    return max(1.0, sizes[math.ceil(SHARE * len(sizes)) - 1] / NormalDist().inv_cdf((1 + SHARE) / 2))


def _connected(baseline_id: str, pairs: Iterable[Pair]) -> dict[tuple[str, Level], Pair]:
    """By kernel and level the latest pair of those that lead to the baseline, directly or by earlier ones."""
    seen, found = {baseline_id}, {}
    for pair in pairs:
        if pair.anchor_id in seen and pair.kernel_id not in (pair.anchor_id, baseline_id):
            seen.add(pair.kernel_id)
            found[pair.kernel_id, pair.level] = pair
    return found


def _disagreements(known: Mapping[tuple[str, Level], Pair]) -> list[float]:
    """Differences, in standard errors, of kernels that were screened and measured in full beside the same one."""
    found = []
    for (kernel_id, level), full in known.items():
        screened = known.get((kernel_id, Level.SCREEN)) if level is Level.FULL else None
        if screened and screened.anchor_id == full.anchor_id:
            se = math.hypot(max(full.log_ratio_se, LEAST_SE), max(screened.log_ratio_se, LEAST_SE))
            found.append((full.log_ratio - screened.log_ratio) / se)
    return found


def _residual(pair: Pair, positions: Mapping[str, Position]) -> float:
    anchor = positions.get(pair.anchor_id)
    return pair.log_ratio - positions[pair.kernel_id].log_speedup + (anchor.log_speedup if anchor else 0.0)


def _moment_variance(order: Mapping[str, int], pairs: Sequence[Pair], variances: Sequence[float]) -> float:
    """The variance that moments of pairs have, in the mean over MOMENTS, each as likely as it makes what was measured.

    Pairs that close no circle say nothing of it: then it is what it was beforehand.
    """
    logs = []
    for number, moment in enumerate(MOMENTS):
        spread = [v + moment**2 for v in variances]
        system = _eliminated(order, pairs, spread)
        explained = sum(r**2 / d for r, d in zip(system.right, system.diagonal, strict=True))
        squares = sum(pair.log_ratio**2 / v for pair, v in zip(pairs, spread, strict=True)) - explained
        logs.append(-number * math.log(2) - (sum(map(math.log, [*spread, *system.diagonal])) + squares) / 2)
    weights = [math.exp(each - max(logs)) for each in logs]
    return math.fsum(w * m**2 for w, m in zip(weights, MOMENTS, strict=True)) / math.fsum(weights)


@dataclass(frozen=True)
class _System:
    """Normal equations, eliminated from the last kernel to the first."""

    diagonal: list[float]
    right: list[float]
    rows: list[dict[int, float]]
    """By kernel its earlier neighbours."""


def _eliminated(order: Mapping[str, int], pairs: Iterable[Pair], variances: Iterable[float]) -> _System:
    """The normal equations, the baseline at 0. Nearly each kernel is paired with one earlier one besides the baseline,
    so that hardly any entry is filled in."""
    size = len(order)
    diagonal, right = [0.0] * size, [0.0] * size
    rows: list[dict[int, float]] = [{} for _ in range(size)]
    for pair, variance in zip(pairs, variances, strict=True):
        here, there = order[pair.kernel_id], order.get(pair.anchor_id, -1)
        weight = 1 / variance
        diagonal[here] += weight
        right[here] += weight * pair.log_ratio
        if there >= 0:
            diagonal[there] += weight
            right[there] -= weight * pair.log_ratio
            late, early = max(here, there), min(here, there)
            rows[late][early] = rows[late].get(early, 0.0) - weight
    for late in range(size - 1, -1, -1):
        for early, value in rows[late].items():
            factor = value / diagonal[late]
            diagonal[early] -= factor * value
            right[early] -= factor * right[late]
            for other, more in rows[late].items():
                if other < early:
                    rows[early][other] = rows[early].get(other, 0.0) - factor * more
    return _System(diagonal, right, rows)


def _least_squares(order: Mapping[str, int], pairs: Sequence[Pair], variances: Sequence[float]) -> dict[str, Position]:
    """Positions by weighted least squares.

    Of the inverse only what stands where the factor does is made (Takahashi, Fagan and Chen, 1973).
    """
    system, size = _eliminated(order, pairs, variances), len(order)
    values, own = [0.0] * size, [0.0] * size
    inverse: list[dict[int, float]] = [{} for _ in range(size)]
    for late in range(size):
        row, pivot = system.rows[late], system.diagonal[late]
        values[late] = (system.right[late] - sum(v * values[early] for early, v in row.items())) / pivot
        for early in row:
            inverse[late][early] = (
                -sum(
                    v * (own[early] if other == early else inverse[max(other, early)][min(other, early)])
                    for other, v in row.items()
                )
                / pivot
            )
        own[late] = (1 - sum(v * inverse[late][early] for early, v in row.items())) / pivot
    names = list(order)
    return {names[n]: Position(values[n], math.sqrt(max(own[n], 0.0))) for n in range(size)}
