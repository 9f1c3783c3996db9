"""Processes that we have started, orphans included."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make every descendant of ours that loses its parent our child from now on, so that it stays in sight."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(root: int | None = None) -> set[int]:
    """The numbers of all processes below `root` (None: this one), zombies left out."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:  # it has ended meanwhile
            continue
        if state != "Z":
            parents[int(folder.name)] = int(parent)
    begin = os.getpid() if root is None else root
    found = {begin}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {begin}


def left_over(before: set[int], *, patience_s: float = 2.0) -> set[int]:
    """Descendants that were not there before and do not go away."""
    deadline = time.monotonic() + patience_s
    while (left := descendants() - before) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left
