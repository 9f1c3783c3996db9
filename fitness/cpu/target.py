"""The cpu target: verifies and times C++ kernels, each in a disposable process that never sees an expected value."""

from __future__ import annotations

import fcntl
import json
import math
import os
import pickle
import sys
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fitness.base import Anchor, Built, Reference
from fitness.cpu.build import CpuBuild, build
from fitness.cpu.runner import KernelFault, Runner, check_arguments, plan_words
from fitness.evaluation import CheckError, Evaluation, Level, Rejection, Status, Timing
from fitness.inputs import FAMILIES
from fitness.memory import Region
from fitness.timing import CONFIRM, SCREEN, Ratio, Schedule, Verdict, decide, log_ratio, mean
from fitness.verify import Case, Oracle, worst
from operators.catalog import functions
from operators.errors import OperatorError, PlanError
from operators.kernel import Kernel
from operators.plan import Plan, ResolvedPlan, parse_plan
from operators.spec import Operator, Task, Workload

RUN_TIMEOUT_S = 2.0
POISONS = (0xFF, 0x7B)
"""NaN in every floating type, then a large finite number: a maximum with NaN can hide the first, never both."""
HIDDEN_NEEDED = 6
SCREEN_HIDDEN = 3
FULL_HIDDEN = 10
"""Hidden shapes, drawn anew each time, of the two lesser levels; a confirmation takes all of them."""
TIMING_SETS = 3
"""Input sets that timed samples of a workload take turns with."""
CONFIRM_RERUNS = 10
NEW_BEST = 0.05
"""A promise of less than this, as a log ratio, over the best known is not worth a confirmation while others wait; the
run's last act is to confirm its leader."""
HOPELESS = 5.0
"""A kernel so many times slower than its anchor in both of two samples is not sampled further."""
CLOCK_SLACK_NS = 1_000_000
"""By so much more than the anchor's a candidate's round trips may exceed what its clock shows, in the median."""
ANCHORS_KEPT = 4


@dataclass(frozen=True)
class _Prepared:
    """A kernel that can be run."""

    kernel: Kernel
    plan: Plan
    build: CpuBuild


@dataclass
class _Side:
    """One of the two processes of a paired measurement."""

    runner: Runner
    prepared: _Prepared | None
    """None: the vendor's library."""
    works: dict[int, Region] = field(default_factory=dict)
    """Its outputs and scratch, by workload number."""

    def close(self) -> None:
        self.runner.close()


class AnchorFault(Exception):
    """The anchor, not the candidate, failed during a measurement."""


