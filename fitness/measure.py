"""Paired measurement: candidate and anchor in random order, each from cold caches, every timed output checked."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from fitness.cases import Case
from fitness.device import KernelFault, Sample, Session
from fitness.evaluation import Status, Timing
from fitness.timing import RaceResult, Ratio, Schedule, Spread, decide, log_ratio, mean, usually_above
from operators.errors import OperatorError

HOPELESS = 5.0
"""A kernel so many times slower than its anchor in both of two samples is not sampled further."""
CLOCK_SLACK_NS = 50_000
CLOCK_SLACK_SHARE = 0.02
"""By so much more than the anchor's a candidate's process may outlive what its clock shows, before it is accused."""
LASTING_SHARE = 0.5
"""Of a variance, so much from processes ends a measurement: no number of pairs would lessen its error by a third."""
LIBRARY_PAIRS = range(6, 41)
"""The vendor's library takes part in so many rounds at least, and at most; fewer than six make no 95 % interval."""
LIBRARY_S = 1.5
"""Between the two it takes part until its calls, checks and cold caches included, have taken so long."""


Pairs = list[tuple[float, float]]
"""Nanoseconds of the candidate and of the kernel that it is paired with."""


class AnchorFault(Exception):
    """The anchor, not the candidate, failed during a measurement."""


@dataclass(frozen=True)
class Measurement:
    """What was measured of one kernel against another."""

    timings: tuple[Timing, ...]
    ratio: Ratio
    """Mean over workloads of ln(anchor time / kernel time)."""
    result: RaceResult
    library: tuple[Timing, ...] = ()
    """Of the kernel against the vendor's library, where that took part."""


@dataclass(frozen=True)
class _Estimate:
    """What samples say at one look."""

    pairs: Sequence[Pairs]
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


class Guest:
    """The vendor's library beside a measurement: whatever is wrong with it, the measurement goes on without."""

    def __init__(self, session: Session | None, lack: str = "") -> None:
        """`session` has the same input sets as the others; None: there is none, and `lack` may say why."""
        self.session = session
        self.lack = lack
        """Why it was not timed; empty where it was, or where it was not wanted."""
        self.spent_s = 0.0

    def leave(self, why: str) -> None:
        self.session, self.lack = None, why

    def comes(self, rounds: int) -> bool:
        """Whether it takes part in a round, after so many."""
        enough = rounds >= LIBRARY_PAIRS.start and self.spent_s > LIBRARY_S
        return self.session is not None and rounds < LIBRARY_PAIRS.stop - 1 and not enough


def slot_of(number: int, which: int, sets: int) -> int:
    """The slot of a workload's input set; slot 0 is for checks."""
    return 1 + number * sets + which


