"""Questions to a run's store that the command line asks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evo.store import query


@dataclass(frozen=True)
class ModelCosts:
    """What the language models of a run were asked and paid, all of them together."""

    calls: int
    failed: int
    tokens_in: int
    tokens_out: int
    cost_usd: float
    lost_tokens: int
    """Upper bound of what attempts without a known end were billed besides; counts against the budget."""
    lost_usd: float
    likely_lost_tokens: int
    """The same, if they took the part of their bound that the model's answered calls took."""
    likely_lost_usd: float
    doubted: int
    """Calls whose provider told a usage that cannot be, or none."""
    out: tuple[Outage, ...]
    """Models that did not answer any more at last."""


@dataclass(frozen=True)
class Outage:
    """A model that was put aside and has not answered since."""

    model: str
    since: str
    """ISO 8601, UTC."""
    error: str


def model_costs(folder: Path) -> ModelCosts | None:
    """What language models have cost a run; None where none was called."""
    models = query(folder, "select * from cost").to_pylist()
    if not models:
        return None

    def total(name: str) -> Any:
        """The sum over the models."""
        return sum(model[name] for model in models)

    return ModelCosts(
        calls=total("calls"),
        failed=total("failed_calls"),
        tokens_in=total("tokens_in"),
        tokens_out=total("tokens_out"),
        cost_usd=total("cost_usd"),
        lost_tokens=total("lost_tokens"),
        lost_usd=total("lost_usd"),
        likely_lost_tokens=total("likely_lost_tokens"),
        likely_lost_usd=total("likely_lost_usd"),
        doubted=total("doubted_calls"),
        out=outages(folder),
    )


def outages(folder: Path) -> tuple[Outage, ...]:
    """Models that were put aside and have not answered since."""
    rows = query(
        folder,
        """
        with events as (
            select created_at, detail_json->>'model' as model, detail_json->>'error' as error
            from events where kind = 'model_out'
        ),
        outs as (
            select model, max(created_at) as since, arg_max(error, created_at) as error from events group by model
        )
        select model, strftime(since at time zone 'UTC', '%Y-%m-%dT%H:%M:%SZ') as since, error
        from outs
        where not exists (
            select 1 from llm_calls as c
            where c.model = outs.model and c.created_at > since and c.status not in ('failed', 'unavailable')
        )
        order by model
        """,
    ).to_pylist()
    return tuple(Outage(**row) for row in rows)


def last_changes(folder: Path) -> dict[str, float]:
    """By task, when its best kernel got the verdict that counts, in seconds since 1970."""
    sql = "select b.task, epoch(e.created_at) as at from best as b join evaluations as e using (evaluation_id)"
    return {row["task"]: row["at"] for row in query(folder, sql).to_pylist()}


def open_questions(folder: Path) -> int:
    """How many questions of a run wait for answers from outside."""
    return int(query(folder, "select count(*) as n from questions").column("n")[0].as_py())


def ancestry(folder: Path, task: str, kernel_id: str, *, principal: bool = False) -> list[dict[str, Any]]:
    """A kernel and all its ancestors, or (`principal`) those along principal parents; parents before children."""
    found: list[dict[str, Any]] = query(
        folder,
        "select task, generation, kernel_id, parents, source_task, mutator, author, description, status, level,"
        " flagged, speedup"
        f" from ancestors({quoted(task)}, {quoted(kernel_id)}) order by generation, created_at",
    ).to_pylist()
    if not principal:
        return found
    known, wanted, chain = {(row["task"], row["kernel_id"]): row for row in found}, (task, kernel_id), []
    while row := known.pop(wanted, None):
        chain.append(row)
        wanted = row["source_task"] or row["task"], next(iter(row["parents"]), "")
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
