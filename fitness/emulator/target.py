"""Does a CUDA kernel file give right answers? Asked of a CPU, with the verdict's own oracle, poisons and guards."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

import numpy as np

from fitness.cpu.runner import CpuRunner
from fitness.cuda.compile.program import Program
from fitness.cuda.running.arguments import program
from fitness.emulator.build import MAX_SHARED_BYTES, EmulatedBuild, compile_emulated, emulator
from fitness.evaluation import CheckError, Rejection, Status
from fitness.judging.checks import Call, agreed_at_both_ends
from fitness.judging.device import KernelFault
from fitness.judging.shapes import Shapes
from fitness.judging.signature import check_arguments
from fitness.oracle.cases import Question
from fitness.oracle.verify import Oracle, worst
from fitness.sandbox.memory import Region
from operators.catalog import functions
from operators.definition.spec import Operator, Task, Workload
from operators.errors import PlanError
from operators.kernel import Kernel
from operators.plan.reading import Plan, ResolvedPlan, parse_plan

RUN_TIMEOUT_S = 60.0
FACTS: Mapping[str, int] = {
    "sm_count": 5, "warp_size": 32, "max_shared_bytes": MAX_SHARED_BYTES, "l2_bytes": 50 << 20,
}  # fmt: skip
"""Few multiprocessors, so that what is sized by them goes round several times."""
BLOCKS_PER_SM = 2
TENSOR_MAPS = "tensor maps (TMA)"
CONTROL = " emulation"
"""A buffer of ours beside the kernel's: no tensor can be called so."""
CONTROL_HEAD = Struct("<12I")
"""Seed, poison, bytes of text, launch, whether a thread runs, whether the emulation is at fault, block, thread:
`Control` of runtime.cpp."""
CONTROL_BYTES = CONTROL_HEAD.size + 1024


def emulated(
    kernel: Kernel,
    operator: Operator,
    dtype: str,
    *,
    shapes: int | Sequence[Mapping[str, int]] = 4,
    families: int = 1,
    seed: int = 0,
) -> tuple[CheckError, ...] | Rejection:
    """Run a CUDA kernel on the CPU and judge what it writes.

    `shapes` are settings of the dims, or how many of the hidden shapes that it supports to draw; each is run with as
    many input families as `families` says, on two poisons. A right kernel gives its errors, all within bounds; any
    other a rejection, which is `unsupported` and begins with "needs a GPU" for what cannot be emulated. The same seed
    draws the same inputs and the same order of threads. Raises ToolchainError where there is no g++.
    """
    with tempfile.TemporaryDirectory() as folder:
        emulation = Emulation(operator, dtype, folder=Path(folder), seed=seed)
        prepared = emulation.prepare(kernel)
        if isinstance(prepared, Rejection):
            return prepared
        return emulation.examine(prepared, shapes=shapes, families=families)


@dataclass(frozen=True)
class EmulatedKernel:
    """A kernel that can be run."""

    kernel: Kernel
    plan: Plan
    build: EmulatedBuild
    supported: frozenset[str]
    """Names of the hidden shapes that it declares support for."""


class Emulation:
    """Builds and examines kernels of one operator and dtype. `folder` holds what was compiled."""

    def __init__(
        self, operator: Operator, dtype: str, *, folder: Path, seed: int = 0, run_timeout_s: float = RUN_TIMEOUT_S
    ) -> None:
        self.operator = operator
        self.run_timeout_s = run_timeout_s
        self.dtype = dtype
        self.folder = folder
        self.oracle = Oracle(operator, functions(operator.folder), dtype)
        # No workloads: those are for clocks, and too large.
        self._shapes = Shapes(operator, Task(operator.name, dtype, "cuda"), (), self.oracle)
        self._rng = np.random.default_rng(seed)

    def prepare(self, kernel: Kernel) -> EmulatedKernel | Rejection:
        """Parse, check and compile."""
        try:
            plan = parse_plan(kernel.source, self.operator, "cuda").for_dtype(self.dtype)
            plan.settings(kernel.values)
            supported = self._shapes.supported(plan, kernel, FACTS)
            if isinstance(supported, Rejection):
                return supported
            build = compile_emulated(kernel, plan, self.operator, dtype=self.dtype, folder=self.folder)
        except PlanError as error:
            return Rejection(Status.INVALID, str(error))
        return build if isinstance(build, Rejection) else EmulatedKernel(kernel, plan, build, supported)

    def examine(
        self, prepared: EmulatedKernel, *, shapes: int | Sequence[Mapping[str, int]], families: int = 1
    ) -> tuple[CheckError, ...] | Rejection:
        """The worst errors of a right kernel, or the first thing wrong; see `emulated`."""
        if isinstance(shapes, int):
            hidden = [w for w in self.operator.hidden if w.name in prepared.supported]
            chosen = [hidden[i] for i in self._rng.permutation(len(hidden))[:shapes]]
        else:
            chosen = [Workload("emulated", dict(dims)) for dims in shapes]
        return self.examined(prepared, chosen, families=families)

    def examined(
        self, prepared: EmulatedKernel, chosen: Sequence[Workload], *, families: int = 1, limit_s: float = math.inf
    ) -> tuple[CheckError, ...] | Rejection:
        """The same on these shapes, begun within so many seconds. Raises OperatorError where one makes no sense."""
        checks = [(w, str(f)) for w in chosen for f in self._rng.permutation(self.oracle.families)[:families]]
        end = time.monotonic() + limit_s
        errors: list[CheckError] = []
        beyond: Rejection | None = None
        try:
            with self.opened(prepared) as call:
                for number, (workload, family) in enumerate(checks):
                    if time.monotonic() > end:
                        break
                    # Without the naive kernel's opinion: it may be the one that is examined.
                    case = self.oracle.case(workload, family, self._rng, at_end=number % 2 == 0)
                    try:
                        errors += agreed_at_both_ends(
                            self.oracle, case, call, self._rng, deterministic=prepared.plan.deterministic
                        )
                    except KernelFault as fault:
                        if fault.rejection.status is not Status.UNSUPPORTED:
                            raise
                        beyond = beyond or fault.rejection  # other shapes may take another route, which is wrong
        except KernelFault as fault:
            return fault.rejection
        return beyond or worst(errors)

    @contextmanager
    def opened(self, prepared: EmulatedKernel) -> Iterator[Call]:
        """A process with the kernel, which draws another order of its threads for every call."""
        with _Session(self, prepared, self._rng) as session:

            def call(question: Question, at_end: bool, poison: int) -> Region:
                session.bind(question, at_end=at_end)
                return session.run(poison=poison)

            yield call


