"""The schedule of a search: requests under way, and how many more fit its places and evaluations."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

from evo.budget import Budget
from evo.search.history import Done
from evo.search.models import Questions
from evo.search.task import Bound, TaskState
from evo.search.verdicts import Profiles
from evo.workers.pool import Pool
from mutators.base import Kind, Request
from mutators.llm.outside import Tasks
from mutators.llm.settings import LlmSettings, is_outside


@dataclass(frozen=True)
class Errand:
    """A request with what it needs to be worked on, now or later."""

    state: TaskState
    request: Request
    bound: Bound


class InFlight:
    """Owns the running tasks. It ends all that it began: nothing is left behind by a search that stops."""

    def __init__(self) -> None:
        self._begun: dict[asyncio.Task[Any], None] = {}
        """Everything under way, in the order in which it began."""
        self.judging: dict[str, str] = {}
        """By id of a request whose kernel may still be charged as an evaluation, from its build to its tell: the
        kernel's id."""
        self._errands: dict[asyncio.Task[Any], Errand] = {}
        """Job of each task that works on a request."""

    @property
    def tasks(self) -> Tasks:
        """Everything under way: requests, profiles, confirmations."""
        return set(self._begun)

    def add(self, *tasks: asyncio.Task[Any]) -> None:
        """Own tasks that work on no request."""
        self._begun.update(dict.fromkeys(tasks))

    def begin(self, errand: Errand, work: Coroutine[Any, Any, Done | None]) -> None:
        """Let a request be worked on."""
        errand.state.in_flight += 1
        task = asyncio.ensure_future(work)
        self._errands[task] = errand
        task.add_done_callback(self._ended)
        self.add(task)

    def at(self, kernel_ids: Collection[str]) -> Tasks:
        """Return the tasks that have one of these kernels judged."""
        return {task for task, errand in self._errands.items() if self.judging.get(errand.request.id) in kernel_ids}

    def has(self, state: TaskState, kind: Kind) -> bool:
        """Return whether a request of such a kind is worked on for a task."""
        return any(errand.state is state and errand.request.kind is kind for errand in self._errands.values())

    def cancel(self, *, but: Tasks) -> None:
        """Cancel everything but these tasks."""
        for task in self.tasks - but:
            task.cancel()

    def give_up(self, *, but: Tasks) -> list[Errand]:
        """Cancel all requests but these tasks; return them."""
        stuck = {task: errand for task, errand in self._errands.items() if task not in but}
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
        errand = self._errands.pop(task)
        errand.state.in_flight -= 1
        if task.cancelled() or task.exception() or task.result() is None:  # what is told is counted until then
            self.judging.pop(errand.request.id, None)


class DraftJudgings:
    """`evo.workbench.recorded.Judgings` of a search: each is charged as an evaluation when it begins."""

    def __init__(self, budget: Budget, admission: Admission) -> None:
        self._budget = budget
        self._admission = admission

    def take(self) -> bool:
        """See `Judgings.take`."""
        if not self._admission.may_judge():
            return False
        self._budget.charge("evaluations", 1)
        return True

    def give_back(self) -> None:
        """See `Judgings.give_back`."""
        self._budget.charge("evaluations", -1)


class Admission:
    """Says what may be begun. It reads what others own, and changes nothing."""

    def __init__(
        self,
        budget: Budget,
        pool: Pool,
        flight: InFlight,
        questions: Questions,
        profiles: Profiles,
        *,
        llm: LlmSettings | None,
        tasks: int,
        most: int | None = None,
    ) -> None:
        """With `most`, no more than so many things are under way at once, profiles included."""
        self._budget = budget
        self._pool = pool
        self._flight = flight
        self._questions = questions
        self._profiles = profiles
        self._most = most
        kinds = {is_outside(model) for model in llm.models} if llm else ()
        self._questions_at_once = len(kinds) * llm.concurrency if llm else 0
        # A model that is put aside holds one question of each task, and what was asked before that was known.
        self._most_held = llm.concurrency + tasks * len(llm.models) if llm else 0

    def may_ask(self, asked: int, thinking: int) -> bool:
        """Whether there is a free place, and a budget for one more evaluation besides those that may be under way.

        As many requests as the client takes at once may wait for a language model without taking a place from others,
        and as many for answers from outside. `asked` requests will soon be under way too, `thinking` of them at a
        model.
        """
        if self._most is not None and len(self._flight.tasks) + asked >= self._most:
            return False
        held = min(len(self._questions.held), self._most_held)
        under_way = len(self._flight.tasks) - len(self._profiles.running) - held + asked
        at_models = min(len(self._questions.thinking) - held + thinking, self._questions_at_once)
        return under_way - at_models < 2 * self._pool.slots and self._budget.allows("evaluations", under_way)

    def may_judge(self) -> bool:
        """Whether one more kernel may be evaluated: a question whose model was away comes back uncalled-for."""
        return self._budget.allows("evaluations", len(self._flight.judging))

    def may_take_up(self) -> bool:
        """Whether an answer that had to wait, or a guest, may be gone on with: duplicates took no evaluation.

        A kernel that is there comes before questions that may never be answered.
        """
        under_way = len(self._flight.tasks - self._questions.outside)
        return self._budget.allows("evaluations", len(self._flight.judging) + under_way)


class Postponed:
    """Requests that are to be gone on with later: answers that no evaluation was left for when they came, and guests.

    A guest comes after its task's ancestors: it is judged against the best of them, and a short run has them all.
    """

    def __init__(self, admission: Admission, flight: InFlight) -> None:
        self._admission = admission
        self._flight = flight
        self._waiting: list[Errand] = []

    def add(self, *errands: Errand) -> None:
        self._waiting += errands

    def ready(self) -> Iterator[Errand]:
        """Give out, in order, what may be gone on with now, as far as evaluations are left: each is begun at once."""
        for errand in tuple(self._waiting):
            if not self._early(errand) and self._admission.may_take_up():
                self._waiting = [each for each in self._waiting if each is not errand]
                yield errand

    def _early(self, errand: Errand) -> bool:
        if errand.request.kind is not Kind.GUEST:
            return False
        return not errand.state.begun or self._flight.has(errand.state, Kind.ANCESTOR)
