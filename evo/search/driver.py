"""The driver: takes every request from its ask to its tell, within the budget, and writes everything down."""

from __future__ import annotations

import asyncio
import gc
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

from evo import rows as records
from evo.budget import CLOSING_S, TICK_S, Budget, Patience, RunClock
from evo.config import RunConfig
from evo.individual import Individual
from evo.rows import Journal, Rows
from evo.search.confirmations import Confirmations
from evo.search.execution import Execution, RunBenches
from evo.search.history import Done, History
from evo.search.models import Questions, interrupted_calls, open_client, restore_spending
from evo.search.outside import Arrivals
from evo.search.schedule import Admission, DraftJudgings, Errand, InFlight, Postponed
from evo.search.task import Outstanding, TaskState, task_states, verdict_s
from evo.search.verdicts import Profiles, TakenProfile, Verdicts
from evo.search.watchdog import Standstill, Watchdog
from evo.strategies.base import Strategy
from evo.strategies.tuning import LAST_TRIALS
from evo.workbench.recorded import StoredToolCalls
from evo.workers.pool import Pool, Undone
from mutators.base import Client, Kind, OutOfBudget
from mutators.registry import asks_model
from operators.definition.spec import Operator, Task
from operators.errors import DiskError, OperatorError, machine_error


def ask_last_trials(states: Iterable[TaskState], history: History) -> tuple[list[Errand], Rows]:
    """Ask each strategy that has nothing under way for its next trial; return what is to be committed too."""
    asked: list[Errand] = []
    rows: list[Rows] = []
    for state in states:
        if not state.fault and not state.in_flight:
            found, written = history.ask(state, LAST_TRIALS)
            asked += [Errand(state, *each) for each in found]
            rows.append(written)
    return asked, records.join(*rows)


