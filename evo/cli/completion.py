"""Completions for a shell: names of runs, kernels and operators. A name that cannot be read completes to nothing."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from operators.errors import UserError
from operators.identity import short

MOST = 200


def _runs(context: typer.Context) -> Path:
    """The folder of runs that the command line names so far, as the commands themselves find it."""
    return Path(context.params.get("runs") or os.environ.get("EVO_RUNS", "runs"))


def run_names(context: typer.Context, incomplete: str) -> list[str]:
    """Ids of runs, the newest first, and the names that stand for the newest."""
    from evo.folders import DATABASE

    names = sorted((path.parent.name for path in _runs(context).glob(f"*/{DATABASE}")), reverse=True)
    return [name for name in ("last", *names, "last-replay") if name.startswith(incomplete)][:MOST]


def operator_names(incomplete: str) -> list[str]:
    """Operators that come with the package."""
    from operators.catalog import folders

    return [name for name in folders() if name.startswith(incomplete)]


def beginnings(incomplete: str) -> list[str]:
    """The kernels that a new operator may begin from."""
    from operators.beginning import FORMS, templates

    return [name for name in (*templates(), *FORMS) if name.startswith(incomplete)] or operator_names(incomplete)


def kernel_ids(context: typer.Context, incomplete: str) -> list[str]:
    """Ids of the run's kernels, those of most gain first."""
    from evo.api import Run
    from evo.folders import find_run

    run = context.params.get("run")
    if not run or (not incomplete.isalnum() and incomplete):
        return []
    try:
        found = Run(find_run(_runs(context), str(run))).rows("kernels.ids", prefix=incomplete, most=MOST)
        return [short(row["kernel_id"]) for row in found]
    except UserError:
        return []
