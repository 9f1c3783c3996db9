"""Paired measurement, on sessions whose samples are made up."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitness.evaluation import Status
from fitness.judging.device import KernelFault, Sample
from fitness.judging.paired import LIBRARY_PAIRS, LONG_CALLS, LibraryBaseline, LibrarySeat, Measurement, Pairing
from fitness.judging.timed_inputs import Seat, TimedSet
from fitness.judging.timing import CONFIRM, FULL, SCREEN, ProcessSpread, RaceResult, Schedule

Draw = Callable[[np.random.Generator], Sample]
NONE = ProcessSpread()


class ScriptedSession:
    """`fitness.judging.device.KernelSession` without a process."""

    def __init__(self, draw: Draw, seed: int, *, charged: bool = True) -> None:
        self.charged = charged
        self.seals = False
        self._draw = draw
        self._rng = np.random.default_rng(seed)

    def run(self, slot: int, *, poison: int, cold: bool = False, sealed: bool = False) -> Sample:
        return self._draw(self._rng)


def noisy(elapsed_us: float, outside_us: float = 50.0, *, late: float = 0.0) -> Draw:
    """Times with 2 % noise; in a share `late` of calls the machine notices their end half a millisecond later."""

    def draw(rng: np.random.Generator) -> Sample:
        elapsed_ns = 1e3 * elapsed_us * np.exp(0.02 * rng.standard_normal())
        outside_ns = 1e3 * outside_us * np.exp(0.02 * rng.standard_normal()) + 500e3 * (rng.random() < late)
        return Sample(int(elapsed_ns), int(outside_ns))

    return draw


def hiding(share: float, hidden_us: float, seen_us: float) -> Draw:
    """A kernel that stops its clock too early, in a share of its calls."""
    rest = noisy(seen_us - hidden_us)

    def draw(rng: np.random.Generator) -> Sample:
        sample = rest(rng)
        if rng.random() < share:
            return Sample(sample.elapsed_ns, sample.outside_ns + int(1e3 * hidden_us))
        return Sample(sample.elapsed_ns + int(1e3 * hidden_us), sample.outside_ns)

    return draw


def seat(session: Any, *, workloads: int, sets: int = 3, company: int = 0, renewed: Any = None) -> Seat:
    """A session with so many sets for each of some workloads, in slots that count from 1."""
    slots = itertools.count(1)

    def placed(number: int, count: int, family: str) -> Any:
        workload = SimpleNamespace(name=f"n={number}")
        return [(next(slots), SimpleNamespace(family=family, workload=workload)) for _ in range(count)]

    nominal = [[(slot, TimedSet(case, renewed)) for slot, case in placed(n, sets, "nominal")] for n in range(workloads)]
    return Seat(session, nominal, [placed(number, company, "scaled") for number in range(workloads)])


def pairing(
    candidate: Draw,
    anchor: Draw,
    *,
    workloads: int = 3,
    charged: bool = True,
    seed: int = 0,
    spread: ProcessSpread = NONE,
) -> Pairing:
    sessions = [ScriptedSession(d, seed + i, charged=charged) for i, d in enumerate((candidate, anchor))]
    seats = [[seat(session, workloads=workloads)] for session in sessions]
    return Pairing(*seats, lambda *_: None, np.random.default_rng(seed), spread=spread)


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_nobody_gains_by_stopping_the_clock_early_now_and_then(share: float) -> None:
    for seed in range(10):
        found = pairing(hiding(share, 400, 1000), noisy(1000), seed=3 * seed).measure(SCREEN, race=False)
        assert abs(found.ratio.value) < 0.05  # an honest clock would have shown 1000 us on either side


def test_who_always_stops_the_clock_early_is_told_so() -> None:
    with pytest.raises(KernelFault) as caught:
        pairing(hiding(1.0, 400, 1000), noisy(1000)).measure(SCREEN, race=False)
    assert caught.value.rejection.status is Status.QUARANTINED
    assert " longer than its clock shows" in caught.value.rejection.message


@pytest.mark.parametrize("late", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("workloads", [1, 3])
def test_a_busy_machine_gets_nobody_accused(late: float, workloads: int) -> None:
    for seed in range(20):
        pair = pairing(noisy(300, late=late), noisy(300, late=late), workloads=workloads, seed=3 * seed)
        pair.measure(SCREEN, race=False)


def test_where_the_driver_takes_the_time_it_is_not_charged() -> None:
    pair = pairing(noisy(100, outside_us=900), noisy(100, outside_us=200), workloads=1, charged=False)
    found = pair.measure(SCREEN, race=False)
    assert found.timings[0].latency_us == pytest.approx(100, rel=0.05)


def test_a_hopeless_kernel_is_sampled_twice_only() -> None:
    found = pairing(noisy(9000), noisy(100)).measure(SCREEN, race=True)
    assert found.result is RaceResult.SLOWER
    assert [t.pairs for t in found.timings] == [2, 2, 2]


def beside(library: Draw, *more: Draw, seed: int = 0, seconds: float = 0.0) -> tuple[Measurement, LibraryBaseline]:
    """The measurement of a kernel that takes 100 us, its anchor 200 us; every sample of the library takes `seconds` of
    our time.

    `more`: of the second workload's call, where that is another one.
    """
    mine, anchor = (seat(ScriptedSession(noisy(us), seed + i), workloads=2) for i, us in enumerate((100, 200)))
    calls = [ScriptedSession(draw, seed + 2 + i, charged=False) for i, draw in enumerate((library, *more))]
    seats = [[(slot, timed.case) for slot, timed in seat(session, workloads=1).nominal[0]] for session in calls]
    baseline = LibraryBaseline(
        [LibrarySeat(calls[i % len(calls)], seats[i % len(calls)], f"call {i % len(calls)}") for i in (0, 1)]
    )
    baseline.spent_s += seconds
    rng = np.random.default_rng(seed)
    return Pairing([mine], [anchor], lambda *_: None, rng, library=baseline).measure(CONFIRM, race=False), baseline


def test_the_library_is_paired_with_the_kernel_itself() -> None:
    found, baseline = beside(noisy(150))
    assert baseline.lack == ""
    assert [t.workload for t in found.library] == ["n=0", "n=1"]
    for mine, other in zip(found.timings, found.library, strict=True):
        assert math.exp(mine.log_ratio) == pytest.approx(2.0, rel=0.03)
        assert math.exp(other.log_ratio) == pytest.approx(1.5, rel=0.03)
        assert other.latency_us == mine.latency_us


def test_each_workload_may_have_another_call_of_the_library() -> None:
    found, _ = beside(noisy(150), noisy(50))
    assert [t.library for t in found.library] == ["call 0", "call 1"]
    for timing, ratio in zip(found.library, (1.5, 0.5), strict=True):
        assert math.exp(timing.log_ratio) == pytest.approx(ratio, rel=0.03)


def test_the_intervals_of_the_library_hold_what_they_promise() -> None:
    held = []
    for seed in range(40):
        found, _ = beside(noisy(150), seed=3 * seed)
        held += [abs(t.log_ratio - math.log(1.5)) < 1.96 * t.log_ratio_se for t in found.library]
    assert sum(held) >= 0.85 * len(held)


def test_a_slow_library_takes_part_in_few_rounds_only() -> None:
    found, _ = beside(noisy(150), seconds=1e6)
    assert [t.pairs for t in found.library] == [LIBRARY_PAIRS.start] * 2
    assert min(t.pairs for t in found.timings) >= CONFIRM.looks[0]  # and costs the two others none of theirs


def test_a_library_that_fails_leaves_the_measurement_as_it_is() -> None:
    calls = []

    def failing(rng: np.random.Generator) -> Sample:
        calls.append(None)
        if len(calls) == 7:
            raise KernelFault(Status.WRONG, "it is out of bounds")
        return noisy(150)(rng)

    found, baseline = beside(failing)
    assert (found.library, baseline.lack, len(calls)) == ((), "it is out of bounds", 7)
    assert found.result is RaceResult.FASTER
    calls.clear()
    found, baseline = beside(noisy(50), failing)
    assert (found.library, baseline.lack, len(calls)) == ((), "it is out of bounds", 7), "the other call leaves with it"


@given(
    times=st.lists(
        st.lists(st.tuples(st.integers(1, 10**9), st.integers(1, 10**9)), min_size=10, max_size=10),
        min_size=1,
        max_size=4,
    )
)
def test_times_show_the_ratio_beside_them_whatever_was_measured(times: list[list[tuple[int, int]]]) -> None:
    def replayed(side: int) -> Seat:
        left = [iter([row[0][side], *(pair[side] for pair in row)]) for row in times]
        session = SimpleNamespace(charged=False, seals=False, run=lambda slot, **_: Sample(next(left[slot - 1]), 0))
        return seat(session, workloads=len(times), sets=1)

    schedule = Schedule(looks=(10,), detectable=0.0, budget_s=1e9)
    pairing = Pairing([replayed(0)], [replayed(1)], lambda *_: None, np.random.default_rng(0))
    found = pairing.measure(schedule, race=False)
    for timing, row in zip(found.timings, times, strict=True):
        assert timing.latency_us == pytest.approx(np.median([mine for mine, _ in row]) / 1e3)
        assert math.log(timing.anchor_latency_us / timing.latency_us) == pytest.approx(timing.log_ratio, abs=1e-9)
    both = [[t.latency_us for t in found.timings], [t.anchor_latency_us for t in found.timings]]
    mine, other = (sum(map(math.log, side)) / len(times) for side in both)
    assert other - mine == pytest.approx(found.ratio.value, abs=1e-9)


def test_processes_whose_clocks_lie_apart_are_not_called_different() -> None:
    """10 us kernels, each process 0.3 us off: no number of pairs shows that it is the process and not the kernel."""
    spread, wrong, stopped = ProcessSpread(fixed_ns=300.0), {True: 0, False: 0}, []
    for seed in range(60):
        offsets = np.random.default_rng(seed).standard_normal(2) * 0.3
        for known in wrong:
            two = [noisy(10 + offset, 0.0) for offset in offsets]
            told = spread if known else ProcessSpread()
            found = pairing(*two, workloads=1, charged=False, seed=2 * seed, spread=told).measure(CONFIRM, race=False)
            wrong[known] += found.result in (RaceResult.FASTER, RaceResult.SLOWER)
            if known:
                stopped.append(found.timings[0].pairs)
    assert wrong[True] <= 8 < 25 < wrong[False]
    assert max(stopped) <= 40  # more would tell nothing


@pytest.mark.slow
@pytest.mark.parametrize(
    "spread", [ProcessSpread(fixed_ns=300.0), ProcessSpread(outside_ns=1000.0)], ids=["clocks", "beside them"]
)
def test_processes_that_lie_apart_do_so_on_all_workloads(spread: ProcessSpread) -> None:
    """Six workloads tell no more of two processes than one does."""
    wrong = 0
    for seed in range(100):
        apart = np.random.default_rng(seed).standard_normal(2)
        two = [noisy(10 + 1e-3 * spread.fixed_ns * by, 25 + 1e-3 * spread.outside_ns * by) for by in apart]
        ratio = pairing(*two, workloads=6, seed=2 * seed, spread=spread).measure(CONFIRM, race=False).ratio
        wrong += abs(ratio.value) > 1.96 * ratio.se
    assert wrong <= 5  # of 100; 21 and 7 where errors of workloads are taken as independent


def test_long_kernels_keep_their_precision_whatever_lies_around_them() -> None:
    found = pairing(noisy(1000), noisy(1000), charged=False).measure(CONFIRM, race=False)
    assert found.ratio.se < 0.005
    assert ProcessSpread(fixed_ns=200.0).of(1e6, 1e6) < 0.0003


@pytest.mark.parametrize(("mine_us", "anchor_us"), [(8, 50), (50, 8)])
def test_a_short_kernel_beside_a_long_one_is_as_uncertain_as_its_process(mine_us: float, anchor_us: float) -> None:
    """The error of a process counts in each kernel's own time, not in the mean of the two."""
    spread, wrong = ProcessSpread(fixed_ns=300.0), 0
    for seed in range(100):
        apart = 0.3 * np.random.default_rng(seed).standard_normal(2)
        two = [noisy(us + by, 0.0) for us, by in zip((mine_us, anchor_us), apart, strict=True)]
        ratio = pairing(*two, workloads=1, charged=False, seed=2 * seed, spread=spread).measure(FULL, race=False).ratio
        wrong += abs(ratio.value - math.log(anchor_us / mine_us)) > 1.96 * ratio.se
    assert wrong <= 12  # of 100; 37 and 29 where the mean of the two times is taken