class Pairing:
    """Candidate and anchor take turns on the same input sets: `cases[workload][set]`, bound as `slot_of` numbers them.

    Two processes with one kernel differ by some thousandths, in how their code and memory happen to lie; no number of
    samples shows that. So each side may have several sessions, of which each pair of samples takes the next two.
    The vendor's library may be a guest of the first rounds: it is called beside the two, in random order as well, and
    paired with the candidate's call of the same round. Its time lengthens the measurement and shortens no other part.
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
        guest: Guest | None = None,
    ) -> None:
        self._turns = list(zip(candidates, anchors, strict=True))
        self._cases = cases
        self._accept = accept
        self._rng = rng
        self._spread = spread
        self._samples: list[list[tuple[Sample, Sample]]] = [[] for _ in cases]
        """Of candidate and anchor, per workload."""
        self._guest = guest or Guest(None)
        self._beside: list[list[tuple[Sample, Sample]]] = [[] for _ in cases]
        """Of candidate and guest, per workload."""

    def measure(self, schedule: Schedule, *, race: bool) -> Measurement:
        """Sample until the schedule says stop. The device must be ours alone. Raises KernelFault and AnchorFault."""
        begin = time.monotonic()
        for number in range(len(self._cases)):  # warm-up
            for candidate, anchor in self._turns:
                self._anchor_sample(anchor, number, 0)
                self._sample(candidate, number, 0)
            self._guest_sample(number, 0)
        if race and self._hopeless():
            return self._measured(self._estimate(), RaceResult.SLOWER)
        for look in schedule.looks:
            # The end of the time does not depend on what was measured, so it may come between two looks.
            late = False
            while min(map(len, self._samples)) < look and not late:
                self._round()
                spent_s = time.monotonic() - begin - self._guest.spent_s
                late = spent_s > schedule.budget_s and len(self._samples[0]) >= schedule.looks[0]
            estimate = self._estimate()
            result = decide(estimate.ratio, schedule)
            if result is not RaceResult.OPEN or late or estimate.in_vain:
                break
        return self._measured(estimate, result)

    def _measured(self, estimate: _Estimate, result: RaceResult) -> Measurement:
        self._check_clock()
        names = [sets[0].workload.name for sets in self._cases]
        latencies_us = [1e-3 * float(np.median([mine for mine, _ in pairs])) for pairs in estimate.pairs]
        timings = map(_timing, names, latencies_us, estimate.ratios, map(len, estimate.pairs))
        return Measurement(tuple(timings), estimate.ratio, result, tuple(self._library(names, latencies_us)))

    def _library(self, names: Sequence[str], latencies_us: Sequence[float]) -> Iterator[Timing]:
        """Of the candidate against the guest, where that was right in every round."""
        if self._guest.session is None:
            return
        for name, latency_us, samples, all_samples in zip(
            names, latencies_us, self._beside, self._samples, strict=True
        ):
            pairs = self._times(samples, self._guest.session, _usual_ns(all_samples))
            yield _timing(name, latency_us, self._ratio(pairs, processes=1), len(pairs))

    def _estimate(self) -> _Estimate:
        """What the samples so far say."""
        pairs = self.pairs()
        lasting = [self._lasting(p, len(self._turns)) for p in pairs]
        ratios = [self._ratio(p, len(self._turns)) for p in pairs]
        whole = sum(r.se**2 for r in ratios)
        return _Estimate(pairs, ratios, in_vain=sum(s**2 for s in lasting) >= LASTING_SHARE * whole)

    def _lasting(self, pairs: Pairs, processes: int) -> float:
        """The part of a log ratio's error that is of processes, with so many on either side."""
        return self._spread.of(float(np.median(pairs))) / math.sqrt(processes)

    def _ratio(self, pairs: Pairs, processes: int) -> Ratio:
        found = log_ratio(pairs)
        return Ratio(found.value, math.hypot(found.se, self._lasting(pairs, processes)))

    def pairs(self) -> list[Pairs]:
        """Nanoseconds of candidate and anchor so far, per workload.

        A process reads its own clock, and what we see of the rest should look like the anchor's: what exceeds that by
        more than the slack counts as if the clock had shown it, on either side.
        """
        _, anchor = self._turns[0]
        return [self._times(samples, anchor, _usual_ns(samples)) for samples in self._samples]

    def _times(self, samples: Sequence[tuple[Sample, Sample]], other: Session, usual_ns: float) -> Pairs:
        """Nanoseconds of the candidate and another one; `usual_ns` is what is usually seen outside of a clock."""
        candidate, _ = self._turns[0]
        return [(_time_ns(mine, candidate, usual_ns), _time_ns(its, other, usual_ns)) for mine, its in samples]

    def _hopeless(self) -> bool:
        self._round()
        self._round()
        return all(mine > HOPELESS * other for pairs in self.pairs() for mine, other in pairs)

    def _round(self) -> None:
        """One pair of every workload, and one with the guest where it comes."""
        guest = self._guest.comes(len(self._samples[0]))
        for number, samples in enumerate(self._samples):
            turn, which = divmod(len(samples), len(self._cases[number]))
            candidate, anchor = self._turns[turn % len(self._turns)]
            calls: list[Callable[[], Sample | None]] = [
                partial(self._sample, candidate, number, which),
                partial(self._anchor_sample, anchor, number, which),
                *([partial(self._guest_sample, number, which)] if guest else []),
            ]
            taken: dict[int, Sample | None] = {int(i): calls[i]() for i in self._rng.permutation(len(calls))}
            mine, other, its = taken[0], taken[1], taken.get(2)
            assert mine and other
            samples.append((mine, other))
            if its:
                self._beside[number].append((mine, its))

    def _guest_sample(self, number: int, which: int) -> Sample | None:
        """None where it has left."""
        begin = time.monotonic()
        try:
            return self._sample(self._guest.session, number, which) if self._guest.session else None
        except (KernelFault, OperatorError) as fault:
            self._guest.leave(str(fault))
            return None
        finally:
            self._guest.spent_s += time.monotonic() - begin

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
        """A kernel that often hides time gains nothing by it, see `pairs`, and its author is told so."""
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


def _usual_ns(samples: Sequence[tuple[Sample, Sample]]) -> float:
    """What is seen of an anchor outside of its clock."""
    return float(np.median([other.outside_ns for _, other in samples]))


def _timing(workload: str, latency_us: float, ratio: Ratio, pairs: int) -> Timing:
    return Timing(workload, latency_us, latency_us * math.exp(ratio.value), ratio.value, ratio.se, pairs)


def bound_slots(cases: Sequence[Sequence[Case]]) -> Iterator[tuple[int, Case]]:
    """Every input set with its slot."""
    for number, sets in enumerate(cases):
        for which, case in enumerate(sets):
            yield slot_of(number, which, len(sets)), case
