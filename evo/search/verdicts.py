"""Verdicts of a search: each kernel is judged once; races among ancestors; profiles of judged kernels."""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, TypeVar

from evo import rows as records
from evo.lineage import Latest
from evo.rows import Rows
from evo.search.task import TakenProfile, TaskState
from evo.strategies.base import Rival
from evo.workers.jobs import Build, ChooseRivals, Confirm, Full, Job, Propose, Runs, Screen, TakeProfile
from evo.workers.pool import DeviceLost, EngineError, JobOverdue, Undone, Waits, WorkerLost, never, tried
from fitness.evaluation import Evaluation, Level, Status
from fitness.judging.base import Anchor, Built
from fitness.judging.levels import AGAIN, Measurements, full_anchor, next_level
from fitness.profiling.profiles import Profile
from mutators.base import Kind, Parent, Proposal, Request
from operators.definition.spec import Task
from operators.errors import UserError
from operators.identity import short
from operators.kernel import Kernel


class Entrant:
    """A place in a heat, from its entry until it is known how fast it is, or that it is out."""

    def __init__(self, heat: Heat) -> None:
        self._heat = heat
        self._running = True

    async def wins(self, log_speedup: float) -> bool:
        """Return whether nothing else in the heat is faster; it waits until that is known of all who entered."""
        self._heat.best = max(self._heat.best, log_speedup)
        self.leave()
        await self._heat.over.wait()
        return log_speedup >= self._heat.best

    def leave(self) -> None:
        """The others do not wait for this one any longer."""
        if self._running:
            self._running = False
            self._heat.running -= 1
            if not self._heat.running:
                self._heat.over.set()


class Heat:
    """Kernels enter whenever they like, also while others wait for the end."""

    def __init__(self) -> None:
        self.running = 0
        """Number of those that have neither a time nor left."""
        self.best = -math.inf
        """The greatest log speedup of any that ever ran."""
        self.over = asyncio.Event()
        """Set while none is running."""

    @contextmanager
    def entered(self) -> Iterator[Entrant]:
        """A place in it, for as long as it is examined; to leave early, or to fail, takes it out."""
        entrant = Entrant(self)
        self.running += 1
        self.over.clear()
        try:
            yield entrant
        finally:
            entrant.leave()


Promised = TypeVar("Promised")


async def announced(place: dict[str, asyncio.Future[Promised]], key: str) -> Promised | None:
    """The verdict that another request found, or is about to find, under this key; None: no request looks for it.

    Waiting for it does not cancel it, and its own cancelling is not ours: then the next one is asked.
    """
    while earlier := place.get(key):
        try:
            return await asyncio.shield(earlier)
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if not earlier.cancelled() or (waiting and waiting.cancelling()):
                raise
    return None


@contextmanager
def promised(place: dict[str, asyncio.Future[Promised]], key: str) -> Iterator[asyncio.Future[Promised]]:
    """Announce a verdict under a key, and take the announcement back when it never comes."""
    future = place[key] = asyncio.get_running_loop().create_future()
    try:
        yield future
    finally:
        if not future.done():
            del place[key]
            future.cancel()


CONFIRM_SHARE = 0.1
"""Maximum share of evaluator time for confirmations during the search."""
PAUSES_S = tuple(4.0**n for n in range(AGAIN))
"""Pauses before a level is measured again whose result is unresolved: bad seconds pass."""
MOST_OPEN = 1024
Answer = TypeVar("Answer")
Commit = Callable[[Rows], Awaitable[None]]
"""Stores rows for good."""


class Reached(NamedTuple):
    """One level of a verdict, and when it was reached, by `time.time`."""

    evaluation: Evaluation
    at: float


def is_verdict(request: Request, found: Evaluation) -> bool:
    """Return whether an evaluation is the end of a request. An unresolved one is none, but for an ancestor, which no
    strategy asks for again."""
    return request.kind is Kind.ANCESTOR or not found.unresolved


def verdict_of(request: Request, levels: Sequence[Reached]) -> Evaluation | None:
    """Return the most severe level that says something of the kernel; None where all were timed in bad seconds."""
    found = [reached.evaluation for reached in levels if is_verdict(request, reached.evaluation)]
    return found[-1] if found else None