def test_company_is_called_at_random_among_timed_inputs_and_checked_as_they_are() -> None:
    """Every set of it at least once, the anchor never, and no call of it counts as time."""
    called: dict[str, list[int]] = {"mine": [], "other": []}
    accepted: list[str] = []

    def scripted(name: str, times: dict[int, int]) -> Any:
        def run(slot: int, *, poison: int, cold: bool, sealed: bool = False) -> Sample:
            assert cold
            called[name].append(slot)
            return Sample(times.get(slot, 1000), 0)

        return SimpleNamespace(charged=False, seals=False, run=run)

    # Two timed sets of one workload in slots 1 and 2, two of company in 3 and 4.
    mine = seat(scripted("mine", {3: 10**6, 4: 10**6}), workloads=1, sets=2, company=2)
    other = seat(scripted("other", {}), workloads=1, sets=2)
    pair = Pairing([mine], [other], lambda case, *_: accepted.append(case.workload.name), np.random.default_rng(0))
    found = pair.measure(FULL, race=False)
    assert set(called["mine"]) == {1, 2, 3, 4}
    assert set(called["other"]) == {1, 2}
    assert len(accepted) == len(called["mine"]) + len(called["other"])
    assert found.timings[0].latency_us == 1.0
    places = [i for i, slot in enumerate(called["mine"]) if slot > 2]
    assert np.diff(places).std() > 0  # no fixed rhythm


