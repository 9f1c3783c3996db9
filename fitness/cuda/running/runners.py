"""The runners of one GPU come and go so that no verdict waits for a process, and none starts or ends beside a clock.

A process that makes its context, or gives it up, keeps the driver and the device busy for a tenth of a second. Spare
processes therefore load what they need at once, and touch the device only when nothing is timed; and one that ran a
sound kernel serves another, but where a fresh process is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from threading import Thread

from fitness.cuda.running.runner import CudaRunner
from fitness.judging.device import UNANSWERED
from operators.errors import DeviceError

SPARES = 2
"""Processes that are about to be ready: a confirmation asks for several."""
MOST_IDLE = 3
"""Processes that wait for their next kernel at most: of a candidate, of an anchor that it is measured with anew, and of
neither."""
TURNS = 2
"""Processes that wait before any of them works again: what passes its screening in one is measured anew in another."""
SERVES = 30
"""Candidates that a process serves at most."""


class Runners:
    """The runners of one GPU: spare ones, idle ones, and those that are leaving. Not thread-safe."""

    def __init__(self, start: Callable[[], CudaRunner], quiet: Callable[[], AbstractContextManager[None]]) -> None:
        """`start` makes a runner that has not begun; `quiet` keeps others from timing while it is held."""
        self._start = start
        self.quiet = quiet
        self._spares: list[CudaRunner] = []
        self._idle: list[CudaRunner] = []
        self._leaving: list[Thread] = []

    def hire(self, *, fresh: bool = False) -> CudaRunner:
        """One that is ready; others start already. `fresh`: one that has run nothing yet, else the longest idle.

        Raises DeviceError where runners do not start on this machine.
        """
        while len(self._idle) >= TURNS and not fresh:
            runner = self._idle.pop(0)
            if runner.alive:
                return runner
            runner.close()
        for _ in range(SPARES):  # which may have been killed just now
            with suppress(DeviceError):
                return self._begun()
        return self._begun()

    def expect(self, fresh: int) -> None:
        """Announces the number of fresh ones that will be hired soon: they make their contexts meanwhile."""
        while len(self._spares) < fresh:
            self._spares.append(self._start())
        for spare in self._spares[:fresh]:
            spare.begin()

    def _begun(self) -> CudaRunner:
        runner = self._spare()
        runner.begin()
        while len(self._spares) < SPARES:
            self._spares.append(self._start())
        runner.ready()
        return runner

    def _spare(self) -> CudaRunner:
        while self._spares:
            runner = self._spares.pop(0)
            if runner.alive:
                return runner
            runner.close()
        return self._start()

    def release(self, runner: CudaRunner) -> None:
        """Its candidate did nothing wrong: it may serve another one, which costs a tenth of a new process."""
        if runner.served >= SERVES or len(self._idle) >= MOST_IDLE:
            self.dismiss(runner)
            return
        try:
            with self.quiet():
                runner.unload()
        except UNANSWERED:
            runner.close()
        else:
            self._idle.append(runner)

    def disperse(self) -> None:
        """End all that wait: they keep some memory, those that never ran anything too."""
        for runner in (*self._idle, *self._spares):
            self.dismiss(runner)
        self._idle, self._spares = [], []

    def refresh(self) -> None:
        """Something was timed, and what comes next is not: spares may make their contexts."""
        for runner in self._spares:
            runner.begin()

    def dismiss(self, runner: CudaRunner) -> None:
        """End one whose last call has ended, without waiting for that.

        One that may still run something is closed instead: it would write to memory that belongs to another by then.
        """

        def leave() -> None:
            with self.quiet():
                runner.close()

        self._leaving = [thread for thread in self._leaving if thread.is_alive()]
        self._leaving.append(Thread(target=leave, name="dismiss", daemon=True))
        self._leaving[-1].start()

    def settle(self) -> None:
        """Wait until those that are leaving are gone, and their memory with them."""
        for thread in self._leaving:
            thread.join()
        self._leaving = []

    def close(self) -> None:
        """End those that wait for work, and wait for all that are leaving."""
        self.settle()
        for runner in (*self._spares, *self._idle):
            runner.close()
        self._spares, self._idle = [], []
