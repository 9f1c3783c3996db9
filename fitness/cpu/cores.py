"""Which cores a kernel is timed on, so that neither the search nor another timing disturbs it.

A group of cores belongs to some workers: what they compile, verify and time stays on it, and its lock gives a timing
the whole group. One core is left to the search itself where there are enough.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path

from operators.identity import digest

SPARE_FROM = 4
"""With so many cores or more, one is kept free of timings."""


def groups(threads: int, available: Sequence[int]) -> list[tuple[int, ...]]:
    """Disjoint groups of `threads` cores; 0 threads: one group of all, but for the one that is spared."""
    cores = sorted(available)
    spare = threads < len(cores) if threads else len(cores) >= SPARE_FROM
    usable = cores[1:] if spare else cores
    size = min(threads or len(usable), len(usable))
    return [tuple(usable[begin : begin + size]) for begin in range(0, len(usable) - size + 1, size)]


def stay_on(cores: Sequence[int]) -> None:
    """Keep this process, and whatever it starts, on these cores."""
    os.sched_setaffinity(0, cores)


def lock_name() -> str:
    """The lock file of the group that this process stays on."""
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    return f"timing-{digest(cores)[:12]}.lock"


def processor() -> str:
    """What the kernel calls this machine's processor."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return platform.processor()
