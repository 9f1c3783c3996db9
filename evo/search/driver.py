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
from evo.budget import CLOSING_S, Budget, Patience, RunClock
from evo.config import RunConfig
from evo.rows import Rows
from evo.search.confirmations import ATTEMPTS
from evo.search.evaluator import Evaluator
from evo.search.execution import Execution, RunBenches
from evo.search.history import Done, History
from evo.search.models import Models
from evo.search.schedule import Scheduler
from evo.search.task import Outstanding, TakenProfile, TaskState, task_states
from evo.search.watchdog import Watchdog
from evo.store.reads import Journal
from evo.strategies.base import Strategy
from evo.strategies.tuning import LAST_TRIALS
from evo.workbench.recorded import StoredToolCalls
from evo.workers.dispatch import RunPool
from evo.workers.pool import Undone
from fitness.words import counted
from mutators.base import Kind, OutOfBudget
from mutators.registry import asks_model
from operators.definition.spec import Operator, Task
from operators.errors import DiskError, OperatorError, machine_error

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
        pool: RunPool,
        *,
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
        self.pool = pool
        self.budget = Budget({} if only_confirm else dict(config.budget), cell=config.cell is not None)
        self.states = task_states(config, make_strategy)
        self.stopping = False
        self.phase = "starting"
        limit_s = self.budget.limits.get("wall_s", math.inf)
        self.clock = RunClock(now, limit_s=limit_s, began=began, closing_s=CLOSING_S[config.target] + closing_s)
        self._watchdog = Watchdog(config.stall_s, now)
        self.history = History(
            self.states, store, self.budget, workload_set=config.workload_set, now=now, watchdog=self._watchdog
        )
        self._patience = Patience(self.clock, say, self.history.note_full)
        store.waits = self._patience.waits
        self.models = Models(config.llm, self.history, self.budget.spending, say=say)
        self.evaluator = Evaluator(
            pool, self.history, self.clock, waits=self._patience.waits, profiles_wait=config.cell is not None
        )
        self.scheduler = Scheduler(
            self.budget, self.clock, self._watchdog, self.history, self.evaluator, self.models, llm=config.llm,
            stall_s=config.stall_s, say=say, most=config.cell.under_way if config.cell else None,
        )  # fmt: skip
        self._tool_calls = StoredToolCalls(store, kernel_rows=self.history.kernel_rows, commit=self.history.commit)
        benches = RunBenches(self._tool_calls, pool, self.scheduler, self._tool_calls.read, now, self._patience.waits)
        self._execution = Execution(
            self.history, self.evaluator.verdicts, self.models.client, benches, check=config.check
        )
        self._say = say
        self._on_change = on_change
        self._only_confirm = only_confirm
        self._wait_s = wait_s

    def stop(self) -> None:
        """End soon: what is in flight is given up, and taken up again by a resume.

        Answers of models that are under way are paid: they are waited for, ANSWERS_S at most. Called again, they are
        given up too.
        """
        again, self.stopping = self.stopping, True
        self.evaluator.verdicts.stopping = True
        self._patience.over = True
        self.models.stop_asking()
        self.scheduler.flight.cancel(but=set() if again else self.models.paid)

    async def run(self) -> str:
        """Search until the budget is used up or `stop` is called; return why the search ended."""
        outstanding = await self._restore()
        await self.models.check()
        await self.history.begin(self.clock.began, None if self._only_confirm else self.budget.limits)
        watching = asyncio.ensure_future(self._watch())
        gc.freeze()  # what was read lives as long as the search: the collector need not look at it again and again
        try:
            reason = await self._search(outstanding)
            await self._last_answers()
        finally:
            watching.cancel()
            await self.scheduler.flight.abandon()
            gc.unfreeze()
        wall = {"reason": reason, "wall_s": self.clock.spent_s}
        await self.history.note("stopped" if self.stopping else "finished", wall)
        self.phase = "done"
        return reason

    async def _restore(self) -> list[Outstanding]:
        """Come to where the last session ended; return the requests that it left open."""
        await self.models.restore()
        outstanding = self.history.restore(self.evaluator.recall)
        self.evaluator.restore()
        self.budget.charge("evaluations", self._tool_calls.restore())
        self.clock.earlier_s = self.history.earlier_wall_s()
        return outstanding

    async def _search(self, outstanding: Iterable[Outstanding]) -> str:
        """Search, tune and confirm, and once more for what was told from outside meanwhile; return why that ended."""
        reason = CONFIRMED if self._only_confirm else await self._loop(outstanding)
        while not self.stopping:
            await self._tune()
            # A cell that waits for answers from outside will go on: its winner is of interest when it is over.
            if not self.stopping and not (self.config.cell and self.models.outside):
                await self._confirm()
            if self._only_confirm or not self.models.arrivals.there:
                break
            reason = await self._loop(())
        return STOPPED if self.stopping else reason

    # --- the loop ---------------------------------------------------------------------------------------------------

    async def _loop(self, outstanding: Iterable[Outstanding]) -> str:
        """Search until there is a reason to end and nothing is under way; late, answers of models may be."""
        self.phase = "searching"
        for asked in outstanding:
            self._begin(asked)
        reason = ""
        while True:
            self.scheduler.postpone(*await self.models.arrivals.take())
            time_left = self.scheduler.look()
            reason = reason or (STOPPED if self.stopping else self.scheduler.over(time_left))
            if reason:
                self.scheduler.run_out(time_left)
                if self.scheduler.empty:
                    return reason
            else:
                for asked in self.scheduler.ready():
                    self._spawn(asked)
                if self.config.renews:
                    await self.models.withdraw(self.scheduler.flight.outdated)
                self.scheduler.flight.add(*self.evaluator.rivals.want())
                await self._ask()
                quiet_s = self.scheduler.quiet_s()
                if quiet_s is not None and quiet_s >= self._wait_s:
                    return _stuck(self.states.values(), self.models)
            await self._hear(await self.scheduler.ended(time_left.left_s - time_left.confirming_s))
            await self.scheduler.tell()
            self._on_change(self)

    @property
    def waits(self) -> str:
        """The event that the search waits for, in words."""
        return self.scheduler.waits

    async def _watch(self) -> None:
        """Answer the alarms of the watchdog."""
        async for alarm in self._watchdog.alarms():
            stuck, detail = self.scheduler.on_alarm(alarm)
            for asked in stuck:
                self._spawn(asked)
            await self.history.note(alarm, detail, moves=False)

    async def _tune(self) -> None:
        """Have strategies that tune at their end do so, one trial of each task at a time."""
        tunes = self.config.cell and self.config.cell.tune and not self._only_confirm
        while tunes and not self.stopping and not self.models.outside:
            idle = [state for state in self.states.values() if not state.fault and not state.in_flight]
            found = [self.history.ask(state, LAST_TRIALS) for state in idle]
            await self.history.commit(records.join(*(rows for _, rows in found)))
            for trials, _ in found:
                for asked in trials:
                    self._spawn(asked)
            if not self.scheduler.flight.tasks:
                return
            self.phase = "tuning"
            await self._hear(await self.scheduler.ended())
            self._on_change(self)

    async def _confirm(self) -> None:
        """Confirm the leaders, as far as there is time; what takes longer than the limit allows is given up."""
        confirmations, flight = self.evaluator.confirmations, self.scheduler.flight
        attempts = math.inf if self._only_confirm else ATTEMPTS  # who asks for that alone has the time
        confirming = asyncio.ensure_future(confirmations.confirm_leaders(attempts=attempts))
        flight.add(confirming)
        while confirming in flight.tasks:
            self.scheduler.look()
            self.phase = confirmations.phase
            self._on_change(self)
            if self.clock.grace_s <= 0:
                confirming.cancel()
            await self._hear(await self.scheduler.ended(self.clock.grace_s))

    async def _hear(self, finished: list[asyncio.Task[Any]]) -> None:
        """Deliver what has finished, and what was measured beside a failure; then raise the first failure."""
        arrived: list[Done | TakenProfile] = [*filter(None, (t.result() for t in finished if not t.exception()))]
        if arrived:
            await self.history.deliver(arrived)
        for done in arrived:
            if isinstance(done, Done):
                self.scheduler.flight.judging.pop(done.individual.request.id, None)
        for task in finished:
            task.result()

    async def _ask(self) -> None:
        """Fill the free places, the task with the least behind it first; all that is asked is one commit.

        Where there are many tasks, several requests of one follow each other: so a worker judges them in one visit.
        """
        at_once = max(1, min(MOST_AT_ONCE, len(self.states) // (2 * self.pool.judges)))
        asleep = {task for task, state in self.states.items() if state.fault or state.idle >= IDLE_LIMIT}
        begun: list[Outstanding] = []
        rows: list[Rows] = []
        waiting: Counter[Task] = Counter()
        thinking = 0
        while self.scheduler.may_ask(len(begun), thinking) and len(asleep) < len(self.states):
            awake = (state for task, state in self.states.items() if task not in asleep)
            state = min(awake, key=lambda state: (state.load + waiting[state.task]) // at_once)
            found, written = self.history.ask(state, 1)
            if not found:
                asleep.add(state.task)
                continue
            waiting[state.task] += len(found)
            thinking += sum(asks_model(asked.request) for asked in found)
            begun += found
            rows.append(written)
        if not begun:
            return
        await self.history.commit(records.join(*rows))
        for asked in begun if not self.stopping else ():
            self._begin(asked)

    def _begin(self, asked: Outstanding) -> None:
        self._spawn(asked)
        if self.config.profile != "none":
            self.scheduler.flight.add(*self.evaluator.profiles.want(asked))

    def _spawn(self, asked: Outstanding) -> None:
        self.scheduler.flight.begin(asked, self._execute(asked))

    async def _execute(self, asked: Outstanding) -> Done | None:
        """The request's fate; None leaves it open, for a session with more to spend."""
        request = asked.request
        if request.kind is Kind.PROFILE:
            return await self._execution.profile(asked)
        from_model = asks_model(request)
        try:
            with self.models.asking() if from_model else nullcontext():
                proposal = await self._execution.propose(asked)
        except OutOfBudget as error:
            self.scheduler.refusal = str(error)
            return None
        except Exception as error:
            found = machine_error(error)
            if found is None or isinstance(found, DiskError):  # for room the store has waited
                raise
            return self._execution.without_machine(asked, str(found))
        self._watchdog.moved()
        if from_model and self.models.late:
            return None  # the answer is stored; its kernel is for a later session
        if proposal.kernel is None:
            return self._execution.without_kernel(asked, proposal)
        if from_model and not self.scheduler.may_judge():
            self.scheduler.postpone(asked)
            return None
        self.scheduler.flight.judging[request.id] = proposal.kernel.id
        try:
            return await self._execution.judge(asked, proposal)
        except (OperatorError, Undone) as error:
            await self.history.fail(asked.state, str(error))
            return None

    async def _last_answers(self) -> None:
        """Wait for answers under way, as long as the time limit and ANSWERS_S allow; a resume finds them stored."""
        if self.stopping and (paid := self.models.paid):
            are = counted(len(paid), "answer that is paid is", "answers that are paid are")
            self._say(f"stops as soon as {are} there; once more gives them up")
        limit_s = min(ANSWERS_S if self.stopping else self.clock.left_s, ANSWERS_S)
        async for count in self.models.until_answered(limit_s, self.clock.now):
            self.phase = f"waiting for {counted(count, 'answer that is paid', 'answers that are paid')}"
            self._on_change(self)


def _stuck(states: Iterable[TaskState], models: Models) -> str:
    """Why a search ends where nothing runs and no strategy has anything to ask."""
    states = [*states]
    if all(state.fault for state in states):
        return FAULTY
    if outside := models.outside:
        return f"{WAITS} {counted(len(outside), 'answer from outside', 'answers from outside')}"
    if not any(state.idle >= IDLE_LIMIT for state in states):
        return NOTHING_MORE
    return f"nothing new in {IDLE_LIMIT} requests of each task"
