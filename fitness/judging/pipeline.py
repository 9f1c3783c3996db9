"""The verdict: build, verify, time and confirm one kernel after the other. The same for every target.

How many inputs each level takes, and why: a fault that hits a share p of all inputs is missed by n of them with
(1 - p)^n. Screening takes as many as most wrong kernels need to fail; an archive entry has passed about twenty and a
new best more than a hundred, its timed outputs included. Families of inputs are dealt like cards, never drawn one by
one, so that a fault that a family shows is found in every stage, and not in those alone where chance brought it up.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import cached_property
from itertools import cycle
from threading import Lock
from typing import Any, TypeVar

import numpy as np

from fitness.evaluation import CheckError, Evaluation, Level, Rejection, Status, Timing
from fitness.judging.base import Anchor, Built, Checked
from fitness.judging.checks import Checks
from fitness.judging.device import NAN, UNANSWERED, Device, KernelFault, KernelSession, KilledFromOutside, Prepared
from fitness.judging.library import TaskLibrary
from fitness.judging.paired import AnchorFault, LibraryBaseline, Measurement, Pairing, of_anchor
from fitness.judging.shapes import UnlistedShapes
from fitness.judging.timed_inputs import LEAST_SETS, Seat, TimedInputs, dealt, most_sets
from fitness.judging.timing import CONFIRM, FULL, ITSELF, SCREEN, RaceResult, Schedule
from fitness.oracle.cases import Case, Question
from fitness.oracle.inputs import FEW, SPECIALS, UNNOTICED
from fitness.oracle.verify import Oracle, worst
from fitness.profiling.profiles import Profile
from fitness.profiling.roofline import floor_us
from fitness.words import digits, time_us
from operators.definition.spec import Operator, Task, Workload
from operators.drawing import NOMINAL
from operators.errors import OperatorError
from operators.kernel import Kernel

SCREEN_HIDDEN = 3
FULL_HIDDEN = 10
"""Cases of hidden shapes at least, drawn anew each time, of the two lesser levels; a confirmation takes all twice."""
SPOT_HIDDEN = 2
"""Small hidden shapes of a look at a kernel whose author waits for it."""
EVERYWHERE = (NOMINAL, "scaled", "integers", UNNOTICED)
"""Families of numbers that are hardly anywhere zero: what a kernel leaves out of a shape shows in them."""
REVEALING = (FEW, SPECIALS)
"""Families of outliers and of special values: most faults that others miss show in them."""
CONFIRM_RERUNS, LEAST_RERUNS = 10, 2
"""Runs of a confirmation beside the first two on the same inputs: of all workloads together, and of each at least.
Threads that race may do so at one size alone."""
CONFIRM_PROBES = 3
FULL_UNLISTED, CONFIRM_UNLISTED = 1, 8
"""Unlisted shapes beside workloads, and as many between these and hidden ones, of the two upper levels; a confirmation
takes two beside every workload at least."""
ANCHORS_KEPT = 4

T = TypeVar("T")


class TaskBench:
    """The bench of one task on one device, on and against which its kernels are measured: timed inputs, anchors, the
    naive kernel, the library. It holds processes and memory until `forget`."""

    def __init__(
        self,
        operator: Operator,
        task: Task,
        device: Device,
        oracle: Oracle,
        baseline: Kernel,
        workloads: Sequence[Workload],
        sets: Sequence[int] | None = None,
    ) -> None:
        """`sets` is the number of sets of inputs that are kept of each workload; None: as many as `most_sets` says."""
        self.operator = operator
        self.task = task
        self.device = device
        self.oracle = oracle
        self.baseline = baseline
        self.workloads = workloads
        self.sets = sets or [most_sets(oracle.deals, len(workloads))] * len(workloads)
        """The number of sets of inputs that are kept of each workload."""
        # Secret: drawn here, never passed to a process that runs candidate code.
        self.rng = np.random.default_rng()
        self.checks = Checks(oracle, device, self.rng, self._trusted)
        self._inputs: TimedInputs | None = None
        self._anchors: OrderedDict[str, Seat] = OrderedDict()
        self._naive: KernelSession | None = None
        self._asking = Lock()
        self.library = TaskLibrary(operator, task, device, oracle, workloads, lambda: self.inputs, self.checks.accept)

    @property
    def resident(self) -> bool:
        """Whether the inputs of timed calls are drawn, and held."""
        return self._inputs is not None

    def forget(self) -> None:
        """Give up processes and memory that the next verdict makes anew."""
        for seat in self._anchors.values():
            seat.session.close(sound=True)
        if self._naive:
            self._naive.close(sound=True)
        self._anchors.clear()
        self._naive = None
        self._inputs = None

    @property
    def inputs(self) -> TimedInputs:
        """Drawn when they are first asked for. They outlive no session."""
        if self._inputs is None:
            with self.device.machine(exclusive=False):
                renewed = None if self.device.forgets else self.checks.renewed
                self._inputs = TimedInputs(
                    self.workloads, self.oracle.deals, self._drawn, self.rng, renewed, sets=self.sets
                )
        return self._inputs

    def thin(self) -> bool:
        """Give all up, and keep a set less of each workload from now on; whether there were any to spare.

        Rivals and scratch of kernels take memory beside the sets, and how much is known when it runs out.
        """
        fewer = [max(many - 1, min(many, LEAST_SETS)) for many in self.sets]
        if fewer == [*self.sets]:
            return False
        self.sets = fewer
        self.forget()
        self.library.forget()
        return True

    def _drawn(self, workload: Workload, family: str) -> Case:
        return self.checks.case(workload, family, at_end=False)

    # --- the naive kernel -------------------------------------------------------------------------------------------

    def baseline_error(self, fault: Exception) -> OperatorError:
        """The error to raise where the kernel that others are compared with fails."""
        naive = self.operator.ancestor("naive", self.task.target)
        return OperatorError(f"{naive}: the naive kernel, which others are compared with, fails: {fault}")

    def _trusted(self, question: Question) -> list[dict[str, Any]]:
        """The naive kernel's answers to a question, from a process of its own. Any thread may ask."""
        with self._asking:
            try:
                return [self._asked(question)]
            except UNANSWERED:
                # Its process may have been killed from outside; a new one tells whether it is the kernel's fault.
                self._distrust()
            try:
                return [self._asked(question)]
            except KilledFromOutside:
                self._distrust()
                raise
            except KernelFault as fault:
                self._distrust()
                raise self.baseline_error(fault) from fault

    def _distrust(self) -> None:
        if self._naive:
            self._naive.close()
        self._naive = None

    def _asked(self, question: Question) -> dict[str, Any]:
        return self._from_naive(question, lambda session: self.oracle.outputs(question, session.work(0)))

    def _from_naive(self, question: Question, read: Callable[[KernelSession], T]) -> T:
        """Run the naive kernel and read its outputs. It raises what its session raises, and what `read` does."""
        if self._naive is None:
            self._naive = self._open(self.baseline)
        self._naive.bind(0, question, at_end=question.at_end)
        self.checks.took_naive(self._naive.run(0, poison=NAN))
        try:
            return read(self._naive)
        finally:
            self._naive.work(0).fill(NAN)  # a candidate may be lent this memory next, or still have it mapped

    @cached_property
    def _unlisted_shapes(self) -> UnlistedShapes:
        """The shapes that are drawn for every kernel of the task."""
        return UnlistedShapes(self.operator)

    def unlisted(self, prepared: Prepared, beside: int, between: int) -> Iterator[Case]:
        """Cases of shapes that no file lists, as far as a kernel declares that it takes them; see `UnlistedShapes`.

        No file says either that the operator is defined there: so only what the reference answers, and the naive kernel
        is right on, is asked.
        """
        shapes, naive = self._unlisted_shapes, self.device.prepare(self.baseline)
        families = [family for family in EVERYWHERE if family in self.oracle.families]
        first, many = int(self.rng.integers(len(self.workloads))), len(self.workloads)

        def drawn(number: int) -> Workload | None:
            workload = self.workloads[(first + number) % many]
            if number < beside:
                return shapes.beside(workload, self.rng, odd=number // many % 2 == 0)
            return shapes.between(workload, self.rng)

        def cases() -> Iterator[Case]:
            for number in range(beside + between):
                shape = drawn(number)
                if shape is None:
                    continue
                try:
                    case = self.checks.case(shape, str(self.rng.choice(families)), at_end=number % 2 == 0)
                except OperatorError:
                    continue
                if self.device.takes(prepared, case.dims) and self._is_right(naive, case):
                    yield case

        return cases()

    def _is_right(self, naive: Prepared | Rejection, case: Case) -> bool:
        """Whether the naive kernel takes a case's shape, and is right on it."""
        if isinstance(naive, Rejection) or not self.device.takes(naive, case.dims):
            return False
        with self._asking:
            try:
                return self._from_naive(case, lambda session: self.oracle.within(case, session.work(0)))
            except UNANSWERED:
                self._distrust()
                return False

    # --- sessions ---------------------------------------------------------------------------------------------------

    @contextmanager
    def session(self, prepared: Prepared, *, fresh: bool = False, elsewhere: bool = False) -> Iterator[KernelSession]:
        """A session with a candidate, ended on leaving."""
        session = self.device.open(prepared, fresh=fresh, elsewhere=elsewhere)
        try:
            yield session
        except BaseException:
            session.close()
            raise
        session.close(sound=True)

    def seated(self, session: KernelSession) -> Seat:
        """A candidate's session with the timed inputs, in company. It raises KernelFault."""
        return self.inputs.seated(session, disguised=True)

    def _open(self, kernel: Kernel, *, fresh: bool = False) -> KernelSession:
        """Opens a session of a kernel that others are compared with. Raises KernelFault."""
        prepared = self.device.prepare(kernel)
        if isinstance(prepared, Rejection):
            raise KernelFault(prepared.status, f"it does not build: {' '.join(prepared.message.split())[:300]}")
        return self.device.open(prepared, fresh=fresh)

    def anchor(self, kernel: Kernel) -> Seat:
        """A session that keeps an anchor ready; the least recently used goes when there are too many.

        It raises AnchorFault.
        """
        seat = self._anchors.pop(kernel.id, None)
        if seat is None:
            seat = self._anchored(kernel)
        self._anchors[kernel.id] = seat
        while len(self._anchors) > ANCHORS_KEPT:
            self._anchors.popitem(last=False)[1].session.close(sound=True)
        return seat

    def drop_anchor(self, kernel: Kernel) -> None:
        """End the session that is kept, if there is one."""
        with suppress(KeyError):
            self._anchors.pop(kernel.id).session.close()

    @contextmanager
    def another(self, kernel: Kernel, *, fresh: bool = False) -> Iterator[Seat]:
        """One more session of an anchor, beside the one that is kept. It raises AnchorFault."""
        seat = self._anchored(kernel, fresh=fresh)
        try:
            yield seat
        except BaseException:
            seat.session.close()
            raise
        seat.session.close(sound=True)

    def _anchored(self, kernel: Kernel, *, fresh: bool = False) -> Seat:
        with of_anchor():
            session = self._open(kernel, fresh=fresh)
            try:
                return self.inputs.seated(session, disguised=False)
            except BaseException:
                session.close()
                raise

    # --- timing -----------------------------------------------------------------------------------------------------

    def against(
        self,
        sessions: Sequence[KernelSession],
        anchors: Sequence[Seat],
        schedule: Schedule,
        *,
        race: bool,
        library: LibraryBaseline | None = None,
    ) -> Measurement:
        """Candidate's sessions against an anchor's. It raises KernelFault, also where no device is so fast."""
        try:
            measured = self._paired(sessions, anchors, schedule, library, race=race)
        except KilledFromOutside:
            measured = self._paired(sessions, anchors, schedule, library, race=race)
        self._check_physics(measured)
        return measured

    def _paired(
        self,
        sessions: Sequence[KernelSession],
        anchors: Sequence[Seat],
        schedule: Schedule,
        library: LibraryBaseline | None,
        *,
        race: bool,
    ) -> Measurement:
        seats, accept = [self.seated(s) for s in sessions], self.checks.accept
        pairing = Pairing(seats, anchors, accept, self.rng, spread=self.device.spread, library=library)
        with self.device.machine(exclusive=True):
            measured = pairing.measure(schedule, race=race)
            if schedule.until_decided:
                return measured
            pairing.check_memory()  # what an archive or a report rests on
            return replace(measured, flagged=pairing.less_gain())

    def _check_physics(self, measured: Measurement) -> None:
        """Faster than the device can be is no speed: the clock lies, or work was not done. Raises KernelFault."""
        by_name = {w.name: sets[0].case for w, sets in zip(self.workloads, self.inputs.nominal, strict=True)}
        peaks = self.device.peaks()
        for timing in measured.timings:
            dims = by_name[timing.workload].dims
            if timing.latency_us >= floor_us(self.operator, dims, self.task.dtype, peaks):
                continue
            peaks = self.device.peaks(again=True)
            least_us = floor_us(self.operator, dims, self.task.dtype, peaks)
            if timing.latency_us < least_us:
                raise KernelFault(
                    Status.QUARANTINED,
                    f"{time_us(timing.latency_us)} on {timing.workload} is less than the {time_us(least_us)} that this "
                    "machine needs for the least work there is",
                )


class Pipeline:
    """`fitness.judging.base.Fitness` for one task on one device."""

    def __init__(
        self,
        operator: Operator,
        task: Task,
        device: Device,
        oracle: Oracle,
        baseline: Kernel,
        *,
        workload_set: str,
        sets: Sequence[int] | None = None,
    ) -> None:
        """See `TaskBench` for `sets`."""
        self.operator = operator
        self.task = task
        self.device = device
        self.oracle = oracle
        self.baseline = baseline
        """The kernel whose speedup is 1 by definition."""
        self.workloads = operator.workload_set(workload_set)
        self.bench = TaskBench(operator, task, device, oracle, baseline, self.workloads, sets)
        self._checks = self.bench.checks
        self._rng = self.bench.rng

    def close(self) -> None:
        self.forget()

    @property
    def resident(self) -> bool:
        """Whether the inputs of timed calls are drawn, and held."""
        return self.bench.resident

    def forget(self) -> None:
        """Give up processes and memory that the next verdict makes anew."""
        self.bench.forget()

    # --- build, and the levels --------------------------------------------------------------------------------------

    def build(self, kernel: Kernel) -> Built | Evaluation:
        begin = time.perf_counter()
        result = self.device.prepare(kernel)
        build_ms = 1e3 * (time.perf_counter() - begin)
        if isinstance(result, Rejection):
            return self._failure(kernel, Level.SCREEN, result, stage_ms={"build": build_ms})
        compiled = result.compiled
        return Built(kernel.id, compiled.code_digest, compiled.cell, compiled.facts, build_ms)

    def emulate(self, kernel: Kernel) -> Checked:
        """See `fitness.judging.base.Builder`."""
        return self.device.emulate(kernel)

    def spot_check(self, kernel: Kernel) -> Checked:
        """See `fitness.judging.base.Fitness`: some of the smaller half of the hidden shapes, each on some inputs, and
        one on nominal ones: few of another family may all be zeros."""
        begin = time.perf_counter()
        self._checks.begin()
        prepared = self.device.prepare(kernel)
        if isinstance(prepared, Rejection):
            return Checked(prepared, seconds=time.perf_counter() - begin)
        sizes = sorted(self._supported(prepared), key=lambda w: math.prod(max(size, 1) for size in w.dims.values()))
        small = sizes[: max(SPOT_HIDDEN, len(sizes) // 2)]
        chosen = [small[i] for i in self._rng.permutation(len(small))[:SPOT_HIDDEN]]
        try:
            with self.bench.session(prepared) as session:
                errors = self._checks.verify(session, prepared, self._dealt(chosen, len(chosen), (NOMINAL,)))
        except KernelFault as fault:
            return Checked(fault.rejection, seconds=time.perf_counter() - begin)
        return Checked(errors=worst(errors), seconds=time.perf_counter() - begin)

    def screen(self, kernel: Kernel, anchor: Anchor, *, race: bool) -> Evaluation:
        def level(prepared: Prepared, other: Anchor) -> Evaluation:
            return self._screen(prepared, other, race=race and other is anchor)

        return self._beside(anchor, kernel, Level.SCREEN, level)

    def full(self, kernel: Kernel, anchor: Anchor) -> Evaluation:
        return self._beside(anchor, kernel, Level.FULL, self._full)

    def confirm(self, kernel: Kernel) -> Evaluation:
        return self._beside(self._start, kernel, Level.CONFIRMED, lambda prepared, _: self._confirm(prepared))

    def choose_rivals(self) -> None:
        with suppress(OperatorError):  # a confirmation says what is wrong with the library
            self.bench.library.choice(compiles=True)

    def _beside(
        self, anchor: Anchor, kernel: Kernel, level: Level, examine: Callable[[Prepared, Anchor], Evaluation]
    ) -> Evaluation:
        """The verdict of a level; where the anchor's process fails, killed perhaps, once more with a new baseline's.

        It raises OperatorError where the baseline's fails too, and KilledFromOutside where that was killed.
        """
        self._checks.begin()
        prepared = self.device.prepare(kernel)  # from disk: it was built before, perhaps by another process
        if isinstance(prepared, Rejection):
            return self._failure(kernel, level, prepared)
        try:
            return examine(prepared, anchor)
        except AnchorFault:
            self.bench.drop_anchor(anchor.kernel)
            self.bench.drop_anchor(self.baseline)
        try:
            return examine(prepared, self._start)
        except AnchorFault as fault:
            if isinstance(fault.__cause__, KilledFromOutside):
                raise fault.__cause__ from fault
            raise self.bench.baseline_error(fault) from fault

    @property
    def _start(self) -> Anchor:
        return Anchor(self.baseline, 0.0, 0.0)

    def _screen(self, prepared: Prepared, anchor: Anchor, *, race: bool) -> Evaluation:
        """Few inputs, two poisons each, then paired timing against the anchor."""
        stage_ms: dict[str, float] = {}
        errors: list[CheckError] = []
        try:
            with self.bench.session(prepared) as session:
                with _clock(stage_ms, "verify"):
                    shapes = self._some(prepared, len(self.operator.hidden))
                    hidden = self._dealt(shapes, SCREEN_HIDDEN, revealing(self.oracle.deals))
                    errors += self._checks.verify(session, prepared, hidden)
                    errors += self._at_each_size(session, prepared)
                schedule = ITSELF if prepared.kernel.id == anchor.kernel.id == self.baseline.id else SCREEN
                with _clock(stage_ms, "time"):
                    measured = self.bench.against([session], [self.bench.anchor(anchor.kernel)], schedule, race=race)
        except KernelFault as fault:
            return self._failure(prepared.kernel, Level.SCREEN, fault.rejection, stage_ms, errors, prepared)
        return self._verdict(prepared, Level.SCREEN, measured, anchor, errors, stage_ms, race=race)

    def _full(self, prepared: Prepared, anchor: Anchor) -> Evaluation:
        """The evaluation that an archive rests on: more hidden shapes and a workload, each with inputs of some family,
        and new times.

        A kernel that is let in by its first times owes that to luck in part. So those count for nothing any more: it
        is measured again, independently, and both it and the anchor in other processes than before.
        """
        stage_ms: dict[str, float] = {}
        workload = self.workloads[int(self._rng.integers(len(self.workloads)))]
        shapes = self._some(prepared, len(self.operator.hidden))
        hidden = self._dealt(shapes, FULL_HIDDEN, self.oracle.deals)
        try:
            with self.bench.session(prepared) as session:
                with _clock(stage_ms, "verify"):
                    errors = self._checks.verify(session, prepared, hidden)
                    errors += self._at_size(session, prepared, [workload] * at_size(self.oracle.deals))
                    errors += self._unlisted(session, prepared, FULL_UNLISTED, FULL_UNLISTED)
                    errors += self._checks.probe(session, prepared, self._some(prepared, 1)[0])
                with _clock(stage_ms, "time"), self.bench.another(anchor.kernel) as other:
                    measured = self.bench.against([session], [other], FULL, race=False)
        except KernelFault as fault:
            return self._failure(prepared.kernel, Level.FULL, fault.rejection, stage_ms, (), prepared)
        return self._verdict(prepared, Level.FULL, measured, anchor, errors, stage_ms, race=False)

    def _confirm(self, prepared: Prepared) -> Evaluation:
        """Every shape with new inputs, reruns, relations, and a second, independent measurement in fresh processes.

        The vendor's library is called between the two kernels of that measurement, on the same inputs. Of the stage
        `confirm`, the others are parts.
        """
        stage_ms: dict[str, float] = {}
        try:
            with (
                _clock(stage_ms, "confirm"),
                self.bench.session(prepared, fresh=True) as session,
                self.bench.library.baseline() as seated,
            ):
                self.device.expect(2 * self.device.processes)
                audited = self.device.audit(prepared)
                with _clock(stage_ms, "checks"):
                    errors = self._all_checks(session, prepared)
                if self.device.forgets:  # elsewhere inputs are new in every timed call
                    with self.device.machine(exclusive=False):
                        self.bench.inputs.redraw()
                with ExitStack() as opened:
                    processes = range(self.device.processes)
                    fresh = [opened.enter_context(self.bench.session(prepared, fresh=True)) for _ in processes]
                    others = [opened.enter_context(self.bench.another(self.baseline, fresh=True)) for _ in processes]
                    with _clock(stage_ms, "rivals"):
                        library = seated()
                    with _clock(stage_ms, "audit"):
                        facts = audited()
                    with _clock(stage_ms, "pairs"):
                        measured, library = self._confirmed(fresh, others, library)
        except KernelFault as fault:
            return self._failure(prepared.kernel, Level.CONFIRMED, fault.rejection, stage_ms, (), prepared)
        verdict = self._verdict(prepared, Level.CONFIRMED, measured, self._start, errors, stage_ms, race=False)
        facts = {**verdict.facts, **facts}
        return replace(verdict, facts=facts, library_timings=measured.library, library_lack=library.lack)

    def _confirmed(
        self, fresh: Sequence[KernelSession], others: Sequence[Seat], library: LibraryBaseline
    ) -> tuple[Measurement, LibraryBaseline]:
        """The measurement of a confirmation, and the calls beside it: once more where one of those answered wrongly,
        beside the fastest of what is left. A kernel whose rival is wrong is compared with the next one, not with none.
        """
        measured = self.bench.against(fresh, others, CONFIRM, race=False, library=library)
        while library.wrong and self.bench.library.strike(library.wrong, library.lack):
            with self.bench.library.baseline() as seated:
                library = seated()
                measured = self.bench.against(fresh, others, CONFIRM, race=False, library=library)
        return measured, library

    def _all_checks(self, session: KernelSession, prepared: Prepared) -> list[CheckError]:
        supported = self._supported(prepared)
        hidden = self._dealt(supported, 2 * len(supported), self.oracle.deals)
        errors = self._checks.verify(session, prepared, hidden)
        errors += self._at_size(session, prepared, [*self.workloads] * self.bench.inputs.most)
        errors += self._unlisted(session, prepared, max(2 * len(self.workloads), CONFIRM_UNLISTED), CONFIRM_UNLISTED)
        reruns = max(LEAST_RERUNS, -(-CONFIRM_RERUNS // len(self.workloads)))
        errors += self._at_each_size(session, prepared, reruns=reruns)
        for workload in (*self._some(prepared, CONFIRM_PROBES), self.workloads[-1]):
            errors += self._checks.probe(session, prepared, workload)
            errors += self._checks.relate(session, prepared, workload)
        return errors

    def _at_each_size(self, session: KernelSession, prepared: Prepared, *, reruns: int = 0) -> list[CheckError]:
        """A check of every workload, on a set of the timed inputs."""
        errors: list[CheckError] = []
        for case in self.bench.inputs.any_of_each():
            with self.device.machine(exclusive=False):
                errors += self._checks.check(session, prepared, case, reruns=reruns)
        return errors

    def _at_size(self, session: KernelSession, prepared: Prepared, workloads: Sequence[Workload]) -> list[CheckError]:
        """Checks on inputs of the workloads' sizes, of other families, which join the company of the timed ones."""
        errors: list[CheckError] = []
        families = dealt(self.oracle.deals, len(workloads), self._rng)
        drawn = (self._checks.case(w, f, at_end=False) for w, f in zip(workloads, families, strict=True))

        def use(case: Case) -> None:
            errors.extend(self._checks.check(session, prepared, case))
            self.bench.inputs.join(case)

        self._checks.in_turn(drawn, use)
        return errors

    def _unlisted(self, session: KernelSession, prepared: Prepared, beside: int, between: int) -> list[CheckError]:
        """Checks on shapes that no file lists, as on other machines where they differ: a program may have either."""
        errors: list[CheckError] = []
        cases = self.bench.unlisted(prepared, beside, between)
        differs = self.device.differs
        with self.bench.session(prepared, elsewhere=True) if differs else nullcontext(session) as other:
            self._checks.in_turn(cases, lambda case: errors.extend(self._checks.check(other, prepared, case)))
        return errors

    def _some(self, prepared: Prepared, count: int) -> list[Workload]:
        hidden = self._supported(prepared)
        return [hidden[i] for i in self._rng.permutation(len(hidden))[:count]]

    def _supported(self, prepared: Prepared) -> list[Workload]:
        return [w for w in self.operator.hidden if prepared.supports(w)]

    def _dealt(
        self, workloads: Sequence[Workload], least: int, first: Sequence[str] = ()
    ) -> list[tuple[Workload, str]]:
        """At least this many cases of these workloads, all families of `first` among them."""
        return hand(workloads, least, self.oracle.deals, self._rng, first=first)

    # --- verdicts ---------------------------------------------------------------------------------------------------

    def _verdict(
        self,
        prepared: Prepared,
        level: Level,
        measured: Measurement,
        anchor: Anchor,
        errors: Sequence[CheckError],
        stage_ms: Mapping[str, float],
        *,
        race: bool,
    ) -> Evaluation:
        slower = race and measured.result is RaceResult.SLOWER
        facts = prepared.compiled.facts
        if measured.flagged:
            facts = {**facts, "flagged": [*facts.get("flagged", ()), measured.flagged]}
        is_baseline = prepared.kernel.id == self.baseline.id
        ratio = measured.ratio
        log_speedup = 0.0 if is_baseline else anchor.log_speedup + ratio.value
        se = 0.0 if is_baseline else math.hypot(anchor.log_speedup_se, ratio.se)
        return Evaluation(
            kernel_id=prepared.kernel.id,
            task=str(self.task),
            level=level,
            status=Status.SLOWER if slower else Status.CORRECT,
            message=f"{digits(math.exp(-ratio.value))} times slower than its anchor" if slower else "",
            log_speedup=None if slower else log_speedup,
            log_speedup_se=None if slower else se,
            anchor_id=anchor.kernel.id,
            anchor_log_speedup=anchor.log_speedup,
            log_ratio=ratio.value,
            log_ratio_se=ratio.se,
            code_digest=prepared.compiled.code_digest,
            cell=prepared.compiled.cell,
            facts=facts,
            timings=measured.timings,
            errors=worst(errors),
            stage_ms=stage_ms,
        )

    def _failure(
        self,
        kernel: Kernel,
        level: Level,
        rejection: Rejection,
        stage_ms: Mapping[str, float] | None = None,
        errors: Sequence[CheckError] = (),
        prepared: Prepared | None = None,
    ) -> Evaluation:
        compiled = prepared.compiled if prepared else None
        return Evaluation(
            kernel_id=kernel.id,
            task=str(self.task),
            level=level,
            status=rejection.status,
            message=rejection.message,
            code_digest=compiled.code_digest if compiled else None,
            cell=compiled.cell if compiled else (),
            facts=compiled.facts if compiled else {},
            errors=worst(errors),
            stage_ms=stage_ms or {},
        )

    def profile(self, kernel: Kernel, timings: Sequence[Timing]) -> Profile:
        prepared = self.device.prepare(kernel)
        if isinstance(prepared, Rejection):
            return Profile(None, (), (f"it does not build: {prepared.message}",))
        return self.device.profile(prepared, timings)


@contextmanager
def _clock(stage_ms: dict[str, float], stage: str) -> Iterator[None]:
    begin = time.perf_counter()
    try:
        yield
    finally:
        stage_ms[stage] = stage_ms.get(stage, 0.0) + 1e3 * (time.perf_counter() - begin)


# --- the families that its cases are drawn from -----------------------------------------------------------------------


def revealing(deals: Sequence[str]) -> list[str]:
    """Those of what is dealt that no stage may do without."""
    return [family for family in deals if family in REVEALING]


def at_size(deals: Sequence[str]) -> int:
    """Cases of a workload's size in a full stage: one of any family beside those of a few elements, of two tensors."""
    return 1 + min(deals.count(FEW), 2)


def hand(
    workloads: Sequence[Workload], least: int, deals: Sequence[str], rng: np.random.Generator, *, first: Sequence[str]
) -> list[tuple[Workload, str]]:
    """At least this many cases of these workloads in turn: with all of `first`, then round after round of `deals`.

    The order within a round is drawn; no family comes again before all of its round came.
    """
    order = [first[i] for i in rng.permutation(len(first))]
    while len(order) < least:
        order += [deals[i] for i in rng.permutation(len(deals))]
    return list(zip(cycle(workloads), order[: max(least, len(first))], strict=False))
