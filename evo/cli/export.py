"""The commands that hand a kernel on: to its operator as champion, or as a package to take away."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from evo.cli.shared import RUNS, AsJson, Hub, RunName, Runs
from evo.report.output import as_json as json_of

promotes = typer.Typer()


@promotes.command()
def champion(
    run: RunName = "last",
    tasks: Annotated[
        list[str], typer.Argument(metavar="TASK...", help="Beginnings of tasks, such as softmax/fp32. Default: all.")
    ] = [],  # noqa: B006
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    runs: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """Make the best kernels of a run the champions of their operators, and say of each task why, or why not.

    A confirmed kernel alone takes the place of a champion, and only where the same run measured both and it is faster
    beyond doubt, the whole 95 % interval, or found the champion wrong. Kernel and record are written into the
    operator's folder.
    """
    from evo.api import Run
    from evo.folders import find_run
    from evo.packaging.champion import choices, take

    opened = Run(find_run(runs, run))
    chosen = choices(opened, tasks)
    if not dry_run:
        chosen = take(opened, chosen)
    if as_json:
        rows = [
            {**asdict(each), "record": each.record.model_dump(mode="json") if each.record else None} for each in chosen
        ]
        print(json_of(rows))
        return
    for each in chosen:
        print(each.line)
    taken = sum(each.record is not None for each in chosen)
    print(f"{taken} of {len(chosen)} champions {'would be replaced' if dry_run else 'are new'}")


packages = typer.Typer()


@packages.command()
def package(
    operator: Annotated[str, typer.Argument(help="Name, or folder of your own.")],
    kernel: Annotated[str, typer.Argument(help="Kernel file, or one of the operator's own, such as champions/h200.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New folder; nothing is overwritten.")],
    target: Annotated[str, typer.Option(help="cpu or cuda; default: by the file's ending.")] = "",
    dtype: Annotated[str, typer.Option(help="Element type.")] = "",
    hub: Hub = False,
    form: Annotated[
        str, typer.Option("--as", metavar="FORMAT", help="Write a solution of an imported task, as evo best --as does.")
    ] = "",
) -> None:
    """Write a kernel into a folder that works without kernel-evo: code, loader, test, verdict, lineage."""
    from evo.packaging.package import from_file, write_package
    from evo.packaging.solution import write_solution

    subject = from_file(operator, kernel, target=target, dtype=dtype)
    if form:
        write_solution(subject, form, folder)
    else:
        write_package(subject, folder, hub=hub)
    print(f"{operator}: {kernel} written to {folder}", file=sys.stderr)
