"""Runs as objects: queries to one or several, and of one its best kernels, their lineage, and all about a kernel."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, fields
from datetime import datetime
from difflib import unified_diff
from functools import cached_property
from html import escape
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

import pyarrow as pa
import pyarrow.compute as pc

from evo.rows import LIBRARY_TIMING, kernel_from, profile_with
from evo.store import Connection, Limits, answer, has_writer, opened, query
from evo.store.named import named_query
from evo.store.reads import own_query
from fitness import words
from fitness.evaluation import CheckError, LibraryTiming, Timing
from fitness.install import pip
from fitness.profiling.profiles import Profile
from fitness.words import gain, in_words, interval, ratio, standing
from operators.errors import UserError, unknown
from operators.identity import short
from operators.plan.defaults import with_defaults
from operators.plan.header import read_header

if TYPE_CHECKING:
    import pandas
    import polars

    from evo.charts.plots import Plots


Row = dict[str, Any]
Key = tuple[str, str]
"""Task and id of a kernel."""
Made = TypeVar("Made")


@dataclass(frozen=True)
class Verdict:
    """The verdict on a kernel that counts; figures are None unless it is correct."""

    status: str
    level: str
    """screen, full or confirmed; only the last one is reported as a result."""
    flagged: str | None
    """Suspicions about the kernel, which is legal, in words; None: none."""
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
    timings: tuple[Timing, ...] = field(default=(), repr=False)
    """Per workload, in pairs with its anchor."""
    library_timings: tuple[LibraryTiming, ...] = field(default=(), repr=False)
    """Per workload, in pairs with the vendor's library as the anchor; of confirmed kernels."""
    errors: tuple[CheckError, ...] = field(default=(), repr=False)
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
    """The values of its tunables; with them as defaults it is `text`."""
    origin: Ancestor | None
    """Its origin; None for a draft that was never handed in."""
    verdict: Verdict | None
    profile: Profile | None
    diff: str
    """Difference to the principal parent, unified, tunables included; empty where it has none."""

    def __repr__(self) -> str:
        return f"<kernel {short(self.id)} of {self.task}: {verdict_words(self.verdict)}>"

    def _repr_html_(self) -> str:
        return (
            f"<details><summary>kernel <code>{short(self.id)}</code> of {escape(self.task)}: "
            f"{escape(verdict_words(self.verdict))}</summary><pre>{escape(self.text)}</pre></details>"
        )

    @property
    def text(self) -> str:
        """The file with the kernel's own tunables as defaults: what there is to take away."""
        return with_defaults(self.source, self.values)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """The header as a table: launches, buffers, tunables. It raises PlanError where it cannot be read."""
        return dict(read_header(self.source).table)


def verdict_words(found: Verdict | Ancestor | None) -> str:
    """Return the speedup of a kernel in words, or why it has none; what is not confirmed says so."""
    if found is None or found.status is None:
        return "not judged"
    if found.speedup is None:
        return in_words(found.status)
    return gain(found.speedup, found.speedup_low, found.speedup_high, found.level, found.flagged)


def _found(run: Run, prefix: str, task: str) -> tuple[str, str]:
    """The task and the id of the kernel whose id is, or alone begins with, `prefix`.

    Where it belongs to several tasks, the first one that begins with `task` counts. It raises UserError where there is
    no single kernel.
    """
    rows = run.rows("kernels.like", prefix=prefix)
    if len(rows) != 1 and not (rows and rows[0]["kernel_id"] == prefix):
        hint = "give more of its digits" if rows else "the lineage lists ids"
        raise UserError(f"{'more than one' if rows else 'no'} kernel's id begins with {prefix}: {hint}")
    kernel_id = rows[0]["kernel_id"]
    rows = run.rows("kernels.tasks", kernel=kernel_id, task=task)
    if not rows:
        raise UserError(
            f"kernel {short(kernel_id)} belongs to no task that begins with {task}; the run has {', '.join(run.tasks)}"
        )
    return rows[0]["task"], kernel_id


def _stored(run: Run, keys: Iterable[Key]) -> dict[Key, StoredKernel]:
    """All about kernels, by task and id; those whose files the run does not hold are left out."""
    keys = list(keys)
    ids = [kernel_id for _, kernel_id in keys]
    born, profiles, metrics = (
        _by_key(run.rows(name, kernels=ids)) for name in ("kernels.born", "kernels.profiles", "kernels.metrics")
    )
    verdicts = _verdicts(run, ids)
    parents = {key: row["parents"][0] for key, (row, *_) in born.items() if row["parents"]}
    files = {row["kernel_id"]: row for row in run.rows("kernels.files", kernels=[*ids, *parents.values()])}
    found = {}
    for key in keys:
        if file := files.get(key[1]):
            before = files.get(parents.get(key, ""))  # None where it is of another run
            kernel, verdict = kernel_from(file), verdicts.get(key)
            found[key] = StoredKernel(
                *key, kernel.operator, kernel.target, kernel.source, dict(kernel.values),
                _origin(born[key][0], verdict) if key in born else None, verdict,
                _profile(profiles.get(key, []), metrics.get(key, [])), _diff(before, file) if before else "",
            )  # fmt: skip
    return found


