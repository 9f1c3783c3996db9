"""Arguments and options that many commands take."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from evo.cli.completion import run_names

RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="Folder, id or its beginning, `last` or `last-replay`.", autocompletion=run_names
    ),
]
Runs = Annotated[Path, typer.Option("--runs", help="Folder that holds the runs.", envvar="EVO_RUNS")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Notices = Annotated[
    list[str],
    typer.Option(
        "--notify",
        metavar="URL|COMMAND",
        help="Tell of a new confirmed best, a stall, a failure, the end: POST JSON there, or run it; repeatable.",
    ),
]
LogAs = Annotated[
    str, typer.Option("--log", metavar="FORMAT", help="json: a line of JSON for each event on standard output.")
]
Hub = Annotated[bool, typer.Option("--hub", help="Lay the package out as a repository of Hugging Face's kernels.")]
RUNS = Path("runs")
FAILED, USAGE = 1, 2
"""Exit codes: of what a machine or a check fails, and of what the user can cure."""


def backend_named(address: str | None, *, ray: bool) -> str:
    """Return where a search works, as `evo.session.Session` has it. It raises UserError where no cluster listens."""
    if address is not None:
        from evo.cluster.connection import reach

        reach(address)  # rather now than when there is a folder
    return address or ("local" if ray else "")


def say(said: object) -> None:
    """Tell the user something, beside what a command answers."""
    print(f"evo: {said}", file=sys.stderr, flush=True)
