"""The command that compares strategies."""

from __future__ import annotations

import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evo.cli import INTERRUPTED
from evo.cli.shared import FAILED, RUNS, AsJson, Runs, backend_named, say
from evo.report.output import as_json as json_of
from fitness.install import evo_command
from fitness.words import counted
from operators.identity import short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evo.compare.cells import CellResult
    from evo.compare.config import Comparison
    from evo.compare.judgement import JudgedCell
    from evo.compare.leaks import Hermetic, Leak

SHOWN = (
    "task", "arm", "seed", "standing", "speedup", "judged", "searched", "evaluations", "trials", "tokens",
    "lost_tokens",
)  # fmt: skip
"""Columns of the table; JSON and the view `used` have them all."""
CONCLUDED = (
    "arm", "with_winner", "speedup", "speedup_95", "ratio", "ratio_95", "typical", "typical_95", "ratio_searched", "p",
    "seen_from", "verdict", "spent",
)  # fmt: skip
"""Columns of the table of arms; JSON has shares above factors and the score P as well."""

compares = typer.Typer()


@compares.command()
def compare(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="TOML file, such as runs/configs/smoke.toml.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it is, costs and takes.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only say how large a difference it would see, and what size sees more.")
    ] = False,
    show: Annotated[bool, typer.Option("--show", help="Only show how far it is and what it found.")] = False,
    report: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write report.html, report.md and Parquet there.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on; refuse to begin.")] = False,
    llm: Annotated[
        list[str], typer.Option("--llm", metavar="MODEL", help="Language model, in place of those of the file.")
    ] = [],  # noqa: B006
    set_: Annotated[
        list[str], typer.Option("--set", metavar="KEY=VALUE", help="Any key of the file, dotted; repeatable.")
    ] = [],  # noqa: B006
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="With nothing to do, a cell waits so long for evo tell.")
    ] = 0.0,
    ray: Annotated[bool, typer.Option("--ray", help="Evaluate on a Ray cluster started for this.")] = False,
    ray_address: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Evaluate on this Ray cluster.")] = None,
    runs: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """Compare strategies under one budget, or go on with a comparison; each cell is a run in runs/compare-NAME/."""
    from evo.compare.cells import CONFIG, CellState, cell_results, folder_of, stored
    from evo.compare.conclusions import plan as planned
    from evo.compare.config import read_comparison
    from evo.compare.judgement import judge
    from evo.compare.running import compare as run
    from evo.compare.running import prepare
    from evo.outside.importing import operators_of
    from evo.report.live import ComparisonProgress

    made = read_comparison(config, models=llm, settings=set_)
    made = made.model_copy(update={"operators": operators_of(made.operators)})
    if report:
        from evo.report.comparison.report import check_report

        check_report(report)  # rather now than when all is over
    folder = folder_of(runs, made.name)
    if dry_run:
        _show_plan(made, as_json=as_json)
        return
    if plan:
        _show_sizing(made, folder, as_json=as_json)
        return
    if show or resume:
        stored(folder)  # it says what is wrong where there is none
    stopped, cluster = False, backend_named(ray_address, ray=ray)
    if not show:
        is_new = not (folder / CONFIG).exists()
        folder, cells = prepare(made, runs)
        if is_new:
            found = planned(made, cells)
            say(f"{counted(len(cells), 'cell')}; {found.time()}; {found.cost()}")
        running = run(folder, made, cells, ComparisonProgress(), ray=cluster, wait_s=wait)
        stopped = running.stopped
    results = cell_results(folder)
    if not show and not stopped:
        stopped = not judge(folder, results, say, ray=cluster)
    checked, faults = _checked(folder), _faults(folder)
    _show_results(folder, results, checked.leaks, faults, as_json=as_json)
    if report:
        _report(folder, report, results, checked)
    if stopped:
        print(f"stopped; continue with: {evo_command('compare', config)}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    if checked.leaks or faults or any(result.standing is CellState.FAILED for result in results):
        raise typer.Exit(FAILED)


def _checked(folder: Path) -> Hermetic:
    """The finding of the check `hermetic`, which it says in a line."""
    from evo.compare.leaks import hermetic

    found = hermetic(folder)
    say(found)
    return found


def _faults(folder: Path) -> list[str]:
    """Differences from the comparison's record, which it tells line by line."""
    from evo.compare.cells import stored
    from evo.compare.record import faults, head, lines

    begun = stored(folder)
    found = faults(folder, begun)
    of = f"registration {short(begun.digest)}, record {short(head(lines(folder)[-1:])) or 'empty'}"
    say(f"check record: {'FAILED' if found else 'passed'}; {of}")
    for fault in found:
        say(f"check record: {fault}")
    return found


def _report(folder: Path, out: Path, results: Sequence[CellResult], checked: Hermetic) -> None:
    from evo.report.comparison.report import write_report

    written = write_report(folder, out, results, checked)
    say(f"report: {', '.join(map(str, written))}")


def _show_plan(made: Comparison, *, as_json: bool) -> None:
    from evo.compare.conclusions import plan, sizing
    from evo.compare.running import check
    from evo.report.terminal import rows_table, show

    cells = check(made)
    found, size = plan(made, cells), sizing(made, cells)
    if as_json:
        print(json_of(vars(found) | {"outlooks": asdict(size)["outlooks"]}))
        return
    show(rows_table(["arm", "strategy", "models", "profile", "tuning", "cells"], found.arms))
    print("\n".join((*found.lines(), *size.seen())))


def _show_sizing(made: Comparison, folder: Path, *, as_json: bool) -> None:
    from evo.compare.cells import CONFIG, cell_results
    from evo.compare.conclusions import sizing

    found = sizing(made, made.cells(), cell_results(folder) if (folder / CONFIG).exists() else ())
    print(json_of(asdict(found)) if as_json else "\n".join(found.lines()))


def _show_results(
    folder: Path, results: Sequence[CellResult], leaks: Sequence[Leak], faults: Sequence[str], *, as_json: bool
) -> None:
    from evo.compare.cells import spent, stored
    from evo.compare.conclusions import conclusions
    from evo.compare.judgement import judged_cells

    cells, shares = judged_cells(folder, results), spent(results)
    found = conclusions(stored(folder), cells)
    rows = [_row(cell) for cell in cells]
    arms = [row | {"spent": str(shares.get(row["arm"], ""))} for row in found.rows()]
    if as_json:
        said = {"comparison": str(folder), "registration": stored(folder).digest, "cells": rows, "arms": arms}
        print(json_of(said | {"leaks": [*map(vars, leaks)], "faults": [*faults]}))
        return
    from evo.report.terminal import rows_table, show

    rows.sort(key=lambda row: (row["task"], row["arm"], row["seed"]))
    show(rows_table(SHOWN, [{name: row[name] for name in SHOWN} for row in rows]))
    if arms:
        show(rows_table(CONCLUDED, [{name: _rounded(row[name]) for name in CONCLUDED} for row in arms]))
    print("\n".join(found.lines()))
    print(f"comparison {folder}; its runs answer together: evo sql '{folder}/*' \"from used\"")


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [*map(_rounded, value)]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _row(cell: JudgedCell) -> dict[str, Any]:
    result, judged = cell.result, cell.outcome
    used, winner = result.used, result.winner
    return {
        "task": result.task, "arm": result.arm, "seed": result.seed, "standing": result.standing.value,
        "speedup": round(math.exp(winner.log_speedup), 3) if winner else None,
        "judged": round(math.exp(judged.log_speedup), 3) if judged else None,
        "searched": round(math.exp(judged.searched), 3) if judged else None,
        "passed": judged.has_winner if judged else None,
        "level": winner.level if winner else None, "flagged": winner.flagged if winner else None,
        "evaluations": used.evaluations, "repairs": used.repairs,
        "trials": used.trials, "checks": used.checks, "duplicates": used.duplicates, "rejected": used.rejected,
        "calls": used.calls, "tokens": used.tokens, "lost_tokens": used.lost_tokens, "spent": round(result.spent, 3),
        "usd": round(used.cost_usd, 4), "evaluator_s": round(used.evaluator_s, 1), "ended": result.reason,
    }  # fmt: skip
