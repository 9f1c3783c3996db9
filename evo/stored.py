"""What a run holds on its kernels, as objects; every function reads by way of one that answers queries."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from difflib import unified_diff
from functools import cached_property
from typing import Any, TypeVar

from evo.rows import LIBRARY_TIMING
from fitness.evaluation import CheckError, LibraryTiming, Timing
from fitness.profiling import Bottleneck, Metric, Profile
from operators.errors import UserError
from operators.plan.defaults import with_defaults
from operators.plan.header import read_header

Row = dict[str, Any]
Read = Callable[[str, Mapping[str, Any]], list[Row]]
"""The rows that answer a query, whose parameters are bound by name."""
Made = TypeVar("Made")


@dataclass(frozen=True)
class Verdict:
    """The verdict on a kernel that counts; figures are None unless it is correct."""

    status: str
    level: str
    """screen, full or confirmed; only the last one is reported as a result."""
    flagged: str | None
    """What is legal and suspicious about the kernel, in words; None: nothing."""
    speedup: float | None
    """Baseline time / kernel time, geometric mean over workloads."""
    speedup_low: float | None
    """Lower end of its 95 % interval."""
    speedup_high: float | None
    log_speedup: float | None
    log_speedup_se: float | None
    message: str
    """Why it failed; empty for a correct kernel."""
    cell: str | None
    """Its behaviour, from build facts."""
    duplicate_of: str | None
    """The kernel that is the same program, and whose verdict this is."""
    judged_at: datetime
    timings: tuple[Timing, ...] = ()
    """Per workload, in pairs with its anchor."""
    library_timings: tuple[LibraryTiming, ...] = ()
    """Per workload, in pairs with the vendor's library as the anchor; of confirmed kernels."""
    errors: tuple[CheckError, ...] = ()
    """Per check, the distance from the fp64 reference."""


@dataclass(frozen=True)
class Ancestor:
    """One individual of a lineage."""

    task: str
    kernel_id: str
    generation: int
    parents: tuple[str, ...]
    """The principal one first; a kernel of `source_task` where that is not None."""
    source_task: str | None
    mutator: str
    model: str | None
    author: str | None
    """The person or agent outside who gave it."""
    description: str
    status: str | None
    """None: no verdict yet."""
    level: str | None
    flagged: str | None
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    created_at: datetime


@dataclass(frozen=True)
class StoredKernel:
    """All that a run holds on a kernel of one task."""

    task: str
    id: str
    operator: str
    target: str
    source: str
    """The whole file as it stands."""
    values: dict[str, int]
    """Of its tunables; with them as defaults it is `text`."""
    origin: Ancestor | None
    """How it came to be; None for a draft that was never handed in."""
    verdict: Verdict | None
    profile: Profile | None
    diff: str
    """To the principal parent, unified, tunables included; empty where it has none."""

    @property
    def text(self) -> str:
        """The file with the kernel's own tunables as defaults: what there is to take away."""
        return with_defaults(self.source, self.values)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """The header as a table: launches, buffers, tunables. It raises PlanError where it cannot be read."""
        return dict(read_header(self.source).table)


def found_kernel(read: Read, prefix: str, task: str) -> tuple[str, str]:
    """The task and the id of the kernel whose id is, or alone begins with, `prefix`.

    Where it belongs to several tasks, the first one that begins with `task` counts. It raises UserError where there is
    no single kernel.
    """
    sql = """
        select kernel_id from kernels where starts_with(kernel_id, $prefix) order by kernel_id <> $prefix limit 2
    """
    rows = read(sql, {"prefix": prefix})
    if len(rows) != 1 and not (rows and rows[0]["kernel_id"] == prefix):
        raise UserError(f"{'more than one' if rows else 'no'} kernel's id begins with {prefix}")
    kernel_id = rows[0]["kernel_id"]
    sql = """
        select task from (
            select task, created_at from individuals where kernel_id = $kernel
            union all
            select task, created_at from tool_calls where kernel_id = $kernel
        ) where starts_with(task, $task) order by created_at limit 1
    """
    rows = read(sql, {"kernel": kernel_id, "task": task})
    if not rows:
        raise UserError(f"kernel {kernel_id[:12]} belongs to no task that begins with {task}; see Run.tasks")
    return rows[0]["task"], kernel_id