class CpuFitness:
    """`fitness.base.Fitness` for one task on this machine.

    `folder` holds what was compiled, and the lock that gives timings the machine to themselves; instances that
    evaluate on one machine share it.
    """

    def __init__(self, operator: Operator, task: Task, *, workload_set: str, folder: Path, threads: int | None = None):
        self.operator = operator
        self.task = task
        self.folder = folder
        self.threads = threads or len(os.sched_getaffinity(0))
        self.workloads = operator.workload_set(workload_set)
        # References are small; torch's threads would spin beside the kernels that are examined.
        torch.set_num_threads(1)
        self.oracle = Oracle(operator, functions(operator.folder), task.dtype)
        self.facts = {"cpu_count": self.threads, "l2_bytes": _l2_bytes()}
        # Secret: drawn here, never passed to a process that runs candidate code.
        self._rng = np.random.default_rng(int.from_bytes(os.urandom(16), "little"))
        self._canonical = {w: self._canonical_dims(w) for w in (*self.workloads, *operator.hidden)}
        self._timing_cases: list[list[Case]] = []
        self._anchors: OrderedDict[str, _Side] = OrderedDict()
        self._baseline = Kernel(operator.name, "cpu", operator.ancestor("naive", "cpu").read_text(encoding="utf-8"))

    @property
    def baseline(self) -> Kernel:
        """The kernel whose speedup is 1 by definition."""
        return self._baseline

    def close(self) -> None:
        for side in self._anchors.values():
            side.close()
        self._anchors.clear()

    # --- build ------------------------------------------------------------------------------------------------------

    def build(self, kernel: Kernel) -> Built | Evaluation:
        begin = time.perf_counter()
        result = self._prepare(kernel)
        build_ms = 1e3 * (time.perf_counter() - begin)
        if isinstance(result, Rejection):
            return self._failure(kernel, Level.SCREEN, result, stage_ms={"build": build_ms})
        compiled = result.build
        return Built(kernel.id, compiled.code_digest, compiled.cell, compiled.facts, build_ms)

    def _prepare(self, kernel: Kernel) -> _Prepared | Rejection:
        """Parse, check and compile; what was compiled before, here or by another instance, is taken from disk."""
        try:
            plan = parse_plan(kernel.source, self.operator, "cpu")
            plan.settings(kernel.values)
            unsupported = self._unsupported(plan, kernel)
            if unsupported:
                return unsupported
            resolved = [self._resolve(plan, kernel, self._canonical[w]) for w in self.workloads]
        except PlanError as error:
            return Rejection(Status.INVALID, str(error))
        metadata = self.folder / f"{kernel.id}-{self.task.dtype}.pickle"
        if metadata.exists():
            return _Prepared(kernel, plan, pickle.loads(metadata.read_bytes()))
        text = "\n".join(r.canonical() for r in resolved)
        with self._machine(exclusive=False):
            compiled = build(kernel, plan, self.operator, dtype=self.task.dtype, folder=self.folder, resolved=text)
        if isinstance(compiled, Rejection):
            return compiled
        for one in resolved:
            problem = check_arguments(one, compiled, self.operator, self.task.dtype)
            if problem:
                return Rejection(Status.INVALID, problem)
        partial = metadata.with_suffix(f".{os.getpid()}")
        partial.write_bytes(pickle.dumps(compiled))
        partial.replace(metadata)
        return _Prepared(kernel, plan, compiled)

    def _unsupported(self, plan: Plan, kernel: Kernel) -> Rejection | None:
        supported = {
            w: plan.supports(self.operator, dims, kernel.values, self.facts, self.task.dtype)
            for w, dims in self._canonical.items()
        }
        for workload in self.workloads:
            if not supported[workload]:
                message = f"requires `{plan.requires.text}`, which workload {workload.name} does not fulfil"
                return Rejection(Status.UNSUPPORTED, message)
        hidden = sum(supported[w] for w in self.operator.hidden)
        needed = min(HIDDEN_NEEDED, len(self.operator.hidden))
        if hidden < needed:
            message = f"requires `{plan.requires.text}`, which too few hidden shapes fulfil; at least {needed} must"
            return Rejection(Status.UNSUPPORTED, message)
        return None

    def _resolve(self, plan: Plan, kernel: Kernel, dims: Any) -> ResolvedPlan:
        return plan.resolve(self.operator, dtype=self.task.dtype, dims=dims, values=kernel.values, facts=self.facts)

    def _canonical_dims(self, workload: Workload) -> dict[str, int]:
        """Dims as plans are digested with: data-dependent ones from inputs of a fixed seed."""
        if not self.operator.data_dims:
            return self.operator.environment(workload.dims)
        rng = np.random.default_rng(0)
        return dict(self.oracle.case(workload, "nominal", rng, at_end=False).dims)

    # --- judge ------------------------------------------------------------------------------------------------------

    def judge(self, kernel: Kernel, anchor: Anchor, *, race: bool, best: float | None) -> tuple[Evaluation, ...]:
        prepared = self._prepare(kernel)
        if isinstance(prepared, Rejection):
            return (self._failure(kernel, Level.SCREEN, prepared),)
        try:
            return self._levels(prepared, anchor, race=race, best=best)
        except AnchorFault as fault:  # of the baseline: from another anchor's we recover below
            raise self._baseline_error(fault) from fault

    def _baseline_error(self, fault: AnchorFault) -> OperatorError:
        naive = self.operator.ancestor("naive", "cpu")
        return OperatorError(f"{naive}: the naive kernel, which others are compared with, fails: {fault}")

    def _levels(self, prepared: _Prepared, anchor: Anchor, *, race: bool, best: float | None) -> tuple[Evaluation, ...]:
        results = [self._screen(prepared, anchor, race=race)]
        screened = results[0]
        promising = not race or (screened.log_ratio or 0.0) > 0
        if screened.correct and promising:
            results.append(self._full(prepared, screened))
        if results[-1].level is Level.FULL and results[-1].correct and self._new_best(results[-1], best):
            results.append(self._confirm(prepared, results[-1]))
        return tuple(results)

    @staticmethod
    def _new_best(evaluation: Evaluation, best: float | None) -> bool:
        assert evaluation.log_speedup is not None and evaluation.log_ratio_se is not None
        return best is None or evaluation.log_speedup > best + max(NEW_BEST, 1.96 * evaluation.log_ratio_se)

    def _screen(self, prepared: _Prepared, anchor: Anchor, *, race: bool) -> Evaluation:
        """Few inputs, two poisons each, then paired timing against the anchor."""
        stage_ms: dict[str, float] = {}
        errors: list[CheckError] = []
        hidden = self._supported_hidden(prepared)
        with ExitStack() as stack:
            try:
                with _clock(stage_ms, "verify"):
                    runner = stack.enter_context(self._runner(prepared))
                    errors += self._verify(runner, prepared, self._drawn(self._some(hidden, SCREEN_HIDDEN), 1))
                    for cases in self._cases():
                        with self._machine(exclusive=False):
                            errors += self._check(runner, prepared, cases[0], at_end=False, reruns=0)
                with _clock(stage_ms, "time"):
                    timings, ratio, verdict = self._against(runner, prepared, anchor, race=race)
            except KernelFault as fault:
                return self._failure(prepared.kernel, Level.SCREEN, fault.rejection, stage_ms, errors, prepared.build)
            except AnchorFault:
                if anchor.kernel.id == self._baseline.id:
                    raise
                return self._screen(prepared, Anchor(self._baseline, 0.0, 0.0), race=False)
        slower = race and verdict is Verdict.SLOWER
        return self._verdict(prepared, Level.SCREEN, timings, ratio, anchor, errors, stage_ms, slower=slower)

    def _full(self, prepared: _Prepared, screened: Evaluation) -> Evaluation:
        """More hidden shapes and a workload, each with inputs of some family, before an archive is entered."""
        stage_ms: dict[str, float] = {}
        workload = self.workloads[int(self._rng.integers(len(self.workloads)))]
        checks = self._drawn(self._some(self._supported_hidden(prepared), FULL_HIDDEN), 1) + self._drawn([workload], 1)
        try:
            with _clock(stage_ms, "verify"), self._runner(prepared) as runner:
                errors = self._verify(runner, prepared, checks)
        except KernelFault as fault:
            return self._failure(prepared.kernel, Level.FULL, fault.rejection, stage_ms, (), prepared.build)
        return replace(screened, level=Level.FULL, errors=worst(errors), stage_ms=stage_ms)

    def _confirm(self, prepared: _Prepared, full: Evaluation) -> Evaluation:
        """New inputs, reruns, and a second, independent measurement against the baseline, all in fresh processes."""
        stage_ms: dict[str, float] = {}
        hidden = self._supported_hidden(prepared)
        checks = self._drawn(hidden, 2) + self._drawn(self.workloads, 2)
        baseline = Anchor(self._baseline, 0.0, 0.0)
        try:
            with _clock(stage_ms, "confirm"), self._runner(prepared) as runner:
                errors = self._verify(runner, prepared, checks)
                errors += self._verify(runner, prepared, [(self.workloads[0], "nominal")], reruns=CONFIRM_RERUNS)
                with self._runner(prepared) as fresh:
                    timings, ratio, _ = self._against(
                        fresh, prepared, baseline, race=False, schedule=CONFIRM, fresh=True
                    )
        except KernelFault as fault:
            return self._failure(prepared.kernel, Level.CONFIRMED, fault.rejection, stage_ms, (), prepared.build)
        return self._verdict(prepared, Level.CONFIRMED, timings, ratio, baseline, errors, stage_ms, slower=False)

    def _some(self, workloads: Sequence[Workload], count: int) -> list[Workload]:
        return [workloads[i] for i in self._rng.permutation(len(workloads))[:count]]

    def _drawn(self, workloads: Sequence[Workload], families: int) -> list[tuple[Workload, str]]:
        """Each workload with as many input families, drawn anew each time."""
        return [(w, str(f)) for w in workloads for f in self._rng.permutation(FAMILIES)[:families]]

    def _supported_hidden(self, prepared: _Prepared) -> list[Workload]:
        plan, values = prepared.plan, prepared.kernel.values
        return [
            w
            for w in self.operator.hidden
            if plan.supports(self.operator, self._canonical[w], values, self.facts, self.task.dtype)
        ]

    def _verdict(
        self,
        prepared: _Prepared,
        level: Level,
        timings: tuple[Timing, ...],
        ratio: Ratio,
        anchor: Anchor,
        errors: Sequence[CheckError],
        stage_ms: dict[str, float],
        *,
        slower: bool,
    ) -> Evaluation:
        is_baseline = prepared.kernel.id == self._baseline.id
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
            code_digest=prepared.build.code_digest,
            cell=prepared.build.cell,
            facts=prepared.build.facts,
            timings=timings,
            errors=worst(errors),
            stage_ms=stage_ms,
        )

    def _failure(
        self,
        kernel: Kernel,
        level: Level,
        rejection: Rejection,
        stage_ms: dict[str, float] | None = None,
        errors: Sequence[CheckError] = (),
        compiled: CpuBuild | None = None,
    ) -> Evaluation:
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

    # --- verify -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _runner(self, prepared: _Prepared) -> Iterator[Runner]:
        with Runner(threads=self.threads) as runner:
            runner.load(prepared.build.library)
            yield runner

    def _verify(
        self, runner: Runner, prepared: _Prepared, checks: Iterable[tuple[Workload, str]], *, reruns: int = 0
    ) -> list[CheckError]:
        """Run every check on inputs drawn now; raises KernelFault with the first thing wrong."""
        errors: list[CheckError] = []
        for number, (workload, family) in enumerate(checks):
            with self._machine(exclusive=False):
                case = self.oracle.case(workload, family, self._rng, at_end=number % 2 == 0)
                errors += self._check(runner, prepared, case, at_end=number % 2 == 0, reruns=reruns)
        return errors

    def _check(self, runner: Runner, prepared: _Prepared, case: Case, *, at_end: bool, reruns: int) -> list[CheckError]:
        resolved = self._resolved(prepared, case)
        work = self._work(resolved, case, at_end=at_end)
        order = runner.bind(0, case.region, work)
        runner.define(0, plan_words(resolved, prepared.build, self.operator, order, work))
        first: dict[str, bytes] = {}
        errors: list[CheckError] = []
        for run, poison in enumerate(POISONS + POISONS[:1] * reruns):
            work.fill(poison)
            self.oracle.restore(case, work)
            runner.run(0, 0, timeout_s=RUN_TIMEOUT_S)
            errors += self._accept(case, work)
            if prepared.plan.deterministic:
                outputs = {t.name: bytes(work.view(t.name)) for t in self.operator.outputs}
                if run and outputs != first:
                    raise KernelFault(Status.WRONG, self._differs(case, first, outputs))
                first = outputs
        return errors

    def _accept(self, case: Case, work: Region) -> list[CheckError]:
        """The errors of one run's outputs, all within bounds; raises KernelFault otherwise."""
        errors = list(self.oracle.errors(case, work))
        for error in errors:
            if error.mismatches:
                raise KernelFault(Status.WRONG, self.oracle.describe(error, case, work))
        for name in work.places:
            if not work.slack_intact(name):
                raise KernelFault(Status.WRONG, f"it wrote past the end of `{name}` on {case.workload.name}")
        return errors

    @staticmethod
    def _differs(case: Case, first: dict[str, bytes], second: dict[str, bytes]) -> str:
        name = next(n for n in first if first[n] != second[n])
        return (
            f"`{name}` differs between two runs on the same inputs ({case.workload.name}): memory that was "
            "never written is read, or threads race; declare `deterministic = false` only if sums really depend on "
            "the order of threads"
        )

    def _resolved(self, prepared: _Prepared, case: Case) -> ResolvedPlan:
        try:
            resolved = self._resolve(prepared.plan, prepared.kernel, case.dims)
        except PlanError as error:
            raise KernelFault(Status.INVALID, f"on {case.workload.name}: {error}") from None
        problem = check_arguments(resolved, prepared.build, self.operator, self.task.dtype)
        if problem:
            raise KernelFault(Status.INVALID, f"on {case.workload.name}: {problem}")
        return resolved

    def _work(self, resolved: ResolvedPlan, case: Case, *, at_end: bool) -> Region:
        sizes = self.oracle.work_sizes(case.dims) | {b.name: b.bytes for b in resolved.buffers}
        return Region(sizes, at_end=at_end)

    # --- time -------------------------------------------------------------------------------------------------------

    def _against(
        self,
        runner: Runner,
        prepared: _Prepared,
        anchor: Anchor,
        *,
        race: bool,
        schedule: Schedule = SCREEN,
        fresh: bool = False,
    ) -> tuple[tuple[Timing, ...], Ratio, Verdict]:
        candidate = self._bound(_Side(runner, prepared))
        if not fresh:
            return self._measure(candidate, self._anchor_side(anchor.kernel), schedule, race=race)
        other = self._open_side(anchor.kernel)
        try:
            return self._measure(candidate, other, schedule, race=race)
        finally:
            other.close()

    def _measure(
        self, candidate: _Side, anchor: _Side, schedule: Schedule, *, race: bool
    ) -> tuple[tuple[Timing, ...], Ratio, Verdict]:
        """Paired samples until the schedule says stop; every sample's output is checked."""
        pairs: list[list[tuple[float, float]]] = [[] for _ in self.workloads]
        with self._machine(exclusive=True):
            begin = time.monotonic()
            for number in range(len(self.workloads)):  # warm-up: threads, page tables
                self._sample(anchor, number, 0, anchor=True)
                self._sample(candidate, number, 0)
            for look in self._looks(schedule, candidate, anchor, pairs, race=race):
                while min(map(len, pairs)) < look:
                    for number in range(len(self.workloads)):
                        pairs[number].append(self._pair(candidate, anchor, number, len(pairs[number]) % TIMING_SETS))
                ratios = [log_ratio(p) for p in pairs]
                verdict = decide(mean(ratios), schedule)
                if verdict is not Verdict.OPEN or time.monotonic() - begin > schedule.budget_s:
                    break
        if candidate.prepared:
            self._check_clock(candidate, anchor, sum(map(len, pairs)))
        timings = tuple(_timing(w, p, r) for w, p, r in zip(self.workloads, pairs, ratios, strict=True))
        return timings, mean(ratios), verdict

    def _looks(
        self, schedule: Schedule, candidate: _Side, anchor: _Side, pairs: list[list[tuple[float, float]]], *, race: bool
    ) -> Iterator[int]:
        """The schedule's looks; a racing kernel that is hopeless gets two pairs and no more."""
        if race:
            for number in range(len(self.workloads)):
                pairs[number].extend(self._pair(candidate, anchor, number, i) for i in range(2))
            if all(mine > HOPELESS * other for p in pairs for mine, other in p):
                yield 2
                return
        yield from schedule.looks

    def _pair(self, candidate: _Side, anchor: _Side, number: int, which: int) -> tuple[float, float]:
        if self._rng.integers(2):
            first = self._sample(candidate, number, which)
            return first, self._sample(anchor, number, which, anchor=True)
        first = self._sample(anchor, number, which, anchor=True)
        return self._sample(candidate, number, which), first

    def _sample(self, side: _Side, number: int, which: int, *, anchor: bool = False) -> float:
        """Nanoseconds of one run from cold caches on poisoned outputs, which are then checked."""
        case, work = self._cases()[number][which], side.works[number]
        work.fill(POISONS[which % 2])
        self.oracle.restore(case, work)
        case.region.flush()
        work.flush()
        slot = self._slot(number, which)
        try:
            elapsed = side.runner.run(slot, slot, timeout_s=RUN_TIMEOUT_S)
            self._accept(case, work)
        except KernelFault as fault:
            if anchor:
                raise AnchorFault(str(fault)) from fault
            raise
        return float(max(elapsed, 1))

    @staticmethod
    def _slot(number: int, which: int) -> int:
        return 1 + number * TIMING_SETS + which

    def _cases(self) -> list[list[Case]]:
        """The input sets that timed samples and screening use: `[workload][set]`. They outlive no session."""
        if not self._timing_cases:
            with self._machine(exclusive=False):
                self._timing_cases = [
                    [self.oracle.case(w, "nominal", self._rng, at_end=False) for _ in range(TIMING_SETS)]
                    for w in self.workloads
                ]
        return self._timing_cases

    def _bound(self, side: _Side) -> _Side:
        """Hand the timing sets to a process, each as a slot and a plan of its own."""
        for number, cases in enumerate(self._cases()):
            plans = [self._resolved(side.prepared, case) for case in cases] if side.prepared else [None] * len(cases)
            sizes: dict[str, int] = {}
            for case, plan in zip(cases, plans, strict=True):
                wanted = self.oracle.work_sizes(case.dims) | ({b.name: b.bytes for b in plan.buffers} if plan else {})
                sizes = {name: max(size, sizes.get(name, 0)) for name, size in wanted.items()}
            work = side.works[number] = Region(sizes, at_end=False)
            for which, (case, plan) in enumerate(zip(cases, plans, strict=True)):
                slot = self._slot(number, which)
                order = side.runner.bind(slot, case.region, work)
                if plan and side.prepared:
                    side.runner.define(slot, plan_words(plan, side.prepared.build, self.operator, order, work))
        return side

    def _open_side(self, kernel: Kernel) -> _Side:
        prepared = self._prepare(kernel)
        if isinstance(prepared, Rejection):
            raise AnchorFault(f"it does not build: {' '.join(prepared.message.split())[:300]}")
        runner = Runner(threads=self.threads)
        try:
            runner.load(prepared.build.library)
            return self._bound(_Side(runner, prepared))
        except KernelFault as fault:
            runner.close()
            raise AnchorFault(str(fault)) from fault

    def _anchor_side(self, kernel: Kernel) -> _Side:
        """The process that keeps an anchor ready; the least recently used one goes when there are too many."""
        side = self._anchors.pop(kernel.id, None) or self._open_side(kernel)
        self._anchors[kernel.id] = side
        while len(self._anchors) > ANCHORS_KEPT:
            self._anchors.popitem(last=False)[1].close()
        return side

    @staticmethod
    def _check_clock(candidate: _Side, anchor: _Side, samples: int) -> None:
        """The runner reads its own clock; the rest of the round trip, which ours sees, must look like the anchor's.

        Compared pair by pair, so that a loaded machine delays both alike.
        """
        own, usual = (np.array(side.runner.overheads_ns)[-samples:] for side in (candidate, anchor))
        hidden = float(np.median(own - usual))
        if hidden > CLOCK_SLACK_NS:
            message = (
                f"its process is busy for {hidden / 1e3:.0f} us more than an anchor's outside what its clock shows"
            )
            raise KernelFault(Status.QUARANTINED, message)

    @contextmanager
    def _machine(self, *, exclusive: bool) -> Iterator[None]:
        """Timings have the machine to themselves among all that share the folder; all other heavy work shares it.

        Not to be nested: each use opens the lock anew.
        """
        with (self.folder / "timing.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
            yield

    # --- references -------------------------------------------------------------------------------------------------

    def references(self) -> tuple[Reference, ...]:
        folder = str(self.operator.folder)
        command = [sys.executable, "-m", "fitness.cpu.library", folder, self.task.dtype, str(self.threads)]
        environment = {"PYTHONPATH": os.pathsep.join(sys.path), "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}
        baseline = self._open_side(self._baseline)
        results: list[Reference] = []
        try:
            if not self.oracle.functions.offers("library"):
                timings, _, _ = self._measure(baseline, self._anchor_side(self._baseline), SCREEN, race=False)
                return tuple(Reference(t.workload, "baseline", t.latency_us, 0.0, 0.0) for t in timings)
            with Runner(command, threads=self.threads, environment=environment) as runner:
                dims: list[dict[str, int]] = [{}] + [dict(case.dims) for cases in self._cases() for case in cases]
                with self._machine(exclusive=False):
                    runner.load(Path(json.dumps(dims)), timeout_s=60.0)
                library = self._bound(_Side(runner, None))
                timings, _, _ = self._measure(library, baseline, CONFIRM, race=False)
        except KernelFault as fault:
            raise OperatorError(f"{self.operator.folder}/reference.py: library(): {fault}") from None
        except AnchorFault as fault:
            raise self._baseline_error(fault) from fault
        finally:
            baseline.close()
        for t in timings:
            results.append(Reference(t.workload, "baseline", t.anchor_latency_us, 0.0, 0.0))
            results.append(Reference(t.workload, "library", t.latency_us, t.log_ratio, t.log_ratio_se))
        return tuple(results)


def _timing(workload: Workload, pairs: Sequence[tuple[float, float]], ratio: Ratio) -> Timing:
    mine, other = (float(np.median(times)) / 1e3 for times in zip(*pairs, strict=True))
    return Timing(workload.name, mine, other, ratio.value, ratio.se, len(pairs))


@contextmanager
def _clock(stage_ms: dict[str, float], stage: str) -> Iterator[None]:
    begin = time.perf_counter()
    try:
        yield
    finally:
        stage_ms[stage] = stage_ms.get(stage, 0.0) + 1e3 * (time.perf_counter() - begin)


def _l2_bytes() -> int:
    """Of one core, as the kernel reports it; 1 MiB where it does not."""
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        if (index / "level").read_text().strip() == "2":
            size = (index / "size").read_text().strip()
            return int(size.rstrip("KM")) * (1 << 20 if size.endswith("M") else 1 << 10)
    return 1 << 20
