"""A fair lock: many processes that work on a device share it, or one that times has it alone; none waits forever."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO


class FairLock:
    """A lock among all processes of the machine, by two files; it is released when a process ends, however it does.

    Processes that ask go through a gate one after the other: those that share do not get past one that waits to be
    alone. Threads of one process share together, so that a share within a share waits for no other; nor does a share of
    the thread that is alone.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._lock, self._gate = folder / f"{name}.lock", folder / f"{name}.gate"
        self._mutex = threading.Lock()
        self._sharers = 0
        self._share: IO[str] | None = None
        self._alone: int | None = None
        """Thread that has it alone."""

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold it together with others; it waits while one has it alone, or waits for that."""
        if self._alone == threading.get_ident():
            yield
            return
        with self._mutex:
            if not self._sharers:
                self._share = self._taken(fcntl.LOCK_SH)
            self._sharers += 1
        try:
            yield
        finally:
            with self._mutex:
                self._sharers -= 1
                if not self._sharers and self._share:
                    self._share.close()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold it alone; it waits for all that share. It must not be asked for within a share of the same thread."""
        with self._taken(fcntl.LOCK_EX):
            self._alone = threading.get_ident()
            try:
                yield
            finally:
                self._alone = None

    def _taken(self, kind: int) -> IO[str]:
        with self._gate.open("w") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            while True:
                lock = self._lock.open("w")
                fcntl.flock(lock, kind)
                if os.path.samestat(os.fstat(lock.fileno()), self._lock.stat()):
                    return lock
                lock.close()  # its folder was removed and made again meanwhile: now others hold another file


@lru_cache
def fair_lock(folder: Path, name: str) -> FairLock:
    """The lock of this name, one for all threads of this process; `folder` holds its files."""
    return FairLock(folder, name)
