"""Between the engine's objects and the store's rows: pure functions both ways, table by table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from evo.individual import UNAVAILABLE, Individual
from fitness.evaluation import Evaluation, Level, LibraryTiming
from fitness.install import versions
from fitness.joint import Pair, Position
from fitness.profiling.profiles import Bottleneck, Metric, Profile
from mutators.base import Call, Kind, Message, Proposal, Request
from operators.definition.spec import Task
from operators.errors import UserError
from operators.identity import is_digest, short
from operators.kernel import Kernel

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Item = TypeVar("Item")
Row = dict[str, Any]
Rows = dict[str, list[Row]]
"""Rows by table."""
Read = Callable[..., list[Row]]
"""Rows of a query of `evo.store.reads`, by its name and its parameters, to the run's store or to a snapshot of it; any
thread may call it."""


def compact(value: Any) -> str:
    """Return canonical JSON. It raises TypeError for what has no place in it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no place in a row")


def moment(seconds: float) -> datetime:
    """Return seconds since the epoch as the store keeps them."""
    return datetime.fromtimestamp(seconds, UTC)


def join(*parts: Mapping[str, Sequence[Row]]) -> Rows:
    """Return several sets of rows as one."""
    joined: Rows = {}
    for part in parts:
        for table, rows in part.items():
            joined.setdefault(table, []).extend(rows)
    return joined


@dataclass(frozen=True)
class FieldColumn:
    """Column of a field that the store keeps in another form, or under another name; pydantic ends the decoding."""

    name: str
    """Name in the table."""
    encode: Callable[[Any], Any] = lambda value: value
    decode: Callable[[Any], Any] = lambda value: value


class Codec(Generic[Item]):
    """Rows of one dataclass: each field is a column, but those that `apart` names, which are kept elsewhere."""

    def __init__(self, kind: type[Item], *, apart: tuple[str, ...] = (), **special: FieldColumn) -> None:
        self._kind, self._apart, self._special = kind, apart, special

    @cached_property
    def _reader(self) -> TypeAdapter[Item]:
        from pydantic import TypeAdapter  # commands that read no such rows need not load it

        return TypeAdapter(self._kind)

    def row(self, item: Item) -> Row:
        """Return the item's columns."""
        row = dict(vars(item))
        for name in self._apart:
            del row[name]
        for name, column in self._special.items():
            row[column.name] = column.encode(row.pop(name))
        return row

    def fields(self, row: Mapping[str, Any]) -> Row:
        """Return the fields of a row, in the form that pydantic takes, among other columns."""
        return {**row, **{name: column.decode(row[column.name]) for name, column in self._special.items()}}

    def item(self, row: Mapping[str, Any], **others: Any) -> Item:
        """Return the item of a row, with `others` for the fields that rows of this table do not hold."""
        return self._reader.validate_python({**self.fields(row), **others})


def _or_null(encode: Callable[[Any], Any] = str) -> Callable[[Any], Any]:
    """Return an encoder that gives NULL for what is empty."""
    return lambda value: encode(value) if value else None


def _optional(name: str) -> FieldColumn:
    """A text whose column is NULL where it is empty."""
    return FieldColumn(name, _or_null(), lambda text: text or "")


# --- requests ---------------------------------------------------------------------------------------------------------


def ask_rows(requests: Sequence[Request], *, seq: int, wanted: int, at: float) -> Rows:
    """Return the rows of one ask call with its answers; they share `seq`."""
    asks = [
        {
            "seq": seq, "position": position, "wanted": wanted, "task": str(request.task), "number": request.number,
            "request_id": request.id, "mutator": request.mutator, "request_json": request.to_json(),
            "digest": request.digest, "created_at": moment(at),
        }
        for position, request in enumerate(requests)
    ]  # fmt: skip
    parents = [
        {"request_id": request.id, "position": place, "parent_id": parent}
        for request in requests
        for place, parent in enumerate(request.parents)
    ]
    migrations = [
        {"task": str(request.task), "number": request.number, "created_at": moment(at)} | vars(migration)
        for request in requests
        for migration in request.migrations
    ]
    return {"asks": asks, "parents": parents, "migrations": migrations}


def request_from(row: Mapping[str, Any]) -> Request:
    """Return the request of one row of `history.asked`."""
    return Request.from_json(row["request_json"])


