"""Who starts and ends workers of one GPU: so that nobody waits for a process, and none comes or goes beside a clock.

A process that makes its context, or gives it up, keeps the driver and the device busy for a tenth of a second. Spare
processes therefore load what they need at once, and touch the device only when nothing is timed; and who ran a sound
kernel serves another, but where a fresh process is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from threading import Thread

from fitness.cuda.process import Worker
from fitness.device import KernelFault
from operators.errors import DeviceError

SPARES = 2
"""Processes that are about to be ready: a confirmation asks for several."""
RESTING = 3
"""Processes that wait for their next kernel at most: of a candidate, of an anchor that it is measured with anew, and of
neither."""
TURNS = 2
"""Processes that wait before any of them works again: what passes its screening in one is measured anew in another."""
SERVES = 30
"""Candidates that a process serves at most."""


class Workers:
    """Not thread-safe."""

    def __init__(self, start: Callable[[], Worker], quiet: Callable[[], AbstractContextManager[None]]) -> None:
        """`start` makes a worker that has not begun; `quiet` keeps others from timing while it is held."""
        self._start = start
        self.quiet = quiet
        self._spares: list[Worker] = []
        self._resting: list[Worker] = []
        self._leaving: list[Thread] = []

    def hire(self, *, fresh: bool = False) -> Worker:
        """One that is ready; others start already. `fresh`: one that has run nothing yet, else the longest rested.

        Raises DeviceError where workers do not start on this machine.
        """
        while len(self._resting) >= TURNS and not fresh:
            worker = self._resting.pop(0)
            if worker.alive:
                return worker
            worker.close()
        for _ in range(SPARES):  # which somebody may have killed just now
            with suppress(DeviceError):
                return self._begun()
        return self._begun()

    def _begun(self) -> Worker:
        worker = self._spare()
        worker.begin()
        while len(self._spares) < SPARES:
            self._spares.append(self._start())
        worker.ready()
        return worker

    def _spare(self) -> Worker:
        while self._spares:
            worker = self._spares.pop(0)
            if worker.alive:
                return worker
            worker.close()
        return self._start()

    def rest(self, worker: Worker) -> None:
        """Its candidate did nothing wrong: it may serve another one, which costs a tenth of a new process."""
        if worker.served >= SERVES or len(self._resting) >= RESTING:
            self.dismiss(worker)
            return
        try:
            with self.quiet():
                worker.unload()
        except KernelFault:
            worker.close()
        else:
            self._resting.append(worker)

    def disperse(self) -> None:
        """End all that wait: they keep some memory, those that never ran anything too."""
        for worker in (*self._resting, *self._spares):
            self.dismiss(worker)
        self._resting, self._spares = [], []

    def refresh(self) -> None:
        """Something was timed, and what comes next is not: spares may make their contexts."""
        for worker in self._spares:
            worker.begin()

    def dismiss(self, worker: Worker) -> None:
        """End one whose last call has ended, without waiting for that.

        One that may still run something is closed instead: it would write to memory that is somebody else's by then.
        """

        def leave() -> None:
            with self.quiet():
                worker.close()

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
        for worker in (*self._spares, *self._resting):
            worker.close()
        self._spares, self._resting = [], []
