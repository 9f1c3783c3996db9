"""Folders and processes that must not outlive a run, however it ends."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from evo.cluster import guard
from evo.cluster.guard import end_marked
from operators.errors import UserError

SCRATCH = Path("/tmp")
"""Not $TMPDIR: Ray keeps sockets below it, whose paths may have 107 bytes at most."""


class Scratch:
    """A folder below /tmp that lives as long as a process holds it.

    Several processes may hold the same one. What holders left that were killed is removed by the next one that is made.
    """

    def __init__(self, name: str) -> None:
        """It makes or shares this user's folder of that name. It raises UserError if another user has it."""
        self.path = SCRATCH / f"evo-{os.getuid()}-{name}"
        self.sweep(but=self.path)
        while True:
            self.path.mkdir(mode=0o700, exist_ok=True)
            if self.path.stat().st_uid != os.getuid():
                raise UserError(f"{self.path} belongs to somebody else; remove it")
            self._lock = os.open(self.path / "lock", os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_SH)
            with suppress(OSError):
                if (self.path / "lock").stat().st_ino == os.fstat(self._lock).st_ino:
                    return
            os.close(self._lock)  # swept between our opening and our locking

    def close(self) -> None:
        """It lets go of the folder; the last holder removes it."""
        os.close(self._lock)
        self.sweep()

    @staticmethod
    def sweep(but: Path | None = None) -> None:
        """It removes all folders of this user that no process holds, with the processes that are marked with them."""
        for path in SCRATCH.glob(f"evo-{os.getuid()}-*"):
            if path != but:
                Scratch._sweep(path)

    @staticmethod
    def _sweep(path: Path) -> None:
        try:
            if path.stat().st_uid != os.getuid():
                return
            lock = os.open(path / "lock", os.O_RDWR)
        except OSError:
            return  # just being made, or just removed
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            end_marked(str(path))
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)


def start_guard(folder: str) -> subprocess.Popen[bytes]:
    """A process that ends the cluster in `folder` when the calling thread dies; see `evo.cluster.guard`."""
    command = [sys.executable, "-I", "-S", guard.__file__, folder, str(os.getpid())]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)


def children() -> dict[int, str]:
    """The processes that this one started: id and name."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            if int(rest.split()[1]) == os.getpid():
                found[int(folder.name)] = name
    return found
