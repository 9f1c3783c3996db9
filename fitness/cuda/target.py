"""The cuda target: device code and its plan, run by disposable runners on one GPU."""

from __future__ import annotations

import math
import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from traceback import clear_frames
from typing import Any, TypeVar

import numpy as np
import torch

from fitness.cuda.compile.build import CudaBuild, code_digest, compile_cuda, compile_lines
from fitness.cuda.compile.program import Program
from fitness.cuda.gpu import SPARE_SHARE, Gpu, shared_gpu
from fitness.cuda.oracle import CudaOracle
from fitness.cuda.profiling.ncu import CallCounters, NcuFailure, assembled, measure, placed
from fitness.cuda.profiling.sanitizer import SanitizerFinding, audited
from fitness.cuda.profiling.solo import Solo, SoloRun
from fitness.cuda.profiling.stalls import quoted, stalled_lines
from fitness.cuda.profiling.tools import find_tool
from fitness.cuda.running.arguments import program
from fitness.cuda.running.driver import CudaError, device_facts, driver_version
from fitness.cuda.running.memory import NO_MEMORY, check_torch, is_short
from fitness.cuda.running.runner import CudaRunner
from fitness.cuda.session import CudaSession, LibrarySession
from fitness.evaluation import Evaluation, Rejection, Status, Timing
from fitness.judging.base import Anchor, Built, Checked
from fitness.judging.device import BuildFacts, KernelFault, Prepared
from fitness.judging.pipeline import Pipeline
from fitness.judging.shapes import Shapes
from fitness.judging.signature import check_arguments
from fitness.judging.timed_inputs import STANDING_SETS, most_sets
from fitness.judging.timing import ProcessSpread
from fitness.oracle.cases import Case, Question
from fitness.oracle.inputs import draw
from fitness.oracle.verify import Oracle
from fitness.profiling.profiles import Profile
from fitness.profiling.roofline import Peaks
from fitness.sandbox.native import publish
from fitness.sandbox.room import SHARE, Footprint, footprint, scratch_problem, sets_within
from operators.catalog import functions
from operators.definition.spec import Operator, Task, Workload
from operators.dtypes import resolve_dtype
from operators.errors import DeviceError, OperatorError, PlanError
from operators.kernel import Kernel
from operators.libraries import LibraryCall
from operators.plan.reading import Plan, ResolvedPlan, parse_plan

T = TypeVar("T")
AUDITED_WORK = 1_000_000
"""Operations plus bytes of the largest shape that compute-sanitizer sees; it slows kernels down a hundred times."""
BUILD = 3
"""Version of the rules for builds on disk; builds of another one are made anew."""
SPREAD = ProcessSpread(fixed_ns=160.0, share=0.003, outside_ns=160.0)
"""Spread that `tests.bench.gpu_comparisons` finds: two processes with one kernel of 4 to 15 us differ by 160 ns (an
H100) to 230 ns (an H200) by their clocks (standard deviation), also where nothing of them differs but when they began,
and by the same on all workloads. Beside the clocks they differ by more on some machines; with the two errors together
no more kernels are called different from themselves there than is stated. Longer kernels differ by less than the share.
"""


@dataclass(frozen=True)
class PreparedCudaKernel:
    """A kernel that can be run: `fitness.judging.device.Prepared`."""

    kernel: Kernel
    plan: Plan
    build: CudaBuild
    code_digest: str
    supported: frozenset[str]
    """Names of the hidden shapes that it declares support for."""

    @property
    def compiled(self) -> BuildFacts:
        """See `fitness.judging.device.Prepared`."""
        return BuildFacts(self.code_digest, self.build.cell, self.build.facts)

    @property
    def deterministic(self) -> bool:
        """See `fitness.judging.device.Prepared`."""
        return self.plan.deterministic

    def supports(self, workload: Workload) -> bool:
        return workload.name in self.supported


