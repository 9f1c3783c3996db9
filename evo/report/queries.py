"""Questions to a run's store that the command line asks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evo.store import query


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


def ancestry(folder: Path, task: str, kernel_id: str, *, principal: bool = False) -> list[dict[str, Any]]:
    """A kernel and all its ancestors, or (`principal`) those along principal parents; parents before children."""
    found: list[dict[str, Any]] = query(
        folder,
        "select generation, kernel_id, parents, mutator, description, status, level, speedup"
        f" from ancestors({quoted(task)}, {quoted(kernel_id)}) order by generation, created_at",
    ).to_pylist()
    if not principal:
        return found
    known, wanted, chain = {row["kernel_id"]: row for row in found}, kernel_id, []
    while row := known.pop(wanted, None):
        chain.append(row)
        wanted = next(iter(row["parents"]), "")
    return chain[::-1]


def tasks_of(folder: Path, kernel_id: str) -> list[str]:
    """The tasks that a kernel was proposed in, in their order."""
    rows = query(folder, f"select task from individuals where kernel_id = {quoted(kernel_id)} order by created_at")
    tasks: list[str] = rows.column("task").to_pylist()
    return tasks


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
