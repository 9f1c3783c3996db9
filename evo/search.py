"""The driver: carries every request from its ask to its tell, within the budget, and writes everything down."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from evo import records
from evo.budget import Budget
from evo.calls import interrupted_calls, open_client, restore_spending
from evo.config import RunConfig
from evo.individual import Individual
from evo.journal import Journal
from evo.naive import is_naive, naive_fault
from evo.parents import Parents
from evo.pool import Pool, WorkerLost
from evo.promises import announced, promise
from evo.records import Rows
from evo.strategies.base import ANCESTOR, Restorable, Strategy, other_request
from evo.task_state import Bound, Notes, Outstanding, TaskState, bind
from evo.watchdog import Watchdog
from fitness.base import Anchor, Built
from fitness.evaluation import Evaluation, Level, Status
from fitness.profiling import Profile
from mutators.base import Client, OutOfBudget, Parent, Proposal, Request
from mutators.catalog import asks_model, propose
from operators.errors import OperatorError
from operators.kernel import Kernel
from operators.spec import Operator, Task

STOPPED = "stopped"
ANSWERS_S = 60.0
"""How long a search that ends waits for answers that are under way and paid."""
IDLE_LIMIT = 300
"""A task rests when so many requests in a row led to no new program."""
CONFIRMATIONS_SHARE = 0.25
"""Of the time limit, kept at most for confirming the leaders at the end."""
CONFIRMATIONS = 5
"""How many of a task's leaders may fail their confirmation before the run ends without a confirmed best."""

WATCH_EVERY_S = 1.0


