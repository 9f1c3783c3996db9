"""Groups of this machine's cores, for benches that run several things at a time."""

from __future__ import annotations

import os
from queue import Queue


def groups_of_cores(each: int | None) -> Queue[list[int]]:
    """All groups of `each` cores as there are, to be taken and given back; None: one group of all."""
    ours = sorted(os.sched_getaffinity(0))
    each = each or len(ours)
    if each > len(ours):
        raise SystemExit(f"--cores {each}: there are {len(ours)}")
    free: Queue[list[int]] = Queue()
    for begin in range(0, len(ours) - each + 1, each):
        free.put(ours[begin : begin + each])
    return free
