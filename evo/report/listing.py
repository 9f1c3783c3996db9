"""Runs as rows: when they began, what of, how they are, what they found and used."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evo.folders import DATABASE
from evo.report.fitted import Field, Fitted
from evo.report.health import settings, state_of
from evo.report.terminal import times, tokens
from evo.report.words import duration
from evo.store import query
from operators.errors import UserError

UNREADABLE = "unreadable"
NAMED = 3
"""Operators that a row names."""
SQL = """
    with sessions as (
        select epoch(created_at) as began, lead(epoch(created_at), 1, 'infinity'::double) over (order by rowid) as next
        from events where kind = 'session'
    ),
    signs as (
        select epoch(created_at) as at from events
        union all select epoch(created_at) from asks
        union all select epoch(created_at) from tells
    ),
    lasting as (
        select max(s.at) - e.began as wall_s
        from sessions as e join signs as s on s.at >= e.began and s.at < e.next
        group by e.began
    )
    select
        (select strftime(min(created_at) at time zone 'UTC', '%Y-%m-%dT%H:%M:%SZ') from runs) as began,
        (select config_json from runs limit 1) as config_json,
        (select list(distinct task) from asks) as tasks,
        (select count(*) from best where log_speedup > 0 and level = 'confirmed') as improved,
        (select max(speedup) from best) as speedup,
        (select arg_max(task, speedup) from best) as best_task,
        (select coalesce(sum(wall_s), 0) from lasting) as wall_s,
        (select coalesce(sum(evaluations), 0) from used) as evaluations,
        (select coalesce(sum(tokens_in + tokens_out), 0) from used) as tokens,
        (select coalesce(sum(cost_usd), 0) from used) as cost_usd
"""


KINDS = ("wall_s", "evaluations", "tokens", "cost_usd")
"""Of what a run uses."""


def runs_in(runs: Path) -> list[dict[str, Any]]:
    """A row for each run and replay in the folder, the oldest first; of one that cannot be read, its name and why."""
    return [_row(path.parent) for path in sorted(runs.glob(f"*/{DATABASE}"))]


def _row(folder: Path) -> dict[str, Any]:
    try:
        state, reason = state_of(folder)
        (row,) = query(folder, SQL).to_pylist()
        budget = settings(row.pop("config_json")).get("budget", {})
    except UserError as error:
        return {"run": folder.name, "state": UNREADABLE, "reason": str(error)}
    row["tasks"] = sorted(row["tasks"] or [])
    rest = {name: value for name, value in row.items() if name not in KINDS}
    return {"run": folder.name, "state": state, "reason": reason, **rest, "used": spent(row), "budget": budget}


def spent(row: Mapping[str, Any]) -> dict[str, float]:
    """What a run used, by kind, of the answer to `SQL`."""
    return {kind: float(row[kind]) for kind in KINDS}


def runs_table(rows: Sequence[Mapping[str, Any]]) -> Fitted:
    """These rows for people."""
    fields = (
        Field("began (UTC)", "id", rank=2), Field("run", "name"), Field("tasks", "words", rank=1),
        Field("state", "words"), Field("best"), Field("of", "name", rank=4), Field("used", "words", rank=3),
    )  # fmt: skip
    return Fitted(fields, [_cells(row) for row in rows])


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    if row["state"] == UNREADABLE:
        return "", row["run"], "", f"{UNREADABLE}: {row['reason']}", "-", "", ""
    began = (row["began"] or "")[:16].replace("T", " ")
    return (
        began, row["run"], _tasks(row["tasks"]), row["state"], times(row["speedup"]), row["best_task"] or "",
        used(row["used"], row["budget"]),
    )  # fmt: skip


def _tasks(tasks: Sequence[str]) -> str:
    names = list(dict.fromkeys(task.partition("/")[0] for task in tasks))
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    several = f"{len(tasks)} tasks: " if len(tasks) > 1 else ""
    return f"{several}{', '.join(names[:NAMED])}{more}"


def used(spent: Mapping[str, float], limits: Mapping[str, float]) -> str:
    """What a run used, of each limit that it has: `26 s of 40 s, 6 evals, 0.12 USD`."""
    written: dict[str, Callable[[float], str]] = {
        "wall_s": duration, "evaluations": lambda n: f"{n:.0f} evals", "tokens": tokens,
        "cost_usd": lambda usd: f"{usd:.4g} USD",
    }  # fmt: skip
    parts = []
    for kind, show in written.items():
        amount, limit = spent.get(kind, 0.0), limits.get(kind, math.inf)
        if amount or limit < math.inf:
            parts.append(f"{show(amount)} of {show(limit)}" if limit < math.inf else show(amount))
    return ", ".join(parts)