def stored_kernel(read: Read, task: str, kernel_id: str) -> StoredKernel:
    """All about a kernel, which must be there."""
    key = {"task": task, "kernel": kernel_id}
    (row,) = read("select * from kernels where kernel_id = $kernel limit 1", {"kernel": kernel_id})
    born = read("select * from individuals where task = $task and kernel_id = $kernel", key)
    verdict = _verdict(read, key)
    judged = {
        name: getattr(verdict, name, None)
        for name in ("status", "level", "flagged", "speedup", "speedup_low", "speedup_high")
    }
    origin = _ancestor({**judged, **born[0]}) if born else None  # the view lineage would work the verdict out once more
    parent = origin.parents[0] if origin and origin.parents else None
    return StoredKernel(
        task, kernel_id, row["operator"], row["target"], row["source"], json.loads(row["values_json"]), origin,
        verdict, _profile(read, key), _diff(read, parent, row) if parent else "",
    )  # fmt: skip


def stored_lineage(read: Read, task: str, kernel_id: str, *, principal: bool) -> list[Ancestor]:
    """A kernel and all its ancestors, or those along principal parents; parents before children."""
    sql = "select * from ancestors($task, $kernel) order by generation, created_at"
    found = [_ancestor(row) for row in read(sql, {"task": task, "kernel": kernel_id})]
    return principal_chain(found, (task, kernel_id)) if principal else found


def _verdict(read: Read, key: Mapping[str, Any]) -> Verdict | None:
    rows = read("select * from verdicts where task = $task and kernel_id = $kernel", key)
    if not rows:
        return None
    evaluation = {"id": rows[0]["evaluation_id"]}
    timings, library, errors = (
        read(f"select * from {table} where evaluation_id = $id order by rowid", evaluation)
        for table in ("timings", "library_timings", "errors")
    )
    return _made(
        Verdict, rows[0], message=rows[0]["message"] or "",
        timings=tuple(_made(Timing, each) for each in timings),
        library_timings=tuple(LIBRARY_TIMING.item(each) for each in library),
        errors=tuple(_made(CheckError, each) for each in errors),
    )  # fmt: skip


def _profile(read: Read, key: Mapping[str, Any]) -> Profile | None:
    sql = "select * from profiles where task = $task and kernel_id = $kernel and failure is null order by rowid"
    rows = read(sql, key)
    metrics = read("select * from metrics where task = $task and kernel_id = $kernel order by rowid", key)
    if not rows and not metrics:
        return None
    known: Row = rows[0] if rows else {"bottleneck": None, "notes_json": "[]"}
    return Profile(
        Bottleneck(known["bottleneck"]) if known["bottleneck"] else None,
        tuple(Metric(each["metric"], each["value"], each["unit"] or "") for each in metrics),
        tuple(json.loads(known["notes_json"])),
    )


def _diff(read: Read, parent: str, row: Row) -> str:
    before = read("select * from kernels where kernel_id = $kernel limit 1", {"kernel": parent})
    if not before:  # of another run
        return ""
    old, new = (with_defaults(each["source"], json.loads(each["values_json"])) for each in (before[0], row))
    lines = unified_diff(old.splitlines(), new.splitlines(), parent[:12], row["kernel_id"][:12], lineterm="")
    return "\n".join(lines)


def _ancestor(row: Mapping[str, Any]) -> Ancestor:
    return _made(Ancestor, row, parents=tuple(row["parents"]), description=row["description"] or "")


def _made(kind: type[Made], row: Mapping[str, Any], **more: Any) -> Made:
    """An object of a dataclass from those columns of a row that are its fields."""
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in row.items() if name in known} | more)


def principal_chain(found: Sequence[Ancestor], wanted: tuple[str, str]) -> list[Ancestor]:
    """Those of a lineage along principal parents of the kernel that is `wanted`, the first one first."""
    known, chain = {(each.task, each.kernel_id): each for each in found}, []
    while each := known.pop(wanted, None):
        chain.append(each)
        wanted = each.source_task or each.task, next(iter(each.parents), "")
    return chain[::-1]