# --- kernels and proposals --------------------------------------------------------------------------------------------


def kernel_row(kernel: Kernel) -> Row:
    """Return the row of a kernel."""
    return {
        "kernel_id": kernel.id, "source_id": kernel.source_id, "operator": kernel.operator, "target": kernel.target,
        "source": kernel.source, "values_json": compact(kernel.values),
    }  # fmt: skip


def kernel_from(row: Mapping[str, Any]) -> Kernel:
    """Return the kernel of a row. It raises UserError for a file that is not the one which its id was made of: what is
    stored under that id, verdicts above all, is of another."""
    kernel = Kernel(row["operator"], row["target"], row["source"], json.loads(row["values_json"]))
    known = row.get("kernel_id", kernel.id)
    if is_digest(known) and known != kernel.id:
        raise UserError(
            f"kernel {short(known)}: the file that the run holds is not the one that was judged under this "
            "id: somebody changed the run's database"
        )
    return kernel


def proposal_row(request: Request, proposal: Proposal, *, at: float) -> Row:
    """The row of a proposal; what `placed` adds is known when the request is told."""
    return {
        "request_id": request.id, "task": str(request.task), "number": request.number, "mutator": request.mutator,
        "model": proposal.model, "kernel_id": proposal.kernel.id if proposal.kernel else None,
        "parents": list(dict.fromkeys((*proposal.bases, *request.parents))),
        "description": proposal.description, "failure": proposal.failure, "seconds": proposal.seconds,
        "created_at": moment(at), "kind": request.kind.value, "role": request.role or None,
        "text": proposal.text or None, "evaluate_s": proposal.evaluator_s,
        "metrics_json": None if proposal.metrics is None else compact(proposal.metrics),
        "author": request.params["author"] if request.kind is Kind.GUEST else proposal.author,
        "source_task": request.source_task or None, "island": request.island,
    }  # fmt: skip


def placed(rows: Rows, *, generation: int, is_new: bool, verdict: Evaluation | None) -> Rows:
    """Return the rows of one request with their place in the lineage: its proposal, and its evaluations.

    `is_new`: no request told before had its kernel in its task; `verdict`: that of its evaluations which is the first
    verdict on the kernel.
    """
    (proposal,) = rows["proposals"]
    judged = rows.get("evaluations", [])
    spent_ms = sum(row[f"{stage}_ms"] or 0.0 for row in judged for stage in STAGES)
    evaluate_s = proposal["evaluate_s"] + spent_ms / 1e3
    told = proposal | {"generation": generation, "is_new": is_new, "evaluate_s": evaluate_s}
    marked = [row | {"is_verdict": verdict is not None and row["level"] == verdict.level.value} for row in judged]
    return rows | {"proposals": [told], "evaluations": marked}


# --- evaluations ------------------------------------------------------------------------------------------------------

STAGES = ("build", "verify", "time", "confirm")
MEASURED = ("timings", "library_timings", "errors")
"""Tables with what belongs to one evaluation each, by its id; fields of an evaluation are called the same."""

EVALUATION = Codec(
    Evaluation,
    apart=(*MEASURED, "library_lack", "stage_ms"),
    level=FieldColumn("level", str),
    status=FieldColumn("status", str),
    inherited=FieldColumn("inherited", _or_null()),
    cell=FieldColumn("cell", "/".join, lambda text: tuple(text.split("/")) if text else ()),
    facts=FieldColumn("facts_json", compact, json.loads),
    worker=_optional("worker"),
)
LIBRARY_TIMING = Codec(
    LibraryTiming,
    anchor_latency_us=FieldColumn("library_latency_us"),
    library=_optional("library"),
    untried=_optional("untried"),
)
"""In the table of these the anchor is the vendor's library; rows of the other two have their fields' names."""


def evaluation_rows(evaluation: Evaluation, *, evaluation_id: str, request_id: str | None, at: float) -> Rows:
    """Return the rows of one evaluation with its timings and errors, and an event where the vendor's library could not
    be timed beside it.

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
        "timings": [of | vars(t) for t in e.timings],
        "library_timings": [of | LIBRARY_TIMING.row(t) for t in e.library_timings],
        "errors": [of | vars(c) for c in e.errors],
    }
    if e.library_lack:
        task = Task.parse(e.task)
        detail = {"evaluation_id": evaluation_id, "reason": e.library_lack, "versions": versions(task.target)}
        rows |= event_rows(NO_LIBRARY, detail, at=at, task=task)
    return rows


def evaluation_id(request: Request, level: Level) -> str:
    """Return the id of a request's evaluation at a level."""
    return f"{request.id}@{level.value}"


