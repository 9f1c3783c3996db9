"""Sessions on the GPU: with a candidate, and with a vendor's library.

A candidate's has the verifier's memory, a runner that runs it, and another one when that dies. All vendors' calls of a
GPU have one process, which is no less apart from the verifier.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from fitness.cuda.compile.build import CudaBuild
from fitness.cuda.compile.program import Program
from fitness.cuda.gpu import MOST_IDLE, SPARES, Runners
from fitness.cuda.oracle import CudaOracle
from fitness.cuda.running.driver import CudaError
from fitness.cuda.running.library import LibraryRunner
from fitness.cuda.running.memory import NO_MEMORY, CudaRegion, MemoryBlock
from fitness.cuda.running.runner import CudaRunner
from fitness.evaluation import Status
from fitness.judging.base import CALL_LIMIT_S
from fitness.judging.device import UNANSWERED, KernelFault, KilledFromOutside, Sample
from fitness.oracle.cases import Question
from operators.errors import DeviceError
from operators.libraries import LibraryCall
from operators.plan.reading import ResolvedPlan

T = TypeVar("T")
Resolve = Callable[[Question, CudaRunner], tuple[ResolvedPlan, Program]]
"""A function that returns a kernel's plan and program on a question's dims. Raises KernelFault."""


class CudaSession:
    """`fitness.judging.device.KernelSession`."""

    def __init__(
        self, oracle: CudaOracle, runners: Runners, build: CudaBuild, resolve: Resolve, *, fresh: bool
    ) -> None:
        self.charged = True
        self.seals = False
        self._oracle = oracle
        self._runners = runners
        self._fresh = fresh
        self._build = build
        self._resolve = resolve
        self._runner: CudaRunner | None = None
        self._slots: dict[int, tuple[Question, CudaRegion, Program]] = {}
        self._works: dict[tuple[object, ...], CudaRegion] = {}
        self._last: CudaRegion | None = None
        """Region that the last call wrote to, where nothing has overwritten it yet."""
        self._lasting(lambda runner: None)

    def bind(self, slot: int, question: Question, *, at_end: bool) -> None:
        if slot and (known := self._slots.get(slot)) and _only_renewed(known[0], question):
            self._slots[slot] = question, *known[1:]
            return
        resolved, program = self._lasting(lambda runner: self._resolve(question, runner))
        sizes = self._oracle.work_sizes(question.dims) | {b.name: b.bytes for b in resolved.buffers}
        for gone in {slot, 0} & self._slots.keys():
            if self._slots.pop(gone)[1] is self._last:
                self._last = None  # the pool overwrites it
        # Slots of timing sets share their memory: no call leaves anything in it that the next one finds.
        key = (at_end, *sizes.items())
        work = self._works.get(key) if slot else None
        if work is None:
            try:
                lent = self._oracle.timed_blocks(question.dims) if slot else None
                work = CudaRegion(self._oracle.pool, sizes, at_end=at_end, lent=lent)
            except CudaError as error:
                if error.name != "CUDA_ERROR_OUT_OF_MEMORY":
                    raise
                need = f"{sum(sizes.values()) >> 20} MiB for its outputs and scratch on {question.workload.name}"
                raise KernelFault(Status.RUNTIME_ERROR, f"{NO_MEMORY}: it needs {need}") from None
            if slot:
                self._works[key] = work
        self._slots[slot] = question, work, program
        with self._runners.quiet():
            self._lasting(lambda runner: self._hand_over(runner, slot))

    def run(self, slot: int, *, poison: int, cold: bool = False, sealed: bool = False) -> Sample:
        if cold:  # on a clock: no process comes or goes, and a timing begins anew
            if self._runner is None:
                raise KilledFromOutside("its process is gone")
            return self._run(self._runner, slot, poison=poison, cold=cold)
        return self._lasting(lambda runner: self._run(runner, slot, poison=poison, cold=cold))

    def _run(self, runner: CudaRunner, slot: int, *, poison: int, cold: bool) -> Sample:
        question, work, _ = self._slots[slot]
        # The runner has more memory mapped than this call's, where another call's answers would help it.
        self._oracle.pool.wipe()
        if self._last is not None and self._last is not work:
            self._last.prepare(poison)
        self._last = work
        work.prepare(poison)
        self._oracle.restore(question, work)
        torch.cuda.synchronize()
        begin = time.monotonic_ns()
        try:
            elapsed_ns, seen_ns = runner.run(slot, cold=cold, poison=poison, timeout_s=CALL_LIMIT_S)
        except UNANSWERED:
            # It may be running still, and write: nothing else is done before it is gone.
            runner.close()
            self._runner = None
            raise
        bracket_ns = time.monotonic_ns() - begin
        if not 0 <= elapsed_ns <= bracket_ns:
            raise KernelFault(Status.QUARANTINED, f"its clock reads {elapsed_ns} ns within {bracket_ns} ns of ours")
        return Sample(elapsed_ns, seen_ns - elapsed_ns)

    def work(self, slot: int) -> CudaRegion:
        return self._slots[slot][1]

    def close(self, *, sound: bool = False) -> None:
        """Give the runner back, or end it; the memory stays ours."""
        if self._runner and sound:
            self._runners.release(self._runner)
        elif self._runner:
            self._runners.dismiss(self._runner)
        self._runner = None

    def _lasting(self, action: Callable[[CudaRunner], T]) -> T:
        """Returns what it makes of the runner, or of another one where that was killed.

        Where one was killed many were, and those that wait for work are not yet seen to be dead.
        """
        for _ in range(MOST_IDLE + SPARES):
            try:
                return action(self._alive())
            except KilledFromOutside:
                self.close()
        return action(self._alive())

    def _alive(self) -> CudaRunner:
        """The runner, or a new one that knows all that the last one knew."""
        if self._runner is None:
            self._runner = self._runners.hire(fresh=self._fresh)
            try:
                with self._runners.quiet():
                    self._runner.load(self._build.cubin, self._build.lowered, self._build.tables)
                    for slot in self._slots:
                        self._hand_over(self._runner, slot)
            except UNANSWERED:
                self.close()
                raise
        return self._runner

    def _hand_over(self, runner: CudaRunner, slot: int) -> None:
        question, work, program = self._slots[slot]
        assert isinstance(question.region, CudaRegion)
        buffers = [
            (name, region.blocks[name], extent.data_offset, extent.bytes)
            for region in (question.region, work)
            for name, extent in region.extents.items()
        ]
        torch.cuda.synchronize()
        runner.bind(slot, buffers, timed=slot > 0)
        runner.define(slot, program)


def _only_renewed(before: Question, after: Question) -> bool:
    """Whether the same memory holds other values of the same sizes, so that a runner need not be told."""
    return after.region is before.region and after.dims == before.dims and after.workload == before.workload


# --- the vendor's library ---------------------------------------------------------------------------------------------


class LibrarySession:
    """`fitness.judging.device.KernelSession` for a vendor's call."""

    def __init__(self, oracle: CudaOracle, runner: LibraryRunner, call: LibraryCall) -> None:
        """It raises nothing: the first `bind` waits for the process."""
        self.charged = False
        self.seals = False
        self._oracle = oracle
        self._runner = runner
        self._call = call
        self._number: int | None = None
        """The session's number in its process."""
        self._slots: dict[int, tuple[Question, CudaRegion]] = {}
        runner.begin()

    def bind(self, slot: int, question: Question, *, at_end: bool) -> None:
        oracle, operator = self._oracle, self._oracle.operator
        self._slots.pop(slot, None)
        with enough_memory():
            lent = oracle.timed_blocks(question.dims) if slot else None
            work = CudaRegion(oracle.pool, oracle.work_sizes(question.dims), at_end=at_end, lent=lent)
            oracle.restore(question, work)
        buffers: dict[str, tuple[MemoryBlock, int]] = {}
        for tensor in operator.tensors:
            memory = question.region if tensor.role == "in" else work
            assert isinstance(memory, CudaRegion)
            buffers[tensor.name] = memory.blocks[tensor.name], memory.extents[tensor.name].data_offset
        torch.cuda.synchronize()
        try:
            self._runner.bind(self._begun(), slot, question.dims, buffers)
        except KernelFault as fault:
            if NO_MEMORY not in str(fault):
                raise
            oracle.pool.trim()  # what this process keeps at hand is no use to that one
            self._runner.bind(self._begun(), slot, question.dims, buffers)
        self._slots[slot] = question, work

    def _begun(self) -> int:
        """The session's number in its process."""
        if self._number is None:
            try:
                self._number = self._runner.open(str(self._oracle.operator.folder), self._oracle.dtype, self._call.name)
            except DeviceError as error:
                raise KernelFault(Status.RUNTIME_ERROR, str(error)) from error
        return self._number

    def run(self, slot: int, *, poison: int, cold: bool = False, sealed: bool = False) -> Sample:
        question, work = self._slots[slot]
        elapsed_ns = None
        while elapsed_ns is None:
            with enough_memory():
                work.prepare(poison)
                self._oracle.restore(question, work)
            torch.cuda.synchronize()
            elapsed_ns = self._runner.run(self._begun(), slot, cold=cold, poison=poison)
        return Sample(elapsed_ns, 0)  # its clock is ours

    def work(self, slot: int) -> CudaRegion:
        return self._slots[slot][1]

    def close(self, *, sound: bool = False) -> None:
        self._slots.clear()
        if self._number is not None:
            self._runner.end(self._number)
            self._number = None


@contextmanager
def enough_memory() -> Iterator[None]:
    """Raise KernelFault where the device has no memory left for the library: no error of the device, or of the call."""
    try:
        yield
    except (torch.OutOfMemoryError, CudaError) as error:
        if isinstance(error, CudaError) and error.name != "CUDA_ERROR_OUT_OF_MEMORY":
            raise
        raise KernelFault(Status.RUNTIME_ERROR, f"{NO_MEMORY} for the library") from error
