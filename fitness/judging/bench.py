"""The bench of one task, on and against which its kernels are measured: timed inputs, anchors, the naive kernel, the
library."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any

import numpy as np

from fitness.evaluation import Rejection, Status
from fitness.judging.checks import Checks
from fitness.judging.device import NAN, UNANSWERED, Device, KernelFault, KernelSession, KilledFromOutside, Prepared
from fitness.judging.library import TaskLibrary
from fitness.judging.paired import AnchorFault, LibraryBaseline, Measurement, Pairing
from fitness.judging.timed_inputs import Seat, TimedInputs
from fitness.judging.timing import Schedule
from fitness.oracle.cases import Case, Question
from fitness.oracle.verify import Oracle
from fitness.profiling.roofline import floor_us
from fitness.words import time_us
from operators.definition.spec import Operator, Task, Workload
from operators.errors import OperatorError
from operators.kernel import Kernel

ANCHORS_KEPT = 4


class TaskBench:
    """One task's, on one device. It holds processes and memory until `forget`."""

    def __init__(
        self,
        operator: Operator,
        task: Task,
        device: Device,
        oracle: Oracle,
        baseline: Kernel,
        workloads: Sequence[Workload],
    ) -> None:
        self.operator = operator
        self.task = task
        self.device = device
        self.oracle = oracle
        self.baseline = baseline
        self.workloads = workloads
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
                self._inputs = TimedInputs(self.workloads, self.oracle.deals, self._drawn, self.rng, renewed)
        return self._inputs

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
        if self._naive is None:
            self._naive = self._open(self.baseline)
        self._naive.bind(0, question, at_end=question.at_end)
        self.checks.took_naive(self._naive.run(0, poison=NAN))
        work = self._naive.work(0)
        answer = self.oracle.outputs(question, work)
        work.fill(NAN)  # a candidate may be lent this memory next, or still have it mapped
        return answer

    # --- sessions ---------------------------------------------------------------------------------------------------

    @contextmanager
    def session(self, prepared: Prepared, *, fresh: bool = False) -> Iterator[KernelSession]:
        """A session with a candidate, ended on leaving."""
        session = self.device.open(prepared, fresh=fresh)
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
        try:
            session = self._open(kernel, fresh=fresh)
            try:
                return self.inputs.seated(session, disguised=False)
            except BaseException:
                session.close()
                raise
        except UNANSWERED as fault:
            raise AnchorFault(str(fault)) from fault

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
            if not schedule.until_decided:  # what an archive or a report rests on
                pairing.check_memory()
            return measured

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
