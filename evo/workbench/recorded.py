"""A workbench whose uses are stored: a dialogue that goes on, or is replayed, hears again what it was told."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from evo import rows as records
from evo.rows import Read, Row, Rows, compact, moment
from evo.store.reads import Journal, rows_of
from evo.workbench.bench import Workbench
from fitness.evaluation import Level
from mutators.base import Request
from mutators.bench import Result, Tool
from operators.identity import digest
from operators.kernel import Kernel


class ToolCalls(Protocol):
    """Where uses of tools are kept."""

    def find(self, tool_key: str) -> Result | None:
        """Return what a use came to; None: it is new. A replay, for which none may be new, raises what says so."""
        ...

    async def add(self, rows: Rows, kernel: Kernel | None) -> None:
        """Keep what a new use came to, and the draft that it was about; both are safe once this returns."""
        ...


class Judgings(Protocol):
    """Allowance of a run's budget for judging drafts."""

    def take(self) -> bool:
        """Charge one, or return False where none is left."""
        ...

    def give_back(self) -> None:
        """Take back what was charged for one that was not judged."""
        ...


class RecordedBench:
    """`mutators.bench.Bench` of one request. Uses are told apart by their place in the dialogue and their arguments."""

    def __init__(
        self,
        request: Request,
        bench: Workbench,
        calls: ToolCalls,
        judgings: Judgings,
        *,
        now: Callable[[], float],
        most_judged: int = 0,
    ) -> None:
        """At most `most_judged` drafts are judged in the dialogue."""
        self._request = request
        self._bench = bench
        self._calls = calls
        self._judgings = judgings
        self._now = now
        self._number = 0
        self._judgings_left = most_judged

    @property
    def tools(self) -> Sequence[Tool]:
        """See `Bench.tools`."""
        return self._bench.tools

    async def use(self, tool: str, arguments: str | Mapping[str, Any]) -> Result:
        """See `Bench.use`."""
        text = arguments if isinstance(arguments, str) else compact(arguments)
        return await self._once(tool, text, lambda: self._used(tool, arguments))

    async def check(self, kernel: Kernel) -> Result:
        """See `Bench.check`."""
        return await self._once("check", compact({"kernel": kernel.id}), lambda: self._bench.check(kernel))

    async def _used(self, tool: str, arguments: str | Mapping[str, Any]) -> Result:
        """A use that is new. What was charged for a judgement that was none, or is cancelled, is given back."""
        if tool != "judge":
            return await self._bench.use(tool, arguments)
        if self._judgings_left <= 0:
            return Result("no draft may be judged any more in this dialogue: submit your best one", failed=True)
        if not self._judgings.take():
            return Result("the search has no evaluation left for drafts: submit your best one", failed=True)
        charged = False
        try:
            result = await self._bench.use(tool, arguments)
            charged = bool(result.evaluations)
        finally:
            if not charged:
                self._judgings.give_back()
        return result

    async def _once(self, tool: str, arguments: str, use: Callable[[], Awaitable[Result]]) -> Result:
        number, self._number = self._number, self._number + 1
        key = digest("tool", self._request.digest, number, tool, arguments)
        result = self._calls.find(key)
        if result is None:
            result = await use()
            await self._calls.add(self._rows(key, number, tool, arguments, result), result.kernel)
        else:
            self._bench.recall(result)
        self._judgings_left -= result.evaluations
        return result

    def _rows(self, key: str, number: int, tool: str, arguments: str, result: Result) -> Rows:
        request, at = self._request, self._now()
        place = f"{request.id}/{number}"
        name = f"{place}@{Level.SCREEN.value}" if result.evaluation else None
        row: Row = {
            "tool_key": key, "task": str(request.task), "request_id": request.id, "number": number, "tool": tool,
            "arguments_json": arguments, "kernel_id": result.kernel.id if result.kernel else None,
            "evaluation_id": name, "failed": result.failed, "text": result.text, "change": result.change or None,
            "bases": list(result.bases) or None, "evaluations": result.evaluations, "seconds": result.seconds,
            "worker": result.worker or None, "unsaid_json": compact(result.unsaid) if result.unsaid else None,
            "created_at": moment(at),
        }  # fmt: skip
        if result.evaluation is None or name is None:
            return {"tool_calls": [row]}
        judged = records.evaluation_rows(result.evaluation, evaluation_id=name, request_id=place, at=at)
        return {"tool_calls": [row], **judged}


def stored_result(read: Read, tool_key: str) -> Result | None:
    """Return what a use came to as a store has it; None where it has not, or not all of it."""
    found = read("bench.use", key=tool_key)
    if not found:
        return None
    row, kernel, evaluation = found[0], None, None
    if row["kernel_id"]:
        kernels = read("kernels.files", kernels=[row["kernel_id"]])
        if not kernels:  # it was on its way into the store with another request's, which the end of a process cut off
            return None
        kernel = records.kernel_from(kernels[0])
    if row["evaluation_id"]:
        (judged,) = read("kernels.measured", evaluations=[row["evaluation_id"]])
        evaluation = records.evaluation_from(judged)
    return Result(
        row["text"], row["failed"], kernel, tuple(row["bases"] or ()), row["change"] or "", evaluation,
        row["evaluations"], row["seconds"], row["worker"] or "", json.loads(row["unsaid_json"] or "{}"),
    )  # fmt: skip


def rows_of_use(read: Read, tool_key: str, kernel_rows: Callable[[Kernel], Rows]) -> Rows:
    """Return all rows of a stored use, for another store."""
    rows: Rows = {"tool_calls": read("bench.use", key=tool_key)}
    for row in rows["tool_calls"]:
        for kernel in read("kernels.files", kernels=[row["kernel_id"]]):
            rows = records.join(rows, kernel_rows(records.kernel_from(kernel)))
        if row["evaluation_id"]:
            rows = records.join(rows, rows_of_evaluation(read, row["evaluation_id"]))
    return rows


def rows_of_evaluation(read: Read, evaluation_id: str, **changed: Any) -> Rows:
    """Return all rows of an evaluation, for another store, in which some columns of it are `changed`."""
    (judged,) = read("kernels.measured", evaluations=[evaluation_id])
    measured = {table: judged.pop(table) or [] for table in records.MEASURED}
    return {"evaluations": [judged | changed], **measured}


class StoredToolCalls:
    """`ToolCalls` over a run's store."""

    def __init__(
        self, store: Journal, *, kernel_rows: Callable[[Kernel], Rows], commit: Callable[[Rows], Awaitable[None]]
    ) -> None:
        """`kernel_rows` makes the row of a kernel that is not stored yet."""
        self._store = store
        self._kernel_rows = kernel_rows
        self._commit = commit
        self._known: set[str] = set()

    def restore(self) -> int:
        """Learn what earlier sessions stored; return how many evaluations that was charged with."""
        found = self.read("bench.uses")
        self._known = {row["tool_key"] for row in found}
        return sum(row["evaluations"] for row in found)

    def find(self, tool_key: str) -> Result | None:
        """See `ToolCalls.find`."""
        return stored_result(self.read, tool_key) if tool_key in self._known else None

    async def add(self, rows: Rows, kernel: Kernel | None) -> None:
        """See `ToolCalls.add`."""
        await self._commit(records.join(rows, self._kernel_rows(kernel) if kernel else {}))
        self._known.add(rows["tool_calls"][0]["tool_key"])

    def read(self, query: str, **params: Any) -> list[Row]:
        """Return rows of a query of `evo.store.reads` to the run's store."""
        return rows_of(self._store, query, **params)
