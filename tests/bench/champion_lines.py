"""Ten lines on what champions are worth, from the results of `tests.bench.champions`; nothing is typed in by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any, get_args

from evo.config import read_toml
from evo.packaging.champion import MOST_SLOWER
from operators.catalog import load
from operators.definition.spec import sets_of
from operators.libraries import Kind

CAMPAIGN = Path(__file__).parents[2] / "runs" / "configs" / "campaign"
"""The kinds of operators are those of its runs."""
NEAR = 0.9
"""Share of the roofline that a kernel which moves data is to reach."""
CLASSES = (*get_args(Kind), "mixed")
UNTRIED = "some rivals untried"
"""The class of a task of which it is not known whether one of those is the strongest."""
Row = Mapping[str, Any]


def lines(rows: Sequence[Row]) -> str:
    """Markdown: a line for all, for each dtype and each kind of operator; then what is slower beyond doubt.

    A task is an operator with a dtype, and the rival is each workload's fastest right call, of whatever class. A task's
    class is that of its workloads' rivals, or `mixed`; for each the mean is told of so many tasks. Where some rivals
    were not tried, the strongest is not known: those tasks have a class of their own.
    """
    head = (
        "tasks", "right", "over naive", "over the strongest rival", "at least its speed",
        *(f"{kind} rivals" for kind in CLASSES), UNTRIED, "of the roofline", f">= {NEAR:.0%} of it",
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
    slower = [f"{row['operator']} {row['dtype']} {_said(row['over_library'])} ({_class(row)})" for row in behind]
    spared = sum("converted" in row["kinds"] for row in behind)
    flagged = [f"{row['operator']} {row['dtype']} {row['flagged']}" for row in rows if row.get("flagged")]
    refused = [f"{row['operator']} {row['dtype']}: {row['status']}" for row in rows if row["status"] != "correct"]
    return "\n".join([
        *table, "",
        *([f"Flagged: {'; '.join(flagged)}."] if flagged else ()),
        f"Slower than the strongest rival beyond doubt, {len(behind)} tasks"
        + f" (in {spared} the rival's operand was converted before, which is not timed)" * bool(spared)
        + f": {', '.join(slower) or 'none'}.",
        *_by_size(rows),
        f"Not right: {', '.join(refused) or 'none'}.",
    ])  # fmt: skip


def _by_size(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each set of workloads that was timed: how many of its sizes are slower than another kernel."""
    right = [row for row in rows if row["status"] == "correct"]
    untried = [row for row in right if row.get("untried")]
    rivals = [row for row in right if row not in untried]
    kinds = (
        (rivals, "beside_library", "the strongest rival"),
        (untried, "beside_library", "the rivals that were tried"),
        (right, "beside_naive", "the plain kernel"),
    )
    said = f"by more than {MOST_SLOWER:.0%} beyond doubt"
    sets = {name for row in right for name in sets_of(row["workloads"])}
    told = [
        f"At {name} sizes, {said}: {'; '.join(parts)}."
        for name in sorted(sets)
        if (parts := [part for chosen, beside, whom in kinds if (part := _slower(_at(name, chosen, beside), whom))])
    ]
    yield from told or [f"By size, {said}: not told."]


def _at(name: str, rows: Sequence[Row], beside: str) -> list[list[Sequence[float]]]:
    """The ratios of each row at the sizes of a set, each with the ends of its interval; rows that have any."""
    found = []
    for row in rows:
        if name not in sets_of(row["workloads"]):
            continue
        sizes = {workload.name for workload in load(row["operator"]).workloads if workload.set == name}
        told = row.get(beside) or {}
        found.append([around for size, around in told.items() if size in sizes or not sizes])  # drawn ones: in no file
    return [ratios for ratios in found if ratios]


def _slower(tasks: Sequence[Sequence[Sequence[float]]], whom: str) -> str:
    """The number of sizes that are slower, and of tasks that are as fast in the mean; empty without any."""
    sizes = [around for ratios in tasks for around in ratios]
    if not sizes:
        return ""
    near = math.exp(-MOST_SLOWER)
    slower = sum(high < near for _, _, high in sizes)
    means = [geometric_mean(ratio for ratio, _, _ in ratios) for ratios in tasks]
    as_fast = f"{sum(mean >= 1.0 for mean in means)} of {len(means)} tasks are at least as fast in the mean"
    as_fast += f" and {sum(mean >= near for mean in means)} at least {near:.2f}x"
    share = f"{slower} of {len(sizes)} ({slower / len(sizes):.1%}) are slower than {whom}"
    return f"{share}, {as_fast}, {geometric_mean(means):.3g}x"


def _kinds(rows: Sequence[Row]) -> Iterator[tuple[str, Callable[[Row], bool]]]:
    yield "all", lambda row: True
    for dtype in sorted({row["dtype"] for row in rows}, reverse=True):
        yield dtype, lambda row, dtype=dtype: row["dtype"] == dtype  # type: ignore[misc]
    for path in sorted(CAMPAIGN.glob("*.toml")):
        operators = set(read_toml(path)["operators"])
        yield path.stem, lambda row, operators=operators: row["operator"] in operators  # type: ignore[misc]


def _cells(rows: Sequence[Row]) -> tuple[str, ...]:
    right = [row for row in rows if row["status"] == "correct"]
    compared = [row for row in _compared(rows) if not row.get("untried")]
    at_least = sum(row["over_library"][0] >= 1.0 for row in compared)
    shares = [row["of_roofline"] for row in right if "of_roofline" in row]
    return (
        str(len(rows)), str(len(right)),
        _mean([row["over_naive"][0] for row in right if row.get("over_naive")]),
        _mean([row["over_library"][0] for row in compared]),
        f"{at_least} of {len(compared)}" + (f" ({at_least / len(compared):.0%})" if compared else ""),
        *(_of_class(compared, kind) for kind in CLASSES),
        _of_class([row for row in _compared(rows) if row.get("untried")]),
        f"{geometric_mean(shares):.0%}" if shares else "-",
        f"{sum(share >= NEAR for share in shares)} of {len(shares)}",
    )  # fmt: skip


def _compared(rows: Sequence[Row]) -> list[Row]:
    """Those that are right and were timed beside a rival."""
    return [row for row in rows if row["status"] == "correct" and "over_library" in row]


def _class(row: Row) -> str:
    kinds = row["kinds"]
    return str(kinds[0]) if len(kinds) == 1 else "mixed"


def _of_class(rows: Sequence[Row], kind: str = "") -> str:
    own = [row["over_library"][0] for row in rows if not kind or _class(row) == kind]
    return f"{_mean(own)} ({len(own)})" if own else "-"


def _mean(speedups: Sequence[float]) -> str:
    return f"{geometric_mean(speedups):.3g}x" if speedups else "-"


def _said(interval: Sequence[float]) -> str:
    return f"{interval[0]:.3g}x ({interval[1]:.3g}-{interval[2]:.3g})"
