"""What prompts are made of: kernels as they were known when children of them were asked for, and earlier requests."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, cast

from evo import rows
from evo.journal import Journal
from evo.search.task import Source
from fitness.evaluation import Evaluation
from mutators.base import Call, Earlier, Message, Parent
from operators.kernel import Kernel

PARENTS_CACHED = 5_000


class Parents:
    """Kernels with the verdicts that a request was bound to; the latest are kept at hand, all others are stored."""

    def __init__(self, store: Journal) -> None:
        self._store = store
        self._cached: OrderedDict[Source, Parent] = OrderedDict()

    def find(self, source: Source, *, baseline: Kernel) -> Parent:
        """A kernel with its verdict, as they stood when a child of it was asked for.

        `baseline` is the task's naive kernel, which models are asked to better before anything is stored of it.
        """
        if source == (baseline.id, ""):
            return Parent(baseline)
        if source not in self._cached:
            self._keep(source, self._stored(*source))
        self._cached.move_to_end(source)
        return self._cached[source]

    def told(self, kernel: Kernel, evaluation: Evaluation, evaluation_id: str) -> None:
        """Keep at hand what a child of the kernel would be asked with from now on."""
        self._keep((kernel.id, evaluation_id), Parent(kernel, evaluation))

    def earlier(self, request_id: str) -> Earlier:
        """Return an earlier request with what became of it; it must have been told, so it is stored for good."""
        (told,) = self._rows(rows.TOLD_OF, [request_id])
        name = told["evaluation_id"]
        measured = rows.measured_of(self._rows, name) if name else {}
        became = rows.individual_from({**told, **measured})
        calls = self._rows(rows.ANSWERED_CALLS, [request_id])
        return Earlier(
            became.request, became.kernel, became.evaluation, became.text, became.metrics, became.description,
            became.failure, _conversation(rows.CALL.item(calls[-1])) if calls else (),
        )  # fmt: skip

    def _keep(self, source: Source, parent: Parent) -> None:
        self._cached[source] = parent
        if len(self._cached) > PARENTS_CACHED:
            self._cached.popitem(last=False)

    def _rows(self, sql: str, parameters: list[Any]) -> list[dict[str, Any]]:
        return cast(list[dict[str, Any]], self._store.rows(sql, parameters).to_pylist())

    def _stored(self, kernel_id: str, evaluation_id: str) -> Parent:
        kernel = rows.kernel_from(self._rows("select * from kernels where kernel_id = ?", [kernel_id])[0])
        if not evaluation_id:
            return Parent(kernel)
        by_id = "select * from {} where evaluation_id = ? order by rowid"
        (verdict,) = self._rows(by_id.format("evaluations"), [evaluation_id])
        timings, errors = (self._rows(by_id.format(table), [evaluation_id]) for table in ("timings", "errors"))
        return Parent(kernel, rows.evaluation_from(verdict, timings=timings, errors=errors))


def _conversation(call: Call) -> tuple[Message, ...]:
    """The messages of a call and its answer."""
    return (*call.messages, call.message)
