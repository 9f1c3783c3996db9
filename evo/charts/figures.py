"""The figures of one task: its progress, and the map of its archive."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from evo.charts.drawing import HEIGHT, WIDTH, Figure, colour, series_scales
from fitness.words import counted, ratio

Rows = Sequence[Mapping[str, Any]]
Item = TypeVar("Item", bound=Mapping[str, Any])
TIMES = {
    "labelExpr": "datum.label ? datum.label + 'x' : ''", "tickCount": 5, "format": "~g", "labelOverlap": True,
    "titlePadding": 12,
}  # fmt: skip
"""An axis of ratios."""
WHOLE = {"tickCount": 5, "tickMinStep": 1, "format": "~s"}
"""An axis of counts, or of time."""
ACROSS = {"evaluation": "evaluations", "elapsed_s": "seconds"}
"""By field, what progress is drawn against."""
AXES = {
    "cpu": ("widest vectors", "threads / size of the code"),
    "cuda": ("access to memory", "arithmetic / cooperation / registers"),
}
"""By target, what the cells of an archive lie along."""
CELL = 34
"""Height of a row of the map, in pixels."""
TIME_UNITS = (("days", "d", 86_400), ("hours", "h", 3600), ("minutes", "min", 60))


def by_task(rows: Iterable[Item]) -> dict[str, list[Item]]:
    """Rows by their tasks, in their order."""
    found: dict[str, list[Item]] = {}
    for row in rows:
        found.setdefault(row["task"], []).append(row)
    return found


def domain(values: Iterable[float]) -> list[float]:
    """The ends of an axis of speedups, naive among its values, with some room."""
    ends = [1.0, *values]
    low, high = min(ends), max(ends)
    room = max((high / low) ** 0.05, 1.02)
    return [low / room, high * room]


def time_unit(longest_s: float) -> tuple[str, str, int]:
    """The unit in which people read an axis that ends there: its name, its sign, and its seconds."""
    fitting = (unit for unit in TIME_UNITS if longest_s >= 3 * unit[2])
    return next(fitting, ("seconds", "s", 1))


def told_in(title: str, most: float) -> tuple[str, int]:
    """The title of an axis that ends at `most`, and what its values are divided by: seconds become a longer unit."""
    name, _, seconds = time_unit(most)
    return (title.replace("seconds", name), seconds) if "seconds" in title else (title, 1)


def progress_figure(task: str, leaders: Rows, end: Mapping[str, Any], against: str) -> Figure:
    """The certain speedup so far of one task, with each leader's estimate and interval; `end` is where it stopped."""
    title, unit = told_in(ACROSS[against], end[against])
    rows = [
        {"at": row[against] / unit, "speedup": row["best_speedup"], "estimate": row["speedup"], **_ends(row)}
        for row in (*leaders, {**leaders[-1], against: end[against]})
    ]
    values = [row[name] for row in rows for name in ("speedup", "estimate", "low", "high") if row[name]]
    up = {"type": "quantitative", "scale": {"type": "log", "domain": domain(values)}, "axis": TIMES}
    x = {"field": "at", "type": "quantitative", "title": title, "axis": WHOLE}
    own = {"color": colour(0), "interpolate": "step-after"}
    spec = layered(rows, [
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
        f"{task} by {title}",
        f"Certain speedup so far of {task}: {ratio(rows[-1]['speedup'])} after {len(leaders)} leaders.", spec,
    )  # fmt: skip


def lines_figure(title: str, rows: Rows, series: Sequence[str], across: tuple[str, str], up: tuple[str, str]) -> Figure:
    """Lines of several series, which the field `series` of a row names; `across` and `up` are fields with titles."""
    colours, dashed = series_scales(series)
    field, (told, unit) = across[0], told_in(across[1], max((row[across[0]] for row in rows), default=0))
    rows = [{**row, field: row[field] / unit} for row in rows]
    x, y = (
        {"field": name, "type": "quantitative", "title": of, "axis": axis}
        for name, of, axis in ((field, told, WHOLE), (*up, {"tickCount": 5, "format": "~g"}))
    )
    named = {"field": "series", "type": "nominal", "legend": None}
    spec = layered(rows, [{
        "mark": {"type": "line", "strokeWidth": 2},
        "encoding": {"x": x, "y": y, "color": {**named, "scale": colours}, "strokeDash": {**named, "scale": dashed}},
    }])  # fmt: skip
    return Figure(title, f"{title}: the figures of {', '.join(series)} over {told}.", spec)


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
    across, down = AXES.get(task.rpartition("/")[2], (None, None))
    x = {"field": "across", "type": "nominal", "title": across, "axis": {"orient": "top", "labelAngle": 0}}
    y = {"field": "down", "type": "nominal", "title": down}
    spec = layered(rows, [
        {
            "mark": {"type": "rect", "color": colour(0)},
            "encoding": {"x": x, "y": y, "opacity": {"field": "shade", "type": "quantitative", "scale": None}},
        },
        {"mark": {"type": "text", "color": "var(--ink)"}, "encoding": {"x": x, "y": y, "text": {"field": "told"}}},
    ])  # fmt: skip
    return Figure(
        task, f"{counted(len(rows), 'cell')} of {task}; their certain speedups; estimates are in the table below.",
        spec | {"height": CELL * len({row["down"] for row in rows}), "width": WIDTH - 100},
    )  # fmt: skip


def layered(rows: Rows, layers: list[dict[str, Any]]) -> dict[str, Any]:
    """The drawing of these rows in layers."""
    return {"width": WIDTH, "height": HEIGHT, "data": {"values": [*rows]}, "layer": layers}