def can_be_profiled(parent: Parent) -> bool:
    """Return whether a kernel is correct, and has times of its own that a profile explains."""
    return bool(parent.evaluation and parent.evaluation.correct and parent.evaluation.timings)


class VerdictSource(Protocol):
    """Where the verdicts on a run's kernels come from: a pool of workers, or the store of a run that is replayed."""

    async def propose(self, state: TaskState, request: Request, parents: tuple[Parent, ...]) -> Proposal:
        """Return the answer of a mutator that asks no model. It raises Undone where no machine could work it out."""
        ...

    async def evaluate(self, state: TaskState, request: Request, kernel: Kernel) -> tuple[Reached, ...]:
        """Return the request's evaluations of a kernel, least severe first; one that says so for a duplicate.

        It raises OperatorError where the operator is at fault, and Undone where no machine could judge it.
        """
        ...

    async def profile(
        self, state: TaskState, request: Request, parent: Parent, evaluation_id: str
    ) -> tuple[Proposal, TakenProfile | None]:
        """Return the answer to a request for a profile, and the profile if it is to be stored."""
        ...


@dataclass
class _TaskVerdicts:
    """Verdicts on one task's kernels, known or being found out."""

    by_id: dict[str, asyncio.Future[Evaluation]] = field(default_factory=dict)
    """Verdicts without timings, by kernel id."""
    by_code: dict[str, asyncio.Future[Evaluation]] = field(default_factory=dict)
    """The same by code digest."""
    ancestors: Heat = field(default_factory=Heat)
    """Those that are being screened."""