STOPPED, CONFIRMED = "stopped", "confirmed"
WAITS, FAULTY = "waits for", "no task can be judged"
"""Reasons for which a search ends that could go on: the beginning of the one, and the other."""
NOTHING_MORE = "the strategy has nothing more to ask"
ANSWERS_S = 60.0
"""Time that a search which ends waits for answers that are under way and paid."""
MOST_AT_ONCE = 8
"""Requests of one task that follow each other: to draw a task's inputs anew takes as long as to judge a few kernels."""
IDLE_LIMIT = 300
"""A task is idle when so many requests in a row led to no new program."""


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
        began: float | None = None,
        only_confirm: bool = False,
        wait_s: float = 0.0,
        closing_s: float = 0.0,
        say: Callable[[str], None] = lambda text: print(f"evo: {text}", file=sys.stderr),
    ) -> None:
        """`began`: when the session did, by `now`, if that was earlier; `say` tells the user what is urgent.

        With `only_confirm` it searches no further, but confirms the leaders, however long that takes. With nothing to
        do it waits `wait_s` for what is told from outside. `closing_s` are kept for what ends after it, besides what
        any run needs.
        """
        self.config = config
        self.store = store
        self.pool = pool
        self.budget = Budget({} if only_confirm else dict(config.budget), counts_lost=config.cell is None)
        self.states = task_states(config, make_strategy)
        self.stopping = False
        self.phase = "starting"
        limit_s = self.budget.limits.get("wall_s", math.inf)
        self.clock = RunClock(now, limit_s=limit_s, began=began, closing_s=CLOSING_S[config.target] + closing_s)
        own = open_client(config.llm, store, self.budget.spending, say) if config.llm and client is None else None
        self._questions = Questions(own)
        self._patience = Patience(self.clock, say, self._note_full)
        store.waits = self._patience.waits
        self._verdicts = Verdicts(pool, self._commit, now, self._patience.waits)
        self._execution = Execution(store, self._verdicts, client or own, now, check=config.check)
        self._history = History(
            self.states, store, self.budget, workload_set=config.workload_set, commit=self._commit, now=now
        )
        self._profiles = Profiles(self._verdicts, self._execution.parents, pool, waits=config.cell is not None)
        self._confirmations = Confirmations(
            self.states, store, pool, self._verdicts, self._execution.parents, self.clock,
            commit=self._commit, give_up=self._give_up,
        )  # fmt: skip
        self._flight = InFlight()
        self._admission = Admission(
            self.budget, pool, self._flight, self._questions, self._profiles, llm=config.llm, tasks=len(self.states),
            most=config.cell.under_way if config.cell else None,
        )  # fmt: skip
        self._arrivals = Arrivals(
            self.states, store, self._history, client=own.outside if own else None, settings=config.llm,
            spending=self.budget.spending, commit=self._commit, say=say, now=now,
        )  # fmt: skip
        self._tool_calls = StoredToolCalls(store, kernel_rows=self._execution.kernel_rows, commit=self._commit)
        drafts = DraftJudgings(self.budget, self._admission)
        self._execution.benches = RunBenches(
            self._tool_calls, pool, drafts, self._tool_calls.read, now, self._patience.waits
        )
        self._postponed = Postponed(self._admission, self._flight)
        self._refusal = ""
        """Why a model could not be asked for want of budget; empty while it could."""
        self._watchdog = Watchdog(config.stall_s, now)
        self._standstill = Standstill(
            self._watchdog, pool, self._flight, self._questions, stall_s=config.stall_s, spawn=self._spawn,
            commit=self._commit, say=say, now=now,
        )  # fmt: skip
        self._say = say
        self._on_change = on_change
        self._now = now
        self._only_confirm = only_confirm
        self._wait_s = wait_s

    def stop(self) -> None:
        """End soon: what is in flight is given up, and taken up again by a resume.

        Answers of models that are under way are paid: they are waited for, ANSWERS_S at most. Called again, they are
        given up too.
        """
        again, self.stopping = self.stopping, True
        self._verdicts.stopping = True
        self._patience.over = True
        self._questions.be_late()
        self._flight.cancel(but=set() if again else self._questions.paid)

    async def run(self) -> str:
        """Search until the budget is used up or `stop` is called; return why the search ended."""
        if lost := interrupted_calls(self.store, at=self._now()):
            await self._commit({"llm_calls": lost})
        outstanding = self._restore()
        await self._questions.check()
        await self._commit(records.event_rows("session", {"resumed": self._history.seq > 0}, at=self.clock.began))
        for state in self.states.values():
            if state.fault:
                await self._tell_fault(state)
        watching = asyncio.ensure_future(self._watchdog.watch(self._standstill.alarm))
        try:
            reason = CONFIRMED if self._only_confirm else await self._loop(outstanding)
            while not self.stopping:
                await self._tune()
                # A cell that waits for answers from outside will go on: its winner is of interest when it is over.
                if not self.stopping and not (self.config.cell and self._questions.outside):
                    await self._confirm()
                if self._only_confirm or not self._arrivals.there:
                    break
                reason = await self._loop(())  # for what was told from outside meanwhile
            reason = STOPPED if self.stopping else reason
            await self._last_answers()
        finally:
            watching.cancel()
            await self._flight.abandon()
            self._execution.close()
            gc.unfreeze()
        wall = {"reason": reason, "wall_s": self.clock.spent_s}
        await self._commit(records.event_rows("stopped" if self.stopping else "finished", wall, at=self._now()))
        self.phase = "done"
        return reason

    def _restore(self) -> list[Outstanding]:
        """Come to where the last session ended; return the requests that it left open."""
        restore_spending(self.budget.spending, self.store)
        outstanding = self._history.restore(self._recall)
        self._execution.restore()
        self._verdicts.resume(**self.store.rows(records.JUDGED).to_pylist()[0])
        self.budget.charge("evaluations", self._tool_calls.restore())
        self.clock.earlier_s = self._history.earlier_wall_s()
        gc.freeze()  # what was read lives as long as the search: the collector need not look at it again and again
        return outstanding

    def _recall(self, individual: Individual) -> None:
        if individual.kernel and individual.evaluation:
            self._verdicts.recall(individual.request.task, individual.kernel, individual.evaluation)

    # --- the loop ---------------------------------------------------------------------------------------------------

    async def _loop(self, outstanding: Iterable[Outstanding]) -> str:
        """Search until there is a reason to end and nothing is under way; late, answers of models may be."""
        self.phase = "searching"
        for request, bound in outstanding:
            self._begin(Errand(self.states[request.task], request, bound))
        reason = ""
        while True:
            self.budget.set_wall(self.clock.spent_s)
            self._postponed.add(*await self._arrivals.take())
            left_s, confirming_s = self.clock.left_s, self._confirmations.needed_s()
            reserved_s = confirming_s + verdict_s(self.states)
            reason = reason or (STOPPED if self.stopping else self._refusal or self.budget.exhausted(reserved_s) or "")
            if not reason:
                for errand in self._postponed.ready():
                    self._spawn(errand)
                await self._ask()
            else:
                self._profiles.cancel()
                _run_out(self._flight, self._questions, self.pool, left_s, confirming_s, reserved_s)
            late, thinking = self._questions.late, self._questions.thinking
            given_up = thinking if late else self._questions.idle if reason else set()
            if reason and not self._flight.tasks - given_up:
                return reason
            if not reason and (quiet_s := self._questions.quiet_s(self._flight.tasks, self._now())) is not None:
                self._watchdog.moved()  # for all that it can do
                if quiet_s >= self._wait_s:
                    return _stuck(self.states.values(), self._questions)
            await self._hear(await self._flight.wait(self.clock.tick_s(left_s - confirming_s)))
            await self._standstill.tell()
            self._on_change(self)

    @property
    def waits(self) -> str:
        """The event that the search waits for, in words."""
        return self._standstill.waits

    async def _tune(self) -> None:
        """Have strategies that tune at their end do so, one trial of each task at a time."""
        tunes = self.config.cell and self.config.cell.tune and not self._only_confirm
        while tunes and not self.stopping and not self._questions.outside:
            asked, rows = ask_last_trials(self.states.values(), self._history)
            await self._commit(rows)
            for errand in asked:
                self._spawn(errand)
            if not self._flight.tasks:
                return
            self.phase = "tuning"
            await self._hear(await self._flight.wait(TICK_S))
            self._on_change(self)

    async def _confirm(self) -> None:
        """Confirm the leaders, as far as there is time; what takes longer than the limit allows is given up."""
        confirming = asyncio.ensure_future(self._confirmations.confirm_leaders(str(self._history.seq)))
        self._flight.add(confirming)
        while confirming in self._flight.tasks:
            self.budget.set_wall(self.clock.spent_s)
            self.phase = self._confirmations.phase
            self._on_change(self)
            if self.clock.grace_s <= 0:
                confirming.cancel()
            await self._hear(await self._flight.wait(self.clock.tick_s(self.clock.grace_s)))

    async def _hear(self, finished: list[asyncio.Task[Any]]) -> None:
        """Deliver what has finished; of failures, the first is raised."""
        # What was measured beside a failure is not lost with it.
        await self._deliver([task.result() for task in finished if not task.exception()])
        for task in finished:
            task.result()

    async def _deliver(self, finished: list[Done | TakenProfile | None]) -> None:
        arrived = [done for done in finished if done]
        if not arrived:
            return
        faulty = await self._history.deliver(arrived)
        for done in arrived:
            if isinstance(done, Done):
                self._flight.judging.pop(done.individual.request.id, None)
                self._execution.remember(done)
        for state in faulty:
            await self._tell_fault(state)

    async def _ask(self) -> None:
        """Fill the free places, the task with the least behind it first; all that is asked is one commit.

        Where there are many tasks, several requests of one follow each other: so a worker judges them in one visit.
        """
        at_once = max(1, min(MOST_AT_ONCE, len(self.states) // (2 * self.pool.judges)))
        asleep = {task for task, state in self.states.items() if state.fault or state.idle >= IDLE_LIMIT}
        asked: list[Errand] = []
        rows: list[Rows] = []
        waiting: Counter[Task] = Counter()
        thinking = 0
        while self._admission.may_ask(len(asked), thinking) and len(asleep) < len(self.states):
            awake = (state for task, state in self.states.items() if task not in asleep)
            state = min(awake, key=lambda state: (state.load + waiting[state.task]) // at_once)
            found, written = self._history.ask(state, 1)
            if not found:
                asleep.add(state.task)
                continue
            waiting[state.task] += len(found)
            thinking += sum(asks_model(request) for request, _ in found)
            asked += [Errand(state, *each) for each in found]
            rows.append(written)
        if not asked:
            return
        await self._commit(records.join(*rows))
        for errand in asked if not self.stopping else ():
            self._begin(errand)

    def _begin(self, errand: Errand) -> None:
        self._spawn(errand)
        if self.config.profile != "none":
            self._flight.add(*self._profiles.want(errand.state, errand.request, errand.bound))

    def _spawn(self, errand: Errand) -> None:
        self._flight.begin(errand, self._execute(errand))

    async def _execute(self, errand: Errand) -> Done | None:
        """The request's fate; None leaves it open, for a session with more to spend."""
        state, request, bound = errand.state, errand.request, errand.bound
        if request.kind is Kind.PROFILE:
            return await self._execution.profile(state, request, bound)
        from_model = asks_model(request)
        try:
            with self._questions.asking() if from_model else nullcontext():
                proposal = await self._execution.propose(state, request, bound)
        except OutOfBudget as error:
            self._refusal = str(error)
            return None
        except Exception as error:
            found = machine_error(error)
            if found is None or isinstance(found, DiskError):  # for room the store has waited
                raise
            return self._execution.without_machine(state, request, str(found))
        self._watchdog.moved()
        if from_model and self._questions.late:
            return None  # the answer is stored; its kernel is for a later session
        if proposal.kernel is None:
            return self._execution.without_kernel(state, request, proposal)
        if from_model and not self._admission.may_judge():
            self._postponed.add(errand)
            return None
        self._flight.judging[request.id] = proposal.kernel.id
        try:
            return await self._execution.judge(state, request, proposal)
        except (OperatorError, Undone) as error:
            await self._give_up(state, str(error))
            return None

    async def _give_up(self, state: TaskState, fault: str) -> None:
        """Leave a task alone whose operator is at fault: in this session, it may be mended by the next one."""
        if not state.fault:
            state.fault = " ".join(fault.split())
            await self._tell_fault(state)

    async def _tell_fault(self, state: TaskState) -> None:
        detail = {"reason": state.fault}
        await self._commit(records.event_rows(records.TASK_FAILED, detail, at=self._now(), task=state.task))

    def _note_full(self, reason: str) -> None:
        """Have it stored that a disk is full; the row waits for room like all others. Any thread may call it."""
        self.store.commit(records.event_rows(records.WAITS, {"for": f"room on a disk: {reason}"}, at=self._now()))

    async def _last_answers(self) -> None:
        """Wait for answers under way, as long as the time limit and ANSWERS_S allow; a resume finds them stored."""
        if self.stopping and (paid := self._questions.paid):
            self._say(f"stops as soon as {len(paid)} answers that are paid are there; once more gives them up")
        limit_s = min(ANSWERS_S if self.stopping else self.clock.left_s, ANSWERS_S)
        async for count in self._questions.until_answered(limit_s, self._now):
            self.phase = f"waiting for {count} answers that are paid"
            self._on_change(self)

    async def _commit(self, rows: Rows, *, moves: bool = True) -> None:
        """Store rows for good. `moves` says whether they are a sign that the search gets on."""
        await asyncio.wrap_future(self.store.commit(rows))
        if moves:
            self._watchdog.moved()


def _run_out(
    flight: InFlight, questions: Questions, pool: Pool, left_s: float, confirming_s: float, reserved_s: float
) -> None:
    """Give up what the time is not enough for; it stays open in the store, for a session with more of it.

    First what no worker is at: a worker that is nearly done with a job is free sooner than one that is to leave it.
    """
    if left_s <= confirming_s:
        flight.give_up(but=questions.thinking)
    elif left_s <= reserved_s and not questions.late:
        at_workers = flight.at({at.job.kernel.id for at in pool.jobs()})
        flight.give_up(but=questions.thinking | at_workers)
    if left_s <= reserved_s:
        questions.be_late()


def _stuck(states: Iterable[TaskState], questions: Questions) -> str:
    """Why a search ends where nothing runs and no strategy has anything to ask."""
    states = [*states]
    if all(state.fault for state in states):
        return FAULTY
    if outside := questions.outside:
        return f"{WAITS} {len(outside)} answers from outside"
    if not any(state.idle >= IDLE_LIMIT for state in states):
        return NOTHING_MORE
    return f"nothing new in {IDLE_LIMIT} requests of each task"
