"""The commands for operators, one's own among them, for kernels that are handed on (to an operator as champion, into a
repository, as a package), and for what this machine can do."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evo.cli.completion import beginnings, operator_names
from evo.cli.shared import FAILED, RUNS, AsJson, Hub, RunName, Runs, say
from evo.report.output import as_json as json_of
from fitness.install import evo_command
from operators.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from evo.report.reference import Page
    from mutators.mutants import Mutant

LIMIT = "5min"
MOST = 60
SHAPES = Path("shapes.json")

own = typer.Typer()


@own.command()
def new(
    name: Annotated[str, typer.Argument(metavar="OPERATOR", help="Its name.")],
    like: Annotated[
        str,
        typer.Option(
            help="What to begin from: elementwise, rows (a reduction of each), vector_sum (one of all), product, "
            "stencil, segment_sum (sizes that the data tells), tridiagonal (an ill-conditioned solver); "
            "batched_product, square_product, sparse_vector, sparse_matrix; or any operator, by name or folder.",
            autocompletion=beginnings,
        ),
    ] = "elementwise",
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="New folder. Default: OPERATOR, here.")] = None,
) -> None:
    """Begin an operator of your own: a folder with a right one under that name, to be changed. Overwrites nothing."""
    from operators.beginning import begin

    folder = out or Path(name)
    written = begin(name, like, folder)
    shown = folder if folder.is_absolute() else f"./{folder}"
    print(f"{shown}: {', '.join(path.name for path in written)}")
    print(
        "say in operator.toml what it is, in reference.py what is right, in the naive kernels how it is done plainly;"
    )
    print(f"then: {evo_command('check', shown)}; {evo_command('run', shown)}")


@own.command("import")
def import_(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A KernelBench file, FlashInfer definition, SOL-ExecBench or GPU MODE folder, or module.py:function.",
        ),
    ],
    inputs: Annotated[
        str, typer.Option(metavar="FILE:FUNCTION", help="What makes the arguments of module.py:function.")
    ] = "",
    name: Annotated[str, typer.Option(help="The operator's name. Default: the problem's.")] = "",
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="New folder. Default: the name, here.")] = None,
) -> None:
    """Make an operator of a problem in a format of others, whose source is run once, confined, and never again."""
    from evo.outside.importing import import_problem

    _show_made(*import_problem(source, inputs=inputs, name=name, out=out))


def _show_made(folder: Path, lines: Sequence[str]) -> None:
    shown = folder if folder.is_absolute() else f"./{folder}"
    for line in lines:
        print(f"assumed: {line}", file=sys.stderr)
    print(f"{shown}: {', '.join(sorted(path.name for path in folder.iterdir()))}")
    print(f"then: {evo_command('check', shown)}; {evo_command('run', shown)}")


@own.command()
def record(
    function: Annotated[
        str, typer.Argument(metavar="FILE:NAME", help="A Python function of your repository, called by the command.")
    ],
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND", help="Your program, such as python train.py.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the record goes.")] = SHAPES,
) -> None:
    """Run your program, and write down the shapes, types, layouts and numbers that a function is called with.

    The program runs as you, and unchanged but for torch.compile, which is off: a compiled call could not be seen.
    """
    from evo.repository.recording import record as recorded
    from evo.repository.recording import signature

    code, calls, others = recorded(function, command, out)
    for call in calls:
        print(f"{call['count']:>8} x {signature(call['arguments'])}{'  (gradients)' if call['grad'] else ''}")
    if others:
        print(f"{others:>8} x other kinds of calls, which are not in the record")
    if not calls:
        say(f"{function} was not called by a Python process of the command")
    else:
        shapes = () if out == SHAPES else ("--shapes", out)
        print(f"then: {evo_command('take', function, *shapes)}")
    if code or not calls:
        raise typer.Exit(code if code > 0 else FAILED)


@own.command()
def take(
    function: Annotated[str, typer.Argument(metavar="FILE:NAME", help="A Python function of your repository.")],
    shapes: Annotated[Path, typer.Option(metavar="FILE", help="What evo record wrote.")] = SHAPES,
    reference: Annotated[
        str, typer.Option(metavar="FILE:NAME", help="A function in plain torch that computes the same.")
    ] = "",
    name: Annotated[str, typer.Option(help="The operator's name. Default: the function's.")] = "",
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="New folder. Default: the name, here.")] = None,
) -> None:
    """Make an operator of a function of your repository: recorded calls are its workloads, their counts the weights.

    The function, and what it needs of its repository, is run once on tensors of the cpu, confined as by evo import.
    """
    from evo.outside.importing import made_operator
    from operators.importing.taken import taken

    _show_made(*made_operator(taken(function, shapes, reference), function, name=name, out=out))


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

    Exit code 1 where a naive kernel is not right, where a mutant of it survives whose results are others than its own
    by more than rounding, or where more than a tenth of the mutants survive.
    """
    from evo.budget import parse_limits
    from evo.check_operator import check as checked

    limits = parse_limits([limit], "--limit")
    if set(limits) != {"wall_s"}:
        raise UserError(f"--limit {limit}: write a time, such as 60s or 5min")
    report = checked(
        folder,
        targets=target,
        limit_s=limits["wall_s"],
        most=most,
        say=lambda line: print(line, file=sys.stderr if as_json else sys.stdout, flush=True),
        along=_watched,
    )
    passed = report.passed(strict=strict)
    if as_json:
        print(json_of({**asdict(report), "passed": passed}))
    else:
        print(report.verdict(strict=strict))
    if not passed:
        raise typer.Exit(FAILED)


