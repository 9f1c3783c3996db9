"""The figures of a comparison's report, as Vega-Lite."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from evo.charts.drawing import WIDTH, Figure, series_scales
from evo.charts.figures import domain, layered, told_in
from evo.compare.conclusions import Curve
from evo.compare.config import USED
from evo.compare.inference import Effect
from fitness.words import ratio

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
