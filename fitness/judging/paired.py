"""Paired measurement: candidate and anchor in random order, each from cold caches, every output checked.

In the midst of its timed calls a candidate is called on other inputs, which are checked and not timed: see
`fitness.judging.timed_inputs`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np

from fitness.evaluation import LibraryTiming, Status, Timing
from fitness.judging.device import UNANSWERED, KernelFault, KernelSession, Sample, unwritten
from fitness.judging.timed_inputs import Placed, Seat
from fitness.judging.timing import (
    LogRatio,
    ProcessSpread,
    RaceResult,
    Schedule,
    decide,
    location,
    log_ratio,
    mean,
    usually_above,
)
from fitness.oracle.cases import Case
from fitness.words import inputs_told, time_us
from operators.errors import OperatorError

HOPELESS = 5.0
"""Factor by which a kernel must be slower than its anchor in both of two samples not to be sampled further."""
CLOCK_SLACK_NS = 50_000
CLOCK_SLACK_SHARE = 0.02
"""Share of a call's time that may be seen beside its clock, over that of an anchor's call, before the kernel is
accused."""
CERTAIN = 3.0
"""Standard deviations or errors over an anchor's from which time that is seen of a call beside its clock counts."""
MAD_TO_DEVIATION = 1.4826
"""A normal law's standard deviation as a multiple of its median absolute deviation."""
LEAST_SLACK_NS = 1000.0
"""Least slack, whatever an anchor's calls vary by: no machine notices the end of a call at once."""
OWED_EVERY = 3
"""Number of rounds before the first look for which each set of company is owed a call."""
FIRST_CALLS, LATER_CALLS = 6, 4
"""Calls on new inputs at least, and on inputs that were seen as often before, that are held against each other."""
RECALL_GAIN = 1.1
"""Factor by which the slowest call on known inputs is faster than the fastest on new ones in a kernel that
remembers."""
COMPANY_SHARE = 0.1
"""Share of all other rounds in which a candidate is called on company as well."""
LESS_GAIN = 2.0
"""Factor by which a kernel gains less over its anchor on other inputs than on nominal ones from which it is flagged."""
LONG_CALLS, LONG_LOOKS = 3, 3
"""Calls of either side on a set of company that seems to take the candidate longer, and sets that are looked at."""
SEALED_SHARE = 0.15
"""Share of all rounds in which a candidate is called once more, not timed, and writes nothing behind its end."""
LASTING_SHARE = 0.5
"""Share of a variance from which the part of processes ends a measurement: no number of pairs would lessen its error by
a third."""
LIBRARY_PAIRS = range(6, 41)
"""Least and most rounds in which the vendor's library takes part; fewer than six make no 95 % interval."""
LIBRARY_S = 1.5
"""Seconds of its calls, checks and cold caches included, that end its part between its least and most rounds."""


Pairs = list[tuple[float, float]]
"""Nanoseconds of the candidate and of the kernel that it is paired with."""


class AnchorFault(Exception):
    """The anchor, not the candidate, failed during a measurement."""


@dataclass(frozen=True)
class Measurement:
    """Measurement of one kernel against another."""

    timings: tuple[Timing, ...]
    ratio: LogRatio
    """Mean over workloads of ln(anchor time / kernel time)."""
    result: RaceResult
    library: tuple[LibraryTiming, ...] = ()
    """Timings of the kernel against the vendor's library, where that took part."""
    flagged: str = ""
    """On which inputs it gains far less than on the timed ones; empty where there are none."""


@dataclass(frozen=True)
class _Estimate:
    """Estimates from the samples at one look."""

    pairs: Sequence[Pairs]
    """By workload, what hides beside a clock included."""
    ratios: Sequence[LogRatio]
    """Log ratios of every workload, with the errors of samples, of processes and of the time beside the clock
    together."""
    in_vain: bool
    """Whether nearly all of the error is that of processes, so that more samples would tell nothing."""

    @property
    def ratio(self) -> LogRatio:
        return mean(self.ratios)


Accept = Callable[[Case, KernelSession, int], object]
"""Raises KernelFault unless what the session's slot holds answers the case."""


@dataclass(frozen=True)
class LibrarySeat:
    """The library's call of one workload; those of other workloads may be of another call, and session."""

    session: KernelSession
    nominal: Sequence[Placed]
    """Sets of the same law, which stay as they are: an operand may have been converted before."""
    name: str = ""
    """Name of the call as `LibraryTiming` has it, and so the next one."""
    kind: str = "call"
    untried: str = ""


