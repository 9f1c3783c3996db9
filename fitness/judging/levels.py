"""The order of a verdict's levels, which never depends on how they are run: here, or as jobs of a driver.

A level is examined only where the one before it was passed and promises enough to be worth the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fitness.evaluation import Z95, Evaluation, Level, Status
from fitness.judging.base import Anchor, Fitness
from operators.kernel import Kernel

LEAST_GAIN = 0.01
"""A kernel that is faster than its anchor by less, as a log ratio, takes no place from it."""
NEW_BEST = 0.2
"""A promise of less than this, as a log ratio, over the best known is not worth a confirmation while others wait; the
run's last act is to confirm its leader."""
LEAST_SE = 1e-6
"""Standard error of a log ratio below which none is believed."""
TIMED = (Status.CORRECT, Status.SLOWER)
"""Verdicts on kernels that were found right, and timed."""
AGAIN = 3
"""Number of times that a level is measured again whose result is unresolved."""


def next_level(results: Sequence[Evaluation], *, race: bool, best: float | None) -> Level | None:
    """The level that a kernel is to be examined at now; None where its verdict is complete.

    `results` are the evaluations of the levels that it reached, the most severe last; `best` is the log speedup of the
    fastest kernel known, and None examines every level. From the screening a kernel goes on to the full level where
    something hangs on its time: with `race` if it seems faster than its anchor by as much as it takes to get its place,
    otherwise if it seems to be the fastest of all. One whose full level promises more than `best` is confirmed.
    """
    if not results:
        return Level.SCREEN
    last = results[-1]
    if not last.correct:
        return None
    if last.level is Level.SCREEN:
        assert last.log_speedup is not None
        promising = (last.log_ratio or 0.0) > LEAST_GAIN if race else best is None or last.log_speedup > best
        return Level.FULL if promising else None
    return Level.CONFIRMED if last.level is Level.FULL and _is_new_best(last, best) else None


def full_anchor(screened: Evaluation, anchor: Anchor, baseline: Kernel) -> Anchor:
    """The kernel that the full level is paired with: the anchor of the screening, the baseline where that stood in for
    it."""
    return anchor if screened.anchor_id == anchor.kernel.id else Anchor(baseline, 0.0, 0.0)


class Measurements:
    """Measurements of one level: it gives their numbers, until `found`, what all of them say, is resolved.

    `found` may begin with what an earlier visit left unresolved.
    """

    def __init__(self, found: Evaluation | None = None) -> None:
        self.found = found

    def __iter__(self) -> Iterator[int]:
        for number in range(1 + AGAIN):
            yield number
            if self.found and not self.found.unresolved:
                return

    def add(self, later: Evaluation) -> Evaluation:
        """Return what it says with those before it."""
        self.found = pooled(self.found, later) if self.found else later
        return self.found


def pooled(earlier: Evaluation, later: Evaluation) -> Evaluation:
    """Return what two measurements of one level say together: a failure is one, else times are averaged.

    A race that was lost is a time as well. It has taken the time of both. What else it says, also the anchor where
    they have two, is of the later one, or of the one that was timed whole.
    """
    stages = dict.fromkeys((*earlier.stage_ms, *later.stage_ms))
    took_ms = {stage: earlier.stage_ms.get(stage, 0.0) + later.stage_ms.get(stage, 0.0) for stage in stages}
    for found in (earlier, later):
        if found.verdict not in TIMED:
            return replace(found, stage_ms=took_ms)
    if earlier.correct and not later.correct:
        earlier, later = later, earlier
    later = replace(later, stage_ms=took_ms)
    # The anchor's own speedup, and its error, are in those of the kernel.
    anchor_se = math.sqrt(max((later.log_speedup_se or 0.0) ** 2 - (later.log_ratio_se or 0.0) ** 2, 0.0))
    if earlier.anchor_id != later.anchor_id:
        beside = (earlier.estimate or 0.0) - (later.anchor_log_speedup or 0.0)
        beside_se = math.hypot(earlier.log_speedup_se or earlier.log_ratio_se or 0.0, anchor_se)
        earlier = replace(earlier, log_ratio=beside, log_ratio_se=beside_se, timings=())
    ratio, se = _averaged(
        (earlier.log_ratio or 0.0, earlier.log_ratio_se or 0.0), (later.log_ratio or 0.0, later.log_ratio_se or 0.0)
    )
    before = {timing.workload: timing for timing in earlier.timings}
    timings = []
    for timing in later.timings:
        if first := before.get(timing.workload):
            mean, error = _averaged((first.log_ratio, first.log_ratio_se), (timing.log_ratio, timing.log_ratio_se))
            timing = replace(timing, log_ratio=mean, log_ratio_se=error, pairs=first.pairs + timing.pairs)
        timings.append(timing)
    later = replace(later, log_ratio=ratio, log_ratio_se=se, timings=tuple(timings))
    if not later.correct:
        return later
    speedup = (later.anchor_log_speedup or 0.0) + ratio
    return replace(later, log_speedup=speedup, log_speedup_se=math.hypot(anchor_se, se))


def _averaged(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """The mean of two values with standard errors, weighted by these, and its own.

    Where they differ by more than their errors allow, those are too small, and grow by as much (R. T. Birge, 1932).
    """
    (a, a_se), (b, b_se) = ((value, max(se, LEAST_SE)) for value, se in (one, other))
    weight = b_se**2 / (a_se**2 + b_se**2)
    apart = abs(a - b) / math.hypot(a_se, b_se)
    return weight * a + (1 - weight) * b, a_se * b_se / math.hypot(a_se, b_se) * max(1.0, apart)


def judge(
    fitness: Fitness,
    kernel: Kernel,
    anchor: Anchor,
    *,
    race: bool,
    best: float | None = None,
    until: Level = Level.CONFIRMED,
) -> tuple[Evaluation, ...]:
    """Examine a kernel that was built, level after level; one evaluation per level it reached, the most severe last.

    For `race` and `best` see `next_level`; no level above `until` is examined. It raises what `fitness` raises.
    """
    results: tuple[Evaluation, ...] = ()

    def examined(level: Level) -> Evaluation:
        if level is Level.SCREEN:
            return fitness.screen(kernel, anchor, race=race)
        if level is Level.FULL:
            return fitness.full(kernel, full_anchor(results[0], anchor, fitness.baseline))
        fitness.choose_rivals()
        return fitness.confirm(kernel)

    while level := next_level(results, race=race, best=best):
        measurements = Measurements()
        for _ in measurements:
            found = measurements.add(examined(level))
        results = (*results, found)
        if level is until:
            break
    return results


def _is_new_best(evaluation: Evaluation, best: float | None) -> bool:
    assert evaluation.log_speedup is not None and evaluation.log_ratio_se is not None
    return best is None or evaluation.log_speedup > best + max(NEW_BEST, Z95 * evaluation.log_ratio_se)
