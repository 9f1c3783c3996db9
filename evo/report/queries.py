"""Questions to a run's store that the command line asks."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evo.individual import new_programs
from evo.store import query
from fitness.evaluation import Status

Z95 = 1.96


@dataclass(frozen=True)
class TaskSummary:
    """One line of the table a run ends with."""

    task: str
    baseline_us: float | None
    """Geometric mean over the workloads."""
    best_us: float | None
    speedup: float | None
    speedup_low: float | None
    """Of the 95 % interval."""
    speedup_high: float | None
    against_library: float | None
    """Library time / best time, geometric mean; None where there is no library call."""
    against_library_low: float | None
    against_library_high: float | None
    level: str | None
    kernel_id: str | None
    candidates: int
    """Programs that were new, of whatever fate."""
    duplicates: int
    """Programs that were known already, as source or as machine code."""
    failures: dict[str, int] = field(default_factory=dict)
    """By status; correct kernels and duplicates are no failures."""


@dataclass(frozen=True)
class Spending:
    """What the language models of a run were asked and paid, all of them together."""

    calls: int
    failed: int
    tokens_in: int
    tokens_out: int
    cost_usd: float
    lost_tokens: int
    """Upper bound of what attempts whose end nobody knows were billed besides; counts against the budget."""
    lost_usd: float


def spending(folder: Path) -> Spending | None:
    """None where no language model was called."""
    (row,) = query(
        folder,
        """
        select coalesce(sum(calls), 0) as calls, sum(failed_calls) as failed, sum(tokens_in) as tokens_in,
               sum(tokens_out) as tokens_out, sum(cost_usd) as cost_usd, sum(lost_tokens) as lost_tokens,
               sum(lost_usd) as lost_usd
        from cost
        """,
    ).to_pylist()
    if not row["calls"]:
        return None
    return Spending(**{name: value if name.endswith("usd") else int(value) for name, value in row.items()})


def summary(folder: Path) -> list[TaskSummary]:
    """Every task of the run, in the order of its configuration."""
    tasks = query(folder, "select task, min(seq) as first from asks group by task order by first").to_pylist()
    best = {row["task"]: row for row in query(folder, "select * from best").to_pylist()}
    return [_task_summary(folder, row["task"], best.get(row["task"])) for row in tasks]


def _task_summary(folder: Path, task: str, best: dict[str, Any] | None) -> TaskSummary:
    told = query(
        folder, f"select status, count(*) as n from tells where task = {quoted(task)} group by status"
    ).to_pylist()
    counts = {row["status"]: row["n"] for row in told}
    failures = {s: n for s, n in sorted(counts.items()) if s not in ("correct", "duplicate", "slower")}
    references = query(folder, f"select * from baselines where task = {quoted(task)}").to_pylist()
    baseline_us = _geomean([r["latency_us"] for r in references if r["kind"] == "baseline"])
    library = [r for r in references if r["kind"] == "library"]
    values: dict[str, Any] = dict.fromkeys(
        ("best_us", "speedup", "speedup_low", "speedup_high", "against_library", "against_library_low",
         "against_library_high", "level", "kernel_id")
    )  # fmt: skip
    if best:
        log, se = best["log_speedup"], best["log_speedup_se"]
        values |= {"level": best["level"], "kernel_id": best["kernel_id"]}
        values |= dict(zip(("speedup", "speedup_low", "speedup_high"), _interval(log, se), strict=True))
        if library:
            library_log = sum(r["log_ratio_to_baseline"] for r in library) / len(library)
            library_se = math.sqrt(sum(r["log_ratio_se"] ** 2 for r in library)) / len(library)
            names = ("against_library", "against_library_low", "against_library_high")
            values |= dict(zip(names, _interval(log - library_log, math.hypot(se, library_se)), strict=True))
        timings = query(
            folder, f"select * from timings where evaluation_id = {quoted(best['evaluation_id'])}"
        ).to_pylist()
        values["best_us"] = _geomean([t["latency_us"] for t in timings])
        baseline_us = baseline_us or _geomean([t["anchor_latency_us"] for t in timings])
    return TaskSummary(
        task=task,
        baseline_us=baseline_us,
        candidates=new_programs(counts),
        duplicates=counts.get(Status.DUPLICATE.value, 0),
        failures=failures,
        **values,
    )


def ancestry(folder: Path, kernel_id: str) -> list[dict[str, Any]]:
    """The chain of principal parents, the oldest first."""
    chain: list[dict[str, Any]] = query(
        folder,
        f"""
        with recursive chain(request_id, kernel_id, depth) as (
            select request_id, kernel_id, 0 from (
                select request_id, kernel_id from tells where kernel_id = {quoted(kernel_id)} order by seq limit 1
            )
            union all
            select t.request_id, t.kernel_id, c.depth + 1
            from chain c
            join parents p on p.request_id = c.request_id and p.position = 0
            join (
                select kernel_id, arg_min(request_id, seq) as request_id from tells
                where kernel_id is not null group by kernel_id
            ) t on t.kernel_id = p.parent_id
        )
        select c.depth, c.kernel_id, c.request_id, r.mutator, r.description, e.status, e.level,
               exp(e.log_speedup) as speedup
        from chain c
        join proposals r using (request_id)
        left join tells t using (request_id)
        left join evaluations e on e.evaluation_id = t.evaluation_id
        order by c.depth desc
        """,
    ).to_pylist()
    return chain


def kernel(folder: Path, prefix: str) -> dict[str, Any] | None:
    """The stored kernel whose id begins so; None if there is none or more than one."""
    rows = query(folder, f"select * from kernels where starts_with(kernel_id, {quoted(prefix)}) limit 2").to_pylist()
    return rows[0] if len(rows) == 1 else None


def best_kernels(folder: Path) -> list[dict[str, Any]]:
    """The best kernel of every task, with its source and tunables."""
    rows: list[dict[str, Any]] = query(
        folder,
        "select b.*, k.source, k.values_json, k.target from best b join kernels k using (kernel_id) order by task",
    ).to_pylist()
    for row in rows:
        row["values"] = json.loads(row.pop("values_json"))
    return rows


def quoted(text: str) -> str:
    """A SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def _geomean(values: list[float]) -> float | None:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def _interval(log: float, se: float) -> tuple[float, float, float]:
    return math.exp(log), math.exp(log - Z95 * se), math.exp(log + Z95 * se)
