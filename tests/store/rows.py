"""Rows for tests, with everything that a test does not care about filled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TASK = "softmax/fp32/cpu"
START_S = 1_760_000_000.0
KINDS = {"ancestor": "ancestor", "tune": "trial"}
"""By mutator; all others make children."""

Row = dict[str, Any]


def event(kind: str, detail: str = "{}", *, at: float = START_S) -> Row:
    return {"created_at": at, "kind": kind, "detail_json": detail}


def run() -> Row:
    return {
        "run_id": "r", "created_at": START_S, "engine_version": "0", "seed": 7, "config_json": "{}", "host_json": "{}",
    }  # fmt: skip


class History:
    """A lineage told step by step; every step takes one second."""

    def __init__(self, task: str = TASK) -> None:
        self.task = task
        self.tables: dict[str, list[Row]] = {
            t: [] for t in ("asks", "proposals", "parents", "evaluations", "llm_calls")
        }
        self._generations: dict[str, int] = {}
        self._births: dict[str, str] = {}
        self._now_s = START_S

    def propose(self, number: int, mutator: str, parents: str, child: str | None, **columns: Any) -> History:
        """`parents` are separated by spaces, the principal one first."""
        request_id = f"{self.task}#{number}"
        self.tables["parents"] += [
            {"request_id": request_id, "position": i, "parent_id": p} for i, p in enumerate(parents.split())
        ]
        row = {
            "request_id": request_id, "task": self.task, "number": number, "mutator": mutator, "kernel_id": child,
            "description": f"{mutator} made {child}", "kind": KINDS.get(mutator, "child"),
            "seconds": 2.0, "evaluate_s": 0.0, "created_at": self._tick(),
            "parents": parents.split(), "is_new": child is not None and child not in self._births,
            "generation": max((1 + self._generations.get(p, 0) for p in parents.split()), default=0),
        }  # fmt: skip
        if child is not None and row["is_new"]:
            self._generations[child], self._births[child] = row["generation"], request_id
        self.tables["proposals"].append(row | columns)
        asked = {name: row[name] for name in ("task", "number", "request_id", "mutator", "created_at")}
        self.tables["asks"].append(
            asked | {"seq": number, "position": 0, "wanted": 1, "request_json": "{}", "digest": "d"}
        )
        return self

    def evaluate(self, number: int | None, kernel: str, level: str, status: str, **columns: Any) -> History:
        request_id = None if number is None else f"{self.task}#{number}"
        row = {
            "evaluation_id": f"{number}@{level}/{kernel}/{self._now_s}", "request_id": request_id, "task": self.task,
            "kernel_id": kernel, "level": level, "status": status, "message": "", "cell": "", "worker": "any core",
            "is_verdict": number is None or self._births[kernel] == request_id, "created_at": self._tick(),
        }  # fmt: skip
        levels = [e for e in self.tables["evaluations"] if number is not None and e["request_id"] == request_id]
        for less_severe in levels:
            less_severe["is_verdict"] = False
        for proposal in self.tables["proposals"]:
            if proposal["request_id"] == request_id and not levels:
                proposal["evaluate_s"], row["build_ms"] = 0.5, 500.0
        if columns.get("log_speedup") is not None:
            row["log_speedup_se"] = 0.01
        self.tables["evaluations"].append(row | columns)
        return self

    def call(self, number: int, model: str, **columns: Any) -> History:
        row = {
            "call_id": f"c{len(self.tables['llm_calls'])}", "request_id": f"{self.task}#{number}", "role": "mutate",
            "model": model, "messages_json": "[]", "status": "answered", "cache_key": "k", "sample": 0,
            "created_at": self._tick(),
        }  # fmt: skip
        self.tables["llm_calls"].append(row | columns)
        return self

    def _tick(self) -> float:
        self._now_s += 1
        return self._now_s


def joined(*parts: Mapping[str, list[Row]]) -> dict[str, list[Row]]:
    tables: dict[str, list[Row]] = {}
    for part in parts:
        for name, some in part.items():
            tables.setdefault(name, []).extend(some)
    return tables
