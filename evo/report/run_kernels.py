"""All about single kernels, as blocks of a run's report: source, diff, verdict, metrics, questions and answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from typing import Any

from evo.api import Run, StoredKernel, Verdict, verdict_words
from evo.report.amounts import count
from evo.report.document import KERNEL, Block, Fold, Listing, Query, Table, Words, bounds, number, text
from evo.report.run_data import Material, Row
from evo.report.terminal import Field, Fitted
from evo.store.reads import Value, filled
from fitness.install import evo_command
from fitness.words import counted, digits, interval, ratio, standing, time_us
from operators.errors import PlanError, UserError
from operators.identity import short
from operators.plan.header import read_header

MOST_TEXT = 5_000_000
"""Characters of sources, diffs, questions and answers in a report, all kernels together."""
MOST_FILE, MOST_PROMPT = 60_000, 20_000
"""Characters of one of them."""
MOST_CHECKS = 20
NAMES = {"naive": "kernels.naive", "best": "kernels.best"}
"""Kernels that have names, with the queries for those of all tasks."""


class Room:
    """The characters that a report has left for texts; who comes first is served first."""

    def __init__(self, left: int = MOST_TEXT) -> None:
        self.left = left

    def cut(self, text: str, most: int, whole: str) -> str:
        """The text, its middle left out where it is longer than `most` or than there is room; `whole` shows it all."""
        allowed = max(min(most, self.left), 0)
        if len(text) > allowed:
            head = text[: allowed * 2 // 3]
            tail = text[len(text) - allowed // 3 :] if allowed else ""
            text = f"{head}\n\n[{len(text) - len(head) - len(tail):,} characters left out; whole: {whole}]\n\n{tail}"
        self.left -= len(text)
        return text


def anchor(task: str, kernel_id: str) -> str:
    """Where a report has all about a kernel."""
    return f"{KERNEL}{task}-{kernel_id}"


def kernel_folds(seen: Material) -> dict[tuple[str, str], Fold]:
    """All about each kernel of the report, by its task and id, as far as there is room."""
    room = Room()
    return {
        key: Fold(title(kernel), [*about(seen.run, kernel, seen.calls[key], seen.timings[key], room)], anchor(*key))
        for key, kernel in seen.kernels.items()
        if room.left > 0
    }


def about(
    run: str, kernel: StoredKernel, calls: Sequence[Row], timings: Sequence[Row], room: Room, *, is_open: bool = False
) -> Iterator[Block]:
    """All about one kernel of a run, with the rows of `report.calls` and `report.timings` that are of it."""
    whole = _asking(run, "report.source", kernel=kernel.id)
    yield Words(items=[*_told(kernel)])
    if kernel.verdict:
        yield from _verdict(run, kernel, kernel.verdict, timings)
    yield from _metrics(kernel)
    if kernel.diff:
        changed = room.cut(kernel.diff, MOST_FILE, whole)
        yield Listing("Difference to its parent", changed, is_diff=True, is_open=is_open)
    source = room.cut(kernel.text, MOST_FILE, f"{whole} --format csv")
    yield Listing("Source, with its plan", source, is_open=is_open and not kernel.diff)
    for call in calls:
        yield from _call(run, call, room)


def _asking(run: str, query: str, **values: Value) -> str:
    """The command for what the report has no room for."""
    return evo_command("sql", run, filled(query, **values))


def title(kernel: StoredKernel) -> str:
    """One line about a kernel."""
    made, verdict = kernel.origin, kernel.verdict
    by = f", generation {made.generation}, {made.mutator}" if made else ""
    return f"{short(kernel.id)}{by}: {verdict_words(verdict)}"


def _told(kernel: StoredKernel) -> Iterator[str]:
    made, verdict = kernel.origin, kernel.verdict
    if made:
        by = ", ".join(filter(None, (made.mutator, made.model, made.author and f"given by {made.author}")))
        yield f"Made by {by}: {made.description or 'nothing said'}"
        if made.parents:
            yield f"Parents: {', '.join(short(parent) for parent in made.parents)}" + (
                f" (the first one of {made.source_task})" if made.source_task else ""
            )
    yield f"Task {kernel.task}, id {kernel.id}"
    if kernel.values:
        yield "Tunables: " + " ".join(f"{name}={value}" for name, value in kernel.values.items())
    if verdict:
        yield f"Verdict: {verdict_words(verdict)}" + (f"; behaviour {verdict.cell}" if verdict.cell else "")
        if verdict.duplicate_of:
            yield f"The same program as {short(verdict.duplicate_of)}, whose verdict this is"
        if verdict.message:
            yield f"Message: {verdict.message[:2000]}"
    if kernel.profile:
        yield from (f"Bottleneck: {kernel.profile.bottleneck}",) if kernel.profile.bottleneck else ()
        yield from kernel.profile.notes


def _verdict(run: str, kernel: StoredKernel, verdict: Verdict, timings: Sequence[Row]) -> Iterator[Block]:
    columns = [
        text("workload", "workload", code=True), number("kernel", "latency_us", time_us),
        number("measured beside", "anchor_latency_us", time_us), number("ratio", "ratio", ratio),
        bounds("95 %", "low", "high"), number("pairs", "pairs", count),
    ]  # fmt: skip
    if verdict.library_timings:
        columns += [
            number("library", "library_latency_us", time_us), number("over library", "over_library", ratio),
            bounds("95 %", "library_low", "library_high"),
        ]  # fmt: skip
    if timings:
        query = Query(run, filled("report.timings", tasks=[kernel.task], kernels=[kernel.id]), len(timings))
        yield Table("Verdict, workload by workload", columns, timings, query)
    if worst := sorted(verdict.errors, key=lambda each: -each.max_ratio)[:MOST_CHECKS]:
        checks = [
            {"workload": e.workload, "tensor": e.tensor, "family": e.family, "worst": e.max_ratio, "rms": e.rms_ratio}
            for e in worst
        ]
        names = [text(name, name, code=True) for name in ("workload", "tensor", "family")]
        figures = [number(f"{name} error of its bound", name, digits) for name in ("worst", "rms")]
        yield Table(f"The worst of {counted(len(verdict.errors), 'check')}", [*names, *figures], checks, folded=True)


def _metrics(kernel: StoredKernel) -> Iterator[Block]:
    if kernel.profile and kernel.profile.metrics:
        rows = [{"metric": m.name, "value": m.value, "unit": m.unit} for m in kernel.profile.metrics]
        columns = [
            text("metric", "metric", code=True),
            number("value", "value", lambda v: f"{v:.4g}"),
            text("unit", "unit"),
        ]
        yield Table("Metrics of its profile", columns, rows, folded=True)


def _call(run: str, call: Row, room: Room) -> Iterator[Block]:
    who = f"{call['model']}{' for ' + call['role'] if call['role'] else ''}"
    prompt, answer = (
        f"{_asking(run, name, call=call['call_id'])} --format csv" for name in ("report.prompt", "report.answer")
    )
    asked = _conversation(json.loads(call["messages_json"]))
    yield Listing(f"Prompt to {who}", room.cut(asked, MOST_PROMPT, prompt))
    if call["answer"]:
        yield Listing(f"Answer of {who}", room.cut(call["answer"], MOST_PROMPT, answer))


def _conversation(messages: Sequence[Any]) -> str:
    parts = []
    for message in messages:
        content = message.get("content")
        said = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        parts.append(f"--- {message.get('role', '?')} ---\n{said}")
    return "\n\n".join(parts)


END_OF_HEADER = "*/"
HUNK = re.compile(r"^@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@$")


def meant(run: Run, name: str, task: str) -> StoredKernel:
    """The kernel of that id, or the naive or the best one of the task. It raises UserError."""
    if name not in NAMES:
        return run.kernel(name, task)
    known = {row["task"]: row["kernel_id"] for row in run.rows(NAMES[name], task=task)}
    if len(known) != 1:
        which = f" of a task {task}..." if task else ""
        problem = f"has several tasks; name the task among {', '.join(known)}" if known else f"has none{which} yet"
        raise UserError(f"the {name} kernel: run {run.id} {problem}")
    ((task, kernel_id),) = known.items()
    return run.kernel(kernel_id, task)


def difference(a: StoredKernel, b: StoredKernel) -> dict[str, Any]:
    """The difference of `b` from `a`: diffs of source and plan as text, tunables and workloads as rows of both."""
    return {
        "a": _named(a), "b": _named(b), "source": _code_diff(a, b), "plan": _diff(a, b, _plan(a), _plan(b)),
        "tunables": _tunables(a, b), "workloads": _workloads(a, b),
    }  # fmt: skip


def verdicts_table(found: dict[str, Any]) -> Fitted:
    """The verdicts on both."""
    fields = (
        Field("", "id"), Field("kernel", "id"), Field("task", "name", rank=2), Field("status", "words"),
        Field("level", "words", rank=1), Field("speedup"), Field("95 %"),
    )  # fmt: skip
    rows = [
        (
            name, short(k["kernel_id"]), k["task"], k["status"] or "not judged",
            standing(k["level"], k["flagged"]), ratio(k["speedup"]),
            interval(k["speedup_low"], k["speedup_high"]),
        )
        for name, k in (("A", found["a"]), ("B", found["b"]))
    ]  # fmt: skip
    return Fitted(fields, rows, details=True)


def workloads_table(found: dict[str, Any]) -> Fitted:
    """Both kernels' times on each workload. Their ratio is not told: they are of two measurements, that no pairing made
    comparable."""
    fields = Field("workload", "name"), Field("A"), Field("B")
    return Fitted(fields, [(w["workload"], time_us(w["a_us"]), time_us(w["b_us"])) for w in found["workloads"]])


def tunables_table(found: dict[str, Any]) -> Fitted:
    """The settings of both."""
    fields = Field("tunable", "name"), Field("A"), Field("B")
    shown = [[t["name"], *("-" if t[side] is None else str(t[side]) for side in ("a", "b"))] for t in found["tunables"]]
    return Fitted(fields, shown)


def _named(kernel: StoredKernel) -> dict[str, Any]:
    verdict = kernel.verdict
    names = ("status", "level", "flagged", "speedup", "speedup_low", "speedup_high")
    told = {name: getattr(verdict, name, None) for name in names}
    return {"kernel_id": kernel.id, "task": kernel.task, **told, "message": verdict.message if verdict else ""}


def _diff(a: StoredKernel, b: StoredKernel, before: Sequence[str], after: Sequence[str]) -> str:
    return "\n".join(unified_diff(before, after, f"A {short(a.id)}", f"B {short(b.id)}", lineterm=""))


def _code_diff(a: StoredKernel, b: StoredKernel) -> str:
    """The diff of what stands below the headers, which are the plans; lines have the numbers of the whole files."""
    (header, code), (other_header, other_code) = _code(a), _code(b)

    def placed(hunk: re.Match[str]) -> str:
        first, second = int(hunk[1]) + header, int(hunk[3]) + other_header
        return f"@@ -{first}{hunk[2] or ''} +{second}{hunk[4] or ''} @@"

    lines = _diff(a, b, code, other_code).split("\n")
    return "\n".join(HUNK.sub(placed, line) for line in lines)


def _code(kernel: StoredKernel) -> tuple[int, list[str]]:
    """The number of lines of the header, and those below."""
    header, end, code = kernel.source.partition(END_OF_HEADER)
    if not end or not header.lstrip("\ufeff \t\r\n").startswith("/*! evo"):
        return 0, kernel.source.splitlines()
    lines = code.splitlines()
    rest = 0 if lines and lines[0].strip() else 1  # the header's last line has code behind it, or has not
    return header.count("\n") + rest, lines[rest:]


def _plan(kernel: StoredKernel) -> list[str]:
    """A line for each value of the plan; the header as it stands where it cannot be read."""
    try:
        return list(_flat("", dict(read_header(kernel.source).table)))
    except PlanError:
        return kernel.source.partition(END_OF_HEADER)[0].splitlines()


def _flat(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _flat(f"{path}.{name}" if path else name, each)
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        for index, each in enumerate(value):
            yield from _flat(f"{path}[{index}]", each)
    else:
        yield f"{path} = {json.dumps(value, ensure_ascii=False, default=str)}"


def _tunables(a: StoredKernel, b: StoredKernel) -> list[dict[str, Any]]:
    names = dict.fromkeys((*a.values, *b.values))
    return [{"name": name, "a": a.values.get(name), "b": b.values.get(name)} for name in names]


def _workloads(a: StoredKernel, b: StoredKernel) -> list[dict[str, Any]]:
    ours, theirs = (
        {t.workload: t.latency_us for t in kernel.verdict.timings} if kernel.verdict else {} for kernel in (a, b)
    )
    names = dict.fromkeys((*ours, *theirs))
    return [{"workload": name, "a_us": ours.get(name), "b_us": theirs.get(name)} for name in names]
