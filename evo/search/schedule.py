"""How much a search may have under way at once: within its places, and within what is left of its evaluations."""

from __future__ import annotations

from collections.abc import Iterator

from evo.budget import Budget
from evo.search.in_flight import Errand, InFlight
from evo.search.profiles import Profiles
from evo.search.questions import Questions
from evo.workers.pool import Pool
from mutators.base import Kind
from mutators.llm.settings import LlmSettings, is_outside


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