def _by_key(rows: Iterable[Row]) -> dict[Key, list[Row]]:
    found: dict[Key, list[Row]] = {}
    for row in rows:
        found.setdefault((row["task"], row["kernel_id"]), []).append(row)
    return found


def _origin(born: Row, verdict: Verdict | None) -> Ancestor:
    """The individual; the view lineage would work its verdict out once more."""
    names = ("status", "level", "flagged", "speedup", "speedup_low", "speedup_high")
    return _ancestor({name: getattr(verdict, name, None) for name in names} | born)


def _verdicts(run: Run, ids: Sequence[str]) -> dict[Key, Verdict]:
    rows = run.rows("kernels.verdicts", kernels=ids)
    evaluations = [row["evaluation_id"] for row in rows]
    measured = {row["evaluation_id"]: row for row in run.rows("kernels.measured", evaluations=evaluations)}
    return {(row["task"], row["kernel_id"]): _verdict(row, measured[row["evaluation_id"]]) for row in rows}


def _verdict(row: Row, measured: Row) -> Verdict:
    return _made(
        Verdict, row, message=row["message"] or "",
        timings=tuple(_made(Timing, each) for each in measured["timings"] or ()),
        library_timings=tuple(map(LIBRARY_TIMING.item, measured["library_timings"] or ())),
        errors=tuple(_made(CheckError, each) for each in measured["errors"] or ()),
    )  # fmt: skip


def _profile(rows: Sequence[Row], metrics: Sequence[Row]) -> Profile | None:
    if not rows and not metrics:
        return None
    known: Row = rows[0] if rows else {"bottleneck": None, "notes_json": "[]", "worker": None, "seconds": 0.0}
    return profile_with(known, metrics)


def _diff(before: Row, row: Row) -> str:
    old, new = (with_defaults(each["source"], json.loads(each["values_json"])) for each in (before, row))
    name, other = (short(each["kernel_id"]) for each in (before, row))
    return "\n".join(unified_diff(old.splitlines(), new.splitlines(), name, other, lineterm=""))


def _ancestor(row: Mapping[str, Any]) -> Ancestor:
    return _made(Ancestor, row, parents=tuple(row["parents"]), description=row["description"] or "")


def _made(kind: type[Made], row: Mapping[str, Any], **more: Any) -> Made:
    """An object of a dataclass from those columns of a row that are its fields."""
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in row.items() if name in known} | more)


def principal_chain(found: Sequence[Ancestor], wanted: tuple[str, str]) -> list[Ancestor]:
    """The part of a lineage along principal parents of the kernel that is `wanted`, the first one first."""
    known, chain = {(each.task, each.kernel_id): each for each in found}, []
    while each := known.pop(wanted, None):
        chain.append(each)
        wanted = each.source_task or each.task, next(iter(each.parents), "")
    return chain[::-1]


Form = Literal["arrow", "pandas", "polars"]
FORMS = ("arrow", "pandas", "polars")
DAY_NS = 24 * 3600 * 10**9


def check_form(to: str) -> None:
    """Raise UserError for a form that there is not, or whose library is not installed."""
    if to not in FORMS:
        raise UserError(f"to: {unknown('form', to, FORMS)}")
    if to != "arrow" and find_spec(to) is None:
        raise UserError(f"to={to!r} needs the package {to}: {pip('install', to)}")


def as_form(table: pa.Table, to: str) -> Any:
    """Return the table as it is, or a data frame of its `counted` columns. It raises UserError."""
    if to == "arrow":
        return table
    table = counted(table)
    if to == "pandas":
        return table.to_pandas()
    import polars

    return polars.from_arrow(table)


def counted(table: pa.Table) -> pa.Table:
    """Return a table whose numbers and times data frames can count with.

    A sum of integers, which DuckDB makes a HUGEINT and Arrow a decimal, becomes int64 where that holds it, any other
    decimal float64; a difference of times, an interval, becomes a duration. It raises UserError for an interval of
    months, which has no length, and for one of more nanoseconds than durations hold, 292 years.
    """
    columns = [_column(name, table.column(i)) for i, name in enumerate(table.column_names)]
    return pa.table(columns, names=table.column_names) if columns else table


