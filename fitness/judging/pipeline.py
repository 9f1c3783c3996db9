"""The verdict: build, verify, time and confirm one kernel after the other. The same for every target.

How many inputs each level takes, and why: a fault that hits a share p of all inputs is missed by n of them with
(1 - p)^n. Screening takes as many as most wrong kernels need to fail; an archive entry has passed about twenty and a
new best more than a hundred, its timed outputs included. Families of inputs are dealt like cards, never drawn one by
one, so that a fault that a family shows is found in every stage, and not in those alone where chance brought it up.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import cycle

import numpy as np

from fitness.evaluation import CheckError, Evaluation, Level, Rejection, Status, Timing
from fitness.judging.base import Anchor, Built, Checked
from fitness.judging.bench import TaskBench
from fitness.judging.device import Device, KernelFault, KernelSession, KilledFromOutside, Prepared
from fitness.judging.paired import AnchorFault, Measurement
from fitness.judging.timed_inputs import dealt
from fitness.judging.timing import CONFIRM, FULL, ITSELF, SCREEN, RaceResult
from fitness.oracle.cases import Case
from fitness.oracle.inputs import FEW, SPECIALS
from fitness.oracle.verify import Oracle, worst
from fitness.profiling.profiles import Profile
from fitness.words import digits
from operators.definition.spec import Operator, Task, Workload
from operators.errors import OperatorError
from operators.kernel import Kernel

SCREEN_HIDDEN = 3
FULL_HIDDEN = 10
"""Cases of hidden shapes at least, drawn anew each time, of the two lesser levels; a confirmation takes all twice."""
SPOT_HIDDEN = 2
"""Small hidden shapes of a look at a kernel whose author waits for it."""
REVEALING = (FEW, SPECIALS)
"""Families of outliers and of special values: most faults that others miss show in them."""
CONFIRM_RERUNS = 10
CONFIRM_PROBES = 3


class Pipeline:
    """`fitness.judging.base.Fitness` for one task on one device."""

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
        self.bench = TaskBench(operator, task, device, oracle, baseline, self.workloads)
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
        """See `fitness.judging.base.Fitness`: some of the smaller half of the hidden shapes, each on some inputs."""
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
                errors = self._checks.verify(session, prepared, self._dealt(chosen, len(chosen)))
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
                    for case in self.bench.inputs.any_of_each():
                        with self.device.machine(exclusive=False):
                            errors += self._checks.check(session, prepared, case)
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
                        measured = self.bench.against(fresh, others, CONFIRM, race=False, library=library)
        except KernelFault as fault:
            return self._failure(prepared.kernel, Level.CONFIRMED, fault.rejection, stage_ms, (), prepared)
        verdict = self._verdict(prepared, Level.CONFIRMED, measured, self._start, errors, stage_ms, race=False)
        facts = {**verdict.facts, **facts}
        return replace(verdict, facts=facts, library_timings=measured.library, library_lack=library.lack)

    def _all_checks(self, session: KernelSession, prepared: Prepared) -> list[CheckError]:
        supported = self._supported(prepared)
        hidden = self._dealt(supported, 2 * len(supported), self.oracle.deals)
        errors = self._checks.verify(session, prepared, hidden)
        errors += self._at_size(session, prepared, [*self.workloads] * self.bench.inputs.most)
        plain = [(self.workloads[0], "nominal")]
        errors += self._checks.verify(session, prepared, plain, reruns=CONFIRM_RERUNS)
        for workload in (*self._some(prepared, CONFIRM_PROBES), self.workloads[-1]):
            errors += self._checks.probe(session, prepared, workload)
            errors += self._checks.relate(session, prepared, workload)
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
