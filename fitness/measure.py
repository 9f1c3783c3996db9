"""Paired measurement: candidate and anchor in random order, each from cold caches, every timed output checked."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fitness.evaluation import Status, Timing
from fitness.session import KernelFault, Sample, Session
from fitness.timing import Ratio, Schedule, Spread, Verdict, decide, log_ratio, mean, usually_above
from fitness.verify import Case

HOPELESS = 5.0
"""A kernel so many times slower than its anchor in both of two samples is not sampled further."""
CLOCK_SLACK_NS = 50_000
CLOCK_SLACK_SHARE = 0.02
"""By so much more than the anchor's a candidate's process may outlive what its clock shows, before it is accused."""
LASTING_SHARE = 0.5
"""Of a variance, so much from processes ends a measurement: no number of pairs would lessen its error by a third."""


class AnchorFault(Exception):
    """The anchor, not the candidate, failed during a measurement."""


@dataclass(frozen=True)
class Measurement:
    """Of one kernel against another."""

    timings: tuple[Timing, ...]
    ratio: Ratio
    """Mean over workloads of ln(anchor time / kernel time)."""
    verdict: Verdict


@dataclass(frozen=True)
class _Estimate:
    """What samples say at one look."""

    pairs: Sequence[Sequence[tuple[float, float]]]
    """As `Pairing.pairs` has them."""
    ratios: Sequence[Ratio]
    """Of every workload, with the errors of samples and of processes together."""
    in_vain: bool
    """Whether nearly all of the error is that of processes, so that more samples would tell nothing."""

    @property
    def ratio(self) -> Ratio:
        return mean(self.ratios)


Accept = Callable[[Case, Session, int], object]
"""Raises KernelFault unless what the session's slot holds answers the case."""


def slot_of(number: int, which: int, sets: int) -> int:
    """Of a workload's input set; slot 0 is for checks."""
    return 1 + number * sets + which


