"""The commands that hand a kernel on: to its operator as champion, or as a package to take away."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from evo.cli.shared import RUNS, AsJson, Hub, RunName, Runs
from evo.report.output import as_json as json_of

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


@packages.command()
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


@packages.command()
def put(
    run: RunName = "last",
    into: Annotated[
        str, typer.Option(metavar="FILE:NAME", help="The function. Default: that which the operator was taken from.")
    ] = "",
    task: Annotated[str, typer.Option(help="Beginning of a task, where the run has several.")] = "",
    test: Annotated[
        str, typer.Option(metavar="COMMAND", help="Your tests, run here before and after: 'pytest -q'.")
    ] = "",
    python: Annotated[
        str, typer.Option(metavar="PROGRAM", help="Your program's Python. Default: the one that runs evo.")
    ] = sys.executable,
    every: Annotated[bool, typer.Option("--all", help="Keep also calls that it makes no faster.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take the kernel out again.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Change the file without asking.")] = False,
    runs: Runs = RUNS,
) -> None:
    """Put the best kernel of a run into your repository, for the calls that it was judged at, and see your tests pass.

    It writes a folder beside the function's file and two lines above the function, which go back where a test fails.
    """
    from evo.api import Run
    from evo.folders import find_run
    from evo.packaging.package import from_run
    from evo.repository.put import Put, UserFunction, place_of
    from evo.repository.put import put as put_it
    from operators.errors import UserError

    if undo and into:
        place = UserFunction.of(into)
    else:
        subject = from_run(Run(find_run(runs, run)), task)
        place = place_of(subject, into)
    if undo or place.state() == "testing":
        there = place.take_out()
        print(f"{place.path}: {'the kernel is taken out' if there else 'there is no kernel'}", file=sys.stderr)
        if undo:
            return
    if place.state():
        raise UserError(f"{place.folder}: there is a kernel already; evo put --undo --into {place.path}:{place.name}")
    made = Put(subject, place)
    print(made.change.diff(), end="", flush=True)
    print(f"new: {place.folder}/", flush=True)
    if not yes and not (sys.stdin.isatty() and typer.confirm("Change this?")):
        raise UserError("nothing was changed; say --yes to have it changed")
    if not put_it(made, test=test, python=python, every=every, say=lambda line: print(line, flush=True)):
        raise typer.Exit(1)
    print(f"put; it goes out with: evo put --undo --into {place.path}:{place.name}")
