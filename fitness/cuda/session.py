"""Sessions on the GPU: with a candidate, and with a vendor's library.

A candidate's has the verifier's memory, a runner that runs it, and another one when that dies. A library's is a call
in the verifier's own process: it is no candidate's code, so nothing has to be kept from it; only its call is timed, not
what prepares it. CuPy works on torch's stream and in torch's memory, so that its calls are captured and timed as
torch's are.
"""

from __future__ import annotations

import gc
import importlib
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import lru_cache
from typing import Any, TypeVar

import torch

from fitness.cuda.compile.build import CudaBuild
from fitness.cuda.compile.program import Program
from fitness.cuda.gpu import MOST_IDLE, SPARES, Runners
from fitness.cuda.oracle import CudaOracle
from fitness.cuda.running.driver import CudaError
from fitness.cuda.running.memory import CudaRegion
from fitness.cuda.running.runner import NO_MEMORY, CudaRunner
from fitness.evaluation import Status
from fitness.judging.base import CALL_LIMIT_S
from fitness.judging.device import UNANSWERED, KernelFault, KilledFromOutside, Sample
from fitness.judging.library import handed, taken
from fitness.oracle.cases import Question
from fitness.oracle.inputs import TORCH_DTYPES
from operators.cupy_stream import drop_plans, keep_plans, on_torchs_stream
from operators.errors import OperatorError
from operators.libraries import LibraryCall, forget_compiled
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


# --- the vendor's library, in the verifier's process ------------------------------------------------------------------


_cuda: Any = torch.cuda
AHEAD_CYCLES = 200_000
"""Least cycles that the device waits before the clock starts, while the call is queued."""
CYCLES_PER_NS = 3.0
"""Cycles per nanosecond, more than any device's clock makes, so that a call which Python queues is queued before its
clock starts."""
MOST_AHEAD_CYCLES = 60_000_000
"""Cycles from which the device waits no longer: a call that is queued late even then waits for the device itself."""
LATE_FACTOR = 4
"""Factor by which the device waits longer for a call that was queued late, and less again for the next that was not."""
FLUSH_L2_SIZES = 2.4
KEPT_SESSIONS = 128
"""Sessions with compiled calls of which a process keeps the code: it takes some 10 MB of main memory a shape."""
KEPT_BYTES = 256 << 20
"""Memory of the device that compiled code may hold while no session is open."""


@contextmanager
def enough_memory() -> Iterator[None]:
    """Raise KernelFault where the device has no memory left for the library: no error of the device, or of the call."""
    try:
        yield
    except (torch.OutOfMemoryError, CudaError) as error:
        if isinstance(error, CudaError) and error.name != "CUDA_ERROR_OUT_OF_MEMORY":
            raise
        raise KernelFault(Status.RUNTIME_ERROR, f"{NO_MEMORY} for the library") from error
    except OperatorError as error:  # what the call raised
        if not is_short(str(error)):
            raise
        raise KernelFault(Status.RUNTIME_ERROR, f"{NO_MEMORY} for the library: {error}") from error


def is_short(text: str) -> bool:
    """Whether it speaks of memory that the device has not."""
    return any(words in text for words in ("out of memory", "ALLOC_FAILED", NO_MEMORY))


@lru_cache
def import_apart(name: str) -> None:
    """Import the module that a call's name begins with, if it is one, in a thread of its own.

    Some of CuPy's modules keep the frames that import them first, for good, and so the inputs in these.
    """

    def imported() -> None:
        with suppress(Exception):  # what is no module's name, or cannot be imported, is told where it is called
            importlib.import_module(name.rpartition(".")[0])

    thread = threading.Thread(target=imported)
    thread.start()
    thread.join()


class RivalCode:
    """The code that torch.compile has made in this process for rivals, and CuPy's plans of their transforms.

    A task's rivals are compiled when one is chosen, and called again by each confirmation. It takes seconds to load
    their code anew, so it stays between sessions, as long as it is not too much.
    """

    def __init__(self) -> None:
        self._open = 0
        self._compiled = 0
        self._plans = False

    def opened(self, call: LibraryCall) -> None:
        """A session of a call begins."""
        self._open += 1
        self._compiled += call.kind == "compiled"
        if call.arrays == "cupy":
            with suppress(ImportError):  # told where the call is made
                keep_plans()
                self._plans = True

    def closed(self) -> None:
        """A session has ended."""
        self._open -= 1
        if self._open:
            return
        if self._plans:
            self._plans = False
            drop_plans()
        if not self._compiled:
            return
        gc.collect()
        if self._compiled > KEPT_SESSIONS or torch.cuda.memory_allocated() > KEPT_BYTES:
            forget_compiled()
            self._compiled = 0
            gc.collect()
        torch.cuda.empty_cache()


RIVAL_CODE = RivalCode()