class ByCase(ScriptedSession):
    """Calls take 100 us where a slot holds nominal inputs, and longer by this factor where it holds others."""

    def __init__(self, other: float, seed: int) -> None:
        super().__init__(noisy(100), seed, charged=False)
        self._other = other
        self.slow_calls = math.inf
        """Calls on others that are left until they take no longer."""
        self.family: dict[int, str] = {}

    def bind(self, slot: int, case: Any, *, at_end: bool) -> None:
        self.family[slot] = case.family

    def run(self, slot: int, *, poison: int, cold: bool = False, sealed: bool = False) -> Sample:
        sample = super().run(slot, poison=poison)
        if self.family[slot] == "nominal":
            return sample
        self.slow_calls -= 1
        return Sample(int(sample.elapsed_ns * (self._other if self.slow_calls >= 0 else 1)), 0)


def by_values(mine: float, other: float, *, looks: float = math.inf) -> tuple[str, dict[int, str]]:
    """A kernel and an anchor take so much longer on other values: what is told of it, and what the anchor's slots hold
    once nominal inputs were called again. After so many looks at the kernel's times it takes no longer."""
    seats = [
        seat(ByCase(times, seed), workloads=2, sets=1, company=company)
        for seed, (times, company) in enumerate(((mine, 1), (other, 0)))
    ]
    for each in seats:
        timed = [(slot, held.case) for sets in each.nominal for slot, held in sets]
        for slot, case in (*timed, *itertools.chain(*each.company)):
            each.session.bind(slot, case, at_end=False)
    pair = Pairing([seats[0]], [seats[1]], lambda *_: None, np.random.default_rng(0))
    pair.measure(CONFIRM, race=False)
    seats[0].session.slow_calls = looks * LONG_CALLS  # type: ignore[attr-defined]
    said = pair.less_gain()
    for number in range(2):
        seats[1].placed(number, 0)
    return said, seats[1].session.family  # type: ignore[attr-defined]