class _Session:
    """A runner of the cpu target with one kernel, and the memory it shares with us."""

    def __init__(self, emulation: Emulation, prepared: EmulatedKernel, rng: np.random.Generator) -> None:
        self._emulation = emulation
        self._prepared = prepared
        self._rng = rng
        self._runner = CpuRunner((str(emulator()),), threads=1)
        self._bound: tuple[Question, Region, Program] | None = None

    def __enter__(self) -> _Session:
        self._runner.map(self._prepared.build.image, self._prepared.build.library)
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()

    def bind(self, question: Question, *, at_end: bool) -> None:
        """Hand over inputs, and memory for outputs and scratch. Raises KernelFault."""
        resolved, program_ = self._resolved(question)
        sizes = self._emulation.oracle.work_sizes(question.dims) | {b.name: b.bytes for b in resolved.buffers}
        work = Region(sizes | {CONTROL: CONTROL_BYTES}, at_end=at_end)
        assert isinstance(question.region, Region)
        order = self._runner.bind(0, question.region, work)
        self._runner.define(0, _words(program_, self._prepared.build, order, work))
        self._bound = question, work, program_

    def run(self, *, poison: int) -> Region:
        """Run every launch; what it wrote. Raises KernelFault, which says where it happened."""
        assert self._bound
        question, work, program_ = self._bound
        work.prepare(poison)
        self._emulation.oracle.restore(question, work)
        seed = int(self._rng.integers(1, 1 << 32))
        work.view(CONTROL)[: CONTROL_HEAD.size] = CONTROL_HEAD.pack(seed, poison, *[0] * 10)
        try:
            self._runner.run(0, 0, timeout_s=self._emulation.run_timeout_s, poison=poison)
        except KernelFault as fault:
            raise _placed(fault.rejection, question, work, program_) from None
        return work

    def _resolved(self, question: Question) -> tuple[ResolvedPlan, Program]:
        plan, kernel, operator = self._prepared.plan, self._prepared.kernel, self._emulation.operator
        dtype, params = self._emulation.dtype, self._prepared.build.params
        try:
            resolved = plan.resolve(
                operator,
                dtype=dtype,
                dims=question.dims,
                values=kernel.values,
                facts=FACTS,
                occupancy=dict.fromkeys(plan.occupancy_kernels, BLOCKS_PER_SM),
            )
            problem = check_arguments(resolved, params, operator, dtype)
        except PlanError as error:
            problem = str(error)
        if problem:
            raise KernelFault(Status.INVALID, f"on {question.workload.name}: {problem}")
        return resolved, program(resolved, params, operator)


def _placed(rejection: Rejection, question: Question, work: Region, program_: Program) -> KernelFault:
    """The fault that ended a call, in the emulation's own words where it has some, and its place."""
    data = bytes(work.view(CONTROL))
    _, _, told, launch, running, lack, *index = CONTROL_HEAD.unpack_from(data)
    status, text = rejection.status, rejection.message
    if told:
        status, text = Status.RUNTIME_ERROR, data[CONTROL_HEAD.size :][: min(told, 1023)].decode(errors="replace")
    if lack:
        return KernelFault(Status.UNSUPPORTED, f"needs a GPU: {text}")
    if 0 < launch <= len(program_.calls):
        thread = f", thread {index[3:]}" if running else ""
        text += f" (`{program_.calls[launch - 1].kernel}`, block {index[:3]}{thread})"
    return KernelFault(status, f"{text} on {question.workload.name}")


def _words(program_: Program, build: EmulatedBuild, order: Sequence[str], work: Region) -> list[int]:
    """A program as the runner reads it; every launch's own arguments are followed by what runtime.hpp wants to know."""
    index = {name: number for number, name in enumerate(order)}
    words = [len(program_.zero)]
    for name in program_.zero:
        words += [index[name], work.extents[name].bytes]
    words.append(len(program_.calls))
    for number, launch in enumerate(program_.calls, 1):
        cluster = launch.cluster or (0, 0, 0)
        numbers = (*launch.grid, *launch.block, *cluster, launch.shared_bytes, int(launch.cooperative), number)
        numbers += (build.static_bytes,)
        words += [build.launches.index(launch.kernel), len(launch.args) + len(numbers) + 1]
        for argument in launch.args:
            if isinstance(argument, bytes):
                words += [0, int.from_bytes(argument.ljust(8, b"\0"), "little", signed=True)]
            elif argument[0] == "map":
                raise KernelFault(Status.UNSUPPORTED, f"needs a GPU: {TENSOR_MAPS}")
            else:
                words += [1, index[argument[1]]]
        for value in numbers:
            words += [0, value]
        words += [1, index[CONTROL]]
    return words