class QueuedCall:
    """A call of the library on the buffers of one slot, between two events.

    The host is busy with other processes at times, so that a call may be queued when its clock runs already: such a
    time says nothing of the call, and a kernel beside it would look the faster for it.
    """

    def __init__(self, call: Callable[[], Any], holds: object, *, queued_ns: int = 0) -> None:
        """`queued_ns` is what Python takes to queue it.

        `holds` is an object that a captured call reads, such as a vendor's matrix object: nothing else keeps it.
        """
        self._call = call
        self._holds = holds
        self._least_cycles = min(max(AHEAD_CYCLES, int(CYCLES_PER_NS * queued_ns)), MOST_AHEAD_CYCLES)
        self._ahead_cycles = self._least_cycles
        """Cycles that the device waits before the clock starts."""

    def timed(self) -> tuple[Any, int | None]:
        """Its result, and its time in nanoseconds; None where it was queued late, and the device will wait longer."""
        begin, end = (_cuda.Event(enable_timing=True) for _ in range(2))
        _cuda._sleep(self._ahead_cycles)
        begin.record()
        result = self._call()
        end.record()
        late = begin.query()
        end.synchronize()
        if late and self._ahead_cycles < MOST_AHEAD_CYCLES:
            self._ahead_cycles = min(LATE_FACTOR * self._ahead_cycles, MOST_AHEAD_CYCLES)
            return result, None
        if not late:
            self._ahead_cycles = max(self._ahead_cycles // LATE_FACTOR, self._least_cycles)
        return result, round(1e6 * begin.elapsed_time(end))


class LibrarySession:
    """`fitness.judging.device.KernelSession` for the vendor's call."""

    def __init__(self, oracle: CudaOracle, call: LibraryCall, l2_bytes: int) -> None:
        if call.arrays == "cupy":
            import_apart(call.name)
        self.charged = False
        self.seals = False
        self._oracle = oracle
        self._call = call
        self._flush = torch.empty(int(FLUSH_L2_SIZES * l2_bytes) // 4, device=oracle.device)
        self._memory = torch.cuda.graph_pool_handle()
        self._is_open = True
        RIVAL_CODE.opened(call)
        self._slots: dict[int, tuple[Question, CudaRegion, QueuedCall]] = {}

    def bind(self, slot: int, question: Question, *, at_end: bool) -> None:
        with enough_memory():
            self._bind(slot, question, at_end=at_end)

    def _bind(self, slot: int, question: Question, *, at_end: bool) -> None:
        oracle, operator = self._oracle, self._oracle.operator
        self._slots.pop(slot, None)
        lent = oracle.timed_blocks(question.dims) if slot else None
        work = CudaRegion(oracle.pool, oracle.work_sizes(question.dims), at_end=at_end, lent=lent)
        values: dict[str, Any] = {**question.dims, **{s.name: s.value for s in operator.scalars}}
        for tensor in operator.inputs:
            memory = work if tensor.role == "inout" else question.region
            assert isinstance(memory, CudaRegion)
            flat = memory.tensor(tensor.name, TORCH_DTYPES[oracle.element(tensor).name])
            values[tensor.name] = flat.reshape(tensor.sizes(question.dims))
        oracle.restore(question, work)
        with self._arrays():
            call = oracle.functions.bound(self._call, handed(values, self._call.arrays))
        self._slots[slot] = question, work, self._captured(call)

    def run(self, slot: int, *, poison: int, cold: bool = False, sealed: bool = False) -> Sample:
        with enough_memory():
            return self._run(slot, poison=poison, cold=cold)

    def _run(self, slot: int, *, poison: int, cold: bool) -> Sample:
        question, work, launch = self._slots[slot]
        elapsed_ns = None
        while elapsed_ns is None:
            work.prepare(poison)
            self._oracle.restore(question, work)
            if cold:
                self._flush.fill_(float(poison))
                self._flush.sum()
            torch.cuda.synchronize()
            result, elapsed_ns = launch.timed()
        self._store(result, question, work)
        return Sample(elapsed_ns, 0)  # its clock is ours

    def _arrays(self) -> AbstractContextManager[None]:
        return on_torchs_stream() if self._call.arrays == "cupy" else nullcontext()

    def _captured(self, call: Callable[[], Any]) -> QueuedCall:
        """The call as a CUDA graph, so that Python's part of it is not timed.

        Where it cannot be captured it is called as it is, and the device waits for as long as that takes to be queued.
        """

        def library() -> Any:
            with self._arrays():
                return call()

        side = _cuda.Stream(self._oracle.device)
        side.wait_stream(_cuda.current_stream(self._oracle.device))  # `prepare` may still be at work
        with torch.cuda.stream(side):  # the vendor's handles and workspaces are made outside of the capture
            try:
                library()
                begin = time.perf_counter_ns()
                library()
                queued_ns = time.perf_counter_ns() - begin
            finally:  # what a call that raises had begun still uses memory that is given back
                side.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            # A call that cannot be captured raises; that its graph is empty, as torch warns, needs no second word.
            with warnings.catch_warnings(action="ignore"), torch.cuda.graph(graph, pool=self._memory):
                result = library()
        except (RuntimeError, OperatorError):
            torch.cuda.synchronize()
            return QueuedCall(library, call, queued_ns=queued_ns)

        def replay() -> Any:
            graph.replay()
            return result

        return QueuedCall(replay, call)

    def _store(self, result: Any, question: Question, work: CudaRegion) -> None:
        outputs = {t.name: t for t in self._oracle.operator.outputs}
        with self._arrays():
            by_name = taken(result, list(outputs))
        for name, value in by_name.items():
            tensor = outputs[name]
            flat = work.tensor(name, TORCH_DTYPES[self._oracle.element(tensor).name])
            flat.reshape(tensor.sizes(question.dims)).copy_(value)

    def work(self, slot: int) -> CudaRegion:
        return self._slots[slot][1]

    def close(self, *, sound: bool = False) -> None:
        self._slots.clear()
        if self._is_open:
            self._is_open = False
            self._flush = torch.empty(0)
            RIVAL_CODE.closed()