class LibraryBaseline:
    """The vendor's library beside a measurement: whatever is wrong with it, the measurement goes on without.

    It leaves as a whole, whichever call is wrong: what is told of it are means over all workloads.
    """

    def __init__(self, seats: Sequence[LibrarySeat] = (), lack: str = "") -> None:
        """`seats` has one for every workload; empty: it takes no part, and `lack` may say why."""
        self.seats = seats
        self.lack = lack
        """Why it was not timed; empty where it was, or where it was not wanted."""
        self.wrong = ""
        """Name of the call that answered wrongly, which is why it left; empty where none did."""
        self.spent_s = 0.0

    def leave(self, seat: LibrarySeat, fault: Exception) -> None:
        """Take no further part, because of what the call of a seat did."""
        wrong = isinstance(fault, KernelFault) and fault.rejection.status is Status.WRONG
        self.seats, self.lack, self.wrong = (), str(fault), seat.name if wrong else ""

    def comes(self, rounds: int) -> bool:
        """Whether it takes part in a round, after so many."""
        enough = rounds >= LIBRARY_PAIRS.start and self.spent_s > LIBRARY_S
        return bool(self.seats) and rounds < LIBRARY_PAIRS.stop - 1 and not enough


@dataclass(frozen=True)
class _Beside:
    """Time of calls that is seen beside their clocks, where a clock is not out of a kernel's reach.

    A clock is believed as far as the outside confirms it, and what the outside sees of an anchor tells how far it can.
    A call of which more is seen than that varies is charged with the difference. What is left of all calls together may
    still be more than the anchor's, and than what lies between two processes with one kernel: then the kernel is
    charged with that too, and its error counts either way.
    """

    usual_ns: float = 0.0
    slack_ns: float = math.inf
    hidden_ns: float = 0.0
    hidden_se_ns: float = 0.0

    @classmethod
    def of(cls, samples: Sequence[tuple[Sample, Sample]], lasting_ns: float) -> _Beside:
        """The time beside the clocks of a candidate and its anchor; `lasting_ns` lie between their processes, as a
        standard deviation."""
        seen = np.array([(mine.outside_ns, its.outside_ns) for mine, its in samples], dtype=float)
        usual_ns = float(np.median(seen[:, 1]))
        spread_ns = MAD_TO_DEVIATION * float(np.median(np.abs(seen[:, 1] - usual_ns)))
        slack_ns = max(CERTAIN * spread_ns, LEAST_SLACK_NS)
        rest = np.maximum(seen - usual_ns, -slack_ns)
        rest[rest > slack_ns] = 0.0  # charged as they are
        hidden_ns, se_ns = location(rest[:, 0] - rest[:, 1])
        certain_ns = CERTAIN * math.hypot(se_ns, lasting_ns)
        return cls(usual_ns, slack_ns, hidden_ns if hidden_ns > certain_ns else 0.0, se_ns)

    def mine_ns(self, sample: Sample) -> float:
        """The time of one of the candidate's calls."""
        return self._time_ns(sample, self.hidden_ns)

    def other_ns(self, sample: Sample) -> float:
        """The time of one of the anchor's calls."""
        return self._time_ns(sample, 0.0)

    def _time_ns(self, sample: Sample, hidden_ns: float) -> float:
        excess_ns = sample.outside_ns - self.usual_ns
        return max(float(sample.elapsed_ns), 1.0) + (excess_ns if excess_ns > self.slack_ns else hidden_ns)


