"""The commands for operators of one's own: new, check."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from evo.cli_options import AsJson
from evo.completion import operator_names
from evo.report.output import as_json as json_of

FAILED = 1
LIMIT = "5min"
MOST = 60

own = typer.Typer()


@own.command()
def check(
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="An operator's folder, or its name.", autocompletion=operator_names)
    ],
    target: Annotated[list[str], typer.Option(help="cpu or cuda; repeatable. Default: all that it has.")] = [],  # noqa: B006
    limit: Annotated[str, typer.Option(help="No mutant is begun later than this.")] = LIMIT,
    most: Annotated[int, typer.Option("--mutants", min=0, help="Of each target's naive kernel, at most.")] = MOST,
    strict: Annotated[bool, typer.Option("--strict", help="Fail for any survivor.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check an operator: its definition, its naive kernels on all shapes, and whether wrong kernels are refused.

    Exit code 1 where a naive kernel is not right, where a mutant of it survives whose results are others than its own,
    or where more than a tenth of the mutants survive.
    """
    from evo.budget import parse_limits
    from evo.checking import check as checked
    from operators.errors import UserError

    limits = parse_limits([limit])
    if set(limits) != {"wall_s"}:
        raise UserError(f"--limit {limit}: write a time, such as 60s or 5min")
    report = checked(
        folder,
        targets=target,
        limit_s=limits["wall_s"],
        most=most,
        say=lambda line: print(line, file=sys.stderr if as_json else sys.stdout, flush=True),
    )
    passed = report.passed(strict=strict)
    if as_json:
        print(json_of({**asdict(report), "passed": passed}))
    if not passed:
        raise typer.Exit(FAILED)
