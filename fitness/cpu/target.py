"""The cpu target: kernels in C++, each in a disposable process that never sees an expected value."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch

from fitness.cpu.build import BuiltKernel, CpuBuild, Kept, build, held
from fitness.cpu.cores import lock_name, plan_facts
from fitness.cpu.peaks import peaks, remeasure
from fitness.cpu.profiler import profile
from fitness.cpu.races import TEAM, audited, look
from fitness.cpu.runner import CpuRunner, plan_words
from fitness.evaluation import Rejection, Status, Timing
from fitness.judging.base import CALL_LIMIT_S, Checked
from fitness.judging.device import NAN, UNANSWERED, BuildFacts, KernelFault, KilledFromOutside, Prepared, Sample
from fitness.judging.pipeline import Pipeline
from fitness.judging.shapes import Shapes, varied
from fitness.judging.signature import check_arguments
from fitness.judging.timing import ProcessSpread
from fitness.oracle.cases import Case, Question
from fitness.oracle.verify import Oracle
from fitness.profiling.profiles import Profile
from fitness.profiling.roofline import Peaks
from fitness.sandbox.lock import fair_lock
from fitness.sandbox.memory import Region
from fitness.sandbox.native import cache_folder, compiler_environment
from fitness.sandbox.processes import PYTHON_LOCALE
from fitness.sandbox.room import machine_scratch_bytes, scratch_problem
from operators.catalog import functions
from operators.definition.spec import Operator, Task, Workload
from operators.errors import PlanError
from operators.kernel import Kernel
from operators.libraries import LibraryCall
from operators.plan.reading import Plan, ResolvedPlan, parse_plan

CLOCK_SETTINGS = 2
"""Times that the machine's clock may be set during a call before the call is given up."""
WATCHED_WORK = 1_000_000
"""Operations plus bytes of the largest shape on which a kernel is watched for races, some hundred times slower."""
WATCHED_SHAPES = 8
"""Most shapes that are watched, of all sizes: what is uneven is found on small ones, what takes many threads on large
ones, what is done where a dim is large on those where it is."""
LOOK_EVERY = 2
"""Number of checked questions to one that is put once more, to see whether the kernel leaves its process as it was."""
DEEP_EVERY = 4
"""Number of calls, of whatever kind, to one that runs on stacks which are poisoned as far as they go."""


@dataclass(frozen=True)
class PreparedCpuKernel:
    """A kernel that can be run: `fitness.judging.device.Prepared`."""

    kernel: Kernel
    plan: Plan
    build: CpuBuild
    supported: frozenset[str]
    """Names of the hidden shapes that it declares support for."""

    @property
    def compiled(self) -> BuildFacts:
        """See `fitness.judging.device.Prepared`."""
        return BuildFacts(self.build.code_digest, self.build.cell, self.build.facts)

    @property
    def deterministic(self) -> bool:
        """See `fitness.judging.device.Prepared`."""
        return self.plan.deterministic

    def supports(self, workload: Workload) -> bool:
        return workload.name in self.supported


class CpuFitness(Pipeline):
    """`fitness.judging.base.Fitness` for one task on this machine.

    Kernels run on the cores of the process that makes this (`fitness.cpu.cores`), with as many threads. `folder` holds
    what was compiled, `shared` (by default the same) the lock that gives a timing those cores; instances that evaluate
    on one machine share it.
    """

    def __init__(self, operator: Operator, task: Task, *, workload_set: str, folder: Path, shared: Path | None = None):
        # References are small; torch's threads would spin beside the kernels that are examined.
        torch.set_num_threads(1)
        oracle = Oracle(operator, functions(operator.folder), task.dtype)
        device = CpuDevice(operator, task, oracle, workload_set=workload_set, folder=folder, shared=shared or folder)
        baseline = Kernel(operator.name, "cpu", operator.naive("cpu"))
        super().__init__(operator, task, device, oracle, baseline, workload_set=workload_set)


