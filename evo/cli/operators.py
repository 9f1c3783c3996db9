"""The commands for operators, one's own among them, and for what this machine can do."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evo.cli.completion import beginnings, operator_names
from evo.cli.shared import FAILED, AsJson, say
from evo.report.output import as_json as json_of

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
    print(f"then: evo check {shown}; evo run {shown}")


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
    print(f"then: evo check {shown}; evo run {shown}")


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
        print(f"then: evo take {function}{'' if out == SHAPES else f' --shapes {out}'}")
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
    from operators.errors import UserError

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
    _show_rows(["check", "state", "detail", "cure"], [f.row() for f in findings], as_json=as_json)
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
