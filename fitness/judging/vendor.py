"""The vendor's library that kernels of one task are compared with, on one device: its calls, and sessions with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from fitness.judging.device import UNANSWERED, Device, Session
from fitness.judging.library import Accept, Choice, Place, choose, keep, kept, versions
from fitness.judging.paired import Guest, GuestSeat
from fitness.judging.timed_inputs import Placed, TimedInputs
from fitness.oracle.verify import Oracle
from operators.definition.spec import Operator, Task, Workload
from operators.errors import OperatorError
from operators.libraries import LibraryCall

Begun = tuple[LibraryCall, Sequence[int], Session]
"""A call, the numbers of the workloads that it is called on, and a session that starts."""


class Vendor:
    """One task's, on one device. Whatever is wrong with it is no kernel's fault."""

    def __init__(
        self,
        operator: Operator,
        task: Task,
        device: Device,
        oracle: Oracle,
        workloads: Sequence[Workload],
        inputs: Callable[[], TimedInputs],
        accept: Accept,
    ) -> None:
        """`inputs` are those of timed calls, which may be drawn now; `accept` raises KernelFault for a wrong answer."""
        self._operator = operator
        self._task = task
        self._device = device
        self._oracle = oracle
        self._workloads = workloads
        self._inputs = inputs
        self._accept = accept
        self._choice: Choice | None = None
        """Where this process made it."""

    @contextmanager
    def guest(self) -> Iterator[Callable[[], Guest]]:
        """The fastest call of each workload, which start meanwhile, and come with the inputs when they are called for.

        A call has one session, with the inputs of its workloads alone.
        """
        with ExitStack() as opened:
            begun: list[Begun] = []
            try:
                calls, lack = self._calls()
                for call, numbers in calls:
                    begun.append((call, numbers, opened.enter_context(self._session(call, numbers))))
            except (*UNANSWERED, OperatorError) as fault:
                opened.close()
                begun, lack = [], str(fault)

            def seated() -> Guest:
                try:
                    return self._seated(begun, lack)
                except (*UNANSWERED, OperatorError) as fault:
                    opened.close()
                    return Guest((), str(fault))

            yield seated

    def _seated(self, begun: Sequence[Begun], lack: str) -> Guest:
        seats: dict[int, GuestSeat] = {}
        inputs = self._inputs()
        with self._device.machine(exclusive=False):
            for call, numbers, session in begun:
                for number, sets in zip(numbers, inputs.placed(session, numbers), strict=True):
                    seats[number] = GuestSeat(session, sets, call.name, call.composed)
        return Guest([seats[number] for number in sorted(seats)], lack)

    def _calls(self) -> tuple[list[tuple[LibraryCall, list[int]]], str]:
        """The calls that kernels are compared with, each with the numbers of its workloads, or none, and why.

        It raises OperatorError.
        """
        calls = self._declared()
        if len(calls) < 2:
            return [(call, list(range(len(self._workloads)))) for call in calls], ""
        choice = self.choice()
        if choice.lack:
            return [], choice.lack
        best = choice.best
        numbers = {c.name: [n for n, w in enumerate(self._workloads) if best[w.name].name == c.name] for c in calls}
        return [(call, numbers[call.name]) for call in calls if numbers[call.name]], ""

    def choice(self, *, again: bool = False) -> Choice:
        """The task's library calls with their times; those are measured where no process of this machine has done it.

        It raises OperatorError.
        """
        place = self._place()
        if not again and (found := self._choice or kept(self._operator, place)):
            return found
        found = choose(
            self._declared(),
            place,
            [workload.name for workload in self._workloads],
            self._tried,
            self._accept,
            lambda: self._device.machine(exclusive=True),
        )
        keep(self._operator, found)
        self._choice = found
        return found

    def _place(self) -> Place:
        peaks = self._device.peaks()
        return Place(
            self._operator.name,
            self._task.dtype,
            self._task.target,
            self._workloads[0].set,
            peaks.device,
            peaks.threads,
            versions(self._task.target),
        )

    def _declared(self) -> list[LibraryCall]:
        return self._oracle.functions.libraries(self._task.target, self._task.dtype)

    @contextmanager
    def _tried(
        self, call: LibraryCall, workloads: Sequence[str]
    ) -> Iterator[tuple[Session, Sequence[Sequence[Placed]]]]:
        names, inputs = [workload.name for workload in self._workloads], self._inputs()
        numbers = [names.index(name) for name in workloads]
        with self._session(call, numbers) as session:
            with self._device.machine(exclusive=False):
                placed = inputs.placed(session, numbers)
            yield session, placed

    @contextmanager
    def _session(self, call: LibraryCall, numbers: Sequence[int]) -> Iterator[Session]:
        """With a call that starts, to be bound to the sets of these workloads, ended on leaving. Raises KernelFault."""
        inputs = self._inputs()
        with self._device.machine(exclusive=False):
            cases = [inputs.standing(number) for number in numbers]
        session = self._device.open_library(call, cases)
        try:
            yield session
        finally:
            session.close()