def test_a_gain_that_only_nominal_values_have_is_told() -> None:
    said, held = by_values(8.0, 1.0)
    assert re.fullmatch(r"gains (7|8)\.\d\d times less on `scaled` inputs of n=[01] than on the timed ones", said)
    assert set(held.values()) == {"nominal"}


@pytest.mark.parametrize(("mine", "other"), [(1.0, 1.0), (1.5, 1.0), (8.0, 8.0), (0.1, 1.0)])
def test_nothing_is_told_where_values_change_little_or_whatever_the_kernel_is(mine: float, other: float) -> None:
    assert by_values(mine, other)[0] == ""


def test_nothing_is_told_of_what_a_busy_machine_did_once() -> None:
    assert by_values(8.0, 1.0, looks=1)[0] == ""


def test_a_wrong_answer_on_company_ends_the_measurement() -> None:
    def accept(case: Any, session: Any, slot: int) -> None:
        if slot == 4:
            raise KernelFault(Status.WRONG, "it is out of bounds")

    seats = [[seat(ScriptedSession(noisy(100), i, charged=False), workloads=1, company=n)] for i, n in ((0, 1), (1, 0))]
    with pytest.raises(KernelFault, match="out of bounds"):
        Pairing(*seats, accept, np.random.default_rng(0)).measure(SCREEN, race=False)