def _watched(tried: Sequence[Mutant]) -> Iterable[Mutant]:
    """Show on a terminal how far it is."""
    from rich.console import Console
    from rich.progress import track

    return track(tried, "mutants", console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())


machine = typer.Typer()


@machine.command()
def operators(
    operator: Annotated[str, typer.Argument(help="Show this one.", autocompletion=operator_names)] = "",
    family: Annotated[str, typer.Option(help="Only this family.")] = "",
    target: Annotated[str, typer.Option(help="Whose roofline: cpu or cuda; default: the GPU's if there is one.")] = "",
    schema: Annotated[bool, typer.Option("--schema", help="List what an operator's files may hold instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the operators, or show one with its workloads and the least time that a device needs for each."""
    if schema:
        from evo.report.reference import operator_pages

        show_pages(operator_pages(), as_json=as_json)
        return
    from evo.report.reference import listing, one, workload_cells, workloads
    from operators.catalog import folders, load, of_family

    if operator:
        known = load(operator)
        rows, placed = one(known), workloads(known, target)
        if as_json:
            print(json_of({**{row["property"]: row["value"] for row in rows}, **placed}))
            return
        _show_rows(["property", "value"], rows, as_json=False)
        cells = [workload_cells(row) for row in placed["workloads"]]
        print(f"\nroofline of {placed['device']}:")
        _show_rows(list(cells[0]), cells, as_json=False)
        return
    rows = listing(load(name) for name in (of_family(family) if family else folders()))
    _show_rows(list(rows[0]), rows, as_json=as_json)


@machine.command()
def doctor(as_json: AsJson = False) -> None:
    """Check what this machine can do, and say how to cure what it cannot."""
    from evo.doctor import examine

    findings = examine()
    _show_rows(["check", "state", "detail", "cure"], [asdict(f) for f in findings], as_json=as_json)
    if any(f.state == "missing" for f in findings):
        raise typer.Exit(FAILED)


def show_pages(pages: Sequence[Page], *, as_json: bool) -> None:
    """Print pages of what may be set, as tables or as JSON."""
    if as_json:
        print(json_of([asdict(page) for page in pages]))
        return
    from evo.report.terminal import page_table, show

    for page in pages:
        show(page_table(page))


def _show_rows(names: Sequence[str], rows: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print(json_of(rows))
        return
    from evo.report.terminal import rows_table, show

    show(rows_table(names, rows))


# --- kernels that are handed on ---------------------------------------------------------------------------------------


@own.command()
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


@own.command()
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


@own.command()
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
    from evo.repository.put import BEFOREHAND, Put, UserFunction, place_of
    from evo.repository.put import put as put_it

    if undo and into:
        place = UserFunction.of(into)
    else:
        subject = from_run(Run(find_run(runs, run)), task, "evo put")
        place = place_of(subject, into)
    undoing = evo_command("put", "--undo", "--into", f"{place.path}:{place.name}")
    if undo or place.state() == "testing":
        there = place.take_out()
        print(f"{place.path}: {'the kernel is taken out' if there else 'there is no kernel'}", file=sys.stderr)
        if undo:
            return
    if place.state():
        raise UserError(f"{place.folder}: there is a kernel already; {undoing}")
    made = Put(subject, place)
    print(made.change.diff(), end="", flush=True)
    print(f"new: {place.folder}/", flush=True)
    print(BEFOREHAND, flush=True)
    if not yes and not (sys.stdin.isatty() and typer.confirm("Change this?")):
        raise UserError("nothing was changed; say --yes to have it changed")
    if not put_it(made, test=test, python=python, every=every, say=lambda line: print(line, flush=True)):
        raise typer.Exit(1)
    print(f"put; it goes out with: {undoing}")