def _column(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_decimal(column.type):
        if column.type.scale == 0:
            try:
                return pc.cast(column, pa.int64())
            except pa.ArrowInvalid:  # it does not fit
                pass
        return pc.cast(column, pa.float64())
    if column.type == pa.month_day_nano_interval():
        values = [None if value is None else _nanoseconds(name, value) for value in column.to_pylist()]
        try:
            return pa.chunked_array([pa.array(values, pa.duration("ns"))])
        except OverflowError:
            raise UserError(f"column {name} holds intervals of more than 292 years; count days instead") from None
    return column


def _nanoseconds(name: str, interval: pa.MonthDayNano) -> int:
    months, days, nanoseconds = interval
    if months:
        raise UserError(f"column {name} holds intervals of months, which have no length; count days instead")
    return int(days * DAY_NS + nanoseconds)


__all__ = ["Ancestor", "Run", "RunList", "Several", "StoredKernel", "Verdict"]

Params = Mapping[str, Any]
ANSWER_BYTES = 2**30
"""The largest answer of a user's query, in bytes."""
READ_S = 300.0
"""Most seconds of one of the engine's own queries."""


class Several:
    """Runs that are asked together: every relation begins with the columns run, arm and seed."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """`folders` are those of runs."""
        if not folders:
            raise UserError("no run was named")
        self.folders = tuple(folders)
        self._where: Path | tuple[Path, ...] = self.folders
        self._held: ExitStack | None = None
        self._ready: Callable[[str], Connection] | None = None

    def __enter__(self) -> Self:
        if self._held:
            raise UserError(
                f"run {', '.join(folder.name for folder in self.folders)} is in a `with` already; open it once more"
            )
        with ExitStack() as held:
            self._ready = held.enter_context(opened(self._where))
            self._held = held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held, self._held, self._ready = self._held, None, None
        if held:
            held.close()

    if TYPE_CHECKING:  # overloads are kept for ever, and duckdb complains of what is left when a program ends

        @overload
        def sql(self, sql: str, params: Params | None = None, *, timeout_s: float = 300.0) -> pa.Table: ...
        @overload
        def sql(
            self, sql: str, params: Params | None = None, *, to: Literal["pandas"], timeout_s: float = 300.0
        ) -> pandas.DataFrame: ...
        @overload
        def sql(
            self, sql: str, params: Params | None = None, *, to: Literal["polars"], timeout_s: float = 300.0
        ) -> polars.DataFrame: ...
        @overload
        def sql(self, sql: str, params: Params | None = None, *, to: Form, timeout_s: float = 300.0) -> Any: ...

    def sql(self, sql: str, params: Params | None = None, *, to: Form = "arrow", timeout_s: float = 300.0) -> Any:
        """The answer to one query: an Arrow table, or a data frame of pandas or polars where that is installed, whose
        sums are integers and whose differences of times are durations (`evo.api.counted`).

        `params` are bound to `$name` in it. It raises UserError for anything but a query, after `timeout_s`, and for
        an answer of more than 1 GiB.
        """
        check_form(to)
        return as_form(self._table(sql, params or {}, timeout_s), to)

    def query(self, name: str, *, to: Form = "arrow", timeout_s: float = 300.0, **params: str) -> Any:
        """The answer to a named query (`evo sql --query` lists them), with its parameters by name; as `sql`."""
        known = named_query(name)
        check_form(to)
        sql = known.text(several=self._several)
        return as_form(self._table(sql, known.bound(params), timeout_s), to)

    def rows(self, name: str, **params: Any) -> list[Row]:
        """The rows that answer one of the engine's own queries, with its parameters by name; see `evo.store.reads`."""
        found: list[Row] = self._table(own_query(name), params, READ_S, sys.maxsize).to_pylist()
        return found

    _several = True

    def _table(self, sql: str, params: Params, timeout_s: float, max_bytes: int = ANSWER_BYTES) -> pa.Table:
        if self._ready is None:
            return query(self._where, sql, params=params, max_bytes=max_bytes, timeout_s=timeout_s)
        return answer(self._ready(sql), sql, Limits(sys.maxsize, timeout_s, max_bytes), params).table


def as_html(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table for notebooks."""
    head, *body = (
        "<tr>" + "".join(f"<{tag}>{escape(str(value))}</{tag}>" for value in row) + "</tr>"
        for tag, row in [("th", names), *(("td", row) for row in rows)]
    )
    return f"<table><thead>{head}</thead><tbody>{''.join(body)}</tbody></table>"


class Run(Several):
    """One run, which a search may be writing.

    Every call reads the run as it then is, and holds nothing afterwards; while a search goes on that is a snapshot, two
    seconds old at most, or older where making one takes the writer long. As a context manager it keeps one state from
    beginning to end, so that answers agree with each other, and `evo resume` waits for that end. Its methods may be
    called from any thread; in a `with` from one at a time.
    """

    _several = False

    def __init__(self, folder: Path) -> None:
        """`folder` is the run's."""
        super().__init__([folder])
        self.folder = folder
        self._where = folder

    def __repr__(self) -> str:
        return f"evo.open({str(self.folder)!r})"

    def _repr_html_(self) -> str:
        names = ("task", "best", "certain", "estimate", "95 %", "verdict")
        rows = [
            (
                row["task"], short(row["kernel_id"] or "-"), ratio(row["best_speedup"]), ratio(row["speedup"]),
                interval(row["speedup_low"], row["speedup_high"]), standing(row["level"], row["flagged"]),
            )
            for row in self.rows("api.standings")
        ]  # fmt: skip
        state = "running" if self.is_running else "not running"
        return f"<p>run <code>{escape(str(self.folder))}</code>, {state}</p>{as_html(names, rows)}"

    @property
    def plot(self) -> Plots:
        """Its charts: `progress()`, `individuals()`, `lineage(kernel)`, `archive()`, `roofline()`."""
        from evo.charts.plots import Plots

        return Plots(self)

    @property
    def id(self) -> str:
        """The name of its folder, or of the file."""
        return self.folder.stem if self.folder.is_file() else self.folder.name

    @property
    def is_running(self) -> bool:
        """Whether a search is writing it now."""
        return self.folder.is_dir() and has_writer(self.folder)

    @property
    def config(self) -> dict[str, Any]:
        """Every setting of the run; empty where it was stopped before it began."""
        row = self.row
        return dict(json.loads(row["config_json"])) if row else {}

    @property
    def row(self) -> Row:
        """The row of the table `runs`; empty where the run was stopped before it began."""
        return next(iter(self.rows("runs.run")), {})

    @property
    def tasks(self) -> list[str]:
        """The tasks, `operator/dtype/target`, that it was asked for; those that were begun first, in that order."""
        return [row["task"] for row in self.rows("runs.tasks")]

    def best(self, task: str = "") -> list[StoredKernel]:
        """The best kernel of each task, or of those that begin with `task`; what is not confirmed counts with the
        lower end of its interval."""
        with self._one_state() as run:
            return [*_stored(run, _by_key(run.rows("kernels.best", task=task))).values()]

    def lineage(self, kernel: str, task: str = "", *, principal: bool = False) -> list[Ancestor]:
        """A kernel and all its ancestors, parents before children, or (`principal`) those along principal parents.

        `kernel` is an id or its beginning. It raises UserError where there is no single one.
        """
        with self._one_state() as run:
            task, kernel = _found(run, kernel, task)
            found = [_ancestor(row) for row in run.rows("kernels.ancestors", task=task, kernel=kernel)]
            return principal_chain(found, (task, kernel)) if principal else found

    def kernel(self, kernel: str, task: str = "") -> StoredKernel:
        """All about a kernel; `kernel` is an id or its beginning. It raises UserError where there is no single one.

        Where a kernel belongs to several tasks, the first one that begins with `task` counts.
        """
        with self._one_state() as run:
            key = _found(run, kernel, task)
            return _stored(run, [key])[key]

    def kernels(self, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], StoredKernel]:
        """All about those of these kernels, by task and id, that the run proposed or judged in their tasks."""
        with self._one_state() as run:
            found = _stored(run, keys)
            return {key: kernel for key, kernel in found.items() if kernel.origin or kernel.verdict}

    def _one_state(self) -> AbstractContextManager[Run]:
        """The run, opened to answer several questions about one state of it."""
        return nullcontext(self) if self._ready else Run(self.folder)


class RunList(list[Run]):
    """The runs in a folder, the oldest first."""

    def __init__(self, folder: Path, runs: Iterable[Run]) -> None:
        """`folder` is the one that was looked at."""
        super().__init__(runs)
        self.folder = folder

    def __repr__(self) -> str:
        newest = ", ".join(run.id for run in self[-3:])
        return f"<{words.counted(len(self), 'run')} in {self.folder.absolute()}: {newest or 'none'}>"

    def _repr_html_(self) -> str:
        rows = [(place, run.id, "running" if run.is_running else "") for place, run in enumerate(self)]
        head = f"{words.counted(len(self), 'run')} in {self.folder.absolute()}"
        return f"<p>{escape(head)}</p>{as_html(('', 'run', ''), rows)}"