class Verdicts:
    """`VerdictSource` over a pool. It asks for the levels of a verdict, and keeps what was found of every program."""

    def __init__(
        self,
        pool: Runs,
        commit: Commit,
        now: Callable[[], float],
        waits: Waits = never,
    ) -> None:
        """For `waits` see `evo.workers.pool.tried`."""
        self._waits = waits
        self.stopping = False
        """Whether a lost worker's job is no longer tried again."""
        self._pool = pool
        self._commit = commit
        self._now = now
        self._known: defaultdict[Task, _TaskVerdicts] = defaultdict(_TaskVerdicts)
        self._open: Latest[tuple[Task, str, Level], Evaluation] = Latest(MOST_OPEN)
        """Measurements of the MOST_OPEN kernels that were left unresolved last: they count where one comes again."""
        self._judging_s = 0.0
        """Seconds of evaluators spent on requests."""
        self._confirming_s = 0.0
        """Those of them spent on confirmations."""

    def resume(self, judging_s: float, confirming_s: float) -> None:
        """Take note of what earlier sessions spent: the share of confirmations is that of the whole run."""
        self._judging_s, self._confirming_s = judging_s, confirming_s

    def recall(self, task: Task, kernel: Kernel, evaluation: Evaluation) -> None:
        """Take a stored verdict for known; the first one of a kernel stays."""
        verdict: asyncio.Future[Evaluation] = asyncio.get_running_loop().create_future()
        verdict.set_result(evaluation.bare())
        known = self._known[task]
        known.by_id.setdefault(kernel.id, verdict)
        if evaluation.code_digest and evaluation.status is not Status.DUPLICATE:
            known.by_code.setdefault(evaluation.code_digest, verdict)

    async def propose(self, state: TaskState, request: Request, parents: tuple[Parent, ...]) -> Proposal:
        """See `VerdictSource.propose`."""
        job = Propose(state.task, parents[0].kernel if parents else state.baseline, request, parents)
        try:
            return await self._tried(job)
        except (JobOverdue, DeviceLost) as error:
            return Proposal(failure=f"{error}, and was given up")

    async def evaluate(self, state: TaskState, request: Request, kernel: Kernel) -> tuple[Reached, ...]:
        """See `VerdictSource.evaluate`."""
        known = self._known[state.task]
        with known.ancestors.entered() if request.kind is Kind.ANCESTOR else nullcontext() as ancestor:
            return await self._evaluate(state, request, kernel, known, ancestor)

    async def _evaluate(
        self, state: TaskState, request: Request, kernel: Kernel, known: _TaskVerdicts, ancestor: Entrant | None
    ) -> tuple[Reached, ...]:
        """`ancestor` is its place among the task's ancestors, if it is one."""
        if earlier := await announced(known.by_id, kernel.id):
            return (self._reached(_duplicate(kernel, earlier)),)
        with promised(known.by_id, kernel.id) as by_id:
            built = await self._retried(Build(state.task, kernel))
            if isinstance(built, Evaluation):
                by_id.set_result(built)
                return (self._reached(built),)
            if earlier := await announced(known.by_code, built.code_digest):
                inherited = _duplicate(kernel, earlier)
                by_id.set_result(inherited)
                return (self._reached(inherited),)
            with promised(known.by_code, built.code_digest) as by_code:
                levels = await self._judge(state, request, kernel, built, ancestor)
                if counts := verdict_of(request, levels):  # else the next request has the program measured anew
                    bare = counts.bare()
                    by_code.set_result(bare)
                    by_id.set_result(bare)
                return levels

    def _reached(self, evaluation: Evaluation) -> Reached:
        return Reached(evaluation, self._now())

    async def confirm(self, task: Task, kernel: Kernel) -> Evaluation:
        """Return a second, independent verdict on a kernel, against the baseline."""
        found = await self._retried(Confirm(task, kernel), Level.CONFIRMED)
        return replace(found, level=Level.CONFIRMED)

    async def choose_rivals(self, task: Task, baseline: Kernel) -> None:
        """Have the library's calls tried that confirmations of a task are beside; where that fails, they say so."""
        with suppress(WorkerLost, EngineError, UserError):
            await self._pool.run(ChooseRivals(task, baseline))

    async def beside(self, task: Task, kernel: Kernel, anchor: Anchor) -> Evaluation:
        """Return a verdict on a kernel that is timed in turns with another one, each in a process of its own."""
        found = await self._retried(Full(task, kernel, anchor), Level.FULL)
        return replace(found, level=Level.FULL)

    async def take_profile(self, state: TaskState, parent: Parent, evaluation_id: str) -> TakenProfile:
        """Return what a profiler says of a kernel that `can_be_profiled`."""
        assert parent.evaluation
        kernel, began = parent.kernel, time.monotonic()
        profile, failure = Profile(None, (), ()), ""
        try:
            profile = await self._pool.run(TakeProfile(state.task, kernel, parent.evaluation.timings))
        except (WorkerLost, EngineError, UserError) as error:  # the search does without profilers
            failure = f"{type(error).__name__}: {error}"
        seconds = time.monotonic() - began
        profile = replace(profile, seconds=profile.seconds or seconds)
        rows = records.profile_rows(profile, evaluation_id, state.task, kernel.id, failure=failure, at=self._now())
        return TakenProfile(state, kernel.id, profile, failure, seconds, rows)

    async def profile(
        self, state: TaskState, request: Request, parent: Parent, evaluation_id: str
    ) -> tuple[Proposal, TakenProfile | None]:
        """See `VerdictSource.profile`."""
        if not can_be_profiled(parent):
            return Proposal(failure="only a correct kernel with times of its own can be profiled"), None
        taken = await self.take_profile(state, parent, evaluation_id)
        if taken.failure:
            return Proposal(failure=taken.failure, seconds=taken.seconds), taken
        metrics = {metric.name: metric.value for metric in taken.profile.metrics}
        bound = taken.profile.bottleneck.value if taken.profile.bottleneck else "unclear"
        return Proposal(metrics=metrics, description=f"bottleneck: {bound}", seconds=taken.seconds), taken

    async def _judge(
        self, state: TaskState, request: Request, kernel: Kernel, built: Built, ancestor: Entrant | None
    ) -> tuple[Reached, ...]:
        """The levels that a kernel that compiled deserves, against the rival that its strategy names."""
        rival = Rival() if ancestor else state.strategy.rival(request, built.cell)
        anchor = rival.anchor or state.anchor
        first, *more = await self._levels(state, kernel, anchor, race=rival.race, ancestor=ancestor)
        stage_ms = {"build": built.build_ms, **first.evaluation.stage_ms}
        return (Reached(replace(first.evaluation, stage_ms=stage_ms), first.at), *more)

    async def _levels(
        self, state: TaskState, kernel: Kernel, anchor: Anchor, *, race: bool, ancestor: Entrant | None
    ) -> list[Reached]:
        """The levels of `fitness.judging.levels.judge`, each level a job of the pool; a confirmation only within its
        share.

        What was there before the search is no discovery: of ancestors only the fastest gets to the full level, and if
        one is the best at the end, that confirms it.
        """
        task = state.task
        results: tuple[Evaluation, ...] = ()
        reached: list[Reached] = []
        while level := next_level(results, race=race, best=state.anchor.log_speedup):
            if level is Level.CONFIRMED and (ancestor or not self._may_confirm(state)):
                break
            if level is Level.FULL and ancestor and not await ancestor.wins(results[-1].log_speedup or 0.0):
                break
            job: Job[Evaluation]
            match level:
                case Level.SCREEN:
                    job = Screen(task, kernel, anchor, race)
                case Level.FULL:
                    job = Full(task, kernel, full_anchor(results[0], anchor, state.baseline))
                case _:
                    job = Confirm(task, kernel)
            try:
                found = await self._resolved(job, level)
            except Undone:
                if level is Level.CONFIRMED:  # what was found before stands as it is; at its end the run tries again
                    break
                raise
            results = (*results, found)
            reached.append(self._reached(found))
            self._count(state, found)
        return reached

    async def _resolved(self, job: Job[Evaluation], level: Level) -> Evaluation:
        """A level's result; an unresolved one is measured again, AGAIN times at most, when others had their turn."""
        key = job.task, job.kernel.id, level
        measurements = Measurements(self._open.get(key))
        for number in measurements:
            if number:
                await asyncio.sleep(PAUSES_S[number - 1])
            found = measurements.add(await self._retried(job, level))
        if found.unresolved:
            self._open.put(key, replace(found, stage_ms={}))  # which is charged now
        else:
            self._open.pop(key, None)
        return found

    def _may_confirm(self, state: TaskState) -> bool:
        """Whether one more confirmation keeps them all within their share of what was spent."""
        least_s = state.least_confirm_s
        return self._confirming_s + least_s <= CONFIRM_SHARE * (self._judging_s + least_s)

    def _count(self, state: TaskState, found: Evaluation) -> None:
        """Take note of what a level took."""
        took_s = 1e-3 * sum(found.stage_ms.get(stage, 0.0) for stage in records.STAGES)
        self._judging_s += took_s
        if found.level is Level.FULL and found.correct:
            state.took_full(took_s)
        if found.level is Level.CONFIRMED:
            self._confirming_s += took_s
            state.took_confirm(found.kernel_id, took_s if found.correct else 0.0)

    async def _retried(self, job: Job[Answer], level: Level = Level.SCREEN) -> Answer | Evaluation:
        """A job's answer, which takes several workers if some are lost; `evo.workers.pool.tried` says what it raises.

        Only what befell two of them in the same way, and may be the kernel's doing, is a verdict on it.
        """
        kernel, task = job.kernel, job.task
        try:
            return await self._tried(job)
        except JobOverdue as error:
            return Evaluation(kernel.id, str(task), level, Status.TIMEOUT, f"{error}, and was given up")
        except DeviceLost as error:
            message = f"the device failed twice while it examined this kernel, at last so: {error}"
            return Evaluation(kernel.id, str(task), level, Status.RUNTIME_ERROR, message)

    async def _tried(self, job: Job[Answer]) -> Answer:
        """See `evo.workers.pool.tried`; every worker that it costs is noted."""

        async def lost(error: WorkerLost) -> None:
            if self.stopping:  # a job whose worker ends with the search is given up as all that is cancelled
                raise asyncio.CancelledError from error
            await self._commit(records.event_rows("worker_lost", {"error": str(error)}, at=self._now(), task=job.task))

        return await tried(self._pool, job, lost, self._waits)


def _duplicate(kernel: Kernel, verdict: Evaluation) -> Evaluation:
    """The verdict that `kernel` inherits."""
    original = verdict.duplicate_of or verdict.kernel_id
    message = f"the same program as kernel {short(original)}, which is {verdict.verdict}"
    return replace(
        verdict.bare(), kernel_id=kernel.id, status=Status.DUPLICATE, duplicate_of=original,
        inherited=verdict.verdict, message=message,
    )  # fmt: skip
