"""The material of a comparison's report: conclusions, answers to printed queries, and its figures."""

from __future__ import annotations

import glob
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evo.api import Several
from evo.budget import UNDONE
from evo.charts.drawing import WIDTH, Figure, series_scales
from evo.charts.figures import domain, layered, told_in
from evo.compare.cells import Begun, CellResult, cell_results, stored
from evo.compare.conclusions import POINTS, Conclusions, Curve, conclusions, curves
from evo.compare.config import USED, Comparison
from evo.compare.inference import Effect
from evo.compare.judgement import JudgedCell, judged_cells
from evo.compare.leaks import Hermetic, hermetic
from evo.compare.record import faults, head, lines
from evo.folders import find_runs
from evo.report.document import Query
from evo.search.driver import FAULTY, WAITS
from evo.store.reads import Identifier, filled
from fitness.words import ratio

Rows = list[dict[str, Any]]
SHOWN = (
    "comparison.arms", "comparison.beside_reference", "comparison.operators_beside", "comparison.used",
    "comparison.cell_rows", "comparison.winner_rows", "comparison.time_rows", "comparison.failures",
    "comparison.models", "comparison.hosts", "comparison.shapes", "comparison.sources",
)  # fmt: skip
"""Queries in `evo/store/reads/comparison.sql` whose answers it shows, besides those for its curves."""
MANY_RUNS = 100
"""Runs from which on a query may need more than the minute that it has by itself."""
SECONDS_PER_RUN = 1
"""Seconds that such a query is given for each run, as a slow machine needs them."""
LEAST_TIME_S = 300
"""Seconds that each of the report's own queries has at least."""


@dataclass(frozen=True)
class ComparisonMaterial:
    """All that a report is made from."""

    folder: Path
    where: str
    """Pattern of the comparison's runs and its judgement, as `evo sql` takes it."""
    begun: Begun
    cells: Sequence[JudgedCell]
    """All of the configuration, those that were not begun yet among them."""
    found: Conclusions
    curves: Sequence[Curve]
    """The curves of cells whose naive kernel was judged."""
    hermetic: Hermetic
    faults: Sequence[str]
    """Differences from the record, in words."""
    record: str
    """The digest of the record's last line."""
    answers: Mapping[str, Rows]
    """Answers to the queries that the report prints, by the query."""

    @property
    def made(self) -> Comparison:
        """The configuration."""
        return self.begun.config

    @property
    def arms(self) -> list[str]:
        """All arms in the order of the configuration, which gives each its colour."""
        return [*self.made.arms]

    def series(self, arms: Iterable[str]) -> dict[str, int]:
        """These arms as series of figures."""
        return {arm: self.arms.index(arm) for arm in arms}

    def rows(self, name: str, **values: str) -> Rows:
        """The answer to a query of `evo/store/reads/comparison.sql`."""
        return self.answers[asked(self.made, name, **values)]

    def query(self, name: str, **values: str) -> Query:
        """A query as the report prints it."""
        text = asked(self.made, name, **values)
        return Query(self.where, text, len(self.answers.get(text, ())), _more_time_s(len(self.cells)))


def asked(made: Comparison, name: str, **values: str) -> str:
    """The text of a query about this comparison."""
    known: dict[str, Any] = {"reference": made.reference_arm, "waits": WAITS, "faulty": FAULTY, "undone": UNDONE}
    known["per_task"] = len(made.arms) * len(made.seeds)
    return filled(name, **known, points=POINTS, last=POINTS - 1, **values)


def _more_time_s(runs: int) -> int:
    """The time for a query to so many runs, where it is more than a query has by itself; else 0."""
    return SECONDS_PER_RUN * runs if runs > MANY_RUNS else 0


def material(
    folder: Path, results: Sequence[CellResult] | None = None, checked: Hermetic | None = None
) -> ComparisonMaterial:
    """Read what a report of the comparison in `folder` says. It raises UserError.

    `results` and `checked` are those of `cell_results` and `hermetic`, where they are at hand.
    """
    begun, where = stored(folder), f"{glob.escape(str(folder))}/**"
    cells = judged_cells(folder, cell_results(folder) if results is None else results)
    drawn = curves([cell.result for cell in cells if cell.result.curve], begun.families)
    return ComparisonMaterial(
        folder, where, begun, cells, conclusions(begun, cells), drawn, checked or hermetic(folder),
        faults(folder, begun), head(lines(folder)[-1:]), _answers(folder, where, _queries(begun.config)),
    )  # fmt: skip


def _queries(made: Comparison) -> list[str]:
    return [
        *(asked(made, name) for name in SHOWN),
        *(asked(made, "comparison.curve", budget=Identifier(kind)) for kind in USED),
    ]


def _answers(folder: Path, where: str, queries: Sequence[str]) -> dict[str, Rows]:
    """All answers, from runs that are opened once."""
    if not any(folder.glob("*/evo.duckdb")):
        return {query: [] for query in queries}  # nothing was begun
    folders = find_runs(folder.parent, where)
    with Several([folders] if isinstance(folders, Path) else folders) as runs:
        timeout_s = max(LEAST_TIME_S, _more_time_s(len(runs.folders)))
        return {query: runs.sql(query, timeout_s=timeout_s).to_pylist() for query in queries}


# --- its figures, as Vega-Lite ----------------------------------------------------------------------------------------


TIMES = {"labelExpr": "datum.label ? datum.label + 'x' : ''", "tickCount": 5, "format": "~g", "labelOverlap": True}
"""An axis of ratios."""
ROW = 20
"""Height of a row, in pixels."""


