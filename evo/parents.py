"""The kernels that children are asked of, as they were known then."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, cast

from evo import records
from evo.journal import Journal
from evo.task_state import Source
from fitness.evaluation import Evaluation
from mutators.base import Parent
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

    def _keep(self, source: Source, parent: Parent) -> None:
        self._cached[source] = parent
        if len(self._cached) > PARENTS_CACHED:
            self._cached.popitem(last=False)

    def _stored(self, kernel_id: str, evaluation_id: str) -> Parent:
        def rows(table: str, key: str, value: str) -> list[dict[str, Any]]:
            found = self._store.rows(f"select * from {table} where {key} = ? order by rowid", [value])
            return cast(list[dict[str, Any]], found.to_pylist())

        kernel = records.kernel_from(rows("kernels", "kernel_id", kernel_id)[0])
        if not evaluation_id:
            return Parent(kernel)
        (verdict,) = rows("evaluations", "evaluation_id", evaluation_id)
        timings, errors = (rows(table, "evaluation_id", evaluation_id) for table in ("timings", "errors"))
        return Parent(kernel, records.evaluation_from(verdict, timings=timings, errors=errors))
