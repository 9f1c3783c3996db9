"""Between the engine's objects and the store's rows: pure functions both ways."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from evo.individual import UNAVAILABLE, Individual
from fitness.evaluation import CheckError, Evaluation, Level, Status, Timing
from fitness.profiling import Profile
from mutators.base import Call, CallStatus, Proposal, Request
from operators.kernel import Kernel
from operators.spec import Task

Row = dict[str, Any]
Rows = dict[str, list[Row]]

NO_LIBRARY = "library_not_timed"
"""The event that says why a confirmation has no times of the vendor's library."""
TASK_FAILED = "task_failed"
"""The event that says why a task could not go on in a session."""
STAGES = ("build", "verify", "time", "confirm")


def compact(value: Any) -> str:
    """Canonical JSON."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain)


def moment(seconds: float) -> datetime:
    """Seconds since the epoch as the store keeps them."""
    return datetime.fromtimestamp(seconds, UTC)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no place in a row")


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
    """What `placed` adds is known when the request is told."""
    return {
        "request_id": request.id, "task": str(request.task), "number": request.number, "mutator": request.mutator,
        "model": proposal.model, "kernel_id": proposal.kernel.id if proposal.kernel else None,
        "parents": list(request.parents), "description": proposal.description, "failure": proposal.failure,
        "seconds": proposal.seconds, "created_at": moment(at),
    }  # fmt: skip


def placed(rows: Rows, *, generation: int, is_new: bool) -> Rows:
    """The rows of one request (its proposal, its evaluations, least severe first) with their place in the lineage.

    `is_new`: no request told before had its kernel in its task.
    """
    (proposal,) = rows["proposals"]
    judged = rows.get("evaluations", [])
    spent_ms = sum(row[f"{stage}_ms"] or 0.0 for row in judged for stage in STAGES)
    told = proposal | {"generation": generation, "is_new": is_new, "evaluate_s": spent_ms / 1e3}
    last = len(judged) - 1
    marked = [row | {"is_verdict": is_new and place == last} for place, row in enumerate(judged)]
    return rows | {"proposals": [told], "evaluations": marked}


def evaluation_rows(evaluation: Evaluation, *, evaluation_id: str, request_id: str | None, at: float) -> Rows:
    """One evaluation with its timings and errors; an event where the vendor's library could not be timed beside it.

    Without a request it is the kernel's verdict from now on.
    """
    e = evaluation
    row: Row = {
        "evaluation_id": evaluation_id, "request_id": request_id, "task": e.task, "kernel_id": e.kernel_id,
        "level": e.level.value, "status": e.status.value, "is_verdict": request_id is None,
        "inherited": e.inherited.value if e.inherited else None, "duplicate_of": e.duplicate_of,
        "message": e.message, "log_speedup": e.log_speedup, "log_speedup_se": e.log_speedup_se,
        "anchor_id": e.anchor_id, "anchor_log_speedup": e.anchor_log_speedup, "log_ratio": e.log_ratio,
        "log_ratio_se": e.log_ratio_se, "code_digest": e.code_digest, "cell": "/".join(e.cell),
        "facts_json": compact(e.facts), "created_at": moment(at),
    }  # fmt: skip
    row |= {f"{stage}_ms": e.stage_ms.get(stage) for stage in STAGES}
    errors = [
        {
            "evaluation_id": evaluation_id,
            "workload": c.workload,
            "tensor": c.tensor,
            "family": c.family,
            "max_ratio": c.max_ratio,
            "rms_ratio": c.rms_ratio,
            "mismatches": c.mismatches,
            "first_bad": c.first_bad,
        }
        for c in e.errors
    ]
    rows: Rows = {
        "evaluations": [row],
        "timings": [_timing_row(t, evaluation_id, "anchor_latency_us") for t in e.timings],
        "library_timings": [_timing_row(t, evaluation_id, "library_latency_us") for t in e.library_timings],
        "errors": errors,
    }
    if e.library_lack:
        detail = {"evaluation_id": evaluation_id, "reason": e.library_lack}
        rows |= event_rows(NO_LIBRARY, detail, at=at, task=Task.parse(e.task))
    return rows


def _timing_row(timing: Timing, evaluation_id: str, other: str) -> Row:
    """`other` is how the table calls the time of whoever the kernel was paired with."""
    t = timing
    return {
        "evaluation_id": evaluation_id, "workload": t.workload, "latency_us": t.latency_us,
        other: t.anchor_latency_us, "log_ratio": t.log_ratio, "log_ratio_se": t.log_ratio_se, "pairs": t.pairs,
    }  # fmt: skip


def _timing_from(row: Mapping[str, Any], other: str = "anchor_latency_us") -> Timing:
    return Timing(row["workload"], row["latency_us"], row[other], row["log_ratio"], row["log_ratio_se"], row["pairs"])


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
    if request.mutator != "tune" or kernel is None or evaluation is None:
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
    """`at` is when it ended."""
    return {
        "call_id": call_id, "request_id": call.request_id, "role": call.role, "model": call.model,
        "messages_json": compact([dict(m) for m in call.messages]), "answer": call.answer, "tokens_in": call.tokens_in,
        "tokens_out": call.tokens_out, "cost_usd": call.cost_usd, "attempts": call.attempts,
        "lost_tokens": call.lost_tokens, "lost_usd": call.lost_usd, "latency_s": call.latency_s,
        "status": call.status.value, "error": call.error, "cache_key": call.cache_key, "sample": call.sample,
        "usage_json": call.usage_json or None, "usage_doubt": call.usage_doubt, "created_at": moment(at),
    }  # fmt: skip


def call_from(row: Mapping[str, Any]) -> Call:
    """The inverse of `call_row`; rows of older runs have no usage."""
    names = (
        "request_id", "role", "model", "sample", "cache_key", "answer", "error", "tokens_in", "tokens_out", "cost_usd",
        "attempts", "lost_tokens", "lost_usd", "latency_s",
    )  # fmt: skip
    fields = {name: row[name] for name in names}
    fields |= {name: row.get(name) or "" for name in ("usage_json", "usage_doubt")}
    return Call(**fields, messages=tuple(json.loads(row["messages_json"])), status=CallStatus(row["status"]))


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


ASKED = "select seq, wanted, task, request_id, request_json, digest from asks order by seq, position"
"""Every ask with what it takes to ask it again."""

TOLD = """
    select
        t.seq, t.task, t.request_id, t.kernel_id, t.status as told, t.digest, t.seconds, t.cost_usd, a.request_json,
        coalesce(p.description, '') as description,
        k.operator, k.target, k.source, k.values_json, e.* exclude (task, request_id, kernel_id)
    from tells t
    join asks a using (request_id)
    left join kernels k on k.kernel_id = t.kernel_id
    left join evaluations e on e.evaluation_id = t.evaluation_id
    left join proposals p on p.request_id = t.request_id
    order by t.seq