def evaluation_from(row: Mapping[str, Any], **measured: Iterable[Mapping[str, Any]]) -> Evaluation:
    """Return the evaluation of one row of `evaluations`; the row or `measured` may hold `MEASURED` rows, by table."""
    row = {**row, **measured}
    return EVALUATION.item(
        row,
        timings=tuple(row.get("timings") or ()),
        library_timings=tuple(map(LIBRARY_TIMING.fields, row.get("library_timings") or ())),
        errors=tuple(row.get("errors") or ()),
        stage_ms={stage: row[f"{stage}_ms"] for stage in STAGES if row[f"{stage}_ms"] is not None},
    )


def pair_from(row: Row) -> Pair:
    """Return the paired ratio of a row of the query `search.pairs`."""
    return Pair(**row | {"level": Level(row["level"])})


def fit_row(task: str, positions: Mapping[str, Position], *, at: float) -> Row:
    """Return the row of a fit of a task's kernels."""
    return {
        "task": task, "kernel_ids": [*positions], "log_speedups": [p.log_speedup for p in positions.values()],
        "log_speedup_ses": [p.se for p in positions.values()], "created_at": moment(at),
    }  # fmt: skip


def as_stored(evaluation: Evaluation) -> Evaluation:
    """Return the evaluation as it comes back from the store, so that a resumed run is like any other one."""
    rows = evaluation_rows(evaluation, evaluation_id="", request_id=None, at=0.0)
    return evaluation_from(rows["evaluations"][0], **{table: rows[table] for table in MEASURED})


def _attached(told: list[Row], read: Read, queries: Iterable[str], **params: Any) -> list[Row]:
    """The same rows, with what was measured of each; they are not copied, for there may be a million.

    Each of the `queries` is for one table, whose name it ends with.
    """
    found: dict[str, dict[str, list[Row]]] = {}
    for query in queries:
        for row in read(query, **params):
            found.setdefault(row["evaluation_id"], {}).setdefault(query.partition(".")[2], []).append(row)
    for row in told:
        row.update(found.get(row["evaluation_id"], {}))
    return told


def verdicts(read: Read) -> dict[str, list[Row]]:
    """Return the evaluations of each request, least severe first, with what was measured of them."""
    found: dict[str, list[Row]] = {}
    queries = ("replay.timings", "replay.library_timings", "replay.errors")
    for row in _attached(read("replay.verdicts"), read, queries):
        found.setdefault(row["request_id"], []).append(row)
    return found


# --- tells ------------------------------------------------------------------------------------------------------------


def tell_rows(individual: Individual, *, seq: int, at: float) -> Rows:
    """Return the rows of one tell, and the trial it was if it came from tuning."""
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


def individual_from(row: Mapping[str, Any]) -> Individual:
    """Return the individual of a row of `history.told`, with lists of what was measured, by table, if it has such."""
    return Individual(
        request_from(row), kernel_from(row) if row["source"] is not None else None,
        evaluation_from(row) if row["evaluation_id"] is not None else None, row["seconds"], row["cost_usd"],
        row["description"], row["told"] == UNAVAILABLE, row["failure"], row["text"], json.loads(row["metrics_json"]),
    )  # fmt: skip


# --- calls of language models -----------------------------------------------------------------------------------------


def messages_json(messages: Iterable[Message]) -> str:
    """Return a conversation as it is kept."""
    return compact([dict(message) for message in messages])


CALL = Codec(
    Call,
    messages=FieldColumn("messages_json", messages_json, json.loads),
    status=FieldColumn("status", str),
    usage_json=_optional("usage_json"),
    usage_doubt=FieldColumn("usage_doubt"),
    author=_optional("author"),
    tool_calls=FieldColumn(
        "tool_calls_json", _or_null(lambda calls: compact([*map(asdict, calls)])), lambda text: json.loads(text or "[]")
    ),
    thoughts=FieldColumn("thoughts_json", _or_null(compact), lambda text: json.loads(text or "{}")),
)


def call_row(call: Call, *, call_id: str, at: float) -> Row:
    """Return the row of a call; `at` is when it ended."""
    return CALL.row(call) | {"call_id": call_id, "created_at": moment(at)}


