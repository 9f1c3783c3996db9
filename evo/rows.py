"""Between the engine's objects and the store's rows: pure functions both ways."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

from evo.individual import UNAVAILABLE, Individual
from fitness.evaluation import CheckError, Evaluation, Level, LibraryTiming, Status, Timing
from fitness.profiling.profiles import Bottleneck, Metric, Profile
from mutators.base import Call, CallStatus, Kind, Message, Proposal, Request, ToolCall
from operators.definition.spec import Task
from operators.kernel import Kernel

Item = TypeVar("Item")
Row = dict[str, Any]


def compact(value: Any) -> str:
    """Return canonical JSON. It raises TypeError for what has no place in it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain)


def moment(seconds: float) -> datetime:
    """Return seconds since the epoch as the store keeps them."""
    return datetime.fromtimestamp(seconds, UTC)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no place in a row")


def _as_is(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


@dataclass(frozen=True)
class FieldColumn:
    """Storage of one field of a dataclass; by default as it is, under its own name."""

    name: str
    """In the table."""
    encode: Callable[[Any], Any] = _as_is
    decode: Callable[[Any], Any] = lambda value: value


class Codec(Generic[Item]):
    """Rows of one dataclass. Fields that `but` names are kept elsewhere; those of `special` in columns of their own."""

    def __init__(self, kind: type[Item], *, but: tuple[str, ...] = (), **special: FieldColumn) -> None:
        self._kind = kind
        named = [field.name for field in fields(kind) if field.name not in but]  # type: ignore[arg-type]
        self._columns = {name: special.get(name, FieldColumn(name)) for name in named}

    def row(self, item: Item) -> Row:
        """Return the item's columns."""
        return {column.name: column.encode(getattr(item, name)) for name, column in self._columns.items()}

    def item(self, row: Mapping[str, Any], **others: Any) -> Item:
        """Return the item of a row, with `others` for the fields that rows of this table do not hold."""
        decoded = {name: column.decode(row[column.name]) for name, column in self._columns.items()}
        return self._kind(**decoded, **others)


class Journal(Protocol):
    """It takes rows and acknowledges them, and answers the engine's own queries; any thread may call its methods."""

    folder: Path
    """The run's folder."""
    waits: Callable[[str, float], bool]
    """Whether batches go on to wait for a disk that has been full for so long, given a reason and seconds. The
    journal's owner sets it; at first nothing is waited for."""
    notes: list[str]
    """Sentences for the user on what was out of the ordinary when it was opened."""

    def commit(self, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Future[None]:
        """It appends rows to several tables in one transaction; batches are committed in the order of the calls.

        The future is done after the commit, and fails, or the call does, with StoreError.
        """
        ...

    def rows(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
        """An Arrow table; it sees every batch committed before the call, blocks, and raises StoreError."""
        ...

    def close(self) -> None:
        """It commits what waits and closes; a second call does nothing."""
        ...


Rows = dict[str, list[Row]]

NO_LIBRARY = "library_not_timed"
"""The event that says why a confirmation has no times of the vendor's library."""
TASK_FAILED = "task_failed"
"""The event that says why a task could not go on in a session."""
FAILED = "failed"
"""The event that says by what fault a session ended."""
WAITS = "waits"
"""The event that says what a search waits for in which nothing moves."""
STAGES = ("build", "verify", "time", "confirm")
MEASURED = ("timings", "library_timings", "errors")
"""Tables with what belongs to one evaluation each, by its id; fields of an evaluation are called the same."""


EVALUATION = Codec(
    Evaluation,
    but=(*MEASURED, "library_lack", "stage_ms"),
    level=FieldColumn("level", decode=Level),
    status=FieldColumn("status", decode=Status),
    inherited=FieldColumn("inherited", decode=lambda text: Status(text) if text else None),
    cell=FieldColumn("cell", "/".join, lambda text: tuple(text.split("/")) if text else ()),
    facts=FieldColumn("facts_json", compact, json.loads),
)
TIMING = Codec(Timing)
LIBRARY_TIMING = Codec(
    LibraryTiming,
    anchor_latency_us=FieldColumn("library_latency_us"),
    library=FieldColumn("library", lambda text: text or None, lambda text: text or ""),
    composed=FieldColumn("composed", decode=bool),
)
"""In the table of these the anchor is the vendor's library."""
ERROR = Codec(CheckError)
CALL = Codec(
    Call,
    messages=FieldColumn(
        "messages_json", lambda messages: messages_json(messages), lambda text: tuple(json.loads(text))
    ),
    status=FieldColumn("status", decode=CallStatus),
    usage_json=FieldColumn("usage_json", lambda text: text or None, lambda text: text or ""),
    usage_doubt=FieldColumn("usage_doubt", decode=lambda text: text or ""),
    author=FieldColumn("author", lambda text: text or None, lambda text: text or ""),
    tool_calls=FieldColumn(
        "tool_calls_json",
        lambda calls: compact([asdict(call) for call in calls]) if calls else None,
        lambda text: tuple(ToolCall(**call) for call in json.loads(text or "[]")),
    ),
    thoughts=FieldColumn(
        "thoughts_json", lambda found: compact(found) if found else None, lambda text: json.loads(text or "{}")
    ),
)


def messages_json(messages: Iterable[Message]) -> str:
    """Return a conversation as it is kept."""
    return compact([dict(message) for message in messages])


def join(*parts: Mapping[str, Sequence[Row]]) -> Rows:
    """Several sets of rows as one."""
    joined: Rows = {}
    for part in parts:
        for table, rows in part.items():
            joined.setdefault(table, []).extend(rows)
    return joined


def ask_rows(requests: Sequence[Request], *, seq: int, wanted: int, at: float) -> Rows:
    """One ask call with its answers; they share `seq`."""
    asks, parents = [], []
    for position, request in enumerate(requests):
        asks.append(
            {
                "seq": seq,
                "position": position,
                "wanted": wanted,
                "task": str(request.task),
                "number": request.number,
                "request_id": request.id,
                "mutator": request.mutator,
                "request_json": request.to_json(),
                "digest": request.digest,
                "created_at": moment(at),
            }
        )
        parents += [
            {"request_id": request.id, "position": place, "parent_id": parent}
            for place, parent in enumerate(request.parents)
        ]
    return {"asks": asks, "parents": parents}


def kernel_row(kernel: Kernel) -> Row:
    return {
        "kernel_id": kernel.id, "source_id": kernel.source_id, "operator": kernel.operator, "target": kernel.target,
        "source": kernel.source, "values_json": compact(kernel.values),
    }  # fmt: skip


def proposal_row(request: Request, proposal: Proposal, *, at: float) -> Row:
    """The row of a proposal; what `placed` adds is known when the request is told."""
    return {
        "request_id": request.id, "task": str(request.task), "number": request.number, "mutator": request.mutator,
        "model": proposal.model, "kernel_id": proposal.kernel.id if proposal.kernel else None,
        "parents": list(_parents(request, proposal)), "description": proposal.description, "failure": proposal.failure,
        "seconds": proposal.seconds, "created_at": moment(at), "kind": request.kind.value, "role": request.role or None,
        "text": proposal.text or None, "evaluate_s": proposal.evaluator_s,
        "metrics_json": None if proposal.metrics is None else compact(proposal.metrics),
        "author": request.params["author"] if request.kind is Kind.GUEST else proposal.author,
        "source_task": request.source_task or None,
    }  # fmt: skip


def _parents(request: Request, proposal: Proposal) -> tuple[str, ...]:
    """The parents that a child was made from: those"""
    return tuple(dict.fromkeys((*proposal.bases, *request.parents)))


def placed(rows: Rows, *, generation: int, is_new: bool) -> Rows:
    """The rows of one request (its proposal, its evaluations, least severe first) with their place in the lineage.

    `is_new`: no request told before had its kernel in its task.
    """
    (proposal,) = rows["proposals"]
    judged = rows.get("evaluations", [])
    spent_ms = sum(row[f"{stage}_ms"] or 0.0 for row in judged for stage in STAGES)
    told = proposal | {
        "generation": generation,
        "is_new": is_new,
        "evaluate_s": proposal["evaluate_s"] + spent_ms / 1e3,
    }
    last = len(judged) - 1
    marked = [row | {"is_verdict": is_new and place == last} for place, row in enumerate(judged)]
    return rows | {"proposals": [told], "evaluations": marked}


def evaluation_rows(evaluation: Evaluation, *, evaluation_id: str, request_id: str | None, at: float) -> Rows:
    """One evaluation with its timings and errors; an event where the vendor's library could not be timed beside it.

    Without a request it is the kernel's verdict from now on.
    """
    e = evaluation
    row = EVALUATION.row(e) | {
        "evaluation_id": evaluation_id, "request_id": request_id, "is_verdict": request_id is None,
        "created_at": moment(at),
    }  # fmt: skip
    row |= {f"{stage}_ms": e.stage_ms.get(stage) for stage in STAGES}
    of = {"evaluation_id": evaluation_id}
    rows: Rows = {
        "evaluations": [row],
        "timings": [of | TIMING.row(t) for t in e.timings],
        "library_timings": [of | LIBRARY_TIMING.row(t) for t in e.library_timings],
        "errors": [of | ERROR.row(c) for c in e.errors],
    }
    if e.library_lack:
        detail = {"evaluation_id": evaluation_id, "reason": e.library_lack}
        rows |= event_rows(NO_LIBRARY, detail, at=at, task=Task.parse(e.task))
    return rows


def evaluation_id(request: Request, level: Level) -> str:
    return f"{request.id}@{level.value}"


def tell_rows(individual: Individual, *, seq: int, at: float) -> Rows:
    """One tell, and the trial it was if it came from tuning."""
    request, kernel, evaluation = individual.request, individual.kernel, individual.evaluation
    kernel_id = kernel.id if kernel else None
    tell = {
        "seq": seq, "task": str(request.task), "number": request.number, "request_id": request.id,
        "kernel_id": kernel_id, "evaluation_id": evaluation_id(request, evaluation.level) if evaluation else None,
        "status": individual.status, "log_speedup": evaluation.log_speedup if evaluation else None,
        "seconds": individual.seconds, "cost_usd": individual.cost_usd, "digest": individual.digest,
        "created_at": moment(at),
    }  # fmt: skip
    if request.kind is not Kind.TRIAL or kernel is None or evaluation is None:
        return {"tells": [tell]}
    trial = {
        "request_id": request.id, "task": str(request.task), "source_id": kernel.source_id, "kernel_id": kernel.id,
        "values_json": compact(kernel.values), "status": individual.status, "log_speedup": evaluation.estimate,
        "created_at": moment(at),
    }  # fmt: skip
    return {"tells": [tell], "trials": [trial]}


def event_rows(kind: str, detail: Mapping[str, Any], *, at: float, task: Task | None = None) -> Rows:
    return {
        "events": [
            {
                "created_at": moment(at),
                "kind": kind,
                "task": str(task) if task else None,
                "detail_json": compact(detail),
            }
        ]
    }


def call_row(call: Call, *, call_id: str, at: float) -> Row:
    """Return the row of a call; `at` is when it ended."""
    return CALL.row(call) | {"call_id": call_id, "created_at": moment(at)}


def profile_rows(
    profile: Profile, evaluation_id: str, task: Task, kernel_id: str, *, failure: str, seconds: float, at: float
) -> Rows:
    """One profile with its figures; `failure` says why there is none, and then `profile` is an empty one."""
    row: Row = {
        "task": str(task), "kernel_id": kernel_id, "evaluation_id": evaluation_id,
        "bottleneck": profile.bottleneck.value if profile.bottleneck else None,
        "notes_json": compact(list(profile.notes)), "failure": failure or None, "seconds": seconds,
        "created_at": moment(at),
    }  # fmt: skip
    metrics = [
        {"task": str(task), "kernel_id": kernel_id, "metric": m.name, "value": m.value, "unit": m.unit or None}
        for m in profile.metrics
    ]
    return {"profiles": [row], "metrics": metrics}


def profile_from(row: Mapping[str, Any]) -> Profile:
    """Return the profile of one row of `PROFILED`."""
    metrics = tuple(Metric(m["name"], m["value"], m["unit"] or "") for m in row["measured"] or ())
    bottleneck = Bottleneck(row["bottleneck"]) if row["bottleneck"] else None
    return Profile(bottleneck, metrics, tuple(json.loads(row["notes_json"])))


_ASKED = "select seq, wanted, task, request_id, request_json, digest from asks a"
ASKED = f"{_ASKED} order by seq, position"
"""Every ask with what it takes to ask it again."""

_TOLD = """
    select
        t.seq, t.task, t.request_id, t.kernel_id, t.status as told, t.digest, t.seconds, t.cost_usd, a.request_json,
        coalesce(p.description, '') as description, coalesce(p.failure, '') as failure, p.text, p.metrics_json,
        coalesce(p.evaluate_s, 0) as evaluate_s,
        k.operator, k.target, k.source, k.values_json, e.* exclude (task, request_id, kernel_id)
    from tells t
    join asks a using (request_id)
    left join kernels k on k.kernel_id = t.kernel_id
    left join evaluations e on e.evaluation_id = t.evaluation_id
    left join proposals p on p.request_id = t.request_id
"""
TOLD = f"{_TOLD} order by t.seq"
"""Every tell with what it takes to make its individual again, but for what was measured."""
TOLD_OF = f"{_TOLD} where t.request_id = ?"
"""The same of one request."""
ANSWERED_CALLS = """
    select * from llm_calls where request_id = ? and status in ('answered', 'cut') order by rowid
"""
"""Calls of one request that brought words, in their order."""


_MEASURED = "select m.* from {} m join tells t using (evaluation_id) {} order by m.rowid"
"""Query for the measurements of those who were told, of one table and some of them."""


def measured_of(read: Callable[[str, list[Any]], list[Row]], evaluation_id: str) -> dict[str, list[Row]]:
    """Return what was measured of one evaluation, by table; `read` answers queries with parameters."""
    sql = "select * from {} where evaluation_id = ? order by rowid"
    return {table: read(sql.format(table), [evaluation_id]) for table in MEASURED}


def _attached(told: list[Row], measured: Callable[[str], list[Row]]) -> list[Row]:
    """The same rows, with what was measured of each; they are not copied, for there may be a million."""
    found: dict[str, dict[str, list[Row]]] = {}
    for table in MEASURED:
        for row in measured(table):
            found.setdefault(row["evaluation_id"], {}).setdefault(table, []).append(row)
    for row in told:
        row.update(found.get(row["evaluation_id"], {}))
    return told


CONFIRMED = """
    select task, kernel_id, case when status = 'correct' then coalesce(confirm_ms, 0) else 0 end as took_ms
    from evaluations where level = 'confirmed'
"""
"""Every kernel that a confirmation looked at, and how long it took if it was passed."""
JUDGED = """
    select
        coalesce(sum(seconds), 0) as judging_s,
        coalesce(sum(seconds) filter (level = 'confirmed'), 0) as confirming_s
    from (
        select level, 1e-3 * (coalesce(verify_ms, 0) + coalesce(time_ms, 0) + coalesce(confirm_ms, 0)) as seconds
        from evaluations semi join tells using (request_id)
    )
"""
"""Query for the seconds that evaluators spent on kernels that compiled, and of these on confirmations, for the outcomes
of requests."""
FULL = """
    select task, min(coalesce(verify_ms, 0) + coalesce(time_ms, 0)) as took_ms
    from evaluations where level = 'full' and status = 'correct' group by task
"""
"""By task, how long the shortest full evaluation took that was passed."""


_PROFILED = """
    select p.*, m.measured
    from profiles p
    left join (
        select task, kernel_id, list({'name': metric, 'value': value, 'unit': unit} order by rowid) as measured
        from metrics group by task, kernel_id
    ) m using (task, kernel_id)
"""
PROFILED = f"{_PROFILED} order by p.rowid"
"""Every profile that prompts may hold, with its metrics; older stores have no column `seq`."""


PROFILE_OF = """
    select p.*, m.measured
    from profiles p
    left join (
        select list({'name': metric, 'value': value, 'unit': unit} order by rowid) as measured
        from metrics where task = ? and kernel_id = ?
    ) m on true
    where p.task = ? and p.kernel_id = ?
    order by p.rowid limit 1
"""
"""The same of one kernel; task and kernel id are asked for twice."""


@dataclass(frozen=True)
class Asked:
    """An ask: rows of `ASKED`."""

    rows: list[Row]


@dataclass(frozen=True)
class TellRow:
    """A tell: a row of `TOLD`."""

    row: Row


@dataclass(frozen=True)
class Profiled:
    """A profile from which on prompts knew it: a row of `PROFILED`."""

    row: Row


Entry = Asked | TellRow | Profiled


def history(rows: Callable[[str], list[Row]]) -> list[tuple[int, Entry]]:
    """Return what happened in a run, in that order, each with its place in it; `rows` answers queries to its store."""
    told = _attached(rows(TOLD), lambda table: rows(_MEASURED.format(table, "")))
    return _in_order(rows(ASKED), told, rows(PROFILED))


def history_of(task: Task, store: Journal, *, page: int) -> Iterator[list[tuple[int, Entry]]]:
    """The same of one task, in pages of so many tells or fewer."""
    places = [row["seq"] for row in store.rows(_PLACES, [str(task)]).to_pylist()]
    for bounds in pairwise([-1, *places[page - 1 :: page], MOST_SEQ]):
        yield _between(store, [str(task), *bounds])


def _between(store: Journal, key: list[Any]) -> list[tuple[int, Entry]]:
    """The entries of a task behind one place and up to another."""

    def rows(sql: str) -> list[Row]:
        return cast(list[Row], store.rows(sql, key).to_pylist())

    within = "where {0}.task = ? and coalesce({0}.seq, 0) > ? and coalesce({0}.seq, 0) <= ?".format
    told = rows(f"{_TOLD} {within('t')} order by t.seq")
    told = _attached(told, lambda table: rows(_MEASURED.format(table, within("t"))))
    asked = rows(f"{_ASKED} {within('a')} order by seq, position")
    return _in_order(asked, told, rows(f"{_PROFILED} {within('p')} order by p.rowid"))


_PLACES = "select seq from tells where task = ? order by seq"
MOST_SEQ = 2**62
"""A place in the history behind all that there are."""


def _in_order(asked: list[Row], told: list[Row], profiled: list[Row]) -> list[tuple[int, Entry]]:
    asks: dict[int, list[Row]] = {}
    for row in asked:
        asks.setdefault(row["seq"], []).append(row)
    entries: list[tuple[int, Entry]] = [
        *((row.get("seq") or 0, Profiled(row)) for row in profiled),
        *((seq, Asked(rows)) for seq, rows in asks.items()),
        *((row["seq"], TellRow(row)) for row in told),
    ]
    return sorted(entries, key=lambda entry: entry[0])


def verdicts(rows: Callable[[str], list[Row]]) -> dict[str, list[Row]]:
    """Return the evaluations of each request, least severe first, with what was measured of them."""
    sql = (
        "select * from evaluations where request_id is not null"
        " order by list_position(['screen', 'full', 'confirmed'], level), rowid"
    )
    found: dict[str, list[Row]] = {}
    for row in _attached(rows(sql), lambda table: rows(f"select * from {table} order by rowid")):
        found.setdefault(row["request_id"], []).append(row)
    return found


def measured_evaluation(row: Mapping[str, Any]) -> Evaluation:
    """Return the evaluation of one row, with its lists of what was measured, by table, if it has such."""
    return evaluation_from(row, **{table: row.get(table, ()) for table in MEASURED})


def request_from(row: Mapping[str, Any]) -> Request:
    """Return the request of one row of `ASKED`."""
    return Request.from_json(row["request_json"])


def individual_from(row: Mapping[str, Any]) -> Individual:
    """Return the individual of one row of `TOLD`, with its lists of what was measured, by table, if it has such."""
    return Individual(
        request_from(row),
        kernel_from(row) if row["source"] is not None else None,
        measured_evaluation(row) if row["evaluation_id"] is not None else None,
        row["seconds"],
        row["cost_usd"],
        row["description"],
        row["told"] == UNAVAILABLE,
        row["failure"],
        row.get("text") or "",
        json.loads(row.get("metrics_json") or "{}"),
    )


def kernel_from(row: Mapping[str, Any]) -> Kernel:
    return Kernel(row["operator"], row["target"], row["source"], json.loads(row["values_json"]))


def as_stored(evaluation: Evaluation) -> Evaluation:
    """Return the evaluation as it comes back from the store, so that a resumed run is like any other one."""
    rows = evaluation_rows(evaluation, evaluation_id="", request_id=None, at=0.0)
    return evaluation_from(rows["evaluations"][0], **{table: rows[table] for table in MEASURED})


def evaluation_from(
    row: Mapping[str, Any],
    *,
    timings: Iterable[Mapping[str, Any]] = (),
    library_timings: Iterable[Mapping[str, Any]] = (),
    errors: Iterable[Mapping[str, Any]] = (),
) -> Evaluation:
    """Return the evaluation of one row of `evaluations`, with such rows of the tables `MEASURED` as are given."""
    return EVALUATION.item(
        row,
        timings=tuple(map(TIMING.item, timings)),
        library_timings=tuple(map(LIBRARY_TIMING.item, library_timings)),
        errors=tuple(map(ERROR.item, errors)),
        stage_ms={stage: row[f"{stage}_ms"] for stage in STAGES if row[f"{stage}_ms"] is not None},
    )
