"""Where each task of a run stands: its best kernel with figures of one pairing, and what became of the rest."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from evo.individual import NO_CHILD, new_programs
from evo.rows import NO_LIBRARY, TASK_FAILED
from evo.store import query
from fitness.evaluation import Level, Status, called, named

Z95 = 1.96
NO_FAILURES = (Status.CORRECT.value, Status.SLOWER.value)
"""Fates of a candidate that are none."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A task's best kernel. Every figure is of the verdict that counts, and so of one measurement:

    `best_us` is measured, the geometric mean over workloads of the kernel's median times; `speedup` is the geometric
    mean over workloads of the paired ratios, with its 95 % interval; `baseline_us` is their product. So baseline / best
    is the speedup, and just so library / best is `against_library`. A kernel that is not confirmed was paired with its
    anchor, whose own speedup is in `speedup` and widens the interval.
    """

    kernel_id: str | None = None
    level: str | None = None
    """Of the verdict; only `confirmed` means paired with the baseline, and the library, in fresh processes."""
    flagged: str = ""
    """What is suspicious about the kernel; see `fitness.flags`."""
    baseline_us: float | None = None
    best_us: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    library_us: float | None = None
    """The geometric mean over workloads of the times of each one's fastest call."""
    library: str = ""
    """The name of the library's call; where workloads have several, each with its own, as `A (w1, w2); B (w3)`."""
    library_composed: bool = False
    """Whether on every workload several calls make the library's result, since it has none for it."""
    library_partly_composed: bool = False
    """Whether that is so on some workloads and not on others."""
    against_library: float | None = None
    """Library time / best time. None where there is no library, or the best is not confirmed."""
    against_library_low: float | None = None
    against_library_high: float | None = None

    @property
    def confirmed(self) -> bool:
        """Whether the verdict is of the last level, paired with the baseline in fresh processes."""
        return self.level == Level.CONFIRMED.value


@dataclass(frozen=True, kw_only=True)
class TaskSummary(Standing):
    """One line of the table a run ends with."""

    task: str
    candidates: int
    """Programs that were new, of whatever fate."""
    outcomes: dict[str, int] = field(default_factory=dict)
    """Of the candidates, by status."""
    failures: dict[str, int] = field(default_factory=dict)
    """Of the outcomes, those of candidates that failed: neither correct nor only slower."""
    duplicates: int
    """Children that were known already, as source or as machine code; they are no candidates."""
    no_child: int
    """Requests whose mutator had no child to offer."""
    problem: str = ""
    """Why the task could not go on, such as a naive kernel that is wrong."""
    library_problem: str = ""
    """Why the library was not timed beside the best kernel."""


def summary(folder: Path) -> list[TaskSummary]:
    """Every task of the run, in the order of its configuration."""
    tasks = query(folder, "select task, min(seq) as first from asks group by task order by first").to_pylist()
    best, faults, statuses = standings(folder), problems(folder), _statuses(folder)
    found = []
    for row in tasks:
        task = row["task"]
        counts = statuses.get(task, {})
        outcomes = {s: n for s, n in counts.items() if s not in (Status.DUPLICATE.value, NO_CHILD)}
        standing, library_problem = best.get(task, (Standing(), ""))
        found.append(
            TaskSummary(
                **asdict(standing),
                task=task,
                candidates=new_programs(counts),
                outcomes=outcomes,
                failures={s: n for s, n in outcomes.items() if s not in NO_FAILURES},
                duplicates=counts.get(Status.DUPLICATE.value, 0),
                no_child=counts.get(NO_CHILD, 0),
                problem=faults.get(task, ""),
                library_problem=library_problem,
            )
        )
    return found


def standings(folder: Path) -> dict[str, tuple[Standing, str]]:
    """How each task's best kernel stands, by task, and why its library was not timed where that is known."""
    lacks = _lacks(folder)
    timings, library = (
        _rows_by(folder, "evaluation_id", f"select t.* from {name} t join best using (evaluation_id)")
        for name in ("timings", "library_timings")
    )
    found = {}
    for row in query(folder, "select * from best").to_pylist():
        key, task = row["evaluation_id"], row["task"]
        made = standing(row, timings.get(key, ()), library.get(key, ()))
        found[task] = made, lacks.get(key, "")
    return found


def standing(
    best: Mapping[str, Any],
    timings: Sequence[Mapping[str, Any]],
    library: Sequence[Mapping[str, Any]] = (),
) -> Standing:
    """The standing that a row of `best` and its evaluation's rows of `timings` and `library_timings` make."""
    best_us = _geomean(row["latency_us"] for row in timings)
    speedup, low, high = _interval(best["log_speedup"], best["log_speedup_se"])
    known: dict[str, Any] = {}
    if ratio := _mean(library):
        against, against_low, against_high = _interval(*ratio)
        known = {
            "library_us": best_us and best_us * against, "against_library": against,
            "against_library_low": against_low, "against_library_high": against_high,
            "library": named({
                row["workload"]: called(row["library"], composed=bool(row.get("composed")))
                for row in library if row.get("library")
            }),
            "library_composed": bool(library) and all(row.get("composed") for row in library),
            "library_partly_composed": len({bool(row.get("composed")) for row in library}) > 1,
        }  # fmt: skip
    return Standing(
        kernel_id=best["kernel_id"],
        level=best["level"],
        flagged=best.get("flagged") or "",
        baseline_us=best_us and best_us * speedup,
        best_us=best_us,
        speedup=speedup,
        speedup_low=low,
        speedup_high=high,
        **known,
    )


def problems(folder: Path) -> dict[str, str]:
    """Why tasks could not go on in the latest session, by task."""
    rows = query(
        folder,
        f"""
        select task, arg_max(detail_json, rowid) as detail_json from events
        where kind = '{TASK_FAILED}'
          and rowid > (select coalesce(max(rowid), -1) from events where kind = 'session')
        group by task
        """,
    ).to_pylist()
    return {row["task"]: json.loads(row["detail_json"])["reason"] for row in rows}


def _lacks(folder: Path) -> dict[str, str]:
    """Why a library was not timed, by the id of the best kernel's evaluation."""
    rows = query(folder, f"select detail_json from events where kind = '{NO_LIBRARY}'").to_pylist()
    details = [json.loads(row["detail_json"]) for row in rows]
    return {detail["evaluation_id"]: detail["reason"] for detail in details}


def _statuses(folder: Path) -> dict[str, dict[str, int]]:
    """By task, how many requests ended in which status, the most frequent first."""
    sql = "select task, status, count(*) as n from tells group by task, status order by n desc, status"
    found: dict[str, dict[str, int]] = {}
    for row in query(folder, sql).to_pylist():
        found.setdefault(row["task"], {})[row["status"]] = row["n"]
    return found


def _rows_by(folder: Path, column: str, sql: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of a query, by what stands in one of its columns: one look into the store, however many tasks."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in query(folder, sql).to_pylist():
        found.setdefault(row[column], []).append(row)
    return found


def _mean(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float] | None:
    """The mean of the workloads' log ratios, and its standard error."""
    if not rows:
        return None
    count = len(rows)
    return sum(r["log_ratio"] for r in rows) / count, math.sqrt(sum(r["log_ratio_se"] ** 2 for r in rows)) / count


def _geomean(values: Iterable[float]) -> float | None:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else None


def _interval(log: float, se: float) -> tuple[float, float, float]:
    return math.exp(log), math.exp(log - Z95 * se), math.exp(log + Z95 * se)
