"""Ten lines on what champions are worth, from the results of `tests.bench.champions`; nothing is typed in by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from evo.config import read_toml
from operators.libraries import CONVERTED

CAMPAIGN = Path(__file__).parents[2] / "runs" / "configs" / "campaign"
"""The kinds of operators are those of its runs."""
NEAR = 0.9
"""Share of the roofline that a kernel which moves data is to reach."""
Row = Mapping[str, Any]


def lines(rows: Sequence[Row]) -> str:
    """Markdown: a line for all, for each dtype and each kind of operator; then what is slower beyond doubt.

    A task is an operator with a dtype, and the library is each workload's fastest call. One that is composed is no one
    call of the vendor's: tasks where all of them are count for themselves. Where some are, the others are one call, and
    the task is compared with both.
    """
    head = (
        "tasks", "right", "over naive", "over the library", "at least its speed", "composed", "of the roofline",
        f">= {NEAR:.0%} of it",
    )  # fmt: skip
    devices = ", ".join(sorted({row["device"] for row in rows}))
    table = [f"| {devices} | {' | '.join(head)} |", f"|{'---|' * (len(head) + 1)}"]
    for name, belongs in _kinds(rows):
        own = [row for row in rows if belongs(row)]
        if own:
            table.append(f"| {name} | {' | '.join(_cells(own))} |")
    behind = sorted(
        (row for row in _compared(rows) if row["over_library"][2] < 1.0), key=lambda r: r["over_library"][0]
    )
    slower = [
        f"{row['operator']} {row['dtype']} {_said(row['over_library'])}{CONVERTED * _converted(row)}" for row in behind
    ]
    spared = sum(map(_converted, behind))
    refused = [f"{row['operator']} {row['dtype']}: {row['status']}" for row in rows if row["status"] != "correct"]
    return "\n".join([
        *table, "",
        f"Slower than the library beyond doubt, {len(behind)} tasks"
        + f" (in {spared} the library's operand was converted before, which is not timed)" * bool(spared)
        + f": {', '.join(slower) or 'none'}.",
        f"Not right: {', '.join(refused) or 'none'}.",
    ])  # fmt: skip


def _kinds(rows: Sequence[Row]) -> Iterator[tuple[str, Callable[[Row], bool]]]:
    yield "all", lambda row: True
    for dtype in sorted({row["dtype"] for row in rows}, reverse=True):
        yield dtype, lambda row, dtype=dtype: row["dtype"] == dtype  # type: ignore[misc]
    for path in sorted(CAMPAIGN.glob("*.toml")):
        operators = set(read_toml(path)["operators"])
        yield path.stem, lambda row, operators=operators: row["operator"] in operators  # type: ignore[misc]


def _cells(rows: Sequence[Row]) -> tuple[str, ...]:
    right = [row for row in rows if row["status"] == "correct"]
    compared = _compared(rows)
    at_least = sum(row["over_library"][0] >= 1.0 for row in compared)
    shares = [row["of_roofline"] for row in right if "of_roofline" in row]
    return (
        str(len(rows)), str(len(right)),
        _mean([row["over_naive"][0] for row in right if row.get("over_naive")]),
        _mean([row["over_library"][0] for row in compared]),
        f"{at_least} of {len(compared)}" + (f" ({at_least / len(compared):.0%})" if compared else ""),
        str(sum(bool(row.get("composed")) for row in right)),
        f"{geometric_mean(shares):.0%}" if shares else "-",
        f"{sum(share >= NEAR for share in shares)} of {len(shares)}",
    )  # fmt: skip


def _compared(rows: Sequence[Row]) -> list[Row]:
    """Those that are right and were timed beside a library that has one call for it, on some workload at least."""
    return [row for row in rows if row["status"] == "correct" and "over_library" in row and not row.get("composed")]


def _converted(row: Row) -> bool:
    """Whether the library was spared work on some workload: it got an operand in another form or order."""
    return CONVERTED in row.get("library", "")


def _mean(speedups: Sequence[float]) -> str:
    return f"{geometric_mean(speedups):.3g}x" if speedups else "-"


def _said(interval: Sequence[float]) -> str:
    return f"{interval[0]:.3g}x ({interval[1]:.3g}-{interval[2]:.3g})"
