"""Runs from Python: `import evo`, then `evo.open("runs/<id>")`, or `evo.runs()` for all there are.

Importing this imports next to nothing; duckdb and pyarrow come with the first question. See `evo.api`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evo.api import Run, RunList, Several

__all__ = ["open", "open_several", "runs"]


def open(run: str | Path = "last", *, runs: str | Path | None = None) -> Run:
    """The run that is meant by a folder, an id below `runs`, the beginning of one, or `last`.

    `runs` is the folder of runs; None: the one that the command line looks at, which is EVO_RUNS of the environment, or
    `runs`.

    A search may be writing it. The file that `evo export` wrote is a run as well. Nothing is read before the first
    question. It raises UserError (of `operators.errors`, as all that the API raises for what a caller can cure).
    """
    from evo.api import Run
    from evo.folders import find_one

    return Run(find_one(_folder(runs), str(run), "use evo.open_several"))


def open_several(which: str | Path | Sequence[str | Path], *, runs: str | Path | None = None) -> Several:
    """Several runs, to be asked together: a pattern such as `runs/compare-x/*`, a folder that holds them, or a list.

    `runs` is as in `open`. Those of a pattern or a folder that cannot be read are left out, with a warning. It raises
    UserError.
    """
    from evo.api import Several
    from evo.folders import find_all

    named = [which] if isinstance(which, str | Path) else which
    return Several(find_all(_folder(runs), map(str, named), warnings.warn))


def runs(folder: str | Path | None = None) -> RunList:
    """Every run in `folder`, the oldest first; None: where `open` looks. Its repr says where that was."""
    from evo.api import Run, RunList
    from evo.folders import DATABASE

    place = _folder(folder)
    return RunList(place, [Run(path.parent) for path in sorted(place.glob(f"*/{DATABASE}"))])


def _folder(named: str | Path | None) -> Path:
    """The folder of runs that is meant."""
    return Path(named or os.environ.get("EVO_RUNS") or "runs")
