"""The workbenches of a search's requests: one for each dialogue, which works on the request's principal parent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from evo.search.task import TaskState
from evo.workbench.bench import Read, Workbench
from evo.workbench.recorded import Judgings, RecordedBench, ToolCalls
from evo.workers.jobs import Jobs
from evo.workers.pool import Waits, never
from fitness.base import Anchor
from mutators.asking.manual import manual
from mutators.base import Parent, Request
from mutators.bench import Bench


class Benches(Protocol):
    """Where a request's dialogue gets its workbench from."""

    def open(self, state: TaskState, request: Request, parent: Parent) -> Bench:
        """Return the workbench of a request with this principal parent."""
        ...


class RunBenches:
    """`Benches` of a search, or of its replay."""

    def __init__(
        self,
        calls: ToolCalls,
        jobs: Jobs,
        judgings: Judgings,
        read: Read,
        now: Callable[[], float],
        waits: Waits = never,
    ) -> None:
        """`read` answers queries to the run's store, of which every answer is kept in `calls`.

        For `waits` see `evo.workers.pool.tried`.
        """
        self._waits = waits
        self._calls = calls
        self._jobs = jobs
        self._read = read
        self._now = now
        self._judgings = judgings

    def open(self, state: TaskState, request: Request, parent: Parent) -> Bench:
        """See `Benches.open`. Drafts are timed beside the best kernel known, as children are."""

        def anchor() -> Anchor:
            leader = state.strategy.best
            return leader.as_anchor() if leader else Anchor(state.baseline, 0.0, 0.0)

        bench = Workbench(
            state.operator, state.task, start=parent.kernel, manual=lambda: manual(request, state.operator, parent),
            read=self._read,
            jobs=self._jobs, anchor=anchor, waits=self._waits,
        )  # fmt: skip
        most = request.params.get("evaluations", 0)
        return RecordedBench(request, bench, self._calls, self._judgings, now=self._now, most_judged=most)
