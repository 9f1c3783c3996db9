"""The driver: carries every request from its ask to its tell, within the budget, and writes everything down."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, cast

from evo import records
from evo.budget import Budget
from evo.calls import interrupted_calls, open_client, restore_spending
from evo.config import RunConfig
from evo.individual import Individual, new_programs
from evo.journal import Journal
from evo.pool import Pool, WorkerLost
from evo.records import Rows
from evo.strategies.base import ANCESTOR, Restorable, Strategy, other_request
from fitness.base import Anchor, Built
from fitness.evaluation import Evaluation, Level, Status
from fitness.profiling import Profile
from mutators.base import CallStatus, Client, OutOfBudget, Parent, Proposal, Request
from mutators.catalog import asks_model, propose
from operators.errors import UserError
from operators.kernel import Kernel
from operators.spec import Operator, Task

PARENTS_CACHED = 5_000
STOPPED = "stopped"
IDLE_LIMIT = 300
"""A task rests when so many requests in a row led to no new program."""
CONFIRMATIONS_SHARE = 0.25
"""Of the time limit, kept at most for confirming the leaders at the end."""
CONFIRMATIONS = 5
"""How many of a task's leaders may fail their confirmation before the run ends without a confirmed best."""

Promised = TypeVar("Promised")
Source = tuple[str, str]
"""A parent as a request was asked for: kernel id, and the evaluation told of it by then; empty where none was."""


@dataclass
class TaskState:
    """What the driver knows of one task."""

    operator: Operator
    task: Task
    strategy: Strategy
    baseline: Kernel
    known: dict[str, asyncio.Future[Evaluation]] = field(default_factory=dict)
    """Verdict by kernel id, without timings; pending while it is worked out."""
    codes: dict[str, asyncio.Future[Evaluation]] = field(default_factory=dict)
    """The same by code digest."""
    verdicts: dict[str, str] = field(default_factory=dict)
    """By kernel id, the evaluation that the strategy was told of; of several the first one that is no duplicate's."""
    profiles: dict[str, asyncio.Future[tuple[str, ...]]] = field(default_factory=dict)
    """Notes by kernel id; pending while they are worked out."""
    in_flight: int = 0
    told: int = 0
    confirmed: set[str] = field(default_factory=set)
    """Kernels that a confirmation looked at."""
    confirm_s: float = 0.0
    """What the longest verdict with a confirmation took so far."""
    referenced: bool = False
    """Whether baseline and library are timed, or about to be."""
    idle: int = 0
    """Requests in a row that led to no new program."""
    statuses: Counter[str] = field(default_factory=Counter)

    @property
    def candidates(self) -> int:
        """Programs that were new."""
        return new_programs(self.statuses)

    @property
    def load(self) -> int:
        return self.told + self.in_flight

    def confirm(self, kernel_id: str, took_ms: float) -> None:
        """A confirmation looked at a kernel; its whole verdict took so long."""
        self.confirmed.add(kernel_id)
        self.confirm_s = max(self.confirm_s, took_ms / 1e3)


@dataclass(frozen=True)
class _Done:
    """A finished request: its individual and the rows to be committed with its tell."""

    state: TaskState
    individual: Individual
    rows: Rows
    evaluation: Evaluation | None = None
    """The individual's, with timings and errors, which strategies are not told."""


