"""Arguments and options that many commands take."""

from __future__ import annotations

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
RUNS = Path("runs")