# --- profiles ---------------------------------------------------------------------------------------------------------


def profile_rows(profile: Profile, evaluation_id: str, task: Task, kernel_id: str, *, failure: str, at: float) -> Rows:
    """Return the rows of a profile with its figures; `failure` says why there is none, and `profile` is empty then."""
    row: Row = {
        "task": str(task), "kernel_id": kernel_id, "evaluation_id": evaluation_id,
        "bottleneck": profile.bottleneck.value if profile.bottleneck else None,
        "notes_json": compact(list(profile.notes)), "failure": failure or None, "seconds": profile.seconds,
        "worker": profile.worker or None, "created_at": moment(at),
    }  # fmt: skip
    metrics = [
        {"task": str(task), "kernel_id": kernel_id, "metric": m.name, "value": m.value, "unit": m.unit or None}
        for m in profile.metrics
    ]
    return {"profiles": [row], "metrics": metrics}


def profile_from(row: Mapping[str, Any]) -> Profile:
    """Return the profile of one row of `history.profiled`."""
    metrics = tuple(Metric(m["name"], m["value"], m["unit"] or "") for m in row["measured"] or ())
    bottleneck = Bottleneck(row["bottleneck"]) if row["bottleneck"] else None
    notes = tuple(json.loads(row["notes_json"]))
    return Profile(bottleneck, metrics, notes, row["worker"] or "", row["seconds"])


def profile_with(row: Mapping[str, Any], metrics: Iterable[Mapping[str, Any]]) -> Profile:
    """Return the profile of a row of `profiles` with these rows of `metrics`."""
    return profile_from({**row, "measured": [{"name": each["metric"], **each} for each in metrics]})


# --- events -----------------------------------------------------------------------------------------------------------

NO_LIBRARY = "library_not_timed"
"""The event that says why a confirmation has no times of the vendor's library."""
TASK_FAILED = "task_failed"
"""The event that says why a task could not go on in a session."""
FAILED = "failed"
"""The event that says by what fault a session ended."""
WAITS = "waits"
"""The event that says what a search waits for in which nothing moves."""


def event_rows(kind: str, detail: Mapping[str, Any], *, at: float, task: Task | None = None) -> Rows:
    """Return the row of an event."""
    named = str(task) if task else None
    return {"events": [{"created_at": moment(at), "kind": kind, "task": named, "detail_json": compact(detail)}]}


# --- the history of a run ---------------------------------------------------------------------------------------------

MOST_SEQ = 2**62
"""A place in the history behind all that there are."""


@dataclass(frozen=True)
class Asked:
    """An ask: rows of `history.asked`."""

    rows: list[Row]


@dataclass(frozen=True)
class TellRow:
    """A tell: a row of `history.told` with what was measured."""

    row: Row


@dataclass(frozen=True)
class Profiled:
    """A profile from which on prompts knew it: a row of `history.profiled`."""

    row: Row


Entry = Asked | TellRow | Profiled


def history(read: Read, task: Task | None = None, after: int = -1, until: int = MOST_SEQ) -> list[tuple[int, Entry]]:
    """Return what happened in a run, or in one task of it, in that order, each with its place in the history.

    The places are behind `after`, and go up to `until`.
    """
    within = {"task": str(task) if task else None, "after": after, "until": until}
    queries = ("history.timings", "history.library_timings", "history.errors")
    told = _attached(read("history.told", **within), read, queries, **within)
    asks: dict[int, list[Row]] = {}
    for row in read("history.asked", **within):
        asks.setdefault(row["seq"], []).append(row)
    entries: list[tuple[int, Entry]] = [
        *((row["seq"], Profiled(row)) for row in read("history.profiled", **within)),
        *((seq, Asked(rows)) for seq, rows in asks.items()),
        *((row["seq"], TellRow(row)) for row in told),
    ]
    return sorted(entries, key=lambda entry: entry[0])


def history_of(task: Task, read: Read, *, page: int) -> Iterator[list[tuple[int, Entry]]]:
    """Return the same of one task, in pages of so many tells or fewer."""
    places = [row["seq"] for row in read("history.places", task=str(task))]
    for after, until in pairwise([-1, *places[page - 1 :: page], MOST_SEQ]):
        yield history(read, task, after, until)