@pytest.mark.parametrize("hidden_us", [0.0, 2.0, 45.0])
def test_what_every_call_hides_is_charged_to_the_kernel(hidden_us: float) -> None:
    """A clock that shows 20 us less what is hidden, seen from outside with a deviation of 1 us."""

    def draw(hides_us: float) -> Draw:
        def one(rng: np.random.Generator) -> Sample:
            shown_ns = 1e3 * (60 - hides_us) * np.exp(0.01 * rng.standard_normal())
            return Sample(int(shown_ns), int(1e3 * (hides_us + 30 + rng.standard_normal())))

        return one

    for seed in range(10):
        found = pairing(draw(hidden_us), draw(0.0), workloads=1, seed=3 * seed).measure(CONFIRM, race=False)
        assert abs(found.ratio.value) < 0.03 + 0.01
        assert abs(found.ratio.value) < 4 * found.ratio.se


# --- inputs that are new in every timed call --------------------------------------------------------------------------


class Remembering(ScriptedSession):
    """A kernel that answers from what it kept where it has met a slot's inputs so many times before."""

    def __init__(self, draw: Draw, seed: int, *, after: int, share: float) -> None:
        super().__init__(draw, seed)
        self._after, self._share = after, share
        self.held: dict[int, Any] = {}
        self._met: dict[int, int] = {}
        self.repeated = 0
        self.now_s = 0.0

    def bind(self, slot: int, case: Any, *, at_end: bool) -> None:
        self.held[slot] = case
        self._met[slot] = 0

    def run(self, slot: int, *, poison: int, cold: bool = False, sealed: bool = False) -> Sample:
        sample = super().run(slot, poison=poison)
        self.now_s += 0.01
        self._met[slot] = self._met.get(slot, 0) + 1
        self.repeated += self._met[slot] > 1
        known = self._met[slot] > self._after
        return Sample(int(sample.elapsed_ns * (self._share if known else 1)), sample.outside_ns)


def remembered(after: int, share: float, *, drawing_s: float = 0.001, seed: int = 0) -> tuple[Pairing, Remembering]:
    """A kernel as fast as its anchor where it meets inputs for the first time, on a clock of its own.

    A call takes 0.01 s, new inputs `drawing_s`.
    """
    session = Remembering(noisy(100), seed, after=after, share=share)
    anchor = ScriptedSession(noisy(100), seed + 1)
    anchor.bind = lambda *_, **__: None  # type: ignore[attr-defined]

    def renewed(case: Any) -> Any:
        session.now_s += drawing_s
        return SimpleNamespace(workload=case.workload)

    seats = [seat(one, workloads=2, sets=2, renewed=renewed) for one in (session, anchor)]
    seats[1] = Seat(anchor, seats[0].nominal, seats[1].company)  # one place, two sessions
    pair = Pairing([seats[0]], [seats[1]], lambda *_: None, np.random.default_rng(seed), now=lambda: session.now_s)
    return pair, session


@pytest.mark.parametrize("schedule", [SCREEN, FULL, CONFIRM])
def test_what_a_kernel_remembers_gains_it_nothing_where_inputs_are_new(schedule: Schedule) -> None:
    pair, session = remembered(1, 0.1)
    found = pair.measure(schedule, race=False)
    assert abs(found.ratio.value) < 0.05
    assert session.repeated <= 2  # the warm-up's sets, at most


@pytest.mark.parametrize("after", [0, 1, 3])
@pytest.mark.parametrize("share", [0.1, 0.8])
@pytest.mark.parametrize("drawing_s", [0.001, 0.1])
def test_a_kernel_that_is_quicker_on_known_inputs_is_told_so(after: int, share: float, drawing_s: float) -> None:
    pair, _ = remembered(after + 1, share, drawing_s=drawing_s)
    pair.measure(FULL, race=False)
    with pytest.raises(KernelFault) as caught:
        pair.check_memory()
    assert caught.value.rejection.status is Status.QUARANTINED
    assert "keeps something from one call to the next" in caught.value.rejection.message


@pytest.mark.slow
def test_nobody_honest_is_taken_for_one_that_remembers() -> None:
    for seed in range(300):
        pair, _ = remembered(0, 1.0, seed=3 * seed)
        pair.measure(Schedule(looks=(10,), detectable=0.02, budget_s=0.1), race=False)
        pair.check_memory()
