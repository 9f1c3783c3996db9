"""Who starts and ends workers of one GPU: so that nobody waits for a process, and none comes or goes beside a clock.

A process that makes its context, or gives it up, keeps the driver and the device busy for a tenth of a second. Spare
processes therefore load what they need at once, and touch the device only when nothing is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Thread

from fitness.cuda.process import Worker

SPARES = 2
"""Processes that are about to be ready: a kernel that passes its screening asks for the second at once."""


class Workers:
    """Not thread-safe."""

    def __init__(self, start: Callable[[], Worker], quiet: Callable[[], AbstractContextManager[None]]) -> None:
        """`start` makes a worker that has not begun; `quiet` keeps others from timing while it is held."""
        self._start = start
        self._quiet = quiet
        self._spares: list[Worker] = []
        self._leaving: list[Thread] = []

    def hire(self) -> Worker:
        """One that is ready; others start already. Raises DeviceError where workers do not start on this machine."""
        worker = self._spares.pop(0) if self._spares else self._start()
        worker.begin()
        while len(self._spares) < SPARES:
            self._spares.append(self._start())
        worker.ready()
        return worker

    def refresh(self) -> None:
        """Something was timed, and what comes next is not: spares may make their contexts."""
        for worker in self._spares:
            worker.begin()

    def dismiss(self, worker: Worker) -> None:
        """End one whose last call has ended, without waiting for that.

        One that may still run something is closed instead: it would write to memory that is somebody else's by then.
        """

        def leave() -> None:
            with self._quiet():
                worker.close()

        self._leaving = [thread for thread in self._leaving if thread.is_alive()]
        self._leaving.append(Thread(target=leave, name="dismiss", daemon=True))
        self._leaving[-1].start()

    def close(self) -> None:
        """End those that wait for work, and wait for all that are leaving."""
        for thread in self._leaving:
            thread.join()
        for worker in self._spares:
            worker.close()
        self._spares, self._leaving = [], []
