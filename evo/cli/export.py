"""The commands that hand on: a kernel, to its operator as champion, into a repository or as a package; a run, for other
tools and people."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from evo.cli.shared import RUNS, AsJson, Hub, RunName, Runs
from evo.report.output import as_json as json_of
from operators.errors import UserError

DUCKDB = ".duckdb"

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


@packages.command()
def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="As for other commands; with --harbor an operator.")],
    out: Annotated[
        Path | None, typer.Argument(metavar="OUT", help="A new FILE.duckdb, or a new folder for Parquet files.")
    ] = None,
    dataset: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Instead, a data set with a card, without secrets, paths and names."),
    ] = None,
    harbor: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Instead, a task of Harbor whose reward is our verdict.")
    ] = None,
    target: Annotated[str, typer.Option(help="With --harbor: cpu (default) or cuda.")] = "cpu",
    dtype: Annotated[str, typer.Option(help="With --harbor: element type. Default: the operator's first.")] = "",
    runs: Runs = RUNS,
) -> None:
    """Write a run for other tools: its tables and views as Parquet files, or one DuckDB file that opens by itself."""
    if [out, dataset, harbor].count(None) != 2:
        raise UserError("name one of OUT, --dataset FOLDER and --harbor FOLDER")
    if harbor:
        from evo.packaging.harbor import write_task

        print(f"{write_task(run, harbor, target=target, dtype=dtype)} written to {harbor}", file=sys.stderr)
        return
    from evo.folders import find_runs

    where = find_runs(runs, run)
    if isinstance(where, list):
        raise UserError(f"{run} names several runs; put them into one file with: evo merge OUT.duckdb {run}")
    if dataset:
        from evo.api import Run
        from evo.packaging.dataset import write_dataset

        counts = write_dataset(Run(where), dataset)
        print(f"{dataset}: {', '.join(f'{count} {part}' for part, count in counts.items())}", file=sys.stderr)
        print("read it before you publish it: no program finds every secret", file=sys.stderr)
    elif out:
        _export(where, out)


def _export(where: Path, out: Path) -> None:
    from evo.store.export import export_duckdb, export_parquet

    if out.suffix == DUCKDB:
        export_duckdb(where, out)
        print(f"{out}: open it with duckdb, evo sql {out}, or evo.open({str(out)!r})", file=sys.stderr)
    else:
        print(f"{out}: {len(export_parquet(where, out))} Parquet files", file=sys.stderr)


@packages.command()
def merge(
    out: Annotated[Path, typer.Argument(metavar="OUT.duckdb", help="A new file.")],
    run: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Folders, patterns, files of evo export or evo merge; ids as elsewhere."),
    ],
    runs: Runs = RUNS,
) -> None:
    """Put runs of one or several machines into one file, each whole: asked with evo sql, it is like several runs."""
    from evo.folders import find_runs
    from evo.store.export import merge as merged

    if out.suffix != DUCKDB:
        raise UserError(f"{out}: name a new file that ends in {DUCKDB}")
    found = [find_runs(runs, name) for name in run]
    held = merged([path for where in found for path in (where if isinstance(where, list) else [where])], out)
    for each in held:
        print(f"{each.run} from {each.origin}", file=sys.stderr)
    print(f"{len(held)} runs in {out}; ask them with: evo sql {out} 'from merged_runs'", file=sys.stderr)
