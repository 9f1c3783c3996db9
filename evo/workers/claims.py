"""Runs that use the same GPU: each marks its devices with a lock, which ends with its process however that ends."""

from __future__ import annotations

import fcntl
from collections.abc import Iterable
from pathlib import Path
from typing import IO


class Claims:
    """Marks of one run on devices of this machine; every user of a device shares its mark."""

    def __init__(self, folder: Path) -> None:
        """`folder` is one of the user's account, where all its runs look."""
        self._folder = folder
        self._held: list[IO[str]] = []

    def take(self, devices: Iterable[str], run: str) -> dict[str, str]:
        """Mark devices as used by `run`; return those that another run uses, with that run's name."""
        others = {}
        for device in devices:
            name = "".join(each if each.isalnum() else "_" for each in device)
            file = (self._folder / f"gpu-{name}.run").open("a+", encoding="utf-8")
            self._held.append(file)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                others[device] = file.read().strip() or "another run"
            else:
                file.truncate(0)
                file.write(run)
                file.flush()
            fcntl.flock(file, fcntl.LOCK_SH)
        return others

    def close(self) -> None:
        """Take the marks away."""
        for file in self._held:
            file.close()
        self._held = []
