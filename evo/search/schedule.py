"""The schedule of a search: what is under way, what may be begun, when it ends, and what it waits for."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

from evo import rows as records
from evo.budget import Budget, RunClock
from evo.search.evaluator import Evaluator
from evo.search.history import Done, History
from evo.search.models import Models
from evo.search.task import Outstanding, verdict_s
from evo.search.watchdog import Alarm, Watchdog
from fitness.words import counted
from mutators.base import Kind
from mutators.llm.outside import Tasks
from mutators.llm.settings import LlmSettings, is_outside

TICK_S = 1.0
"""A run looks at its clock so often at least."""
WAITED_S = 10.0
"""A search that has not moved for so long stores what it waits for."""


@dataclass(frozen=True)
class TimeLeft:
    """Time that is left of a limit, and how much of that is reserved; in seconds."""

    left_s: float
    confirming_s: float
    """For the confirmations at the end."""
    reserved_s: float
    """The same, and for a verdict that is under way."""


class InFlight:
    """Owns the running tasks. It ends all that it began: nothing is left behind by a search that stops."""

    def __init__(self) -> None:
        self._begun: dict[asyncio.Task[Any], None] = {}
        """Everything under way, in the order in which it began."""
        self.judging: dict[str, str] = {}
        """By id of a request whose kernel may still be charged as an evaluation, from its build to its tell: the
        kernel's id."""
        self._asked: dict[asyncio.Task[Any], Outstanding] = {}
        """By task, the request that it works on."""

    @property
    def tasks(self) -> Tasks:
        """Everything under way: requests, profiles, rivals, confirmations."""
        return set(self._begun)

    def add(self, *tasks: asyncio.Task[Any]) -> None:
        """Own tasks that work on no request."""
        self._begun.update(dict.fromkeys(tasks))

    def begin(self, asked: Outstanding, work: Coroutine[Any, Any, Done | None]) -> None:
        """Let a request be worked on."""
        asked.state.in_flight += 1
        task = asyncio.ensure_future(work)
        self._asked[task] = asked
        task.add_done_callback(self._ended)
        self.add(task)

    def at(self, kernel_ids: Collection[str]) -> Tasks:
        """Return the tasks that have one of these kernels judged."""
        return {task for task, asked in self._asked.items() if self.judging.get(asked.request.id) in kernel_ids}

    @property
    def outdated(self) -> Tasks:
        """Tasks whose request would be another one by now."""
        return {task for task, asked in self._asked.items() if asked.outdated}

    def cancel(self, *, but: Tasks) -> None:
        """Cancel everything but these tasks."""
        for task in self.tasks - but:
            task.cancel()

    def give_up(self, *, but: Tasks) -> list[Outstanding]:
        """Cancel all requests but these tasks; return them."""
        stuck = {task: asked for task, asked in self._asked.items() if task not in but and not task.done()}
        for task in stuck:
            task.cancel()
        return list(stuck.values())

    async def wait(self, timeout_s: float) -> list[asyncio.Task[Any]]:
        """Wait until something ends or the time is over; return what ended, but for what was cancelled.

        What ended together comes in the order in which it began, which is then its order in the history.
        """
        if not self._begun:
            await asyncio.sleep(timeout_s)
            return []
        done, _ = await asyncio.wait(self._begun, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        ended = [task for task in self._begun if task in done]
        for task in ended:
            del self._begun[task]
        return [task for task in ended if not task.cancelled()]

    async def abandon(self) -> None:
        """Cancel everything, and wait for its end."""
        self.cancel(but=set())
        await asyncio.gather(*self._begun, return_exceptions=True)
        self._begun.clear()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        asked = self._asked.pop(task)
        asked.state.in_flight -= 1
        if task.cancelled() or task.exception() or task.result() is None:  # what is told is counted until then
            self.judging.pop(asked.request.id, None)


class Scheduler:
    """Says what may be begun and when a search ends. It owns what is under way, and reads what others own."""

    def __init__(
        self,
        budget: Budget,
        clock: RunClock,
        watchdog: Watchdog,
        history: History,
        evaluator: Evaluator,
        models: Models,
        *,
        llm: LlmSettings | None,
        stall_s: float,
        say: Callable[[str], None],
        most: int | None = None,
    ) -> None:
        """A worker that was at one job for `stall_s` is stuck. With `most`, no more than so many things are under way
        at once, profiles included."""
        self.flight = InFlight()
        self.refusal = ""
        """Why a model could not be asked for want of budget; empty while it could."""
        self._budget = budget
        self._clock = clock
        self._watchdog = watchdog
        self._history = history
        self._evaluator = evaluator
        self._models = models
        self._stall_s = stall_s
        self._say = say
        self._most = most
        kinds = {is_outside(model) for model in llm.models} if llm else ()
        self._questions_at_once = len(kinds) * llm.concurrency if llm else 0
        # A model that is put aside holds one question of each task, and what was asked before that was known.
        self._most_held = llm.concurrency + len(history.states) * len(llm.models) if llm else 0
        self._postponed: list[Outstanding] = []
        self._told = ""
        """Text of what the search waits for that was stored last, without the seconds."""

    # --- what may be begun ------------------------------------------------------------------------------------------

    def may_ask(self, asked: int, thinking: int) -> bool:
        """Whether there is a free place, and a budget for one more evaluation besides those that may be under way.

        As many requests as the client takes at once may wait for a language model without taking a place from others,
        and as many for answers from outside. `asked` requests will soon be under way too, `thinking` of them at a
        model.
        """
        rivals = len(self._evaluator.rivals.running)
        if self._most is not None and len(self.flight.tasks) - rivals + asked >= self._most:
            return False
        held = min(len(self._models.held), self._most_held)
        under_way = len(self.flight.tasks) - len(self._evaluator.profiles.running) - rivals - held + asked
        at_models = min(len(self._models.thinking) - held + thinking, self._questions_at_once)
        free = under_way - at_models < 2 * self._evaluator.pool.slots
        return free and self._budget.allows("evaluations", under_way)

    def may_judge(self) -> bool:
        """Whether one more kernel may be evaluated: a question whose model was away comes back uncalled-for."""
        return self._budget.allows("evaluations", len(self.flight.judging))

    def take(self) -> bool:
        """See `evo.workbench.recorded.Judgings.take`: the judging of a draft is charged as it begins."""
        if not self.may_judge():
            return False
        self._budget.charge("evaluations", 1)
        return True

    def give_back(self) -> None:
        """See `evo.workbench.recorded.Judgings.give_back`."""
        self._budget.charge("evaluations", -1)

    def postpone(self, *asked: Outstanding) -> None:
        """Keep requests that are to be gone on with later: answers that no evaluation was left for, and guests."""
        self._postponed += asked

    def ready(self) -> Iterator[Outstanding]:
        """Give out, in order, what may be gone on with now, as far as evaluations are left: each is begun at once."""
        for asked in tuple(self._postponed):
            if not self._early(asked) and self._may_take_up():
                self._postponed = [each for each in self._postponed if each is not asked]
                yield asked

    def _early(self, asked: Outstanding) -> bool:
        """A guest comes after the naive kernel, which is first and which it is timed beside, and before the other
        ancestors: a short run may not get to all of them."""
        return asked.request.kind is Kind.GUEST and not asked.state.told

    def _may_take_up(self) -> bool:
        """Whether what had to wait may be gone on with: duplicates took no evaluation.

        A kernel that is there comes before questions that may never be answered.
        """
        under_way = len(self.flight.tasks - self._models.outside)
        return self._budget.allows("evaluations", len(self.flight.judging) + under_way)

    # --- the end ----------------------------------------------------------------------------------------------------

    def look(self) -> TimeLeft:
        """Look at the clock."""
        self._budget.set_wall(self._clock.spent_s)
        confirming_s = self._evaluator.confirmations.needed_s()
        return TimeLeft(self._clock.left_s, confirming_s, confirming_s + verdict_s(self._history.states))

    def over(self, time: TimeLeft) -> str:
        """Why nothing more may be begun; empty while something may."""
        return self.refusal or self._budget.exhausted(time.reserved_s) or ""

    def run_out(self, time: TimeLeft) -> None:
        """Give up what the time is not enough for; it stays open in the store, for a session with more of it.

        First what no worker is at: a worker that is nearly done with a job is free sooner than one that is to leave it.
        """
        self._evaluator.profiles.cancel()
        self._evaluator.rivals.cancel()
        thinking = self._models.thinking
        if time.left_s <= time.confirming_s:
            self.flight.give_up(but=thinking)
        elif time.left_s <= time.reserved_s and not self._models.late:
            at_workers = self.flight.at({at.job.kernel.id for at in self._evaluator.pool.jobs()})
            self.flight.give_up(but=thinking | at_workers)
        if time.left_s <= time.reserved_s:
            self._models.stop_asking()

    @property
    def empty(self) -> bool:
        """Whether nothing is under way that a search which ends has to wait for; late, answers of models may be."""
        return not self.flight.tasks - (self._models.thinking if self._models.late else self._models.idle)

    def quiet_s(self) -> float | None:
        """For how long nothing has run but questions that may never be answered; None while anything else runs."""
        quiet_s = self._models.quiet_s(self.flight.tasks, self._history.now())
        if quiet_s is not None:
            self._watchdog.moved()  # for all that it can do
        return quiet_s

    async def ended(self, until_s: float = TICK_S) -> list[asyncio.Task[Any]]:
        """Wait until something that was under way has ended, `until_s` or a tick at most; return it."""
        return await self.flight.wait(min(TICK_S, max(until_s, 0.05)))

    # --- standstills ------------------------------------------------------------------------------------------------

    @property
    def waits(self) -> str:
        """The event that the search waits for, in words; empty where nothing is under way."""
        models, jobs = self._models, [str(job) for job in self._evaluator.pool.jobs()]
        held, outside = models.thinking & models.held, models.outside
        others = models.thinking - held - outside
        requests = len(self.flight.tasks - models.thinking) - len(jobs)
        parts = (
            counted(len(others), "answer of models", "answers of models") if others else "",
            f"{counted(len(held), 'question')} to models that are put aside" if held else "",
            counted(len(outside), "answer from outside", "answers from outside") if outside else "",
            f"workers: {', '.join(jobs)}" if jobs else "",
            f"a worker, with {counted(requests, 'request')}" if requests > 0 and jobs else "",
        )
        return "; ".join(filter(None, parts))

    async def tell(self) -> None:
        """Store what the search waits for, once nothing has moved for a while, and when it becomes something else."""
        if self._watchdog.still_s < WAITED_S:
            self._told = ""
        elif (counted := re.sub(r"\d+ s", "", waits := self.waits)) != self._told:
            self._told = counted
            await self._history.note(records.WAITS, {"for": waits}, moves=False)

    def on_alarm(self, alarm: Alarm) -> tuple[list[Outstanding], dict[str, Any]]:
        """Say that nothing moves; restart what is stuck if it is time for that.

        It returns what is to be stored of it, and requests to be worked on anew at once, before others take their
        places: such as wait for neither a worker nor a model. None ever should, this is for faults that are not known
        yet.
        """
        still_s, thinking = self._watchdog.still_s, len(self._models.thinking)
        jobs, restarted = [str(job) for job in self._evaluator.pool.jobs()], []
        stuck: list[Outstanding] = []
        if alarm == "restart":
            restarted = [str(job) for job in self._evaluator.pool.restart(self._stall_s)]
            stuck = [] if restarted else self.flight.give_up(but=self._models.thinking)
            restarted += [asked.request.id for asked in stuck]
        wait = counted(thinking, "question waits", "questions wait")
        what = f"under way: {', '.join(jobs) or 'nothing'}; {wait} for models"
        more = f"; restarted: {', '.join(restarted)}" if restarted else ""
        self._say(f"nothing has moved for {still_s:.0f} s; {what}{more}")
        detail = {"still_s": still_s, "jobs": jobs, "thinking": thinking, "restarted": restarted}
        return [] if self._models.late else stuck, detail
