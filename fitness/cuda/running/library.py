"""The verifier's handle on the process that runs vendors' calls on the GPU."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from itertools import count
from typing import Any

from fitness.cuda.running.memory import NO_MEMORY, MemoryBlock
from fitness.cuda.running.process import GpuProcess, whole
from fitness.evaluation import Status
from fitness.judging.device import UNANSWERED, KernelFault, KilledFromOutside, ProcessEnded
from fitness.sandbox.native import compiler_environment
from operators.errors import OperatorError

BIND_TIMEOUT_S = 300.0
"""Time for a call to be prepared on one set of inputs: torch.compile tries dozens of kernels on some."""
SESSION_TIMEOUT_S = 900.0
"""Time for a call to be prepared on all inputs of a session, which may have dozens of workloads."""
RUN_TIMEOUT_S = 60.0
"""Time for one call; the slowest that stand in for a vendor's take a second."""
MODULE = "fitness.cuda.running.library_process"


class LibraryRunner(GpuProcess):
    """One process, for sessions with any calls; one that is given up by a session is gone for the others too."""

    def __init__(self, ordinal: int, *, quiet: Callable[[], AbstractContextManager[None]]) -> None:
        """See `GpuProcess`."""
        environment = {**compiler_environment(), **os.environ}
        super().__init__(MODULE, str(ordinal), environment=environment, file_bytes=0, quiet=quiet)
        self._numbers = count(1)
        self._slots: dict[int, dict[int, int]] = {}
        """Numbers of slots that no other session has, by session and slot."""
        self._left_s: dict[int, float] = {}
        """Seconds that are left to prepare calls, by session."""

    def open(self, folder: str, dtype: str, name: str) -> int:
        """Begin a session with a call of the operator in a folder, and return its number.

        It raises OperatorError, KernelFault and KilledFromOutside, as all methods do, and DeviceError.
        """
        self.ready()
        session = next(self._numbers)
        self._slots[session], self._left_s[session] = {}, SESSION_TIMEOUT_S
        try:
            self._ask("open", session, folder, dtype, name, when="while it was loaded")
        except (*UNANSWERED, OperatorError):
            self.end(session)
            raise
        return session

    def bind(
        self, session: int, slot: int, dims: Mapping[str, int], buffers: Mapping[str, tuple[MemoryBlock, int]]
    ) -> None:
        """Prepare the call on tensors: by name the block that each lies in, and its offset there.

        It raises KernelFault, a timeout, also where the session's seconds are spent.
        """
        begin, left_s = time.monotonic(), self._left_s[session]
        if left_s < 1:
            said = f"it was not prepared on all inputs within {SESSION_TIMEOUT_S:.0f} s"
            raise KernelFault(Status.TIMEOUT, said)
        number = self._slots[session].setdefault(slot, next(self._numbers))
        change = self._remap(number, [block for block, _ in buffers.values()], kept_bytes=0, kept=0)
        try:
            self._ask(
                "bind",
                session,
                number,
                dict(dims),
                {name: (block.number, offset) for name, (block, offset) in buffers.items()},
                change.new,
                change.drop,
                fds=change.descriptors,
                when="while it was prepared",
                timeout_s=min(BIND_TIMEOUT_S, left_s),
            )
        finally:
            self._left_s[session] -= time.monotonic() - begin

    def run(self, session: int, slot: int, *, cold: bool, poison: int) -> int | None:
        """Nanoseconds of one call; None where it was queued late, and is to be made again."""
        number = self._slots[session][slot]
        answer = self._ask("run", session, number, cold, poison, when="while it ran", timeout_s=RUN_TIMEOUT_S)
        return None if answer.get("late") else whole(answer, "elapsed_ns")

    def end(self, session: int) -> None:
        """End a session; its blocks are no longer mapped. It raises nothing."""
        self._left_s.pop(session, None)
        for number in self._slots.pop(session, {}).values():
            self._bound.pop(number, None)
        if not self._closed:
            with self._quiet(), suppress(*UNANSWERED, OperatorError):
                self._ask("end", session, self._idle(0, 0), when="while it was ended")

    def _ask(
        self, method: str, *arguments: Any, when: str, timeout_s: float = BIND_TIMEOUT_S, fds: Iterable[int] = ()
    ) -> dict[str, Any]:
        if self._closed:
            raise KilledFromOutside("the process of the library's calls is gone")
        try:
            self._request(method, *arguments, fds=fds)
            answer = self._answer(timeout_s, when)
        except UNANSWERED as fault:
            self.close()
            if isinstance(fault, KernelFault) and fault.rejection.status is Status.RUNTIME_ERROR:
                raise ProcessEnded(str(fault)) from None
            raise
        told, reason = answer.get("fault"), str(answer.get("reason"))
        if answer.get("unusable"):
            self.close()
        if told == "memory":
            raise KernelFault(Status.RUNTIME_ERROR, f"{NO_MEMORY} for the library: {reason}")
        if told:
            raise ProcessEnded(reason) if answer.get("unusable") else OperatorError(reason)
        return answer
