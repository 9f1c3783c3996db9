"""The figures of one task: its progress, the map of its archive, and its kernels below the roofline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from evo.charts.drawing import HEIGHT, WIDTH, Figure, colour
from fitness.profiling.roofline import Peaks
from fitness.words import ratio

Rows = Sequence[Mapping[str, Any]]
TIMES = {
    "labelExpr": "datum.label ? datum.label + 'x' : ''", "tickCount": 5, "format": "~g", "labelOverlap": True,
    "titlePadding": 12,
}  # fmt: skip
"""An axis of ratios."""
ACROSS = {"evaluation": "evaluations", "elapsed_s": "seconds"}
"""By field, what progress is drawn against."""
CELL = 34
"""Height of a row of the map, in pixels."""


def progress_figure(task: str, leaders: Rows, end: Mapping[str, Any], against: str) -> Figure:
    """The certain speedup so far of one task, with each leader's estimate and interval; `end` is where it stopped."""
    rows = [
        {"at": row[against], "speedup": row["best_speedup"], "estimate": row["speedup"], **_ends(row)}
        for row in (*leaders, {**leaders[-1], against: end[against]})
    ]
    values = [row[name] for row in rows for name in ("speedup", "estimate", "low", "high") if row[name]]
    low, high = min([1.0, *values]), max([1.0, *values])
    room = max((high / low) ** 0.05, 1.02)
    up = {"type": "quantitative", "scale": {"type": "log", "domain": [low / room, high * room]}, "axis": TIMES}
    x = {"field": "at", "type": "quantitative", "title": ACROSS[against], "axis": {"tickCount": 5, "format": "~s"}}
    own = {"color": colour(0), "interpolate": "step-after"}
    spec = _drawing(rows, [
        {
            "transform": [{"filter": "isValid(datum.low)"}],
            "mark": {"type": "area", "opacity": 0.18, **own},
            "encoding": {"x": x, "y": {**up, "field": "low", "title": "speedup over naive"}, "y2": {"field": "high"}},
        },
        {
            "mark": {"type": "line", "strokeWidth": 2, **own},
            "encoding": {"x": x, "y": {**up, "field": "speedup", "title": "speedup over naive"}},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 24, "opacity": 1, "color": colour(0)},
            "encoding": {"x": x, "y": {**up, "field": "estimate", "title": "speedup over naive"}},
        },
    ])  # fmt: skip
    return Figure(
        f"{task} by {ACROSS[against]}",
        f"Certain speedup so far of {task}: {ratio(rows[-1]['speedup'])} after {len(leaders)} leaders.", spec,
    )  # fmt: skip


def _ends(row: Mapping[str, Any]) -> dict[str, float | None]:
    """The ends of its interval; the figure shows no more than 100 times around the speedup."""
    low, high, speedup = row["speedup_low"], row["speedup_high"], row["speedup"]
    if low is None or high is None:
        return {"low": None, "high": None}
    return {"low": max(low, speedup / 100), "high": min(high, speedup * 100)}


def map_figure(task: str, elites: Rows) -> Figure:
    """The archive of one task: its cells, each with its certain speedup; the stronger the colour, the faster."""
    logs = [math.log(row["best_speedup"]) for row in elites]
    low, span = min(logs), (max(logs) - min(logs)) or 1.0
    rows = []
    for row, log in zip(elites, logs, strict=True):
        first, _, rest = row["cell"].partition("/")
        rows.append({
            "across": first, "down": rest or "-", "shade": 0.08 + 0.4 * (log - low) / span,
            "told": ratio(row["best_speedup"]),
        })  # fmt: skip
    x = {"field": "across", "type": "nominal", "title": None, "axis": {"orient": "top", "labelAngle": 0}}
    y = {"field": "down", "type": "nominal", "title": None}
    spec = _drawing(rows, [
        {
            "mark": {"type": "rect", "color": colour(0)},
            "encoding": {"x": x, "y": y, "opacity": {"field": "shade", "type": "quantitative", "scale": None}},
        },
        {"mark": {"type": "text", "color": "var(--ink)"}, "encoding": {"x": x, "y": y, "text": {"field": "told"}}},
    ])  # fmt: skip
    return Figure(
        task, f"{len(rows)} cells of {task}; their certain speedups; estimates are in the table below.",
        spec | {"height": CELL * len({row["down"] for row in rows}), "width": WIDTH - 100},
    )  # fmt: skip


def roofline_figure(task: str, dtype: str, points: Rows, peaks: Peaks | None) -> Figure:
    """The rates that kernels reach, workload by workload, below the device's peaks, where those are known."""
    series = {"naive": 1, "best": 0}
    drawn = [
        {"kernel": name, "intensity": row["intensity"], "gflop_s": row["flops"] / row[field] / 1e3}
        for row in points
        for name, field in (("naive", "naive_us"), ("best", "best_us"))
        if row[field]
    ]
    roof = _roof(drawn, dtype, peaks) if peaks else []
    x, y = (
        {
            "field": field, "type": "quantitative", "title": title,
            "scale": {"type": "log", "domain": _around([row[field] for row in (*drawn, *roof)])},
            "axis": {"tickCount": 5, "format": "~g", "labelOverlap": True},
        }
        for field, title in (("intensity", "operations per byte"), ("gflop_s", "Gflop/s"))
    )  # fmt: skip
    layers: list[dict[str, Any]] = [{
        "mark": {"type": "point", "filled": True, "size": 60, "opacity": 0.9},
        "encoding": {
            "x": x, "y": y,
            "color": {
                "field": "kernel", "type": "nominal", "legend": None,
                "scale": {"domain": [*series], "range": [colour(place) for place in series.values()]},
            },
            "shape": {
                "field": "kernel", "type": "nominal", "legend": None,
                "scale": {"domain": [*series], "range": ["cross", "circle"]},
            },
        },
    }]  # fmt: skip
    if roof:
        layers.append({
            "data": {"values": roof},
            "mark": {"type": "line", "color": "var(--ink)", "strokeWidth": 1.5}, "encoding": {"x": x, "y": y},
        })  # fmt: skip
    return Figure(
        task, f"Roofline of {task}: the figures are in the table below.", _drawing(drawn, layers)
    )  # fmt: skip


def _around(values: Sequence[float]) -> list[float]:
    """The ends of an axis with room on both sides of the values, so that no mark lies on its edge."""
    return [min(values) / 1.5, max(values) * 1.5]


def _roof(drawn: Rows, dtype: str, peaks: Peaks) -> list[dict[str, float]]:
    """The line: memory's rate times intensity, up to the arithmetic's."""
    most, rate = peaks.gflop_s.get(dtype, math.inf), max(peaks.read_gb_s, peaks.copy_gb_s)
    low, high = (edge(row["intensity"] for row in drawn) for edge in (min, max))
    places = [low / 4, high * 4, *([most / rate] if low / 4 < most / rate < high * 4 else [])]
    return [{"intensity": place, "gflop_s": min(most, rate * place)} for place in sorted(places)]


def _drawing(rows: Rows, layers: list[dict[str, Any]]) -> dict[str, Any]:
    return {"width": WIDTH, "height": HEIGHT, "data": {"values": [*rows]}, "layer": layers}