"""
"""Every tell with what it takes to make its individual again."""

CONFIRMED = """
    select task, kernel_id, sum(coalesce(verify_ms, 0) + coalesce(time_ms, 0) + coalesce(confirm_ms, 0)) as took_ms
    from evaluations
    group by task, kernel_id, request_id
    having bool_or(level = 'confirmed')
"""
"""Every kernel that a confirmation looked at, and how long its whole verdict took."""


PROFILED = "select * from profiles order by rowid"
"""Every profile that prompts may hold; older stores have no column `seq`."""


@dataclass(frozen=True)
class Asked:
    """An ask: rows of `ASKED`."""

    rows: list[Row]


@dataclass(frozen=True)
class Told:
    """A tell: a row of `TOLD`."""

    row: Row


@dataclass(frozen=True)
class Profiled:
    """A profile from which on prompts knew it: a row of `PROFILED`."""

    row: Row


Entry = Asked | Told | Profiled


def history(asked: Iterable[Row], told: Iterable[Row], profiled: Iterable[Row]) -> list[tuple[int, Entry]]:
    """Rows of `ASKED`, `TOLD` and `PROFILED` in the order in which they happened, with their place in it.

    Profiles of older runs have none: their prompts knew them from the first question on.
    """
    asks: dict[int, list[Row]] = {}
    for row in asked:
        asks.setdefault(row["seq"], []).append(row)
    entries: list[tuple[int, Entry]] = [
        *((row.get("seq") or 0, Profiled(row)) for row in profiled),
        *((seq, Asked(rows)) for seq, rows in asks.items()),
        *((row["seq"], Told(row)) for row in told),
    ]
    return sorted(entries, key=lambda entry: entry[0])


def individual_from(row: Mapping[str, Any]) -> Individual:
    """The individual of one row of `TOLD`, without timings and errors, which no strategy reads."""
    kernel = kernel_from(row) if row["source"] is not None else None
    evaluation = evaluation_from(row) if row["evaluation_id"] is not None else None
    request = Request.from_json(row["request_json"])
    unavailable = row["told"] == UNAVAILABLE
    return Individual(request, kernel, evaluation, row["seconds"], row["cost_usd"], row["description"], unavailable)


def kernel_from(row: Mapping[str, Any]) -> Kernel:
    return Kernel(row["operator"], row["target"], row["source"], json.loads(row["values_json"]))


def as_stored(evaluation: Evaluation) -> Evaluation:
    """The evaluation as it comes back from the store, so that nobody can tell a resumed run from another one."""
    rows = evaluation_rows(evaluation, evaluation_id="", request_id=None, at=0.0)
    return evaluation_from(rows["evaluations"][0], **{table: rows[table] for table in MEASURED})


MEASURED = ("timings", "library_timings", "errors")
"""Tables with what belongs to one evaluation each, by its id."""


def evaluation_from(
    row: Mapping[str, Any],
    *,
    timings: Iterable[Mapping[str, Any]] = (),
    library_timings: Iterable[Mapping[str, Any]] = (),
    errors: Iterable[Mapping[str, Any]] = (),
) -> Evaluation:
    """The evaluation of one row of `evaluations`, with such rows of the tables `MEASURED` as are given."""
    return Evaluation(
        kernel_id=row["kernel_id"],
        task=row["task"],
        level=Level(row["level"]),
        status=Status(row["status"]),
        message=row["message"],
        log_speedup=row["log_speedup"],
        log_speedup_se=row["log_speedup_se"],
        anchor_id=row["anchor_id"],
        anchor_log_speedup=row["anchor_log_speedup"],
        log_ratio=row["log_ratio"],
        log_ratio_se=row["log_ratio_se"],
        code_digest=row["code_digest"],
        duplicate_of=row["duplicate_of"],
        inherited=Status(row["inherited"]) if row["inherited"] else None,
        cell=tuple(row["cell"].split("/")) if row["cell"] else (),
        facts=json.loads(row["facts_json"]),
        timings=tuple(map(_timing_from, timings)),
        library_timings=tuple(_timing_from(t, "library_latency_us") for t in library_timings),
        errors=tuple(CheckError(**_but_id(e)) for e in errors),
        stage_ms={stage: row[f"{stage}_ms"] for stage in STAGES if row[f"{stage}_ms"] is not None},
    )


def _but_id(row: Mapping[str, Any]) -> Row:
    return {name: value for name, value in row.items() if name != "evaluation_id"}
