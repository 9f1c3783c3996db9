"""The state of one task: what its requests need, and the parents that its prompts show."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from evo import rows as records
from evo.budget import Budget
from evo.config import RunConfig
from evo.individual import new_programs
from evo.lineage import Latest
from evo.rows import Rows
from evo.search.knowledge import Knowledge, Notes, ProfileNotes, Source, StoredBriefing
from evo.store.reads import Journal, rows_of
from evo.strategies.base import Leader, Strategy
from fitness.evaluation import Evaluation
from fitness.judging.base import Anchor
from fitness.profiling.profiles import Profile
from mutators.base import Earlier, Parent, Request
from mutators.briefing import Attempt
from mutators.prompts.informed import limits, place
from mutators.registry import asks_model
from operators.catalog import same_family
from operators.definition.spec import Operator, Task, alike
from operators.kernel import Kernel

if TYPE_CHECKING:
    from evo.workers.dispatch import RunPool


@dataclass(frozen=True)
class Bound:
    """Knowledge of the time when a request was asked for, so that its prompt is the same whenever it is answered."""

    sources: tuple[Source, ...]
    """The request's parents, in its order, each with the evaluation told of it by then; empty where none was."""
    notes: Notes = ()
    """Notes on the profiles of its parents, if these were taken."""
    brief: StoredBriefing | None = None
    """Further facts that a prompt may tell; None where no model is asked."""
    stands_at: float = 0.0
    """The log speedup that the fastest kernel certainly had."""


OUTDATED = math.log(1.25)
"""Gain of the fastest kernel, as a log ratio, from which a question of before is out of date."""
CONFIRM_S = {"cpu": 4.0, "cuda": 6.5}
"""By target: a confirmation's timing takes about as long, whatever the kernel; on GPUs that of rivals too."""
CONFIRM_TO_FULL, CONFIRM_TO_SCREEN = 2.5, 5.0
"""The rest takes so many times as long as other levels, about (`python -m tests.bench.levels`)."""
LEAST_CONFIRM_TO_FULL = 4.0
"""A confirmation takes so many times as long as a full evaluation at least."""


