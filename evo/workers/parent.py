"""The parent of a process, whose death ends it."""

from __future__ import annotations

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1


def end_with(parent: int, number: signal.Signals) -> None:
    """Have this process get a signal when its parent dies, whose id is given; at once where it is dead already.

    The parent dies for Linux when the thread does that started this process.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        signal.raise_signal(number)
