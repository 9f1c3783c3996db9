"""The commands that look at runs: all there are, and two kernels of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from evo.cli_options import RUNS, AsJson, RunName, Runs
from evo.completion import kernel_ids
from evo.report.output import as_json as json_of

if TYPE_CHECKING:
    from evo.stored import StoredKernel


Kernel = Annotated[str, typer.Argument(help="Id of a kernel, or its beginning.", autocompletion=kernel_ids)]

looks = typer.Typer()


@looks.command("list")
def list_runs(runs: Runs = RUNS, as_json: AsJson = False) -> None:
    """The runs there are: when each began, its tasks, how it is, its best kernel, and what it used."""
    from evo.report.listing import runs_in, runs_table

    rows = runs_in(runs)
    if as_json:
        print(json_of(rows))
    elif not rows:
        print(f"no run in {runs}/ yet")
    else:
        from evo.report.tables import show

        show(runs_table(rows))


@looks.command()
def diff(
    run: RunName,
    a: Kernel,
    b: Kernel,
    task: Annotated[str, typer.Option(help="Beginning of the task, where a kernel belongs to several.")] = "",
    runs: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """What leads from one kernel of a run to another: source, plan, tunables, and the verdicts beside each other."""
    from evo.api import Run
    from evo.folders import find_run
    from evo.report.difference import difference

    with Run(find_run(runs, run)) as opened:
        kernels: tuple[StoredKernel, StoredKernel] = opened.kernel(a, task), opened.kernel(b, task)
    found = difference(*kernels)
    if as_json:
        print(json_of(found))
    else:
        _show(found)


def _show(found: dict[str, Any]) -> None:
    from evo.report.difference import tunables_table, verdicts_table, workloads_table
    from evo.report.tables import show

    show(verdicts_table(found))
    for name in ("a", "b"):
        if message := found[name]["message"]:
            print(f"{name.upper()}: {message}")
    if found["workloads"]:
        print("\ntimes of two measurements, each beside its own rival: compare the speedups above, not these")
        show(workloads_table(found))
    if found["tunables"]:
        print()
        show(tunables_table(found))
    for part in ("plan", "source"):
        print(f"\n{part}: {'no difference' if not found[part] else ''}".rstrip())
        if found[part]:
            print(found[part])