class CpuDevice:
    """`fitness.judging.device.Device` for one task on this machine."""

    def __init__(
        self, operator: Operator, task: Task, oracle: Oracle, *, workload_set: str, folder: Path, shared: Path
    ) -> None:
        self.operator = operator
        self.task = task
        self.folder = folder
        self._shared = shared
        self._kept = Kept(folder)
        self.forgets = True  # every call is a fork of a process that has run none
        self.differs = True  # in the number of cores
        self.processes = 3
        self.spread = ProcessSpread()
        self.driver = ""
        self.threads = len(os.sched_getaffinity(0))
        self.facts = plan_facts(self.threads)
        self._shapes = Shapes(operator, task, operator.workload_set(workload_set), oracle)
        self._oracle = oracle
        self._works: WeakValueDictionary[tuple[object, ...], Region] = WeakValueDictionary()
        """Regions of timed calls by their sizes, as long as a session has them."""

    # --- build ------------------------------------------------------------------------------------------------------

    def prepare(self, kernel: Kernel) -> PreparedCpuKernel | Rejection:
        try:
            plan = parse_plan(kernel.source, self.operator, "cpu").for_dtype(self.task.dtype)
            plan.settings(kernel.values)
            supported = self._shapes.supported(plan, kernel, self.facts)
            if isinstance(supported, Rejection):
                return supported
            shapes = {shape: self.resolve(plan, kernel, dims) for shape, dims in self._shapes.judged(supported)}
        except PlanError as error:
            return Rejection(Status.INVALID, str(error))
        if problem := scratch_problem(shapes.items(), self._shapes.workloads, machine_scratch_bytes()):
            return Rejection(Status.INVALID, problem)
        compiled = self._compiled(kernel, plan, list(shapes.values()), supported)
        return compiled if isinstance(compiled, Rejection) else PreparedCpuKernel(kernel, plan, compiled, supported)

    def _compiled(
        self, kernel: Kernel, plan: Plan, resolved: Sequence[ResolvedPlan], supported: frozenset[str]
    ) -> CpuBuild | Rejection:
        name = f"{kernel.id}-{self.task.dtype}"
        if kept := self._kept.find(name):
            return kept
        text = self._shapes.verdict_text(kernel, plan, resolved, supported)
        with self.machine(exclusive=False):
            made = build(kernel, plan, self.operator, dtype=self.task.dtype, folder=self.folder, resolved=text)
        if isinstance(made, Rejection):
            return made
        for one in resolved:
            problem = check_arguments(one, made.params, self.operator, self.task.dtype)
            if problem:
                made.library.unlink(missing_ok=True)
                return Rejection(Status.INVALID, problem)
        self._kept.add(name, made)
        return made

    def resolve(
        self, plan: Plan, kernel: Kernel, dims: Mapping[str, int], facts: Mapping[str, int] | None = None
    ) -> ResolvedPlan:
        """The plan on some dims, on this machine or on one of which other facts are known. Raises PlanError."""
        facts = facts or self.facts
        return plan.resolve(self.operator, dtype=self.task.dtype, dims=dims, values=kernel.values, facts=facts)

    # --- run --------------------------------------------------------------------------------------------------------

    def takes(self, prepared: Prepared, dims: Mapping[str, int]) -> bool:
        assert isinstance(prepared, PreparedCpuKernel)
        with suppress(PlanError):
            return prepared.plan.supports(self.operator, dims, prepared.kernel.values, self.facts, self.task.dtype)
        return False

    def open(self, prepared: Prepared, *, fresh: bool = False, elsewhere: bool = False) -> CpuSession:
        assert isinstance(prepared, PreparedCpuKernel)
        try:
            return self._opened(prepared, elsewhere=elsewhere)
        except FileNotFoundError:  # evicted since it was prepared
            again = self.prepare(prepared.kernel)
        if isinstance(again, Rejection):
            raise KernelFault(again.status, again.message)
        return self._opened(again, elsewhere=elsewhere)

    def _opened(self, prepared: PreparedCpuKernel, *, elsewhere: bool) -> CpuSession:
        with held(prepared.build.library) as library:
            runner = CpuRunner(threads=self.threads)
            try:
                runner.map(prepared.build.image, library)
            except UNANSWERED:
                runner.close()
                raise
        return CpuSession(self, runner, prepared, self._oracle, elsewhere=elsewhere)

    def expect(self, sessions: int) -> None:
        """Nothing: a process starts within milliseconds here."""

    def open_library(self, call: LibraryCall, cases: Sequence[Sequence[Case]]) -> CpuSession:
        folder = str(self.operator.folder)
        command = [sys.executable, "-m", "fitness.cpu.library", folder, self.task.dtype, call.name, str(self.threads)]
        environment = {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": "/nonexistent",
            "XDG_CACHE_HOME": str(cache_folder().parent),
            "OPENBLAS_NUM_THREADS": str(self.threads),  # numpy's and scipy's
            "PATH": os.environ.get("PATH", os.defpath),  # of the compiler that torch.compile calls
            "TORCHINDUCTOR_COMPILE_THREADS": "1",  # in this process, which ends with its verifier
            # Threads that wander share a core at times: one product took 0.4 ms in one process and 1.1 in the next.
            "OMP_PROC_BIND": "true",
            # Results take memory that was there before: a kernel's outputs need no new pages either.
            "MALLOC_MMAP_MAX_": "0",
            "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
            **PYTHON_LOCALE,
            **compiler_environment(),
        }
        dims: list[dict[str, int]] = [{}] + [dict(case.dims) for sets in cases for case in sets]
        runner = CpuRunner(command, threads=self.threads, environment=environment)

        def load() -> None:
            with self.machine(exclusive=False):  # importing torch takes a second, beside which no kernel shall be timed
                runner.load(json.dumps(dims), timeout_s=60.0)

        pool = ThreadPoolExecutor(1)
        loading = pool.submit(load)
        pool.shutdown(wait=False)
        return CpuSession(self, runner, None, self._oracle, loaded=loading.result)

    def machine(self, *, exclusive: bool) -> AbstractContextManager[None]:
        """See `fitness.judging.device.Device.machine`: of the cores that this process stays on."""
        lock = fair_lock(self._shared, lock_name())
        return lock.alone() if exclusive else lock.shared()

    def profile(self, prepared: Prepared, timings: Sequence[Timing]) -> Profile:
        assert isinstance(prepared, PreparedCpuKernel)
        peaks_ = self.peaks()
        with self.machine(exclusive=False):
            return profile(
                self._built(prepared),
                shapes=self._shapes.canonical_dims,
                timings=timings,
                peaks=peaks_,
                facts=self.facts,
                folder=self.folder,
            )

    def _built(self, prepared: PreparedCpuKernel) -> BuiltKernel:
        return BuiltKernel(prepared.kernel, prepared.plan, prepared.build, self.operator, self.task.dtype)

    def emulate(self, kernel: Kernel) -> Checked:
        return Checked(lack="kernels of the cpu target need no emulation: they run here")

    def audit(self, prepared: Prepared) -> Callable[[], Mapping[str, Any]]:
        """See `fitness.judging.device.Device.audit`: a kernel with threads is watched for races, on small shapes."""
        assert isinstance(prepared, PreparedCpuKernel)
        if not prepared.build.facts["threads"]:
            return lambda: {"races": "none possible: it has one thread"}
        return partial(self._watched, prepared)

    def _watched(self, prepared: PreparedCpuKernel) -> Mapping[str, str]:
        workloads = varied(self._shapes.small(prepared.supported, WATCHED_WORK), WATCHED_SHAPES)
        team = min(max(self.threads, TEAM.start), TEAM.stop - 1)
        rng = np.random.default_rng()

        def runs() -> Iterator[tuple[Question, ResolvedPlan]]:
            for workload in workloads:
                question = self._oracle.question(workload, "nominal", rng, at_end=False)
                yield question, prepared.plan.resolve(
                    self.operator, dtype=self.task.dtype, dims=question.dims, values=prepared.kernel.values,
                    facts=plan_facts(team),
                )  # fmt: skip

        with self.machine(exclusive=False):
            found = look(self._built(prepared), self._oracle, runs(), team=team, folder=self.folder)
        return audited(found, f"{len(workloads)} small shapes by {team} threads")

    def timed_work(self, sizes: Mapping[str, int]) -> Region:
        """Memory for timed calls, the same for a candidate and its anchor, so that none has the luckier pages.

        No call leaves anything in it that the next one finds.
        """
        key = tuple(sizes.items())
        work = self._works.get(key)
        if work is None:
            work = self._works[key] = Region(sizes, at_end=False)
        return work

    def peaks(self, *, again: bool = False) -> Peaks:
        with self.machine(exclusive=again):
            found = peaks(self.threads)
            return remeasure(found) if again else found