class Search:
    """One session of a run. All of it happens in one event loop; only proposals and evaluations run elsewhere."""

    def __init__(
        self,
        config: RunConfig,
        store: Journal,
        pool: Pool,
        *,
        client: Client | None = None,
        make_strategy: Callable[[Operator, Task], Strategy] | None = None,
        on_change: Callable[[Search], None] = lambda _: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.config = config
        self.store = store
        self.pool = pool
        self.budget = Budget(dict(config.budget))
        self._make_strategy = make_strategy or config.make_strategy
        self.states = {task: self._state(operator, task) for operator, task in config.tasks()}
        self.stopping = False
        self.phase = "starting"
        own = open_client(config.llm, store, self.budget.ledger) if config.llm and client is None else None
        self._client = client or own
        self._check_models = own.check if own else None
        self._thinking: set[asyncio.Task[Any]] = set()
        """Those of the running requests that wait for a language model."""
        self._refusal = ""
        """Why a model could not be asked for want of budget; empty while it could."""
        self._heard: set[str] = set()
        """Models that have answered."""
        self._on_change = on_change
        self._now = now
        self._seq = 0
        self._earlier_wall_s = 0.0
        self._begin = now()
        self._running: set[asyncio.Task[Any]] = set()
        self._parents: OrderedDict[Source, Parent] = OrderedDict()
        self._stored_kernels: set[str] = set()
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="propose")

    def _state(self, operator: Operator, task: Task) -> TaskState:
        source = operator.ancestor("naive", task.target).read_text(encoding="utf-8")
        baseline = Kernel(operator.name, task.target, source)
        return TaskState(operator, task, self._make_strategy(operator, task), baseline)

    def stop(self) -> None:
        """End soon: what is in flight is given up, and taken up again by a resume."""
        self.stopping = True
        for task in self._running:
            task.cancel()

    async def run(self) -> str:
        """Until the budget is used up or `stop`; returns why it ended."""
        if lost := interrupted_calls(self.store, at=self._now()):
            await self._commit({"llm_calls": lost})
        outstanding = self._restore()
        if self._check_models:
            await self._check_models()
        await self._commit(records.event_rows("session", {"resumed": self._seq > 0}, at=self._now()))
        self.phase = "searching"
        try:
            for request, sources in outstanding:
                self._spawn(self.states[request.task], request, sources)
            reason = await self._loop()
            if not self.stopping:
                self.phase = "confirming"
                self._on_change(self)
                reason = await self._interruptible(self._confirm_best()) or reason
        finally:
            await self._abandon()
            self._threads.shutdown(wait=False, cancel_futures=True)
        wall = {"reason": reason, "wall_s": self._wall_s()}
        await self._commit(records.event_rows("stopped" if self.stopping else "finished", wall, at=self._now()))
        self.phase = "done"
        return reason

    # --- the loop ---------------------------------------------------------------------------------------------------

    async def _loop(self) -> str:
        reason = ""
        while True:
            self.budget.set_wall(self._wall_s())
            reserved_s = self._confirmations_s()
            reason = reason or (STOPPED if self.stopping else self._refusal or self.budget.exhausted(reserved_s) or "")
            if not reason:
                await self._ask()
                self._start_references()
            if not self._running:
                return reason or self._stuck()
            if not self.budget.allows("wall_s", reserved_s):
                # Evaluations end soon; models may take their time, which is over. Their requests stay open.
                for task in self._thinking:
                    task.cancel()
            left = self.config.budget.get("wall_s", float("inf")) - self._wall_s()
            timeout = min(max(left, 0.05), 1.0) if not reason else 1.0
            done, self._running = await asyncio.wait(
                self._running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
            )
            finished = [task for task in done if not task.cancelled()]
            # What was measured beside a failure is not lost with it.
            await self._deliver([task.result() for task in finished if not task.exception()])
            for task in finished:
                task.result()
            self._on_change(self)

    async def _interruptible(self, work: Coroutine[Any, Any, None]) -> str:
        """Something that `stop` ends; returns `stopped` if it did."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        with suppress(asyncio.CancelledError):
            await task
        return STOPPED if self.stopping else ""

    def _stuck(self) -> str:
        """Nothing runs and no strategy has anything to ask: say which ancestor is to blame."""
        for state in self.states.values():
            verdict = self._verdict_of(state, state.baseline)
            if verdict and not verdict.correct:
                raise UserError(f"{state.task}: the naive kernel is {verdict.verdict}: {verdict.message}")
        return f"nothing new in {IDLE_LIMIT} requests of each task"

    async def _ask(self) -> None:
        """Fill the free places, the task with the least behind it first; all that is asked is one commit."""
        asleep = {task for task, state in self.states.items() if state.idle >= IDLE_LIMIT}
        asked: list[tuple[TaskState, Request, tuple[Source, ...]]] = []
        rows: list[Rows] = []
        waiting: Counter[Task] = Counter()
        thinking = 0
        while self._may_ask(len(asked), thinking) and len(asleep) < len(self.states):
            awake = (state for task, state in self.states.items() if task not in asleep)
            state = min(awake, key=lambda state: state.load + waiting[state.task])
            requests = state.strategy.ask(1)
            if not requests:
                asleep.add(state.task)
                continue
            waiting[state.task] += len(requests)
            thinking += sum(asks_model(request.mutator) for request in requests)
            asked += [(state, request, bound_parents(state, request)) for request in requests]
            rows.append(records.ask_rows(requests, seq=self._next_seq(), wanted=1, at=self._now()))
        if not asked:
            return
        await self._commit(records.join(*rows))
        for state, request, sources in asked if not self.stopping else ():
            self._spawn(state, request, sources)

    def _may_ask(self, asked: int, thinking: int) -> bool:
        """Whether there is a free place, and a budget for one more evaluation besides those that may be under way.

        As many requests as the client takes at once may wait for a language model without taking a place from others.
        `asked` requests will soon be under way too, `thinking` of them at a model.
        """
        at_once = self.config.llm.concurrency if self.config.llm else 0
        under_way = len(self._running) + asked
        free = under_way - min(len(self._thinking) + thinking, at_once) < 2 * self.pool.slots
        return free and self.budget.allows("evaluations", under_way)

    async def _deliver(self, finished: list[_Done | None]) -> None:
        """Commit the tells in one transaction, then let the strategies hear them in the same order."""
        arrived = [done for done in finished if done]
        if not arrived:
            return
        tells = [records.tell_rows(done.individual, seq=self._next_seq(), at=self._now()) for done in arrived]
        await self._commit(records.join(*(done.rows for done in arrived), *tells))
        for done in arrived:
            done.state.strategy.tell(done.individual)
            self._count(done.state, done.individual)
            self._remember(done)

    def _count(self, state: TaskState, individual: Individual) -> None:
        """The part of a tell that a resume repeats itself."""
        state.told += 1
        state.statuses[individual.status] += 1
        state.idle = 0 if individual.fresh else state.idle + 1
        kernel, evaluation = individual.kernel, individual.evaluation
        if kernel is None or evaluation is None:
            return
        if evaluation.status is Status.DUPLICATE:
            self.budget.duplicates += 1
        elif individual.request.mutator == "tune":
            self.budget.trials += 1
        elif evaluation.status not in (Status.INVALID, Status.UNSUPPORTED):
            self.budget.charge("evaluations", 1)
        if kernel.id not in state.verdicts or evaluation.status is not Status.DUPLICATE:
            state.verdicts[kernel.id] = records.evaluation_id(individual.request, evaluation.level)

    def _confirmations_s(self) -> float:
        """What confirming the leaders would take now, by those confirmations that there were: part of the budget."""
        usual = max(state.confirm_s for state in self.states.values())
        waiting = [
            state.confirm_s or usual
            for state in self.states.values()
            if (leader := state.strategy.best) and leader.kernel.id not in state.confirmed
        ]
        limit = self.config.budget.get("wall_s", 0.0)
        return min(max((*waiting, sum(waiting) / self.pool.judges)), CONFIRMATIONS_SHARE * limit)

    def _spawn(self, state: TaskState, request: Request, sources: tuple[Source, ...]) -> None:
        state.in_flight += 1
        task = asyncio.ensure_future(self._carry(state, request, sources))
        task.add_done_callback(lambda _: self._landed(state))
        self._running.add(task)

    def _landed(self, state: TaskState) -> None:
        state.in_flight -= 1

    # --- one request ------------------------------------------------------------------------------------------------

    async def _carry(self, state: TaskState, request: Request, sources: tuple[Source, ...]) -> _Done | None:
        """The request's fate; None leaves it open, for a session with more to spend."""
        try:
            proposal = await self._propose(state, request, sources)
        except OutOfBudget as error:
            self._refusal = str(error)
            return None
        rows: Rows = {"proposals": [records.proposal_row(request, proposal, at=self._now())]}
        if proposal.kernel is None:
            lost = Individual(request, None, None, 0.0, proposal.cost_usd, proposal.description)
            return _Done(state, lost, rows)
        kernel = proposal.kernel
        if kernel.id not in self._stored_kernels:
            self._stored_kernels.add(kernel.id)
            rows["kernels"] = [records.kernel_row(kernel)]
        evaluations = await self._evaluate(state, request, kernel)
        for evaluation in evaluations:
            name = records.evaluation_id(request, evaluation.level)
            rows = records.join(
                rows, records.evaluation_rows(evaluation, evaluation_id=name, request_id=request.id, at=self._now())
            )
        seconds = sum(evaluations[0].stage_ms.get(stage, 0.0) for stage in ("build", "verify", "time")) / 1e3
        stored = records.as_stored(evaluations[-1])
        told = replace(stored, timings=(), errors=())
        child = Individual(request, kernel, told, seconds, proposal.cost_usd, proposal.description)
        return _Done(state, child, rows, stored)

    async def _propose(self, state: TaskState, request: Request, sources: tuple[Source, ...]) -> Proposal:
        parents = tuple(self._parent(source) for source in sources)
        if not asks_model(request.mutator):
            return await propose(request, parents, state.operator, threads=self._threads)
        task = asyncio.current_task()
        assert task
        self._thinking.add(task)
        try:
            if parents:
                notes = await self._profile_notes(state, parents[0], sources[0][1])
                parents = (replace(parents[0], profile=notes), *parents[1:])
            proposal = await propose(request, parents, state.operator, client=self._client)
        finally:
            self._thinking.discard(task)
        self._refuse_silence(proposal)
        return proposal

    def _refuse_silence(self, proposal: Proposal) -> None:
        """Raise UserError for a model that failed before it ever answered: it is set up wrongly, or not there.

        One that has answered may fail at times, overnight for a while even; the search goes on with other children.
        """
        for call in proposal.calls:
            if call.status is not CallStatus.FAILED:
                self._heard.add(call.model)
            elif call.model not in self._heard:
                raise UserError(f"model {call.model} has not answered yet and fails: {call.error}")

    async def _evaluate(self, state: TaskState, request: Request, kernel: Kernel) -> tuple[Evaluation, ...]:
        """The verdicts on a kernel, inherited ones included; never two evaluations of the same program."""
        if earlier := state.known.get(kernel.id):
            return (_duplicate(kernel, await _outcome(earlier)),)
        with _promise(state.known, kernel.id) as promise:
            built = await self._patiently(state.task, kernel, lambda: self.pool.build(state.task, kernel))
            if isinstance(built, Evaluation):
                promise.set_result(built)
                return (built,)
            if earlier := state.codes.get(built.code_digest):
                inherited = _duplicate(kernel, await _outcome(earlier))
                promise.set_result(inherited)
                return (inherited,)
            with _promise(state.codes, built.code_digest) as by_code:
                evaluations = await self._judge(state, request, kernel, built)
                slim = replace(evaluations[-1], timings=(), errors=(), stage_ms={})
                by_code.set_result(slim)
                promise.set_result(slim)
                return evaluations

    async def _judge(self, state: TaskState, request: Request, kernel: Kernel, built: Built) -> tuple[Evaluation, ...]:
        rival = None if request.mutator == ANCESTOR else state.strategy.anchor(request, built.cell)
        anchor = rival or Anchor(state.baseline, 0.0, 0.0)
        leader = state.strategy.best
        best = leader.log_speedup if leader else 0.0

        async def judge() -> tuple[Evaluation, ...]:
            return await self.pool.judge(state.task, kernel, anchor, race=rival is not None, best=best)

        result = await self._patiently(state.task, kernel, judge)
        evaluations = result if isinstance(result, tuple) else (result,)
        if evaluations[-1].level is Level.CONFIRMED:
            stages = ("verify", "time", "confirm")
            state.confirm(kernel.id, sum(e.stage_ms.get(stage, 0.0) for e in evaluations for stage in stages))
        screened = replace(evaluations[0], stage_ms={"build": built.build_ms, **evaluations[0].stage_ms})
        return (screened, *evaluations[1:])

    async def _patiently(self, task: Task, kernel: Kernel, call: Callable[[], Any]) -> Any:
        """A job whose worker dies is tried once more; after that the kernel is to blame."""
        for _ in range(2):
            try:
                return await call()
            except WorkerLost as error:
                if self.stopping:
                    raise
                await self._commit(records.event_rows("worker_lost", {"error": str(error)}, at=self._now(), task=task))
        message = "the evaluation worker ended twice while it examined this kernel"
        return Evaluation(kernel.id, str(task), Level.SCREEN, Status.RUNTIME_ERROR, message)

    # --- parents ----------------------------------------------------------------------------------------------------

    def _remember(self, done: _Done) -> None:
        """Keep what was just told at hand, if it is what a child of the kernel would be asked with."""
        kernel, evaluation = done.individual.kernel, done.evaluation
        if kernel is None or evaluation is None:
            return
        evaluation_id = records.evaluation_id(done.individual.request, evaluation.level)
        if done.state.verdicts[kernel.id] == evaluation_id:
            self._cache_parent((kernel.id, evaluation_id), Parent(kernel, evaluation))

    def _parent(self, source: Source) -> Parent:
        """A kernel with its verdict, as they stood when a child of it was asked for."""
        if source not in self._parents:
            self._cache_parent(source, self._stored_parent(*source))
        self._parents.move_to_end(source)
        return self._parents[source]

    def _cache_parent(self, source: Source, parent: Parent) -> None:
        self._parents[source] = parent
        if len(self._parents) > PARENTS_CACHED:
            self._parents.popitem(last=False)

    def _stored_parent(self, kernel_id: str, evaluation_id: str) -> Parent:
        def rows(table: str, key: str, value: str) -> list[dict[str, Any]]:
            found = self.store.rows(f"select * from {table} where {key} = ? order by rowid", [value])
            return cast(list[dict[str, Any]], found.to_pylist())

        kernel = records.kernel_from(rows("kernels", "kernel_id", kernel_id)[0])
        if not evaluation_id:
            return Parent(kernel)
        (verdict,) = rows("evaluations", "evaluation_id", evaluation_id)
        timings, errors = (rows(table, "evaluation_id", evaluation_id) for table in ("timings", "errors"))
        return Parent(kernel, records.evaluation_from(verdict, timings=timings, errors=errors))

    async def _profile_notes(self, state: TaskState, parent: Parent, evaluation_id: str) -> tuple[str, ...]:
        """What a profiler says of a kernel that was timed; every kernel is profiled once a run at most.

        The answer is stored before anybody hears it, failures too: prompts stay the same in every session.
        """
        kernel, evaluation = parent.kernel, parent.evaluation
        if not self.config.profile or evaluation is None or not evaluation.correct or not evaluation.timings:
            return ()
        if earlier := state.profiles.get(kernel.id):
            return await asyncio.shield(earlier)
        with _promise(state.profiles, kernel.id) as promise:
            found = self.store.rows(
                "select notes_json from profiles where task = ? and kernel_id = ?", [str(state.task), kernel.id]
            ).to_pylist()
            notes = tuple(json.loads(found[0]["notes_json"])) if found else None
            promise.set_result(notes if notes is not None else await self._profile(state, parent, evaluation_id))
            return promise.result()

    async def _profile(self, state: TaskState, parent: Parent, evaluation_id: str) -> tuple[str, ...]:
        assert parent.evaluation
        kernel, began = parent.kernel, self._now()
        profile, failure = Profile(None, (), ()), ""
        try:
            profile = await self.pool.profile(state.task, kernel, parent.evaluation.timings)
        except Exception as error:  # noqa: BLE001 the border to profilers: the search does without them
            failure = f"{type(error).__name__}: {error}"
        seconds = self._now() - began
        await self._commit(
            records.profile_rows(
                profile, evaluation_id, state.task, kernel.id, failure=failure, seconds=seconds, at=self._now()
            )
        )
        return profile.notes

    def _verdict_of(self, state: TaskState, kernel: Kernel) -> Evaluation | None:
        future = state.known.get(kernel.id)
        return future.result() if future and future.done() and not future.cancelled() else None

    # --- before and after -------------------------------------------------------------------------------------------

    def _start_references(self) -> None:
        """Time baseline and library beside the search, once per run, as soon as a task's ancestor is judged."""
        for state in self.states.values():
            if state.told and not state.referenced:
                state.referenced = True
                self._running.add(asyncio.ensure_future(self._references(state)))

    async def _references(self, state: TaskState) -> None:
        references = await self._patiently(state.task, state.baseline, lambda: self.pool.references(state.task))
        if not isinstance(references, Evaluation):
            await self._commit(records.reference_rows(state.task, references))

    async def _confirm_best(self) -> None:
        """Give each task's leader a second, independent measurement if it has none; on all devices at once."""
        await asyncio.gather(*map(self._confirm_leader, self.states.values()))

    async def _confirm_leader(self, state: TaskState) -> None:
        for attempt in range(CONFIRMATIONS):
            leader = self.store.rows("select kernel_id, level from best where task = ?", [str(state.task)]).to_pylist()
            if not leader or leader[0]["level"] == Level.CONFIRMED.value:
                break
            await self._confirm(state, leader[0]["kernel_id"], attempt)

    async def _confirm(self, state: TaskState, kernel_id: str, attempt: int) -> None:
        kernel = self._parent((kernel_id, "")).kernel
        baseline = Anchor(state.baseline, 0.0, 0.0)
        result = await self._patiently(
            state.task, kernel, lambda: self.pool.judge(state.task, kernel, baseline, race=False, best=None)
        )
        last = result[-1] if isinstance(result, tuple) else result
        # Whatever was found wrong now weighs as much as a confirmation that failed.
        name = f"{state.task}/final/{self._seq}.{attempt}"
        final = replace(last, level=Level.CONFIRMED)
        rows = records.evaluation_rows(final, evaluation_id=name, request_id=None, at=self._now())
        await self._commit(rows)

    async def _abandon(self) -> None:
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.gather(*self._running, return_exceptions=True)
        self._running.clear()

    # --- resume -----------------------------------------------------------------------------------------------------

    def _restore(self) -> list[tuple[Request, tuple[Source, ...]]]:
        """Apply the stored asks and tells again, in their order; returns the requests that were never told."""
        restore_spending(self.budget.ledger, self.store)
        self._heard |= set(
            self.store.rows("select distinct model from llm_calls where status <> 'failed'").column("model").to_pylist()
        )
        asked, told = (self.store.rows(sql).to_pylist() for sql in (records.ASKED, records.TOLD))
        outstanding: dict[str, tuple[Request, tuple[Source, ...]]] = {}
        asks: Counter[Task] = Counter()
        for entry in records.history(asked, told):
            if isinstance(entry, list):
                self._seq = entry[0]["seq"]
                for request in self._ask_again(entry):
                    outstanding[request.id] = request, bound_parents(self.states[request.task], request)
                asks[request.task] += 1
            else:
                self._seq = entry["seq"]
                self._tell_again(entry)
                del outstanding[entry["request_id"]]
        for task, state in self.states.items():
            if isinstance(state.strategy, Restorable):
                state.strategy.restore(asks[task], state.told)
        self._stored_kernels = {
            row["kernel_id"] for row in self.store.rows("select kernel_id from kernels").to_pylist()
        }
        for row in self.store.rows("select distinct task from baselines").to_pylist():
            self.states[Task.parse(row["task"])].referenced = True
        for row in self.store.rows(records.CONFIRMED).to_pylist():
            self.states[Task.parse(row["task"])].confirm(row["kernel_id"], row["took_ms"])
        self._earlier_wall_s = self._stored_wall_s()
        return list(outstanding.values())

    def _ask_again(self, rows: list[dict[str, Any]]) -> list[Request]:
        state = self.states[Task.parse(rows[0]["task"])]
        if isinstance(state.strategy, Restorable):
            return [Request.from_json(row["request_json"]) for row in rows]
        requests = state.strategy.ask(rows[0]["wanted"])
        if [r.digest for r in requests] != [row["digest"] for row in rows]:
            raise other_request(state.task, rows[0]["request_id"])
        return requests

    def _tell_again(self, row: dict[str, Any]) -> None:
        individual = records.individual_from(row)
        state = self.states[individual.request.task]
        if not isinstance(state.strategy, Restorable):
            state.strategy.tell(individual)
        self._count(state, individual)
        kernel, evaluation = individual.kernel, individual.evaluation
        if kernel is None or evaluation is None:
            return
        verdict: asyncio.Future[Evaluation] = asyncio.get_running_loop().create_future()
        verdict.set_result(evaluation)
        state.known.setdefault(kernel.id, verdict)
        if evaluation.code_digest and evaluation.status is not Status.DUPLICATE:
            state.codes.setdefault(evaluation.code_digest, verdict)

    def _stored_wall_s(self) -> float:
        """Time that earlier sessions took: from each session's start to its last sign of life."""
        when = "epoch(created_at) as moment"
        sessions = self.store.rows(f"select {when} from events where kind = 'session' order by moment").to_pylist()
        signs = self.store.rows(
            " union all ".join(f"select {when} from {table}" for table in ("events", "asks", "tells"))
            + " order by moment"
        ).to_pylist()
        total = 0.0
        starts = [row["moment"] for row in sessions]
        for index, start in enumerate(starts):
            end = starts[index + 1] if index + 1 < len(starts) else float("inf")
            total += max((row["moment"] for row in signs if start <= row["moment"] < end), default=start) - start
        return total

    # --- small things -----------------------------------------------------------------------------------------------

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def _wall_s(self) -> float:
        return self._earlier_wall_s + self._now() - self._begin

    async def _commit(self, rows: Rows) -> None:
        await asyncio.wrap_future(self.store.commit(rows))


