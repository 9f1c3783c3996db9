"""The processes that run candidates, as seen and ended from outside."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def runners() -> list[int]:
    """Those of this process, the oldest first."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and "fitness.cuda.running.runner_process" in (entry / "cmdline").read_text():
                status = (entry / "status").read_text()
                if f"PPid:\t{os.getpid()}\n" in status:
                    found.append(int(entry.name))
        except OSError:
            continue
    return sorted(found)


def kill(pids: Iterable[int]) -> None:
    """Those that are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