@dataclass(frozen=True)
class TeamSize:
    """Cores that a plan knows of, and threads that OpenMP has: fewer where a program says so."""

    cores: int
    threads: int

    @classmethod
    def elsewhere(cls, here: int, rng: np.random.Generator) -> TeamSize:
        """A team on a machine that has another number of cores than this one."""
        cores = int(rng.integers(1, here)) if here > 1 and rng.integers(2) else here + 1
        return cls(cores, cores if rng.integers(2) else int(rng.integers(1, cores + 1)))


class CpuSession:
    """`fitness.judging.device.KernelSession`: a runner, and the memory it shares with us."""

    def __init__(
        self,
        device: CpuDevice,
        runner: CpuRunner,
        prepared: PreparedCpuKernel | None,
        oracle: Oracle,
        *,
        loaded: Callable[[], object] = lambda: None,
        elsewhere: bool = False,
    ) -> None:
        """`loaded` waits until `runner` can be asked for anything, and raises KernelFault where that never comes.

        `elsewhere`: each question is put as on another machine.
        """
        self.charged = False  # the operating system stamps both ends of a call
        self.seals = prepared is not None
        self._device = device
        self._runner = runner
        self._prepared = prepared
        """Prepared kernel; None: the vendor's library."""
        self._oracle = oracle
        self._loaded = loaded
        self._slots: dict[int, tuple[Question, Region]] = {}
        self._rng = np.random.default_rng()
        self._elsewhere = elsewhere
        self._team = TeamSize(device.threads, device.threads)

    def bind(self, slot: int, question: Question, *, at_end: bool) -> None:
        self._loaded()
        is_new = slot not in self._slots or self._slots[slot][0] is not question
        if self._elsewhere and is_new:
            self._team = TeamSize.elsewhere(self._device.threads, self._rng)
        resolved = self._resolved(question)
        sizes = self._oracle.work_sizes(question.dims) | (
            {b.name: b.bytes for b in resolved.buffers} if resolved else {}
        )
        work = self._device.timed_work(sizes) if slot else Region(sizes, at_end=at_end)
        assert isinstance(question.region, Region)
        order = self._runner.bind(slot, question.region, work)
        if resolved and self._prepared:
            words = plan_words(resolved, self._prepared.build, self._device.operator, order, work)
            self._runner.define(slot, words)
        self._slots[slot] = (question, work)
        if self._prepared and not slot and is_new and not self._rng.integers(LOOK_EVERY):
            self._run(slot, poison=NAN, looks=True)

    def run(self, slot: int, *, poison: int, cold: bool = False, sealed: bool = False) -> Sample:
        for _ in range(CLOCK_SETTINGS):
            with suppress(KilledFromOutside):
                return self._run(slot, poison=poison, cold=cold, sealed=sealed)
        return self._run(slot, poison=poison, cold=cold, sealed=sealed)

    def _run(self, slot: int, *, poison: int, cold: bool = False, sealed: bool = False, looks: bool = False) -> Sample:
        question, work = self._slots[slot]
        work.prepare(poison)
        self._oracle.restore(question, work)
        if cold:
            assert isinstance(question.region, Region)
            question.region.flush()
            work.flush()
        deep = self._prepared is not None and not self._rng.integers(DEEP_EVERY)
        team = 0 if slot else self._team.threads
        return self._runner.run(
            slot, slot, timeout_s=CALL_LIMIT_S, poison=poison, deep=deep, sealed=sealed, team=team, looks=looks
        )

    def work(self, slot: int) -> Region:
        return self._slots[slot][1]

    def close(self, *, sound: bool = False) -> None:
        self._runner.close()

    def _resolved(self, question: Question) -> ResolvedPlan | None:
        if self._prepared is None:
            return None
        device, name = self._device, question.workload.name
        try:
            facts = plan_facts(self._team.cores)
            resolved = device.resolve(self._prepared.plan, self._prepared.kernel, question.dims, facts)
        except PlanError as error:
            raise KernelFault(Status.INVALID, f"on {name}: {error}") from None
        problem = check_arguments(resolved, self._prepared.build.params, device.operator, device.task.dtype)
        if problem:
            raise KernelFault(Status.INVALID, f"on {name}: {problem}")
        # Where data decide about dims, there may be more to it than when the kernel was built.
        if problem := scratch_problem([(question.workload, resolved)], (), machine_scratch_bytes()):
            raise KernelFault(Status.INVALID, problem)
        return resolved