def _duplicate(kernel: Kernel, verdict: Evaluation) -> Evaluation:
    """The verdict that `kernel` inherits."""
    original = verdict.duplicate_of or verdict.kernel_id
    return replace(
        verdict,
        kernel_id=kernel.id,
        status=Status.DUPLICATE,
        duplicate_of=original,
        inherited=verdict.verdict,
        message=f"the same program as kernel {original[:12]}, which is {verdict.verdict}",
        timings=(),
        errors=(),
        stage_ms={},
    )


def bound_parents(state: TaskState, request: Request) -> tuple[Source, ...]:
    """The request's parents as the strategy knew them when it asked: to be called before it is told more."""
    return tuple((parent, state.verdicts.get(parent, "")) for parent in request.parents)


async def _outcome(future: asyncio.Future[Evaluation]) -> Evaluation:
    """Another request's verdict. Waiting for it must not cancel it."""
    return await asyncio.shield(future)


class _promise(Generic[Promised]):
    """Announces a verdict (or a profile) under a key, and takes the announcement back when it never comes."""

    def __init__(self, place: dict[str, asyncio.Future[Promised]], key: str) -> None:
        self._place = place
        self._key = key

    def __enter__(self) -> asyncio.Future[Promised]:
        self._future: asyncio.Future[Promised] = asyncio.get_running_loop().create_future()
        self._place[self._key] = self._future
        return self._future

    def __exit__(self, *_: object) -> None:
        if not self._future.done():
            del self._place[self._key]
            self._future.cancel()
