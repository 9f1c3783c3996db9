"""The tables of a comparison's report as Arrow, to be kept as Parquet: one fact a row, units in the columns' names."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from evo.compare.cells import curves_table, results_table
from evo.compare.inference import Effect, Summary
from evo.report.comparison import sql
from evo.report.comparison.data import Material


def tables(seen: Material) -> dict[str, pa.Table]:
    """By name: cells, curves (of cells, and means of arms), verdicts, winners and their times.

    Ratios and speedups are plain numbers, those called log are natural logarithms; what does not exist is null. A table
    without rows has no columns.
    """
    rows = {
        "verdicts": [*_verdicts(seen)],
        "mean_curves": [*_means(seen)],
        "winners": [*_winners(seen)],
        "times": seen.rows(sql.TIMES),
    }
    results = [cell.result for cell in seen.cells]
    return {
        "cells": _judged(results_table(results), seen),
        "curves": curves_table(results),
        **{name: pa.Table.from_pylist(found) for name, found in rows.items()},
    }


def _judged(table: pa.Table, seen: Material) -> pa.Table:
    """The cells with what the judgement says of their winners."""
    outcomes = [cell.outcome for cell in seen.cells]
    judged: Mapping[str, list[Any]] = {
        "judged_correct": [one.correct if one else None for one in outcomes],
        "judged_log_speedup": [one.log_speedup if one else None for one in outcomes],
        "judged_log_speedup_se": [one.log_speedup_se if one else None for one in outcomes],
        "score": [one.score if one else None for one in outcomes],
    }
    for name, values in judged.items():
        kind = pa.bool_() if name == "judged_correct" else pa.float64()
        table = table.append_column(name, pa.array(values, kind))
    return table


def _verdicts(seen: Material) -> Iterator[dict[str, Any]]:
    """The figures of every arm by itself and, but for the reference, beside the reference."""
    beside = {effect.arm: effect for effect in seen.found.effects}
    for summary in seen.found.summaries:
        yield {name: _finite(value) for name, value in (_by_itself(summary) | _beside(beside.get(summary.arm))).items()}


def _by_itself(summary: Summary) -> dict[str, Any]:
    row = asdict(summary)
    above, fast = row.pop("above"), row.pop("fast")
    names = {"geometric_mean": "speedup", "low": "speedup_low", "high": "speedup_high", "median": "median_speedup"}
    row = {names.get(name, name): value for name, value in row.items()}
    row |= {f"above_{factor}x_share": share for factor, share in above.items()}
    return row | {f"fast_{tau}_share": share for tau, share in fast.items()}


def _beside(effect: Effect | None) -> dict[str, Any]:
    names = {
        "reference": "reference", "pairs": "pairs", "unpaired": "unpaired", "log_ratio": "log_ratio",
        "low": "log_ratio_low", "high": "log_ratio_high", "p_value": "p_value", "p_holm": "p_holm",
        "detectable": "detectable_log_ratio", "judging_se": "judging_se_log", "verdict": "verdict",
    }  # fmt: skip
    found = asdict(effect) if effect else {}
    row = {ours: found.get(name) for name, ours in names.items()}
    return row | {"verdict": str(effect.verdict) if effect else None}


def _means(seen: Material) -> Iterator[dict[str, Any]]:
    for curve in seen.curves:
        columns = (each.tolist() for each in (curve.used, curve.log_speedup, curve.low, curve.high))
        for used, best, low, high in zip(*columns, strict=True):
            yield {
                "arm": curve.arm, "budget": curve.budget, "cells": curve.cells, "used": used, "log_speedup": best,
                "log_speedup_low": _finite(low), "log_speedup_high": _finite(high),
            }  # fmt: skip


def _winners(seen: Material) -> Iterator[dict[str, Any]]:
    sources = {row["kernel_id"]: row for row in seen.rows(sql.SOURCES)}
    for row in seen.rows(sql.WINNERS):
        kernel = sources.get(row["kernel_id"], {})
        values = json.loads(kernel.get("values_json") or "{}")
        yield row | {"source": kernel.get("source"), "values_json": json.dumps(values)}


def _finite(value: Any) -> Any:
    """The value, or None for a bound or a difference that does not exist."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