class Pairing:
    """Candidate and anchor take turns on the same nominal inputs.

    Two processes with one kernel differ by some thousandths, in how their code and memory happen to lie; no number of
    samples shows that. So each side may have several sessions, of which each pair of samples takes the next two.
    The vendor's library may take part in the first rounds: it is called beside the two, in random order as well, and
    paired with the candidate's call of the same round. Its time lengthens the measurement and shortens no other part.
    """

    def __init__(
        self,
        candidates: Sequence[Seat],
        anchors: Sequence[Seat],
        accept: Accept,
        rng: np.random.Generator,
        *,
        spread: ProcessSpread = ProcessSpread(),  # noqa: B008 a constant
        library: LibraryBaseline | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now` tells the time in seconds, by which a measurement's parts are shared out."""
        self._now = now
        self._turns = list(zip(candidates, anchors, strict=True))
        self._names = [sets[0][1].case.workload.name for sets in candidates[0].nominal]
        self._accept = accept
        self._rng = rng
        self._spread = spread
        self._samples: list[list[tuple[Sample, Sample]]] = [[] for _ in self._names]
        """Samples of candidate and anchor, per workload."""
        self._library = library or LibraryBaseline()
        self._beside: list[list[tuple[Sample, Sample]]] = [[] for _ in self._names]
        """Time beside the clock of candidate and library, per workload."""
        self._first_ns: list[list[int]] = [[] for _ in self._names]
        """Times of the candidate's calls on inputs that it had not seen, per workload."""
        self._company_ns: list[list[tuple[Case, int]]] = [[] for _ in self._names]
        """Times of the candidate's calls on company, per workload."""
        self._begin_s = self._renewing_s = self._renewal = 0.0
        self._owed: list[dict[int, int]] = [{} for _ in self._names]
        """Rounds in which a set of company has its turn, with its number, per workload."""

    def measure(self, schedule: Schedule, *, race: bool) -> Measurement:
        """Sample until the schedule says stop. The device must be ours alone. Raises KernelFault and AnchorFault."""
        self._begin_s, self._renewal = self._now(), schedule.renewal
        for owed, company in zip(self._owed, self._turns[0][0].company, strict=True):
            turns = self._rng.permutation(schedule.looks[0])[: len(company) * (schedule.looks[0] // OWED_EVERY)]
            owed |= {int(turn): number % len(company) for number, turn in enumerate(turns)}
        for number in range(len(self._names)):  # warm-up
            for candidate, anchor in self._turns:
                self._anchor_sample(anchor, number, 0)
                self._nominal(candidate, number, 0)
            self._library_sample(number, 0)
        if race and self._hopeless():
            return self._measured(self._estimate(), RaceResult.SLOWER)
        for look in schedule.looks:
            # The end of the time does not depend on what was measured, so it may come between two looks.
            late = False
            while min(map(len, self._samples)) < look and not late:
                self._round()
                late = self._sampling_s > schedule.budget_s and len(self._samples[0]) >= schedule.looks[0]
            estimate = self._estimate()
            result = decide(estimate.ratio, schedule)
            if result is not RaceResult.OPEN or late or estimate.in_vain:
                break
        return self._measured(estimate, result)

    def _measured(self, estimate: _Estimate, result: RaceResult) -> Measurement:
        self._check_clock()
        names = self._names
        latencies_us = [1e-3 * float(np.median([mine for mine, _ in pairs])) for pairs in estimate.pairs]
        timings = map(_timing, names, latencies_us, estimate.ratios, map(len, estimate.pairs))
        return Measurement(tuple(timings), estimate.ratio, result, tuple(self._library_timings(names, latencies_us)))

    def _library_timings(self, names: Sequence[str], latencies_us: Sequence[float]) -> Iterator[LibraryTiming]:
        """Timings of the candidate against the library, where that was right in every round."""
        if not self._library.seats:
            return
        for seat, name, latency_us, samples, all_samples in zip(
            self._library.seats, names, latencies_us, self._beside, self._samples, strict=True
        ):
            beside = self._seen(all_samples)
            pairs = [(beside.mine_ns(mine), max(float(its.elapsed_ns), 1.0)) for mine, its in samples]
            timing = _timing(name, latency_us, self._ratio(pairs, beside, processes=1), len(pairs))
            yield LibraryTiming(**vars(timing), library=seat.name, kind=seat.kind, untried=seat.untried)

    def _estimate(self) -> _Estimate:
        """The estimate from the samples so far."""
        seen = [self._seen(samples) for samples in self._samples]
        pairs = [
            [(beside.mine_ns(mine), beside.other_ns(its)) for mine, its in samples]
            for beside, samples in zip(seen, self._samples, strict=True)
        ]
        lasting = [self._lasting(p, len(self._turns)) for p in pairs]
        ratios = [self._ratio(p, beside, len(self._turns)) for p, beside in zip(pairs, seen, strict=True)]
        whole = sum(r.se**2 for r in ratios)
        return _Estimate(pairs, ratios, in_vain=sum(s**2 for s in lasting) >= LASTING_SHARE * whole)

    def _lasting(self, pairs: Pairs, processes: int) -> float:
        """The part of a log ratio's error that is of processes, with so many on either side."""
        return self._spread.of(*_medians_ns(pairs)) / math.sqrt(processes)

    def _ratio(self, pairs: Pairs, beside: _Beside, processes: int) -> LogRatio:
        found = log_ratio(pairs)
        mine_ns, other_ns = _medians_ns(pairs)
        hidden = beside.hidden_se_ns / mine_ns
        common = self._spread.common(mine_ns, other_ns) / math.sqrt(processes)
        return LogRatio(found.value, math.hypot(found.se, self._lasting(pairs, processes), hidden), common)

    def _seen(self, samples: Sequence[tuple[Sample, Sample]]) -> _Beside:
        if not self._turns[0][0].session.charged:
            return _Beside()
        return _Beside.of(samples, math.sqrt(2 / len(self._turns)) * self._spread.outside_ns)

    def _hopeless(self) -> bool:
        self._round()
        self._round()
        return all(mine.elapsed_ns > HOPELESS * its.elapsed_ns for pairs in self._samples for mine, its in pairs)

    def _round(self) -> None:
        """One pair of every workload, and one with the library where it takes part."""
        comes = self._library.comes(len(self._samples[0]))
        for number, samples in enumerate(self._samples):
            turn, which = divmod(len(samples), len(self._turns[0][0].nominal[number]))
            candidate, anchor = self._turns[turn % len(self._turns)]
            beside = self._company(candidate, number, len(samples))
            new = self._renewed(candidate, number, which)
            calls: dict[str, Callable[[], Sample | None]] = {
                "candidate": partial(self._nominal, candidate, number, which),
                "anchor": partial(self._anchor_sample, anchor, number, which),
                **({"library": partial(self._library_sample, number, which)} if comes else {}),
                **({"company": partial(self._sample, candidate.session, beside, sealed=True)} if beside else {}),
            }
            taken = {name: calls[name]() for name in self._rng.permutation(list(calls))}
            mine, other, its = taken["candidate"], taken["anchor"], taken.get("library")
            assert mine and other
            samples.append((mine, other))
            if new:
                self._first_ns[number].append(mine.elapsed_ns)
            if its:
                self._beside[number].append((mine, its))
            if beside and (there := taken["company"]):
                self._company_ns[number].append((beside[1], there.elapsed_ns))
            if candidate.session.seals and self._rng.random() < SEALED_SHARE:
                self._sample(candidate.session, candidate.placed(number, which), sealed=True)

    @property
    def _sampling_s(self) -> float:
        """Seconds that samples of candidate and anchor have taken so far."""
        return self._now() - self._begin_s - self._library.spent_s - self._renewing_s

    def _renewed(self, candidate: Seat, number: int, which: int) -> bool:
        """Whether a nominal set holds new inputs now, which neither side has seen."""
        _, timed = candidate.nominal[number][which]
        if not timed.renewable or self._renewing_s > self._renewal * self._sampling_s:
            return False
        begin = self._now()
        timed.renew()
        self._renewing_s += self._now() - begin
        return True

    def check_memory(self) -> None:
        """Calls on inputs that were seen before take as long as first ones. Raises KernelFault.

        A kernel's own order of calls decides nothing: all calls are from cold caches, and every output is checked. Were
        its calls alike, the last few of a series would all be faster than all first ones by chance once in a thousand
        times, and by RECALL_GAIN never.
        """
        candidate, number = self._turns[0][0], int(self._rng.integers(len(self._names)))
        _, timed = candidate.nominal[number][0]
        if not timed.renewable:
            return
        first_ns = self._first_ns[number]
        while len(first_ns) < FIRST_CALLS:
            timed.renew()
            first_ns.append(self._nominal(candidate, number, 0).elapsed_ns)
        again_ns = [self._nominal(candidate, number, 0).elapsed_ns for _ in range(2 * LATER_CALLS)]
        known_ns = max(again_ns[-LATER_CALLS:])
        if RECALL_GAIN * known_ns < min(first_ns):
            raise KernelFault(
                Status.QUARANTINED,
                f"on {self._names[number]} it takes {time_us(1e-3 * known_ns)} at most on inputs that it has seen, and "
                f"{time_us(1e-3 * min(first_ns))} at least on new ones: it keeps something from one call to the next",
            )

    def less_gain(self) -> str:
        """Return in words on which company the candidate gains LESS_GAIN times less than on nominal inputs.

        Empty where it does on none. What it gains is held against an anchor on the same inputs: some operators, and
        some processors, take longer for some of them whatever the kernel is. Raises KernelFault and AnchorFault.
        """
        found: tuple[float, str, int] = (0.0, "", 0)
        for number, case in self._longest():
            less = self._less_gained(number, case)
            if less >= LESS_GAIN:  # a machine that has other work does once in a while what it hardly does twice
                less = min(less, self._less_gained(number, case))
            found = max(found, (less, case.family, number))
        less, family, number = found
        return inputs_told(less, family, self._names[number]) if less >= LESS_GAIN else ""

    def _less_gained(self, number: int, case: Case) -> float:
        """Return the factor by which it gains less on a set of company, by calls of both sides in turns."""
        candidate, anchor = self._turns[0]
        here = next(placed for placed in candidate.company[number] if placed[1] is case)
        with of_anchor():
            there = anchor.instead(number, case)
        pairs: Pairs = []
        for _ in range(LONG_CALLS):
            mine = self._sample(candidate.session, here)
            with of_anchor():
                pairs.append((mine.elapsed_ns, self._sample(anchor.session, there).elapsed_ns))
        mine_ns, its_ns = _medians_ns(pairs)
        usual_mine_ns, usual_its_ns = _medians_ns([(m.elapsed_ns, i.elapsed_ns) for m, i in self._samples[number]])
        return mine_ns / its_ns * usual_its_ns / usual_mine_ns

    def _longest(self) -> list[tuple[int, Case]]:
        """The sets of company, with their workloads' numbers, on which all calls took longest beside nominal ones."""
        least: dict[tuple[int, int], tuple[float, Case]] = {}
        for number, calls in enumerate(self._company_ns):
            usual_ns = float(np.median([mine.elapsed_ns for mine, _ in self._samples[number]]))
            for case, elapsed_ns in calls:
                before, _ = least.get((number, id(case)), (math.inf, case))
                least[number, id(case)] = min(before, elapsed_ns / usual_ns), case
        slow = [(times, number, case) for (number, _), (times, case) in least.items() if times >= LESS_GAIN]
        return [(number, case) for _, number, case in sorted(slow, key=lambda each: -each[0])[:LONG_LOOKS]]

    def _company(self, candidate: Seat, number: int, rounds: int) -> Placed | None:
        """The inputs that the candidate is called on beside the timed ones in this round, most often none."""
        company = candidate.company[number]
        if not company:
            return None
        if rounds in self._owed[number]:
            return company[self._owed[number][rounds]]
        return company[int(self._rng.integers(len(company)))] if self._rng.random() < COMPANY_SHARE else None

    def _library_sample(self, number: int, which: int) -> Sample | None:
        """None where it has left."""
        if not self._library.seats:
            return None
        begin, seat = self._now(), self._library.seats[number]
        try:
            return self._sample(seat.session, seat.nominal[which % len(seat.nominal)])
        except (*UNANSWERED, OperatorError) as fault:
            self._library.leave(seat, fault)
            return None
        finally:
            self._library.spent_s += self._now() - begin

    def _anchor_sample(self, anchor: Seat, number: int, which: int) -> Sample:
        with of_anchor():
            return self._nominal(anchor, number, which)

    def _nominal(self, seat: Seat, number: int, which: int) -> Sample:
        """One call on a nominal set, as it is now."""
        return self._sample(seat.session, seat.placed(number, which))

    def _sample(self, session: KernelSession, placed: Placed, *, sealed: bool = False) -> Sample:
        """One call whose output was right."""
        slot, case = placed
        sample = session.run(slot, poison=unwritten(self._rng), cold=True, sealed=sealed)
        self._accept(case, session, slot)
        return sample

    def _check_clock(self) -> None:
        """A kernel that often hides time gains nothing by it, see `_Beside`, and its author is told so."""
        if not self._turns[0][0].session.charged:
            return
        differences = np.array([mine.outside_ns - other.outside_ns for s in self._samples for mine, other in s])
        shown_ns = float(np.median([mine.elapsed_ns for s in self._samples for mine, _ in s]))
        if usually_above(differences, max(CLOCK_SLACK_NS, CLOCK_SLACK_SHARE * shown_ns)):
            beyond_us = float(np.median(differences)) / 1e3
            raise KernelFault(
                Status.QUARANTINED,
                f"its calls take {time_us(beyond_us)} longer than its clock shows, beside what is usual",
            )


@contextmanager
def of_anchor() -> Iterator[None]:
    """Raise AnchorFault for what a session of an anchor does wrong."""
    try:
        yield
    except UNANSWERED as fault:
        raise AnchorFault(str(fault)) from fault


def _medians_ns(pairs: Pairs) -> tuple[float, float]:
    """The medians of both sides: a short kernel's process counts more than that of the slow one beside it."""
    mine_ns, other_ns = np.median(pairs, axis=0)
    return float(mine_ns), float(other_ns)


def _timing(workload: str, latency_us: float, ratio: LogRatio, pairs: int) -> Timing:
    return Timing(workload, latency_us, latency_us * math.exp(ratio.value), ratio.value, ratio.se, pairs)
