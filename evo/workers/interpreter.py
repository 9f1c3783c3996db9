"""A fresh Python for a part of this program: it imports what we do, and nothing else."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping


def fresh_python(entry: str, *arguments: str) -> list[str]:
    """What runs the statement `entry`, which finds the arguments in `sys.argv`."""
    # -P: what is called `types.py` in the current folder is no module of ours.
    return [sys.executable, "-P", "-c", entry, *arguments]


def fresh_environment(given: Mapping[str, str]) -> dict[str, str]:
    """The variables `given`, and where modules are found."""
    return {**given, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