class Pairing:
    """Candidate and anchor take turns on the same input sets: `cases[workload][set]`, bound as `slot_of` numbers them.

    Two processes with one kernel differ by some thousandths, in how their code and memory happen to lie; no number of
    samples shows that. So each side may have several sessions, of which each pair of samples takes the next two.
    """

    def __init__(
        self,
        candidates: Sequence[Session],
        anchors: Sequence[Session],
        cases: Sequence[Sequence[Case]],
        accept: Accept,
        rng: np.random.Generator,
        *,
        spread: Spread = Spread(),  # noqa: B008 a constant
    ) -> None:
        self._turns = list(zip(candidates, anchors, strict=True))
        self._cases = cases
        self._accept = accept
        self._rng = rng
        self._spread = spread
        self._samples: list[list[tuple[Sample, Sample]]] = [[] for _ in cases]
        """Of candidate and anchor, per workload."""

    def measure(self, schedule: Schedule, *, race: bool) -> Measurement:
        """Sample until the schedule says stop. The device must be ours alone. Raises KernelFault and AnchorFault."""
        begin = time.monotonic()
        for number in range(len(self._cases)):  # warm-up
            for candidate, anchor in self._turns:
                self._anchor_sample(anchor, number, 0)
                self._sample(candidate, number, 0)
        if race and self._hopeless():
            return self._measured(self._estimate(), Verdict.SLOWER)
        for look in schedule.looks:
            # The end of the time does not depend on what was measured, so it may come between two looks.
            late = False
            while min(map(len, self._samples)) < look and not late:
                self._round()
                late = time.monotonic() - begin > schedule.budget_s and len(self._samples[0]) >= schedule.looks[0]
            estimate = self._estimate()
            verdict = decide(estimate.ratio, schedule)
            if verdict is not Verdict.OPEN or late or estimate.in_vain:
                break
        return self._measured(estimate, verdict)

    def _measured(self, estimate: _Estimate, verdict: Verdict) -> Measurement:
        self._check_clock()
        names = [sets[0].workload.name for sets in self._cases]
        timings = map(_timing, names, estimate.pairs, estimate.ratios)
        return Measurement(tuple(timings), estimate.ratio, verdict)

    def _estimate(self) -> _Estimate:
        """What the samples so far say."""
        pairs = self.pairs()
        lasting = [self._spread.of(float(np.median(p))) / math.sqrt(len(self._turns)) for p in pairs]
        found = map(log_ratio, pairs)
        ratios = [Ratio(r.value, math.hypot(r.se, s)) for r, s in zip(found, lasting, strict=True)]
        whole = sum(r.se**2 for r in ratios)
        return _Estimate(pairs, ratios, in_vain=sum(s**2 for s in lasting) >= LASTING_SHARE * whole)

    def pairs(self) -> list[list[tuple[float, float]]]:
        """Nanoseconds of candidate and anchor so far, per workload.

        A process reads its own clock, and what we see of the rest should look like the anchor's: what exceeds that by
        more than the slack counts as if the clock had shown it, on either side.
        """
        candidate, anchor = self._turns[0]
        result = []
        for samples in self._samples:
            usual_ns = float(np.median([other.outside_ns for _, other in samples]))
            result.append(
                [(_time_ns(mine, candidate, usual_ns), _time_ns(other, anchor, usual_ns)) for mine, other in samples]
            )
        return result

    def _hopeless(self) -> bool:
        self._round()
        self._round()
        return all(mine > HOPELESS * other for pairs in self.pairs() for mine, other in pairs)

    def _round(self) -> None:
        """One pair of every workload."""
        for number, samples in enumerate(self._samples):
            turn, which = divmod(len(samples), len(self._cases[number]))
            samples.append(self._pair(*self._turns[turn % len(self._turns)], number, which))

    def _pair(self, candidate: Session, anchor: Session, number: int, which: int) -> tuple[Sample, Sample]:
        if self._rng.integers(2):
            mine = self._sample(candidate, number, which)
            return mine, self._anchor_sample(anchor, number, which)
        other = self._anchor_sample(anchor, number, which)
        return self._sample(candidate, number, which), other

    def _anchor_sample(self, session: Session, number: int, which: int) -> Sample:
        try:
            return self._sample(session, number, which)
        except KernelFault as fault:
            raise AnchorFault(str(fault)) from fault

    def _sample(self, session: Session, number: int, which: int) -> Sample:
        """One call whose output was right."""
        slot = slot_of(number, which, len(self._cases[number]))
        sample = session.run(slot, poison=int(self._rng.integers(256)), cold=True)
        self._accept(self._cases[number][which], session, slot)
        return sample

    def _check_clock(self) -> None:
        """Who often hides time gains nothing by it, see `pairs`, and is told so."""
        if not self._turns[0][0].charged:
            return
        differences = np.array([mine.outside_ns - other.outside_ns for s in self._samples for mine, other in s])
        shown_ns = float(np.median([mine.elapsed_ns for s in self._samples for mine, _ in s]))
        if usually_above(differences, max(CLOCK_SLACK_NS, CLOCK_SLACK_SHARE * shown_ns)):
            raise KernelFault(
                Status.QUARANTINED,
                f"its process is busy for {np.median(differences) / 1e3:.0f} us more than an anchor's outside what its "
                "clock shows",
            )


def _time_ns(sample: Sample, session: Session, usual_ns: float) -> float:
    excess_ns = sample.outside_ns - usual_ns if session.charged else 0.0
    slack_ns = max(CLOCK_SLACK_NS, CLOCK_SLACK_SHARE * sample.elapsed_ns)
    return max(float(sample.elapsed_ns), 1.0) + (excess_ns if excess_ns > slack_ns else 0.0)


def _timing(workload: str, pairs: Sequence[tuple[float, float]], ratio: Ratio) -> Timing:
    mine, other = (float(np.median(times)) / 1e3 for times in zip(*pairs, strict=True))
    return Timing(workload, mine, other, ratio.value, ratio.se, len(pairs))


def bound_slots(cases: Sequence[Sequence[Case]]) -> Iterator[tuple[int, Case]]:
    """Every input set with its slot."""
    for number, sets in enumerate(cases):
        for which, case in enumerate(sets):
            yield slot_of(number, which, len(sets)), case