@dataclass(frozen=True)
class _Profiled:
    """A profile that was taken, and its rows but for their place in the history."""

    state: TaskState
    kernel_id: str
    notes: Notes
    rows: Rows


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
        say: Callable[[str], None] = lambda text: print(f"evo: {text}", file=sys.stderr),
    ) -> None:
        """`say` tells the user what needs to be known at once."""
        self.config = config
        self.store = store
        self.pool = pool
        self.budget = Budget(dict(config.budget))
        self._make_strategy = make_strategy or config.make_strategy
        self.states = {task: self._state(operator, task) for operator, task in config.tasks()}
        self.stopping = False
        self.phase = "starting"
        own = open_client(config.llm, store, self.budget.ledger, say) if config.llm and client is None else None
        self._client = client or own
        self._check_models = own.check if own else None
        self._send_nothing: Callable[[], None] = own.finish if own else lambda: None
        self._paid: Callable[[], set[asyncio.Task[Any]]] = own.under_way if own else set
        """Those of the thinking requests whose answer is under way; others wait for their turn."""
        self._held: Callable[[], set[asyncio.Task[Any]]] = own.held if own else set
        """Those of the thinking requests whose model is put aside, so that nothing of theirs is under way."""
        self._thinking: set[asyncio.Task[Any]] = set()
        """Those of the running requests that wait for a language model."""
        self._profiling: dict[str, asyncio.Task[Any]] = {}
        """By kernel id, those of the running tasks that take profiles."""
        self._requests: dict[asyncio.Task[Any], tuple[TaskState, Request, Bound]] = {}
        """What each of the running tasks carries out, for those that carry out a request."""
        self._judging: set[str] = set()
        """Ids of requests whose kernels may still be charged as evaluations: from their build to their tell."""
        self._postponed: list[tuple[TaskState, Request, Bound]] = []
        """Whose answer is stored, and came when there was no evaluation left for it."""
        self._late = False
        """Whether there is no time left for what models may still answer."""
        self._watchdog = Watchdog(config.stall_s, now)
        self._say = say
        self._refusal = ""
        """Why a model could not be asked for want of budget; empty while it could."""
        self._on_change = on_change
        self._now = now
        self._seq = 0
        self._earlier_wall_s = 0.0
        self._begin = now()
        self._running: set[asyncio.Task[Any]] = set()
        self._parents = Parents(store)
        self._stored_kernels: set[str] = set()
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="propose")

    def _state(self, operator: Operator, task: Task) -> TaskState:
        baseline = Kernel(operator.name, task.target, operator.naive(task.target))
        return TaskState(operator, task, self._make_strategy(operator, task), baseline)

    def stop(self) -> None:
        """End soon: what is in flight is given up, and taken up again by a resume.

        Answers of models that are under way are paid: they are waited for, ANSWERS_S at most. Called again, they are
        given up too.
        """
        again, self.stopping = self.stopping, True
        self._be_late()
        for task in self._running - (set() if again else self._paid()):
            task.cancel()

    def _be_late(self) -> None:
        """There is no time for further answers of models; those under way are worth keeping."""
        self._late = True
        self._send_nothing()

    async def run(self) -> str:
        """Until the budget is used up or `stop`; returns why it ended."""
        if lost := interrupted_calls(self.store, at=self._now()):
            await self._commit({"llm_calls": lost})
        outstanding = self._restore()
        if self._check_models:
            await self._check_models()
        await self._commit(records.event_rows("session", {"resumed": self._seq > 0}, at=self._now()))
        for state in self.states.values():
            if state.fault:
                await self._tell_fault(state)
        self.phase = "searching"
        watching = asyncio.ensure_future(self._watch())
        try:
            for request, bound in outstanding:
                self._spawn(self.states[request.task], request, bound)
            reason = await self._loop()
            if not self.stopping:
                self.phase = "confirming"
                self._on_change(self)
                reason = await self._interruptible(self._confirm_best()) or reason
            await self._last_answers()
        finally:
            watching.cancel()
            await self._abandon()
            self._threads.shutdown(wait=False, cancel_futures=True)
        wall = {"reason": reason, "wall_s": self._wall_s()}
        await self._commit(records.event_rows("stopped" if self.stopping else "finished", wall, at=self._now()))
        self.phase = "done"
        return reason

    # --- the loop ---------------------------------------------------------------------------------------------------

    async def _loop(self) -> str:
        """Search until there is a reason to end and nothing is under way; late, answers of models may be."""
        reason = ""
        while True:
            self.budget.set_wall(self._wall_s())
            reserved_s = self._confirmations_s()
            reason = reason or (STOPPED if self.stopping else self._refusal or self.budget.exhausted(reserved_s) or "")
            if not reason:
                self._take_up_postponed()
                await self._ask()
            else:
                self._end_profiles()
            if not self.budget.allows("wall_s", reserved_s):
                self._be_late()
            given_up = self._thinking if self._late else self._held() if reason else set()
            if not self._running - given_up:
                return reason or self._stuck()
            left = self.config.budget.get("wall_s", float("inf")) - self._wall_s()
            timeout = min(max(left, 0.05), 1.0) if not reason else 1.0
            await self._hear(await asyncio.wait(self._running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED))
            self._on_change(self)

    async def _hear(self, waited: tuple[set[asyncio.Task[Any]], set[asyncio.Task[Any]]]) -> None:
        """Deliver what has finished; of failures, the first is raised."""
        done, _ = waited
        self._running -= done
        finished = [task for task in done if not task.cancelled()]
        # What was measured beside a failure is not lost with it.
        await self._deliver([task.result() for task in finished if not task.exception()])
        for task in finished:
            task.result()

    def _end_profiles(self) -> None:
        """No further question will be asked that they could serve."""
        for task in self._profiling.values():
            task.cancel()

    async def _last_answers(self) -> None:
        """Wait for answers under way, as long as the time limit and ANSWERS_S allow; a resume finds them stored."""
        began = self._now()
        limit_s = ANSWERS_S if self.stopping else self.config.budget.get("wall_s", float("inf")) - self._wall_s()
        if self.stopping and (paid := self._thinking & self._paid()):
            self._say(f"stops as soon as {len(paid)} answers that are paid are there; once more gives them up")
        while (paid := self._thinking & self._paid()) and (left := min(limit_s, ANSWERS_S) - (self._now() - began)) > 0:
            self.phase = f"waiting for {len(paid)} answers that are paid"
            self._on_change(self)
            await asyncio.wait(paid, timeout=min(left, 1.0), return_when=asyncio.FIRST_COMPLETED)

    async def _watch(self) -> None:
        """Say when nothing moves, and restart what is stuck when nothing moves for long."""
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            alarm = self._watchdog.check()
            if not alarm:
                continue
            still_s, jobs = self._watchdog.still_s, [str(job) for job in self.pool.jobs()]
            restarted: list[str] = []
            if alarm == "restart":
                restarted = [str(job) for job in self.pool.restart(self.config.stall_s)] or self._restart_requests()
            what = f"under way: {', '.join(jobs) or 'nothing'}; {len(self._thinking)} questions wait for models"
            more = f"; restarted: {', '.join(restarted)}" if restarted else ""
            self._say(f"nothing has moved for {still_s:.0f} s; {what}{more}")
            detail = {"still_s": still_s, "jobs": jobs, "thinking": len(self._thinking), "restarted": restarted}
            await self._commit(records.event_rows(alarm, detail, at=self._now()), moves=False)

    def _restart_requests(self) -> list[str]:
        """Carry out anew every request that waits for neither a worker nor a model; returns their ids.

        None ever should: this is for what nobody has thought of.
        """
        stuck = [(task, *found) for task, found in self._requests.items() if task not in self._thinking]
        for task, state, request, bound in stuck:
            task.cancel()
            if not self._late:
                self._spawn(state, request, bound)
        return [request.id for _, _, request, _ in stuck]

    async def _interruptible(self, work: Coroutine[Any, Any, None]) -> str:
        """Something that `stop` ends; returns `stopped` if it did."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        with suppress(asyncio.CancelledError):
            await task
        self._running.discard(task)
        return STOPPED if self.stopping else ""

    def _stuck(self) -> str:
        """Nothing runs and no strategy has anything to ask."""
        if all(state.fault for state in self.states.values()):
            return "no task can be judged"
        return f"nothing new in {IDLE_LIMIT} requests of each task"

    async def _ask(self) -> None:
        """Fill the free places, the task with the least behind it first; all that is asked is one commit."""
        asleep = {task for task, state in self.states.items() if state.fault or state.idle >= IDLE_LIMIT}
        asked: list[tuple[TaskState, Request, Bound]] = []
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
            asked += [(state, request, bind(state, request)) for request in requests]
            rows.append(records.ask_rows(requests, seq=self._next_seq(), wanted=1, at=self._now()))
        if not asked:
            return
        await self._commit(records.join(*rows))
        for state, request, bound in asked if not self.stopping else ():
            self._spawn(state, request, bound)
            self._want_profile(state, request, bound)

    def _may_ask(self, asked: int, thinking: int) -> bool:
        """Whether there is a free place, and a budget for one more evaluation besides those that may be under way.

        As many requests as the client takes at once may wait for a language model without taking a place from others.
        `asked` requests will soon be under way too, `thinking` of them at a model.
        """
        at_once = self.config.llm.concurrency if self.config.llm else 0
        # A model that is put aside holds one question of each task, and what was asked before that was known.
        most_held = at_once + len(self.states) * len(self.config.llm.models) if self.config.llm else 0
        held = min(len(self._held()), most_held)
        under_way = len(self._running) - len(self._profiling) - held + asked
        free = under_way - min(len(self._thinking) - held + thinking, at_once) < 2 * self.pool.slots
        return free and self.budget.allows("evaluations", under_way)

    def _may_judge(self) -> bool:
        """Whether one more kernel may be evaluated: a question whose model was away comes back uncalled-for."""
        return self.budget.allows("evaluations", len(self._judging))

    def _take_up_postponed(self) -> None:
        """Carry on with answers that had to wait, as far as evaluations are left: duplicates took none."""
        while self._postponed and self.budget.allows("evaluations", len(self._judging) + len(self._running)):
            self._spawn(*self._postponed.pop(0))

    async def _deliver(self, finished: list[_Done | _Profiled | None]) -> None:
        """Commit tells and profiles in one transaction, then let them count in the same order."""
        arrived = [done for done in finished if done]
        if not arrived:
            return
        # Who waited for another's verdict on the same kernel is told after it.
        arrived.sort(key=lambda done: isinstance(done, _Done) and done.individual.repeats)
        await self._commit(records.join(*(self._rows(done) for done in arrived)))
        for done in arrived:
            if isinstance(done, _Profiled):
                done.state.profiles[done.kernel_id] = done.notes
            else:
                done.state.strategy.tell(done.individual)
                sound = not done.state.fault
                self._count(done.state, done.individual)
                self._judging.discard(done.individual.request.id)
                self._remember(done)
                if sound and done.state.fault:
                    await self._tell_fault(done.state)

    def _rows(self, done: _Done | _Profiled) -> Rows:
        """What is to be committed with its place in the history."""
        seq = self._next_seq()
        if isinstance(done, _Done):
            generation, is_new = done.state.born(done.individual.request, done.individual.kernel)
            rows = records.placed(done.rows, generation=generation, is_new=is_new)
            return records.join(rows, records.tell_rows(done.individual, seq=seq, at=self._now()))
        return done.rows | {"profiles": [row | {"seq": seq} for row in done.rows["profiles"]]}

    def _count(self, state: TaskState, individual: Individual) -> None:
        """The part of a tell that a resume repeats itself."""
        state.told += 1
        state.statuses[individual.status] += 1
        if not individual.unavailable:
            state.idle = 0 if individual.fresh else state.idle + 1
        kernel, evaluation = individual.kernel, individual.evaluation
        if kernel is None or evaluation is None:
            return
        if is_naive(individual.request) and not evaluation.correct:
            state.fault = naive_fault(state.operator, state.task, evaluation, workload_set=self.config.workload_set)
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

    def _spawn(self, state: TaskState, request: Request, bound: Bound) -> None:
        state.in_flight += 1
        task = asyncio.ensure_future(self._carry(state, request, bound))
        self._requests[task] = state, request, bound
        task.add_done_callback(self._ended)
        self._running.add(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        state, request, _ = self._requests.pop(task)
        state.in_flight -= 1
        if task.cancelled() or task.exception() or task.result() is None:  # what is told is counted until then
            self._judging.discard(request.id)

    # --- one request ------------------------------------------------------------------------------------------------

    async def _carry(self, state: TaskState, request: Request, bound: Bound) -> _Done | None:
        """The request's fate; None leaves it open, for a session with more to spend."""
        try:
            proposal = await self._propose(state, request, bound)
        except OutOfBudget as error:
            self._refusal = str(error)
            return None
        self._watchdog.moved()
        if asks_model(request.mutator) and self._late:
            return None  # the answer is stored; its kernel is for a later session
        rows: Rows = {"proposals": [records.proposal_row(request, proposal, at=self._now())]}
        if proposal.kernel is None:
            gone = proposal.unavailable
            lost = Individual(request, None, None, 0.0, proposal.cost_usd, proposal.description, gone)
            return _Done(state, lost, rows)
        if asks_model(request.mutator) and not self._may_judge():
            self._postponed.append((state, request, bound))
            return None
        self._judging.add(request.id)
        kernel = proposal.kernel
        if kernel.id not in self._stored_kernels:
            self._stored_kernels.add(kernel.id)
            rows["kernels"] = [records.kernel_row(kernel)]
        try:
            evaluations = await self._evaluate(state, request, kernel)
        except OperatorError as error:
            await self._give_up(state, str(error))
            return None
        for evaluation in evaluations:
            name = records.evaluation_id(request, evaluation.level)
            rows = records.join(
                rows, records.evaluation_rows(evaluation, evaluation_id=name, request_id=request.id, at=self._now())
            )
        seconds = sum(evaluations[0].stage_ms.get(stage, 0.0) for stage in ("build", "verify", "time")) / 1e3
        stored = records.as_stored(evaluations[-1])
        told = replace(stored, timings=(), library_timings=(), errors=())
        child = Individual(request, kernel, told, seconds, proposal.cost_usd, proposal.description)
        return _Done(state, child, rows, stored)

    async def _give_up(self, state: TaskState, fault: str) -> None:
        """Leave a task alone whose operator is at fault: in this session, it may be mended by the next one."""
        if not state.fault:
            state.fault = " ".join(fault.split())
            await self._tell_fault(state)

    async def _tell_fault(self, state: TaskState) -> None:
        detail = {"reason": state.fault}
        await self._commit(records.event_rows(records.TASK_FAILED, detail, at=self._now(), task=state.task))

    async def _propose(self, state: TaskState, request: Request, bound: Bound) -> Proposal:
        parents = tuple(self._parents.find(source, baseline=state.baseline) for source in bound.sources)
        if not asks_model(request.mutator):
            return await propose(request, parents, state.operator, threads=self._threads)
        if parents:
            parents = (replace(parents[0], profile=bound.notes), *parents[1:])
        task = asyncio.current_task()
        assert task
        self._thinking.add(task)
        try:
            return await propose(request, parents, state.operator, client=self._client)
        finally:
            self._thinking.discard(task)

    async def _evaluate(self, state: TaskState, request: Request, kernel: Kernel) -> tuple[Evaluation, ...]:
        """The verdicts on a kernel, inherited ones included; never two evaluations of the same program."""
        if earlier := await announced(state.known, kernel.id):
            return (_duplicate(kernel, earlier),)
        with promise(state.known, kernel.id) as by_id:
            built = await self._patiently(state.task, kernel, lambda: self.pool.build(state.task, kernel))
            if isinstance(built, Evaluation):
                by_id.set_result(built)
                return (built,)
            if earlier := await announced(state.codes, built.code_digest):
                inherited = _duplicate(kernel, earlier)
                by_id.set_result(inherited)
                return (inherited,)
            with promise(state.codes, built.code_digest) as by_code:
                evaluations = await self._judge(state, request, kernel, built)
                slim = replace(evaluations[-1], timings=(), library_timings=(), errors=(), stage_ms={})
                by_code.set_result(slim)
                by_id.set_result(slim)
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

    def _remember(self, done: _Done) -> None:
        """Keep what was just told at hand, if it is what a child of the kernel would be asked with."""
        kernel, evaluation = done.individual.kernel, done.evaluation
        if kernel is None or evaluation is None:
            return
        evaluation_id = records.evaluation_id(done.individual.request, evaluation.level)
        if done.state.verdicts[kernel.id] == evaluation_id:
            self._parents.told(kernel, evaluation, evaluation_id)

    # --- profiles ---------------------------------------------------------------------------------------------------

    def _want_profile(self, state: TaskState, request: Request, bound: Bound) -> None:
        """Have the principal parent of a question profiled beside it, for the next question about the same kernel.

        Nobody waits for a profile, and no more than a judge's share of the pool is at profiles at a time.
        """
        wanted = self.config.profile and bound.sources and asks_model(request.mutator)
        if not wanted or len(self._profiling) >= self.pool.judges:
            return
        source = bound.sources[0]
        if not source[1] or source[0] in state.profiles or source[0] in self._profiling:
            return
        parent = self._parents.find(source, baseline=state.baseline)
        if parent.evaluation and parent.evaluation.correct and parent.evaluation.timings:
            task = asyncio.ensure_future(self._profile(state, parent, source[1]))
            self._profiling[source[0]] = task
            task.add_done_callback(lambda _: self._profiling.pop(source[0]))
            self._running.add(task)

    async def _profile(self, state: TaskState, parent: Parent, evaluation_id: str) -> _Profiled:
        assert parent.evaluation
        kernel, began = parent.kernel, self._now()
        profile, failure = Profile(None, (), ()), ""
        try:
            profile = await self.pool.profile(state.task, kernel, parent.evaluation.timings)
        except Exception as error:  # noqa: BLE001 the border to profilers: the search does without them
            failure = f"{type(error).__name__}: {error}"
        seconds = self._now() - began
        rows = records.profile_rows(
            profile, evaluation_id, state.task, kernel.id, failure=failure, seconds=seconds, at=self._now()
        )
        return _Profiled(state, kernel.id, profile.notes, rows)

    # --- before and after -------------------------------------------------------------------------------------------

    async def _confirm_best(self) -> None:
        """Give each task's leader a second, independent measurement if it has none; on all devices at once."""
        await asyncio.gather(*map(self._confirm_leader, self.states.values()))

    async def _confirm_leader(self, state: TaskState) -> None:
        try:
            await self._confirmed_leader(state)
        except OperatorError as error:
            await self._give_up(state, str(error))

    async def _confirmed_leader(self, state: TaskState) -> None:
        for attempt in range(CONFIRMATIONS):
            leader = self.store.rows("select kernel_id, level from best where task = ?", [str(state.task)]).to_pylist()
            if not leader or leader[0]["level"] == Level.CONFIRMED.value:
                break
            await self._confirm(state, leader[0]["kernel_id"], attempt)

    async def _confirm(self, state: TaskState, kernel_id: str, attempt: int) -> None:
        kernel = self._parents.find((kernel_id, ""), baseline=state.baseline).kernel
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

    def _restore(self) -> list[Outstanding]:
        """Apply the stored asks and tells again, in their order; returns the requests that were never told."""
        restore_spending(self.budget.ledger, self.store)
        queries = (records.ASKED, records.TOLD, records.PROFILED)
        outstanding: dict[str, Outstanding] = {}
        asks: Counter[Task] = Counter()
        for seq, entry in records.history(*(self.store.rows(sql).to_pylist() for sql in queries)):
            self._seq = max(self._seq, seq)
            if isinstance(entry, records.Asked):
                for request in self._ask_again(entry.rows):
                    outstanding[request.id] = request, bind(self.states[request.task], request)
                asks[request.task] += 1
            elif isinstance(entry, records.Told):
                self._tell_again(entry.row)
                del outstanding[entry.row["request_id"]]
            else:
                self._profiled_again(entry.row)
        for task, state in self.states.items():
            if isinstance(state.strategy, Restorable):
                state.strategy.restore(asks[task], state.told)
        for row in self.store.rows("select task, kernel_id, generation from individuals").to_pylist():
            self.states[Task.parse(row["task"])].generations[row["kernel_id"]] = row["generation"]
        self._stored_kernels = {
            row["kernel_id"] for row in self.store.rows("select kernel_id from kernels").to_pylist()
        }
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

    def _profiled_again(self, row: dict[str, Any]) -> None:
        self.states[Task.parse(row["task"])].profiles[row["kernel_id"]] = tuple(json.loads(row["notes_json"]))

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

    async def _commit(self, rows: Rows, *, moves: bool = True) -> None:
        """Store rows for good. `moves` says whether they are a sign that the search gets on."""
        await asyncio.wrap_future(self.store.commit(rows))
        if moves:
            self._watchdog.moved()


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
        library_timings=(),
        errors=(),
        stage_ms={},
    )
