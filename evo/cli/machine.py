"""The commands that say what there is to search with: operators, and what this machine can do."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evo.cli.completion import operator_names
from evo.cli.shared import AsJson
from evo.report.output import as_json as json_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evo.report.reference import Page

FAILED = 1

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
    from evo.report.operators import listing, one, workload_cells, workloads
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
