"""`python guard.py FOLDER PARENT`: when the parent dies, end its cluster and remove its folder.

Ray's own processes notice the death of a driver one after the other, some of them only after tens of seconds. They all
inherit a mark from it, by which this process finds them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
MARK = "EVO_CLUSTER"
"""Environment variable of every process of a cluster; its value is the cluster's folder."""
LIMIT_S = 30.0


def marked(folder: str) -> set[int]:
    """The ids of living processes of the cluster whose folder this is, without this one."""
    wanted, found = f"{MARK}={folder}".encode(), set()
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # zombies have no environment
            if wanted in (place / "environ").read_bytes().split(b"\0"):
                found.add(int(place.name))
    return found - {os.getpid()}


def end_marked(folder: str) -> None:
    """It kills all of them, and those that they start meanwhile, until none is left or LIMIT_S is over."""
    deadline_s = time.monotonic() + LIMIT_S
    while (found := marked(folder)) and time.monotonic() < deadline_s:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def main(folder: str, parent: int) -> None:
    """It waits for the death of the parent, whose id is given, and cleans up after it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == parent:
        signal.sigwait({signal.SIGTERM})
    end_marked(folder)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
