"""Where best kernels and naive ones lie below what the device can do at most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fitness.roofline import Peaks, roofline
from fitness.targets import device_info, peaks
from operators.catalog import load
from operators.definition.spec import Operator, Task
from operators.errors import UserError
from operators.expression import ExpressionError

Row = dict[str, Any]
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


def placed(task: str, timings: Sequence[Row], names: Mapping[str, str], limits: Peaks | None) -> list[Row]:
    """Each workload of one task's best kernel below the roof; `timings` are rows of `run_sql.ROOFLINE`.

    `names` are operators' folders by their names. A workload is left out where its costs cannot be known without its
    data, as is a task whose operator is not here.
    """
    parsed = Task.parse(task)
    try:
        operator = load(names.get(parsed.operator, parsed.operator))
    except UserError:
        return []
    return [*_placed(operator, parsed.dtype, timings, limits)]


def _placed(operator: Operator, dtype: str, timings: Sequence[Row], limits: Peaks | None) -> Iterator[Row]:
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
            "latency_us": row["latency_us"], "anchor_latency_us": row["anchor_latency_us"],
        }  # fmt: skip