@dataclass
class TaskState:
    """The driver's state of one task."""

    operator: Operator
    task: Task
    strategy: Strategy
    baseline: Kernel
    knowledge: Knowledge
    """Facts that prompts may tell."""
    verdicts: dict[str, str] = field(default_factory=dict)
    """By kernel id, the evaluation that the strategy was told of; of several the first one that is no duplicate's."""
    judged: set[str] = field(default_factory=set)
    """Kernels that have a verdict, those that are about to be told among them."""
    profile_notes: ProfileNotes = field(init=False)
    """Profiles of its kernels."""
    in_flight: int = 0
    told: int = 0
    generations: dict[str, int] = field(default_factory=dict)
    """By kernel id, of every kernel that was told."""
    fastest: tuple[float, str] | None = None
    """Standing (see `Evaluation.standing`) and kernel id of the fastest correct kernel that was told: the one that the
    run's end confirms. What the strategy thinks its best may be another one that is as fast within its margin."""
    fastest_by: str = ""
    """The mutator that made it, or what kind of request it came with."""
    guests: set[str] = field(default_factory=set)
    """Ids of kernels that came from outside as guests, and have a verdict or will."""
    invited: int = 0
    """Number of requests for guests."""
    confirmed: set[str] = field(default_factory=set)
    """Kernels that a confirmation looked at."""
    confirm_s: float = 0.0
    """Seconds of the shortest confirmation that was passed, as others disturbed it least; 0 where there was none."""
    full_s: float = 0.0
    """The same of full evaluations."""
    screen_s: float = 0.0
    """The same of screenings, with the builds before them."""
    idle: int = 0
    """Requests in a row that led to no new program."""
    fault: str = ""
    """Why nothing can be judged any more, such as a naive kernel that is wrong; other tasks go on."""
    statuses: Counter[str] = field(default_factory=Counter)
    unavailable: int = 0
    """Requests that a fault or the load of the machine, or of a model's provider, left without a verdict."""
    allowed_us: Mapping[str, float] = field(default_factory=dict)
    """By workload, the least time that the machine allows; empty where that is not known."""
    relatives: dict[Task, TaskState] = field(default_factory=dict)
    """Tasks of the run whose kernels may serve this one: those of its operator, and of operators that are alike."""

    def __post_init__(self) -> None:
        self.profile_notes = ProfileNotes(self.knowledge.lineage)

    @property
    def candidates(self) -> int:
        """Programs that were new."""
        return new_programs(self.statuses)

    @property
    def led_by_baseline(self) -> bool:
        """Whether nothing faster than the naive kernel is known."""
        return self.fastest is not None and self.fastest[1] == self.baseline.id

    @property
    def stands_at(self) -> float:
        """The log speedup that the fastest kernel certainly has."""
        return self.fastest[0] if self.fastest else 0.0

    @property
    def anchor(self) -> Anchor:
        """The fastest kernel that its strategy knows by now, else the naive one: what kernels are timed beside."""
        leader = self.strategy.best
        return leader.as_anchor() if leader else Anchor(self.baseline, 0.0, 0.0)

    @property
    def load(self) -> int:
        """Requests that were told or are under way."""
        return self.told + self.in_flight

    def born(self, parents: Sequence[str], request: Request, kernel: Kernel | None) -> tuple[int, bool]:
        """The generation of a child of these parents, told now, and whether it is new; takes note of it."""
        known = [home.generations.get(parent, 0) for home, parent in self.homes(request, parents)]
        generation = 1 + max(known) if known else 0
        is_new = kernel is not None and kernel.id not in self.generations
        if kernel and is_new:
            self.generations[kernel.id] = generation
        return generation, is_new

    def profiled(self, kernel_id: str, profile: Profile) -> None:
        """Take in the profile of a kernel: it counts from now on."""
        self.profile_notes.profiles.learn(kernel_id, profile)
        self.strategy.profiled(kernel_id, profile)

    def source_state(self, request: Request) -> TaskState:
        """The task that the last parent of one of its requests is a kernel of."""
        return self.relatives[Task.parse(request.source_task)] if request.source_task else self

    def homes(self, request: Request, parents: Sequence[str]) -> Iterator[tuple[TaskState, str]]:
        """Each of a request's parents behind the task that it is a kernel of."""
        for parent in parents:
            yield self.source_state(request) if parent == request.source else self, parent

    def leader(self, kernel: Kernel) -> Leader | None:
        """The kernel as others hear of it, if it is the fastest for certain."""
        best = self.knowledge.best
        if best is None or best.source[0] != kernel.id:
            return None
        reached = place(best.standing, self.knowledge.naive_us, self.allowed_us)
        return Leader(self.task, kernel, best.speedup.log, math.log(reached.share) if reached else None)

    def took_screen(self, took_s: float) -> None:
        """A screening was passed, and took so long."""
        self.screen_s = _shorter(self.screen_s, took_s)

    def took_full(self, took_s: float) -> None:
        """A full evaluation was passed, and took so long."""
        self.full_s = _shorter(self.full_s, took_s)

    def took_confirm(self, kernel_id: str, took_s: float) -> None:
        """A confirmation looked at a kernel, and took so long; 0 where that says nothing of others."""
        self.confirmed.add(kernel_id)
        self.confirm_s = _shorter(self.confirm_s, took_s)

    @property
    def least_confirm_s(self) -> float:
        """The least time of a confirmation: that of an earlier one, else by full evaluations; 0 where nothing is
        known."""
        return self.confirm_s or LEAST_CONFIRM_TO_FULL * self.full_s

    @property
    def guessed_confirm_s(self) -> float:
        """The time of a confirmation by other levels alone, as usual; 0 where nothing is known."""
        rest_s = CONFIRM_TO_FULL * self.full_s or CONFIRM_TO_SCREEN * self.screen_s
        return CONFIRM_S[self.task.target] + rest_s if rest_s else 0.0


def _shorter(known_s: float, took_s: float) -> float:
    """The lesser of two times, of which 0 is none."""
    return min(known_s, took_s) if known_s and took_s else known_s or took_s


class Running(Protocol):
    """A search or a replay, as those see it who show how it gets on."""

    states: dict[Task, TaskState]
    budget: Budget
    phase: str

    @property
    def waits(self) -> str:
        """The event that it waits for, in words; empty for none."""
        ...

    @property
    def pool(self) -> RunPool | None:
        """Its evaluation workers; None where nothing is judged."""
        ...


def task_states(
    config: RunConfig, make_strategy: Callable[[Operator, Task], Strategy] | None = None
) -> dict[Task, TaskState]:
    """Return what a driver knows of the tasks of a run before anything is asked."""
    make = make_strategy or config.make_strategy
    states = {
        task: TaskState(
            operator,
            task,
            make(operator, task),
            Kernel(operator.name, task.target, operator.naive(task.target)),
            Knowledge(
                task, device=config.device, independent=config.independent, earlier=_earlier(config, operator, task)
            ),
            allowed_us=limits(operator, task, operator.workload_set(config.workload_set), config.device),
        )
        for operator, task in config.tasks()
    }
    for state in states.values():
        others = [other for other in states.values() if other is not state]
        state.knowledge.siblings = [each.knowledge for each in others if each.operator.family == state.operator.family]
        state.relatives = {other.task: other for other in others if alike(other.operator, state.operator)}
    return states