class CudaFitness(Pipeline):
    """`fitness.judging.base.Fitness` for one task on one GPU, the first that CUDA_VISIBLE_DEVICES shows.

    This process is the verifier: it computes references on the GPU and never runs a candidate. `folder` holds what was
    compiled; instances with the same `shared`, by default `folder`, use one `Gpu`. Raises DeviceError where there is no
    GPU, or when it fails.
    """

    def __init__(self, operator: Operator, task: Task, *, workload_set: str, folder: Path, shared: Path | None = None):
        self._gpu = shared_gpu(shared or folder)
        # Inputs are drawn beside a runner that launches kernels; torch's CPU threads would spin.
        torch.set_num_threads(1)
        with _device_errors():
            oracle = CudaOracle(operator, functions(operator.folder), task.dtype, self._gpu.pool)
        device = CudaDevice(operator, task, oracle, self._gpu, workload_set=workload_set, folder=folder)
        workloads = operator.workload_set(workload_set)
        limit_bytes = int((1 - SPARE_SHARE - 1 / SHARE) * self._gpu.facts.memory_bytes)
        most = most_sets(oracle.deals, len(workloads))
        sets = sets_within(limit_bytes, operator, workloads, task.dtype, most, beside=STANDING_SETS)
        super().__init__(operator, task, device, oracle, _naive(operator), workload_set=workload_set, sets=sets)
        self._judging = oracle
        self._gpu.join(self)

    @property
    def footprint(self) -> Footprint:
        """See `fitness.cuda.gpu.Tenant`."""
        sets = [STANDING_SETS + many for many in self.bench.sets]
        return footprint(self.operator, self.workloads, self.task.dtype, sets)

    def screen(self, kernel: Kernel, anchor: Anchor, *, race: bool) -> Evaluation:
        return self._with_room(lambda: super(CudaFitness, self).screen(kernel, anchor, race=race), _lacks_memory)

    def full(self, kernel: Kernel, anchor: Anchor) -> Evaluation:
        return self._with_room(lambda: super(CudaFitness, self).full(kernel, anchor), _lacks_memory)

    def confirm(self, kernel: Kernel) -> Evaluation:
        return self._with_room(lambda: super(CudaFitness, self).confirm(kernel), _lacks_memory)

    def choose_rivals(self) -> None:
        self._with_room(super().choose_rivals)

    def spot_check(self, kernel: Kernel) -> Checked:
        return self._with_room(lambda: super(CudaFitness, self).spot_check(kernel))

    def profile(self, kernel: Kernel, timings: Sequence[Timing]) -> Profile:
        return self._with_room(lambda: super(CudaFitness, self).profile(kernel, timings))

    def _with_room(self, call: Callable[[], T], lacks_memory: Callable[[T], bool] = lambda found: False) -> T:
        """Returns its result; where memory runs out, on our side or a kernel's, calls it again with all that others
        hold, and then with fewer sets of inputs, as long as there are any to spare."""
        with _device_errors():
            self._gpu.make_room(self)
            while True:
                try:
                    found = call()
                except (RuntimeError, CudaError, DeviceError, OperatorError) as error:
                    if not is_short(str(error)):
                        raise
                    clear_frames(error.__traceback__)  # they hold what the call had made
                    if not self._relieved():
                        raise
                else:
                    if not lacks_memory(found) or not self._relieved():
                        return found

    def _relieved(self) -> bool:
        """Whether there is more memory for it now than there was."""
        if self._gpu.relieve(self):
            return True
        thinner = self.bench.thin()
        if thinner:
            self._gpu.end_library()
            self._judging.forget()
        return thinner

    def forget(self) -> None:
        super().forget()
        self._judging.forget()

    def close(self) -> None:
        super().close()
        self._gpu.leave(self)


class CudaBuilder:
    """`fitness.judging.base.Builder` for one task: the GPU is only asked for properties, and for a plan's occupancy."""

    def __init__(self, operator: Operator, task: Task, *, workload_set: str, folder: Path, shared: Path | None = None):
        self.operator = operator
        self._gpu = shared_gpu(shared or folder)
        oracle = Oracle(operator, functions(operator.folder), task.dtype)
        torch.set_num_threads(1)
        device = CudaDevice(operator, task, oracle, self._gpu, workload_set=workload_set, folder=folder)
        self._pipeline = Pipeline(operator, task, device, oracle, _naive(operator), workload_set=workload_set)
        self._gpu.join(None)

    def build(self, kernel: Kernel) -> Built | Evaluation:
        with _device_errors():
            built = self._pipeline.build(kernel)
        if isinstance(built, Evaluation) and NO_MEMORY in built.message:
            # Of the device, whose memory others hold: it was only asked how many blocks fit onto a multiprocessor.
            raise DeviceError(built.message)
        return built

    def emulate(self, kernel: Kernel) -> Checked:
        """See `fitness.judging.base.Builder`."""
        return self._pipeline.emulate(kernel)

    def close(self) -> None:
        self._gpu.leave(None)


def _lacks_memory(found: Evaluation) -> bool:
    return NO_MEMORY in found.message or is_short(found.library_lack)


