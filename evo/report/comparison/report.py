"""The report of a comparison: one file of HTML, one of Markdown, and Parquet. It shows what others conclude.

The tables that are kept as Parquet have one fact a row, and units in the names of their columns.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from evo.charts.drawing import check_drawing
from evo.compare.cells import CellResult, curves_table, results_table
from evo.compare.inference import Effect, Summary
from evo.compare.leaks import Hermetic
from evo.report.comparison.data import ComparisonMaterial, material
from evo.report.comparison.sections import document
from evo.report.render import html, markdown
from operators.errors import UserError

HTML, MARKDOWN = "report.html", "report.md"


def check_report(out: Path) -> None:
    """Raise UserError where no report could be written to the folder `out`, which it makes."""
    check_drawing()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(out, error) from None


def write_report(
    folder: Path, out: Path, results: Sequence[CellResult] | None = None, checked: Hermetic | None = None
) -> list[Path]:
    """Write the report of the comparison in `folder` to the folder `out`; return its files. It raises UserError.

    Files of an earlier report are replaced. `results` and `checked` are those of `material`.
    """
    return write(material(folder, results, checked), out)


def write(seen: ComparisonMaterial, out: Path) -> list[Path]:
    """Write the report of material that was read already; see `write_report`."""
    said = document(seen, time.time())
    texts = {HTML: html(said), MARKDOWN: markdown(said)}
    parquet = {f"{name}.parquet": table for name, table in tables(seen).items()}
    check_report(out)
    try:
        for name, text in texts.items():
            (out / name).write_text(text, encoding="utf-8")
        for name, table in parquet.items():
            pq.write_table(table, out / name)
    except OSError as error:
        raise _unwritable(out, error) from None
    return [out / name for name in (*texts, *parquet)]


def _unwritable(out: Path, error: OSError) -> UserError:
    return UserError(f"--report {out}: cannot be written: {error.strerror}; name a folder")


def tables(seen: ComparisonMaterial) -> dict[str, pa.Table]:
    """By name: cells, curves (of cells, and means of arms), verdicts, winners and their times.

    Ratios and speedups are plain numbers, those called log are natural logarithms; what does not exist is null. A table
    without rows has no columns.
    """
    rows = {
        "verdicts": [*_verdicts(seen)],
        "mean_curves": [*_means(seen)],
        "winners": [*_winners(seen)],
        "times": seen.rows("comparison.time_rows"),
    }
    results = [cell.result for cell in seen.cells]
    return {
        "cells": _judged(results_table(results), seen),
        "curves": curves_table(results),
        **{name: pa.Table.from_pylist(found) for name, found in rows.items()},
    }


def _judged(table: pa.Table, seen: ComparisonMaterial) -> pa.Table:
    """The cells with what the judgement says of their winners."""
    outcomes = [cell.outcome for cell in seen.cells]
    judged: Mapping[str, list[Any]] = {
        "has_winner": [one.has_winner if one else None for one in outcomes],
        "judged_log_speedup": [one.log_speedup if one else None for one in outcomes],
        "judged_log_speedup_se": [one.log_speedup_se if one else None for one in outcomes],
        "searched_log_speedup": [one.searched if one else None for one in outcomes],
        "score": [one.score if one else None for one in outcomes],
    }
    for name, values in judged.items():
        kind = pa.bool_() if name == "has_winner" else pa.float64()
        table = table.append_column(name, pa.array(values, kind))
    return table


def _verdicts(seen: ComparisonMaterial) -> Iterator[dict[str, Any]]:
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
        "reference": "reference", "families": "families", "pairs": "pairs", "unpaired": "unpaired",
        "found": "pairs_with_winner", "log_ratio": "log_ratio", "searched": "searched_log_ratio",
        "low": "log_ratio_low", "high": "log_ratio_high", "median": "median_log_ratio",
        "median_low": "median_log_ratio_low", "median_high": "median_log_ratio_high", "p": "p",
        "detectable": "detectable_log_ratio", "judging_se": "judging_se_log", "verdict": "verdict",
    }  # fmt: skip
    found = asdict(effect) if effect else {}
    row = {ours: found.get(name) for name, ours in names.items()}
    return row | {"verdict": str(effect.verdict) if effect else None}


def _means(seen: ComparisonMaterial) -> Iterator[dict[str, Any]]:
    for curve in seen.curves:
        columns = (each.tolist() for each in (curve.used, curve.log_speedup, curve.low, curve.high))
        for used, best, low, high in zip(*columns, strict=True):
            yield {
                "arm": curve.arm, "budget": curve.budget, "cells": curve.cells, "used": used, "log_speedup": best,
                "log_speedup_low": _finite(low), "log_speedup_high": _finite(high),
            }  # fmt: skip


def _winners(seen: ComparisonMaterial) -> Iterator[dict[str, Any]]:
    sources = {row["kernel_id"]: row for row in seen.rows("comparison.sources")}
    for row in seen.rows("comparison.winner_rows"):
        kernel = sources.get(row["kernel_id"], {})
        values = json.loads(kernel.get("values_json") or "{}")
        yield row | {"source": kernel.get("source"), "values_json": json.dumps(values)}


def _finite(value: Any) -> Any:
    """The value, or None for a bound or a difference that does not exist."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
