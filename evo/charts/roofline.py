"""Best, naive and library kernels of a run below the device's roofline."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from evo.charts.drawing import Figure, colour
from evo.charts.figures import Rows, by_task, layered
from fitness.profiling.roofline import Peaks, roofline
from fitness.targets import device_info, peaks
from operators.catalog import load_among
from operators.definition.spec import Operator, Task
from operators.errors import UserError
from operators.expression import ExpressionError

Row = dict[str, Any]
MARKS = {"best (dots)": 0, "naive (crosses)": 1, "library (triangles)": 2}
"""The legend, as places among the series."""


def rooflines(config: Mapping[str, Any], timings: Rows) -> tuple[Peaks | None, list[Row], list[Figure]]:
    """The device's peaks, if they are known; each workload of `timings` (rows of `report.roofline`) with its place
    below them; and a figure of each task."""
    limits, rows, drawn = stored_peaks(config), [], []
    for task, of_task in by_task(timings).items():
        points = placed(task, of_task, config.get("operators", ()), limits)
        rows += points
        if shown := [row for row in points if row["flops"] and row["bytes"]]:
            drawn.append(roofline_figure(task, task.split("/")[1], shown, limits))
    return limits, rows, drawn


def roofline_figure(task: str, dtype: str, points: Rows, peaks: Peaks | None) -> Figure:
    """The rates that kernels reach, workload by workload, below the device's peaks, where those are known."""
    series = {"naive": 1, "best": 0, "library": 2}
    drawn = [
        {"kernel": name, "intensity": row["intensity"], "gflop_s": row["flops"] / row[field] / 1e3}
        for row in points
        for name, field in (("naive", "naive_us"), ("best", "best_us"), ("library", "library_us"))
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
                "scale": {"domain": [*series], "range": ["cross", "circle", "triangle-up"]},
            },
        },
    }]  # fmt: skip
    if roof:
        layers.append({
            "data": {"values": roof},
            "mark": {"type": "line", "color": "var(--ink)", "strokeWidth": 1.5}, "encoding": {"x": x, "y": y},
        })  # fmt: skip
    return Figure(
        task, f"Roofline of {task}: the figures are in the table below.", layered(drawn, layers)
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


UNKNOWN = Peaks("unknown", float("inf"), float("inf"), {}, 0.0)


def stored_peaks(config: Mapping[str, Any]) -> Peaks | None:
    """The peaks of a run's device: those that the run holds, or those of this processor if it is the same one."""
    device, target = config.get("device") or {}, config.get("target", "cpu")
    if device.get("peaks"):
        return Peaks(**device["peaks"])
    try:
        here = device_info("cpu").name if target == "cpu" else ""
        return peaks("cpu") if here and here == device.get("name") else None
    except (UserError, OSError):
        return None


def placed(task: str, timings: Rows, places: Iterable[str], limits: Peaks | None) -> list[Row]:
    """Each workload of one task's best kernel below the roof; `timings` are rows of `report.roofline`.

    The operator is one at `places`, by name or folder, or else the catalog's. A workload is left out where its costs
    cannot be known without its data, as is a task whose operator is not here.
    """
    parsed = Task.parse(task)
    try:
        operator = load_among(parsed.operator, places)
    except UserError:
        return []
    return [*_placed(operator, parsed.dtype, timings, limits)]


def _placed(operator: Operator, dtype: str, timings: Rows, limits: Peaks | None) -> Iterator[Row]:
    known = {workload.name: workload.dims for workload in operator.workloads}
    for row in timings:
        try:
            model = roofline(operator, known[row["workload"]], dtype, limits or UNKNOWN)
        except (KeyError, ExpressionError):
            continue
        yield {
            "task": row["task"], "workload": row["workload"], "flops": model.flops, "bytes": model.bytes,
            "intensity": model.intensity, "best_us": row["latency_us"],
            "naive_us": row["anchor_latency_us"] if row["beside_naive"] else None,
            "attainable_us": model.attainable_us if limits else None,
            "bound": model.bound if limits else None,
            "efficiency": model.efficiency(row["latency_us"]) if limits else None,
            "library_us": row.get("library_us"), "latency_us": row["latency_us"],
            "anchor_latency_us": row["anchor_latency_us"],
        }  # fmt: skip