def _naive(operator: Operator) -> Kernel:
    return Kernel(operator.name, "cuda", operator.naive("cuda"))


@contextmanager
def _device_errors() -> Iterator[None]:
    """A driver that fails in this process, which runs no candidate, has a device that does not work, or no memory."""
    try:
        yield
    except (CudaError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "CUDA" not in str(error):
            raise
        raise DeviceError(f"the GPU failed: {' '.join(str(error).split())[:300]}") from error


def probe() -> None:
    """Raise DeviceError unless the GPU adds up correctly, UserError where torch has no CUDA."""
    facts = device_facts()
    check_torch()
    with _device_errors():
        found = int(torch.ones(1 << 24, dtype=torch.int32, device="cuda").sum())
    if found != 1 << 24:
        raise DeviceError(f"{facts.name} counts {found} instead of {1 << 24}")


def prepare(shared: Path, *, computes: bool) -> None:
    """Have the GPU ready before the first task is there; `computes`: so that this process can use its memory.

    It raises UserError and DeviceError.
    """
    torch.set_num_threads(1)
    with _device_errors():
        shared_gpu(shared).prepare(computes=computes)


class CudaDevice:
    """`fitness.judging.device.Device` for one task on one GPU; with a `CudaOracle` it can also run what it builds."""

    def __init__(
        self, operator: Operator, task: Task, oracle: Oracle, gpu: Gpu, *, workload_set: str, folder: Path
    ) -> None:
        self.operator = operator
        self.task = task
        self.folder = folder
        self.forgets = False
        self.differs = False
        self.processes = 1  # each has a CUDA context and buffers of its own, which take their time and memory
        self.spread = SPREAD
        self._gpu = gpu
        self._facts = gpu.facts
        self._shapes = Shapes(operator, task, operator.workload_set(workload_set), oracle)
        self._oracle = oracle

    # --- build ------------------------------------------------------------------------------------------------------

    def emulate(self, kernel: Kernel) -> Checked:
        from fitness.emulator.look import looked_at

        judged = (*self.operator.hidden, *self._shapes.workloads)
        return looked_at(kernel, self.operator, self.task.dtype, judged=judged, facts=self._facts.plan_facts)

    def prepare(self, kernel: Kernel) -> PreparedCudaKernel | Rejection:
        try:
            plan = parse_plan(kernel.source, self.operator, "cuda").for_dtype(self.task.dtype)
            plan.settings(kernel.values)
            supported = self._shapes.supported(plan, kernel, self._facts.plan_facts)
            if isinstance(supported, Rejection):
                return supported
            build = self._compiled(kernel)
            if isinstance(build, Rejection):
                return build
            found = self._checked(plan, kernel, build, supported)
        except PlanError as error:
            return Rejection(Status.INVALID, str(error))
        except KernelFault as fault:
            return fault.rejection
        return PreparedCudaKernel(kernel, plan, build, found, supported)

    def _compiled(self, kernel: Kernel) -> CudaBuild | Rejection:
        """From disk where it was compiled before."""
        path = self.folder / f"{kernel.id}-{self.task.dtype}-{self._facts.arch}-{BUILD}.pickle"
        if path.exists():
            kept: CudaBuild = pickle.loads(path.read_bytes())
            return kept
        made = compile_cuda(kernel, self.operator, self.task.dtype, arch=self._facts.arch, compiler=self._gpu.compiler)
        if isinstance(made, CudaBuild):
            publish(path, pickle.dumps(made))
        return made

    def _checked(self, plan: Plan, kernel: Kernel, build: CudaBuild, supported: frozenset[str]) -> str:
        """The code digest, once the plan fits the code on every judged shape. Raises PlanError and KernelFault."""
        path = self.folder / f"{kernel.id}-{self.task.dtype}-{self._facts.arch}.digest"
        if path.exists():
            return path.read_text(encoding="ascii")
        with self._asked(plan, build) as runner:
            judged = self._shapes.judged(supported)
            shapes = {shape: self.resolve(plan, kernel, dims, runner) for shape, dims in judged}
        if problem := scratch_problem(shapes.items(), self._shapes.workloads, self._facts.memory_bytes // SHARE):
            raise KernelFault(Status.INVALID, problem)
        resolved = list(shapes.values())
        for one in resolved:
            if problem := check_arguments(one, build.params, self.operator, self.task.dtype):
                raise KernelFault(Status.INVALID, problem)
        text = self._shapes.verdict_text(kernel, plan, resolved, supported)
        found = code_digest(build, resolved=text, dtype=self.task.dtype, device=self._facts.name)
        publish(path, found.encode("ascii"))
        return found

    @contextmanager
    def _asked(self, plan: Plan, build: CudaBuild) -> Iterator[CudaRunner | None]:
        """A runner that knows the kernel, where the plan depends on its occupancy."""
        if not plan.occupancy_kernels:
            yield None
            return
        runner = self._gpu.runners.hire()
        try:
            with self._gpu.quiet():
                runner.load(build.cubin, build.lowered, build.tables)
                yield runner
        except BaseException:
            self._gpu.runners.dismiss(runner)
            raise
        self._gpu.runners.release(runner)

    def resolve(self, plan: Plan, kernel: Kernel, dims: Mapping[str, int], runner: CudaRunner | None) -> ResolvedPlan:
        """The plan on some dims; `runner` tells the occupancy. Raises PlanError and KernelFault."""

        def resolved(occupancy: Mapping[str, int]) -> ResolvedPlan:
            return plan.resolve(
                self.operator,
                dtype=self.task.dtype,
                dims=dims,
                values=kernel.values,
                facts=self._facts.plan_facts,
                occupancy=occupancy,
            )

        if runner is None or not plan.occupancy_kernels:
            return resolved({})
        # Blocks and shared memory do not depend on the occupancy, which depends on them.
        occupancy: dict[str, int] = {}
        for step in resolved(dict.fromkeys(plan.occupancy_kernels, 1)).steps:
            if step.kernel in plan.occupancy_kernels:
                threads = step.block[0] * step.block[1] * step.block[2]
                blocks = runner.occupancy(step.kernel, threads, step.shared_bytes)
                occupancy[step.kernel] = min(blocks, occupancy.get(step.kernel, blocks))
        if not all(occupancy.get(name, 1) for name in plan.occupancy_kernels):
            raise KernelFault(Status.INVALID, "no block fits onto a multiprocessor: too many threads, or registers")
        return resolved(dict.fromkeys(plan.occupancy_kernels, 1) | occupancy)

    # --- run --------------------------------------------------------------------------------------------------------

    def takes(self, prepared: Prepared, dims: Mapping[str, int]) -> bool:
        assert isinstance(prepared, PreparedCudaKernel)
        with suppress(PlanError):
            return prepared.plan.supports(
                self.operator, dims, prepared.kernel.values, self._facts.plan_facts, self.task.dtype
            )
        return False

    def open(self, prepared: Prepared, *, fresh: bool = False, elsewhere: bool = False) -> CudaSession:
        assert isinstance(prepared, PreparedCudaKernel)
        kernel = prepared

        def resolve(question: Question, runner: CudaRunner) -> tuple[ResolvedPlan, Program]:
            return self._steps(kernel, question.workload.name, question.dims, runner)

        return CudaSession(self._judging, self._gpu.runners, kernel.build, resolve, fresh=fresh)

    def _steps(
        self, kernel: PreparedCudaKernel, name: str, dims: Mapping[str, int], runner: CudaRunner | None
    ) -> tuple[ResolvedPlan, Program]:
        """The steps of one call on the dims of a workload of this name. Raises KernelFault."""
        try:
            resolved = self.resolve(kernel.plan, kernel.kernel, dims, runner)
        except PlanError as error:
            raise KernelFault(Status.INVALID, f"on {name}: {error}") from None
        if problem := check_arguments(resolved, kernel.build.params, self.operator, self.task.dtype):
            raise KernelFault(Status.INVALID, f"on {name}: {problem}")
        # Where data decide about dims, there may be more to it than when the kernel was built.
        shape = Workload("", dims)
        if problem := scratch_problem([(shape, resolved)], (), self._facts.memory_bytes // SHARE):
            raise KernelFault(Status.INVALID, problem)
        return resolved, program(resolved, kernel.build.params, self.operator)

    def expect(self, sessions: int) -> None:
        self._gpu.runners.expect(sessions)

    def open_library(self, call: LibraryCall, cases: Sequence[Sequence[Case]]) -> LibrarySession:
        return LibrarySession(self._judging, self._gpu.library(), call)

    @property
    def _judging(self) -> CudaOracle:
        assert isinstance(self._oracle, CudaOracle)
        return self._oracle

    @property
    def driver(self) -> str:
        return driver_version()

    def machine(self, *, exclusive: bool) -> AbstractContextManager[None]:
        return self._gpu.machine(exclusive=exclusive)

    def peaks(self, *, again: bool = False) -> Peaks:
        return self._gpu.peaks(again=again)

    # --- what tools say ---------------------------------------------------------------------------------------------

    def profile(self, prepared: Prepared, timings: Sequence[Timing]) -> Profile:
        assert isinstance(prepared, PreparedCudaKernel)
        limits = self.peaks()
        place = placed(self.operator, self.task.dtype, self._shapes.canonical_dims, timings, limits)
        if place is None:
            return Profile(None, (), ("nothing was timed",))
        workload = next(w for w in self._shapes.canonical_dims if w.name == place.worst[1].workload)
        figures: CallCounters | None = None
        stalled: Sequence[str] = ()
        lack = self._gpu.ncu_lack or ("" if place.countable else "it is too slow for counters")
        if not lack:
            try:
                figures, stalled = self._counted(prepared, workload)
            except (NcuFailure, KernelFault) as failure:
                lack = str(failure)
                if isinstance(failure, NcuFailure) and failure.lasting:
                    self._gpu.ncu_lack = lack
        facts = prepared.build.facts
        return assembled(place, facts, figures, sm_count=self._facts.sm_count, lack=lack, stalled=stalled)

    def _counted(self, kernel: PreparedCudaKernel, workload: Workload) -> tuple[CallCounters, list[str]]:
        """The counters, and where warps wait. Raises NcuFailure and KernelFault."""
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            solo = self._solo(kernel, [workload])
            # Counters count whatever runs.
            figures = measure(solo, Path(scratch), lambda: self.machine(exclusive=True))
        return figures, self._stalled(kernel, figures, solo.runs[0].program)

    def _stalled(self, kernel: PreparedCudaKernel, figures: CallCounters, launched: Program) -> list[str]:
        """The lines of the kernel file at which most warps wait, in words, or why they are not known."""
        if figures.unsampled:
            return [f"where warps wait is not known: {figures.unsampled}"]
        lines = compile_lines(kernel.build, kernel.kernel, self.operator, self.task.dtype, compiler=self._gpu.compiler)
        whole_ns = figures.whole_ns or 1.0
        sampled = [
            (part.sampled, lines[name], part.time_ns / whole_ns)
            for part in figures.parts
            if part.sampled and (name := launched.calls[part.place].kernel) in lines
        ]
        if not sampled:
            return ["where warps wait is not known: compiled with -lineinfo, the kernel becomes other code"]
        return quoted(stalled_lines(sampled), kernel.kernel.source)

    def audit(self, prepared: Prepared) -> Callable[[], Mapping[str, Any]]:
        assert isinstance(prepared, PreparedCudaKernel)
        if find_tool("compute-sanitizer") is None:
            return lambda: {"sanitizer": "not run: compute-sanitizer is not installed"}
        fitting = self._shapes.small(prepared.supported, AUDITED_WORK)
        # The smaller one comes first: tools whose time is up have at least seen that.
        workloads = list(dict.fromkeys((fitting[(len(fitting) - 1) // 2], fitting[-1])))
        solo, sanitizer = self._solo(prepared, workloads), self._gpu.sanitizer
        shapes = " and ".join(w.name for w in workloads)

        def examined() -> list[SanitizerFinding]:
            with self.machine(exclusive=False):
                return sanitizer.examine(solo)

        begun = self._gpu.auditors.submit(examined)
        return lambda: audited(begun.result(), shapes)

    def _solo(self, kernel: PreparedCudaKernel, workloads: Sequence[Workload]) -> Solo:
        """The kernel with nominal inputs of these shapes. Raises KernelFault."""
        rng = np.random.default_rng()
        runs = []
        with self._asked(kernel.plan, kernel.build) as runner:
            for workload in workloads:
                offers, dtype = self._oracle.functions, self.task.dtype
                drawn = draw(self.operator, offers, dims=workload.dims, dtype=dtype, family="nominal", rng=rng)
                resolved, steps = self._steps(kernel, workload.name, drawn.dims, runner)
                sizes = {
                    t.name: resolve_dtype(t.dtype, dtype).size * math.prod(t.sizes(drawn.dims))
                    for t in self.operator.tensors
                }
                sizes |= {b.name: b.bytes for b in resolved.buffers}
                data = {
                    name: t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""
                    for name, t in drawn.tensors.items()
                }
                runs.append(SoloRun(steps, sizes, data))
        build = kernel.build
        return Solo(self._facts.ordinal, build.cubin, build.lowered, build.tables, tuple(runs))