def curve_figure(curves: Sequence[Curve], arms: Sequence[str]) -> Figure:
    """Certain best so far (see the view `curve`) of all arms against one kind of budget."""
    words, unit = told_in(USED[curves[0].budget], max(float(curve.used[-1]) for curve in curves))
    rows = [
        {"arm": curve.arm, "used": used / unit, "speedup": math.exp(best), "low": bound(low), "high": bound(high)}
        for curve in curves
        for used, best, low, high in zip(
            *(each.tolist() for each in (curve.used, curve.log_speedup, curve.low, curve.high)), strict=True
        )
    ]
    axis: dict[str, Any] = {"tickCount": 5} | ({"format": "~s"} if curves[0].budget == "tokens" else {})
    across = {"field": "used", "type": "quantitative", "title": words, "axis": axis}
    spec = layered(rows, [
        {
            "transform": [{"filter": "isValid(datum.low)"}],
            "mark": {"type": "area", "opacity": 0.15, "interpolate": "step-after"},
            "encoding": {"x": across, "y": _speedups("low", rows), "y2": {"field": "high"}, "color": _colour(arms)},
        },
        {
            "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2},
            "encoding": {
                "x": across, "y": _speedups("speedup", rows), "color": _colour(arms),
                "strokeDash": {"field": "arm", "scale": series_scales(arms)[1], "legend": None},
            },
        },
    ])  # fmt: skip
    ends = ", ".join(f"{curve.arm} {ratio(math.exp(float(curve.log_speedup[-1])))}" for curve in curves)
    return Figure(f"Best so far by {words}", f"Mean certain speedup so far by {words}; at the end {ends}.", spec)


def effect_figure(effects: Sequence[Effect], arms: Sequence[str], difference: float) -> Figure:
    """Each arm beside the reference, with its interval and the registered difference."""
    rows: list[dict[str, Any]] = [
        {
            "arm": each.arm, "ratio": math.exp(each.log_ratio), "low": bound(each.low), "high": bound(each.high),
        }
        for each in effects
    ]  # fmt: skip
    near = [{"low": 1 / (1 + difference), "high": 1 + difference}]
    values = [value for row in [*rows, *near] for name, value in row.items() if name != "arm" and value is not None]
    scale = {"type": "log", "domain": domain(values)}
    across = {"type": "quantitative", "scale": scale, "axis": TIMES, "title": f"ratio to {effects[0].reference}"}
    up = {"field": "arm", "type": "nominal", "title": None, "sort": None}
    spec = layered(rows, [
        {
            "data": {"values": near},
            "mark": {"type": "rect", "color": "var(--grid)", "opacity": 0.6},
            "encoding": {"x": {**across, "field": "low"}, "x2": {"field": "high"}},
        },
        {"data": {"values": [{"one": 1}]}, "mark": "rule", "encoding": {"x": {**across, "field": "one"}}},
        {
            "transform": [{"filter": "isValid(datum.low)"}],
            "mark": {"type": "rule", "strokeWidth": 2},
            "encoding": {"x": {**across, "field": "low"}, "x2": {"field": "high"}, "y": up, "color": _colour(arms)},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
            "encoding": {"x": {**across, "field": "ratio"}, "y": up, "color": _colour(arms)},
        },
    ])  # fmt: skip
    told = "; ".join(f"{row['arm']} {ratio(row['ratio'])}" for row in rows)
    return Figure(
        f"Beside {effects[0].reference}; the registered difference is shaded", f"Ratios to the reference: {told}.",
        spec | {"height": ROW * len(rows)},
    )  # fmt: skip


def task_figure(rows: Sequence[Mapping[str, Any]], arms: Sequence[str]) -> Figure:
    """The judged winner of every cell, task by task; `rows` are those of the table of cells."""
    shown = [
        {"arm": row["arm"], "task": row["task"], "speedup": row["judged_speedup"], "as": _outcome(row)} for row in rows
    ]
    across = _speedups("speedup", shown)
    shapes = {"domain": ["winner", "counts as naive"], "range": ["circle", "cross"]}
    spec = layered(shown, [
        {
            "mark": {"type": "point", "filled": True, "size": 60, "opacity": 0.85},
            "encoding": {
                "x": across, "color": _colour(arms),
                "y": {"field": "task", "type": "nominal", "title": None, "sort": None},
                "yOffset": {"field": "arm", "type": "nominal", "sort": [*arms]},
                "shape": {"field": "as", "type": "nominal", "scale": shapes, "legend": None},
            },
        },
    ])  # fmt: skip
    step = max(ROW, 7 * len(arms))
    tasks = len({row["task"] for row in shown})
    return Figure(
        "Judged winners; a cross counts as naive", "The speedups of the table of cells, task by task.",
        spec | {"height": step * tasks, "width": WIDTH - 60},
    )  # fmt: skip


def _outcome(row: Mapping[str, Any]) -> str:
    return "winner" if row["has_winner"] else "counts as naive"


def _colour(arms: Sequence[str]) -> dict[str, Any]:
    return {"field": "arm", "type": "nominal", "scale": series_scales(arms)[0], "legend": None}


def _speedups(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    values = [value for row in rows for end in ("speedup", "low", "high") if (value := row.get(end)) is not None]
    scale = {"type": "log", "domain": domain(values)}
    return {"field": name, "type": "quantitative", "title": "speedup over naive", "scale": scale, "axis": TIMES}


def bound(log_ratio: float) -> float | None:
    """A bound as a ratio; None where there is none."""
    return math.exp(log_ratio) if math.isfinite(log_ratio) else None
