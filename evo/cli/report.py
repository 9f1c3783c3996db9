"""The command that shows a run: report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evo.cli.shared import RUNS, Runs
from operators.errors import UserError

reports = typer.Typer()


@reports.command()
def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder, id or its beginning, or `last`.")] = "last",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write to this new file. Default: RUN-report.html here.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    runs: Runs = RUNS,
) -> None:
    """Write what a run found and how as one file of HTML, which needs no network; also while the run goes on."""
    from evo.folders import find_runs
    from evo.report.run import write_report

    where = find_runs(runs, run)
    if isinstance(where, list):
        raise UserError(f"{run} names several runs; write a report of each")
    print(write_report(where, out or Path(f"{where.stem}-report.html"), replace=force))