def _earlier(config: RunConfig, operator: Operator, task: Task) -> list[Attempt]:
    """Lessons of earlier runs that may help with a task: first those of its operator, then those of its family."""
    family = {operator.name, *same_family(operator)}
    found = [attempt for attempt in config.learnt if attempt.task.partition("/")[0] in family]
    return sorted(found, key=lambda attempt: attempt.task.partition("/")[0] != operator.name)


def verdict_s(states: Mapping[Task, TaskState]) -> float:
    """The time that a verdict under way may still take, if nothing disturbs it; 0 where none is or nothing is known."""
    return max((state.full_s or state.screen_s for state in states.values() if state.in_flight), default=0.0)


@dataclass(frozen=True)
class Outstanding:
    """A request that was asked and is not told yet, with what it needs to be worked on, now or later."""

    state: TaskState
    request: Request
    bound: Bound

    @property
    def outdated(self) -> bool:
        """Whether so much faster kernels are known by now that a question about these would be another one."""
        return self.state.stands_at - self.bound.stands_at > OUTDATED


def bind(state: TaskState, request: Request) -> Outstanding:
    """The request with the present knowledge of its parents and task: before the strategy is told more, and once.

    The task's knowledge takes note that it is asked.
    """
    sources = tuple((parent, home.verdicts.get(parent, "")) for home, parent in state.homes(request, request.parents))
    timed = sources and sources[0][1] and asks_model(request)
    notes = state.profile_notes.lines(request) if timed else ()
    brief = state.knowledge.brief(request)
    if brief and request.source:
        brief = replace(brief, origin=state.source_state(request).knowledge.origin(request.source))
    return Outstanding(state, request, Bound(sources, notes, brief, state.stands_at))


PARENTS_CACHED = 5_000


class Parents:
    """Kernels with the verdicts that a request was bound to; the latest are kept at hand, all others are stored."""

    def __init__(self, store: Journal) -> None:
        self._store = store
        self._cached: Latest[Source, Parent] = Latest(PARENTS_CACHED)

    def find(self, source: Source, *, baseline: Kernel) -> Parent:
        """A kernel with its verdict, as they stood when a child of it was asked for.

        `baseline` is the task's naive kernel, which models are asked to better before anything is stored of it.
        """
        if source == (baseline.id, ""):
            return Parent(baseline)
        found = self._cached.recall(source)
        if found is None:
            found = self._stored(*source)
            self._cached.put(source, found)
        return found

    def told(self, kernel: Kernel, evaluation: Evaluation, evaluation_id: str) -> None:
        """Keep at hand what a child of the kernel would be asked with from now on."""
        self._cached.put((kernel.id, evaluation_id), Parent(kernel, evaluation))

    def earlier(self, request_id: str) -> Earlier:
        """Return an earlier request with what became of it; it must have been told, so it is stored for good."""
        (told,) = rows_of(self._store, "history.told_of", request=request_id)
        name = told["evaluation_id"]
        became = records.individual_from({**told, **(self._measured(name) if name else {})})
        calls = rows_of(self._store, "history.answers", request=request_id)
        last = records.CALL.item(calls[-1]) if calls else None
        return Earlier(
            became.request, became.kernel, became.evaluation, became.text, became.metrics, became.description,
            became.failure, (*last.messages, last.message) if last else (),
        )  # fmt: skip

    def _stored(self, kernel_id: str, evaluation_id: str) -> Parent:
        row, *_ = rows_of(self._store, "kernels.files", kernels=[kernel_id])
        kernel = records.kernel_from(row)
        if not evaluation_id:
            return Parent(kernel)
        return Parent(kernel, records.evaluation_from(self._measured(evaluation_id)))

    def _measured(self, evaluation_id: str) -> dict[str, Any]:
        (row,) = rows_of(self._store, "kernels.measured", evaluations=[evaluation_id])
        return row


@dataclass(frozen=True)
class TakenProfile:
    """A profile that was taken, and its rows but for their place in the history."""

    state: TaskState
    kernel_id: str
    profile: Profile
    failure: str
    """Why there is no profile, and `profile` is an empty one; empty where there is one."""
    seconds: float
    """Seconds until it was there, the wait for a worker included; the profile has those of the worker."""
    rows: Rows
