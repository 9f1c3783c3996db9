"""The verdict: build, verify, time and confirm one kernel after the other. The same for every target.

How many inputs each level takes, and why: a fault that hits a share p of all inputs is missed by n of them with
(1 - p)^n. Screening takes as many as most wrong kernels need to fail; an archive entry has passed about twenty and a
new best more than a hundred, its timed outputs included.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from fitness.base import Anchor, Built
from fitness.cases import Case, Question
from fitness.checks import Checks
from fitness.device import NAN, Device, KernelFault, KilledFromOutside, Prepared, Session
from fitness.evaluation import CheckError, Evaluation, Level, Rejection, Status, Timing
from fitness.measure import AnchorFault, Guest, Measurement, Pairing, bound_slots
from fitness.profiling import Profile
from fitness.roofline import floor_us
from fitness.timing import CONFIRM, FULL, SCREEN, RaceResult, Schedule
from fitness.verify import Oracle, worst
from operators.errors import OperatorError
from operators.kernel import Kernel
from operators.spec import Operator, Task, Workload

SCREEN_HIDDEN = 3
FULL_HIDDEN = 10
"""Hidden shapes, drawn anew each time, of the two lesser levels; a confirmation takes all of them."""
TIMING_SETS = 3
"""Input sets that timed samples of a workload take turns with."""
CONFIRM_RERUNS = 10
CONFIRM_PROBES = 3
ANCHORS_KEPT = 4


class Pipeline:
    """`fitness.base.Fitness` for one task on one device."""

    def __init__(
        self, operator: Operator, task: Task, device: Device, oracle: Oracle, baseline: Kernel, *, workload_set: str
    ):
        self.operator = operator
        self.task = task
        self.device = device
        self.oracle = oracle
        self.baseline = baseline
        """The kernel whose speedup is 1 by definition."""
        self.workloads = operator.workload_set(workload_set)
        # Secret: drawn here, never passed to a process that runs candidate code.
        self._rng = np.random.default_rng()
        self._timing_cases: list[list[Case]] = []
        self._anchors: OrderedDict[str, Session] = OrderedDict()
        self._trusted_session: Session | None = None
        self._checks = Checks(oracle, device, self._rng, self._trusted)

    def close(self) -> None:
        self.forget()

    @property
    def resident(self) -> bool:
        """Whether the inputs of timed calls are drawn, and held."""
        return bool(self._timing_cases)

    def forget(self) -> None:
        """Give up processes and memory that the next verdict makes anew."""
        for session in (*self._anchors.values(), self._trusted_session):
            if session:
                session.close(sound=True)
        self._anchors.clear()
        self._trusted_session = None
        self._timing_cases = []

    # --- build, and the levels --------------------------------------------------------------------------------------

    def build(self, kernel: Kernel) -> Built | Evaluation:
        begin = time.perf_counter()
        result = self.device.prepare(kernel)
        build_ms = 1e3 * (time.perf_counter() - begin)
        if isinstance(result, Rejection):
            return self._failure(kernel, Level.SCREEN, result, stage_ms={"build": build_ms})
        compiled = result.compiled
        return Built(kernel.id, compiled.code_digest, compiled.cell, compiled.facts, build_ms)

    def screen(self, kernel: Kernel, anchor: Anchor, *, race: bool) -> Evaluation:
        def level(prepared: Prepared, other: Anchor) -> Evaluation:
            return self._screen(prepared, other, race=race and other is anchor)

        return self._beside(anchor, kernel, Level.SCREEN, level)

    def full(self, kernel: Kernel, anchor: Anchor) -> Evaluation:
        return self._beside(anchor, kernel, Level.FULL, self._full)

    def confirm(self, kernel: Kernel) -> Evaluation:
        return self._beside(self._start, kernel, Level.CONFIRMED, lambda prepared, _: self._confirm(prepared))

    def _baseline_error(self, fault: Exception) -> OperatorError:
        naive = self.operator.ancestor("naive", self.task.target)
        return OperatorError(f"{naive}: the naive kernel, which others are compared with, fails: {fault}")

    def _beside(
        self, anchor: Anchor, kernel: Kernel, level: Level, examine: Callable[[Prepared, Anchor], Evaluation]
    ) -> Evaluation:
        """The verdict of a level; where the anchor's process fails, killed perhaps, once more with a new baseline's.

        It raises OperatorError where the baseline's fails too.
        """
        prepared = self.device.prepare(kernel)  # from disk: it was built before, perhaps by another process
        if isinstance(prepared, Rejection):
            return self._failure(kernel, level, prepared)
        try:
            return examine(prepared, anchor)
        except AnchorFault:
            self._drop_anchor(anchor.kernel)
            self._drop_anchor(self.baseline)
        try:
            return examine(prepared, self._start)
        except AnchorFault as fault:
            raise self._baseline_error(fault) from fault

    @property
    def _start(self) -> Anchor:
        return Anchor(self.baseline, 0.0, 0.0)

    def _screen(self, prepared: Prepared, anchor: Anchor, *, race: bool) -> Evaluation:
        """Few inputs, two poisons each, then paired timing against the anchor."""
        stage_ms: dict[str, float] = {}
        errors: list[CheckError] = []
        try:
            with self._session(prepared) as session:
                with _clock(stage_ms, "verify"):
                    drawn = self._drawn(self._some(prepared, SCREEN_HIDDEN), 1)
                    errors += self._checks.verify(session, prepared, drawn)
                    for cases in self._cases():
                        with self.device.machine(exclusive=False):
                            errors += self._checks.check(session, prepared, cases[0])
                with _clock(stage_ms, "time"):
                    measured = self._against([session], [self._anchor_session(anchor.kernel)], SCREEN, race=race)
                    self._check_physics(measured)
        except KernelFault as fault:
            return self._failure(prepared.kernel, Level.SCREEN, fault.rejection, stage_ms, errors, prepared)
        return self._verdict(prepared, Level.SCREEN, measured, anchor, errors, stage_ms, race=race)

    def _full(self, prepared: Prepared, anchor: Anchor) -> Evaluation:
        """What an archive rests on: more hidden shapes and a workload, each with inputs of some family, and new times.

        A kernel that is let in by its first times owes that to luck in part. So those count for nothing any more: it
        is measured again, independently, and both it and the anchor in other processes than before.
        """
        stage_ms: dict[str, float] = {}
        workload = self.workloads[int(self._rng.integers(len(self.workloads)))]
        checks = self._drawn(self._some(prepared, FULL_HIDDEN), 1) + self._drawn([workload], 1)
        try:
            with self._session(prepared) as session:
                with _clock(stage_ms, "verify"):
                    errors = self._checks.verify(session, prepared, checks)
                    errors += self._checks.probe(session, prepared, self._some(prepared, 1)[0])
                with _clock(stage_ms, "time"), self._another(anchor.kernel) as other:
                    measured = self._against([session], [other], FULL, race=False)
                    self._check_physics(measured)
        except KernelFault as fault:
            return self._failure(prepared.kernel, Level.FULL, fault.rejection, stage_ms, (), prepared)
        return self._verdict(prepared, Level.FULL, measured, anchor, errors, stage_ms, race=False)

    def _confirm(self, prepared: Prepared) -> Evaluation:
        """Every shape with new inputs, reruns, relations, and a second, independent measurement in fresh processes.

        The vendor's library is called between the two kernels of that measurement, on the same inputs.
        """
        stage_ms: dict[str, float] = {}
        checks = self._drawn(self._supported(prepared), 2) + self._drawn(self.workloads, 2)
        try:
            with _clock(stage_ms, "confirm"), self._session(prepared, fresh=True) as session:
                audited = self.device.audit(prepared)
                errors = self._checks.verify(session, prepared, checks)
                plain = [(self.workloads[0], "nominal")]
                errors += self._checks.verify(session, prepared, plain, reruns=CONFIRM_RERUNS)
                for workload in (*self._some(prepared, CONFIRM_PROBES), self.workloads[-1]):
                    errors += self._checks.probe(session, prepared, workload)
                    errors += self._checks.relate(session, prepared, workload)
                with ExitStack() as opened:
                    processes = range(self.device.processes)
                    fresh = [opened.enter_context(self._session(prepared, fresh=True)) for _ in processes]
                    others = [opened.enter_context(self._another(self.baseline, fresh=True)) for _ in processes]
                    guest = opened.enter_context(self._library())
                    with _clock(stage_ms, "audit"):
                        facts = audited()
                    measured = self._against(fresh, others, CONFIRM, race=False, guest=guest)
                    self._check_physics(measured)
        except KernelFault as fault:
            return self._failure(prepared.kernel, Level.CONFIRMED, fault.rejection, stage_ms, (), prepared)
        verdict = self._verdict(prepared, Level.CONFIRMED, measured, self._start, errors, stage_ms, race=False)
        facts = {**verdict.facts, **facts}
        return replace(verdict, facts=facts, library_timings=measured.library, library_lack=guest.lack)

    @contextmanager
    def _library(self) -> Iterator[Guest]:
        """The vendor's library, with the timing sets. Whatever is wrong with it is no kernel's fault."""
        if not self.oracle.functions.offers("library"):
            yield Guest(None)
            return
        with ExitStack() as opened:
            try:
                session = self.device.open_library(self._cases())
                opened.callback(session.close)
                with self.device.machine(exclusive=False):
                    guest = Guest(self._bound(session))
            except (KernelFault, OperatorError) as fault:
                guest = Guest(None, str(fault))
            yield guest

    def _some(self, prepared: Prepared, count: int) -> list[Workload]:
        hidden = self._supported(prepared)
        return [hidden[i] for i in self._rng.permutation(len(hidden))[:count]]

    def _supported(self, prepared: Prepared) -> list[Workload]:
        return [w for w in self.operator.hidden if prepared.supports(w)]

    def _drawn(self, workloads: Iterable[Workload], families: int) -> list[tuple[Workload, str]]:
        """Each workload with as many input families, drawn anew each time."""
        return [(w, str(f)) for w in workloads for f in self._rng.permutation(self.oracle.families)[:families]]

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
        is_baseline = prepared.kernel.id == self.baseline.id
        ratio = measured.ratio
        log_speedup = 0.0 if is_baseline else anchor.log_speedup + ratio.value
        se = 0.0 if is_baseline else math.hypot(anchor.log_speedup_se, ratio.se)
        return Evaluation(
            kernel_id=prepared.kernel.id,
            task=str(self.task),
            level=level,
            status=Status.SLOWER if slower else Status.CORRECT,
            message=f"{math.exp(-ratio.value):.2f} times slower than its anchor" if slower else "",
            log_speedup=None if slower else log_speedup,
            log_speedup_se=None if slower else se,
            anchor_id=anchor.kernel.id,
            anchor_log_speedup=anchor.log_speedup,
            log_ratio=ratio.value,
            log_ratio_se=ratio.se,
            code_digest=prepared.compiled.code_digest,
            cell=prepared.compiled.cell,
            facts=prepared.compiled.facts,
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

    # --- the naive kernel, and inputs that are held ---------------------------------------------------------------

    def _trusted(self, question: Question) -> list[dict[str, Any]]:
        """What the naive kernel makes of a question, from a process of its own."""
        try:
            return [self._asked(question)]
        except KernelFault:
            # Its process may have been killed from outside; a new one tells whether it is the kernel's fault.
            self._distrust()
        try:
            return [self._asked(question)]
        except KernelFault as fault:
            self._distrust()
            raise self._baseline_error(fault) from fault

    def _distrust(self) -> None:
        if self._trusted_session:
            self._trusted_session.close()
        self._trusted_session = None

    def _asked(self, question: Question) -> dict[str, Any]:
        if self._trusted_session is None:
            self._trusted_session = self._open(self.baseline)
        self._trusted_session.bind(0, question, at_end=question.at_end)
        self._trusted_session.run(0, poison=NAN)
        work = self._trusted_session.work(0)
        answer = self.oracle.outputs(question, work)
        work.fill(NAN)  # a candidate may be lent this memory next, or still have it mapped
        return answer

    def _cases(self) -> list[list[Case]]:
        """The input sets that timed samples and screening use: `[workload][set]`. They outlive no session."""
        if not self._timing_cases:
            with self.device.machine(exclusive=False):
                self._timing_cases = [
                    [self._checks.case(w, "nominal", at_end=False) for _ in range(TIMING_SETS)] for w in self.workloads
                ]
        return self._timing_cases

    # --- sessions and timing ----------------------------------------------------------------------------------------

    @contextmanager
    def _session(self, prepared: Prepared, *, fresh: bool = False) -> Iterator[Session]:
        session = self.device.open(prepared, fresh=fresh)
        try:
            yield session
        except BaseException:
            session.close()
            raise
        session.close(sound=True)

    def _open(self, kernel: Kernel, *, fresh: bool = False) -> Session:
        """Of a kernel that others are compared with. Raises KernelFault."""
        prepared = self.device.prepare(kernel)
        if isinstance(prepared, Rejection):
            raise KernelFault(prepared.status, f"it does not build: {' '.join(prepared.message.split())[:300]}")
        return self.device.open(prepared, fresh=fresh)

    def _bound(self, session: Session) -> Session:
        """Hand the timing sets to a session."""
        for slot, case in bound_slots(self._cases()):
            session.bind(slot, case, at_end=False)
        return session

    def _anchor_session(self, kernel: Kernel) -> Session:
        """The session that keeps an anchor ready; the least recently used one goes when there are too many."""
        session = self._anchors.pop(kernel.id, None)
        if session is None:
            session = self._anchored(kernel)
        self._anchors[kernel.id] = session
        while len(self._anchors) > ANCHORS_KEPT:
            self._anchors.popitem(last=False)[1].close(sound=True)
        return session

    def _drop_anchor(self, kernel: Kernel) -> None:
        with suppress(KeyError):
            self._anchors.pop(kernel.id).close()

    @contextmanager
    def _another(self, kernel: Kernel, *, fresh: bool = False) -> Iterator[Session]:
        """One more session of an anchor, beside the one that is kept."""
        session = self._anchored(kernel, fresh=fresh)
        try:
            yield session
        except BaseException:
            session.close()
            raise
        session.close(sound=True)

    def _anchored(self, kernel: Kernel, *, fresh: bool = False) -> Session:
        try:
            session = self._open(kernel, fresh=fresh)
            try:
                return self._bound(session)
            except BaseException:
                session.close()
                raise
        except KernelFault as fault:
            raise AnchorFault(str(fault)) from fault

    def _against(
        self,
        sessions: Sequence[Session],
        anchors: Sequence[Session],
        schedule: Schedule,
        *,
        race: bool,
        guest: Guest | None = None,
    ) -> Measurement:
        try:
            return self._paired(sessions, anchors, schedule, guest, race=race)
        except KilledFromOutside:
            return self._paired(sessions, anchors, schedule, guest, race=race)

    def _paired(
        self,
        sessions: Sequence[Session],
        anchors: Sequence[Session],
        schedule: Schedule,
        guest: Guest | None,
        *,
        race: bool,
    ) -> Measurement:
        bound, cases = [self._bound(s) for s in sessions], self._cases()
        answers, spread = self._checks.answers, self.device.spread
        pairing = Pairing(bound, anchors, cases, answers, self._rng, spread=spread, guest=guest)
        with self.device.machine(exclusive=True):
            measured = pairing.measure(schedule, race=race)
        for session, (slot, case) in product(bound, bound_slots(cases)):
            self._checks.intact(case, session, slot)  # once: to look takes nearly as long as a call
        return measured

    def _check_physics(self, measured: Measurement) -> None:
        """Faster than the device can be is no speed: the clock lies, or work was not done. Raises KernelFault."""
        by_name = {w.name: cases[0] for w, cases in zip(self.workloads, self._cases(), strict=True)}
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
                    f"{timing.latency_us:.1f} us on {timing.workload} is less than the {least_us:.1f} us that this "
                    "machine needs for the least work there is",
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
