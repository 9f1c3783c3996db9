"""Two kernels of a run beside each other: source, plan, settings, and what was measured of both."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from typing import Any

from evo.api import StoredKernel
from evo.report.fitted import Field, Fitted
from evo.report.terminal import interval, microseconds, times
from fitness import flags
from operators.errors import PlanError
from operators.plan.header import read_header

SHORT = 12
"""Digits of an id that are shown."""
END_OF_HEADER = "*/"
HUNK = re.compile(r"^@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@$")


def difference(a: StoredKernel, b: StoredKernel) -> dict[str, Any]:
    """What leads from `a` to `b`: diffs of source and plan as text, tunables and workloads as rows of both."""
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
            name, k["kernel_id"][:SHORT], k["task"], k["status"] or "not judged", flags.standing(k["level"], k["flagged"]),
            times(k["speedup"]), interval(k["speedup_low"], k["speedup_high"]),
        )
        for name, k in (("A", found["a"]), ("B", found["b"]))
    ]  # fmt: skip
    return Fitted(fields, rows, details=True)


def workloads_table(found: dict[str, Any]) -> Fitted:
    """Both kernels' times on each workload. Their ratio is not told: they are of two measurements, that no pairing made
    comparable."""
    fields = Field("workload", "name"), Field("A"), Field("B")
    return Fitted(
        fields, [(w["workload"], microseconds(w["a_us"]), microseconds(w["b_us"])) for w in found["workloads"]]
    )


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
    return "\n".join(unified_diff(before, after, f"A {a.id[:SHORT]}", f"B {b.id[:SHORT]}", lineterm=""))


def _code_diff(a: StoredKernel, b: StoredKernel) -> str:
    """The diff of what stands below the headers, which are the plans; lines have the numbers of the whole files."""
    (header, code), (other_header, other_code) = _code(a), _code(b)

    def placed(hunk: re.Match[str]) -> str:
        first, second = int(hunk[1]) + header, int(hunk[3]) + other_header
        return f"@@ -{first}{hunk[2] or ''} +{second}{hunk[4] or ''} @@"

    lines = _diff(a, b, code, other_code).split("\n")
    return "\n".join(HUNK.sub(placed, line) for line in lines)


def _code(kernel: StoredKernel) -> tuple[int, list[str]]:
    """How many lines the header has, and those below."""
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
