"""Evolution on islands of MAP-Elites archives: the engine's own search."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from pydantic import Field, field_validator

from evo.individual import Individual
from evo.lineage import Latest, Lineage
from evo.strategies.base import Ancestors, Chooser, Leader, Outages, Rival, StrategyContext
from evo.strategies.population import (
    MARGIN,
    TRIALS_PER_SOURCE,
    AgentSessions,
    AgentSettings,
    Cell,
    Elite,
    Pair,
    Pairs,
    Population,
    archive_axis,
    arm_context,
)
from evo.strategies.tuning import Idea, Ideas, Tuning, as_parent
from fitness.evaluation import Z95
from fitness.judging.levels import TIMED
from fitness.profiling.profiles import Profile
from mutators.bandit import Arm, Bandit
from mutators.base import Kind, Request
from mutators.llm.settings import UserSettings, is_outside
from mutators.registry import MUTATORS
from mutators.transforms.mutator import transform_names
from operators.definition.spec import Task
from operators.errors import unknown
from operators.kernel import Kernel

MOST_EXHAUSTED = 2_000
"""Files, and pairs of kernels, of which is known what cannot be made of them, or was: the latest."""


class IslandsSettings(UserSettings):
    """Settings of the strategy `islands`."""

    islands: int = Field(2, ge=1, le=64)
    """Populations that share nothing but migrants."""
    migration_interval: int = Field(20, ge=1)
    """Correct individuals between two migrations."""
    patience: int = Field(150, ge=1)
    """Individuals of an island without a better best after which it starts again from another one's, if it is the
    worst; on the way there steps become longer."""
    explore: float = Field(0.2, ge=0, le=1)
    """Share of draws in which a parent is drawn from all elites alike rather than by rank."""
    abroad: float = Field(0.25, ge=0, le=1)
    """Share of draws in which the second parent is of another island."""
    long_step: float = Field(0.35, ge=0, lt=1)
    """Chance of each further transform after the first in one child of `transform`."""
    most_steps: int = Field(4, ge=1, le=16)
    """Transforms of one child of the mutator `transform`, at most."""
    focus: float = Field(0.9, ge=0, le=1)
    """Share of questions in which a model is shown a kernel within 80 % of the fastest, rather than any elite of the
    island."""
    settle: int = Field(6, ge=0, le=32)
    """Trials of settings that a model's answer with tunables gets before its idea is judged."""
    repairs: int = Field(2, ge=0, le=8)
    """Requests that may be spent on mending one failing child of a model, what becomes of it included."""
    memory: float = Field(300.0, ge=10)
    """Requests after which a lesson about mutators and models has faded to a third."""
    least_share: float = Field(0.1, ge=0, le=1)
    """Part of the requests that is spread evenly over all mutators and models."""
    usd_per_hour: float = Field(3.0, gt=0, allow_inf_nan=False)
    """Value of an evaluator's hour beside the dollars that models cost."""
    cells: bool = True
    """Whether an island keeps the best kernel of every cell of the behaviour space; else its best one alone."""
    without: tuple[str, ...] = ()
    """Mutators that it does without."""
    bottleneck_axis: bool = False
    """Whether cells of the archives also differ by what limits a kernel, as its profile says or that of the nearest
    ancestor that was profiled."""
    port: float = Field(1.25, ge=0, le=100)
    """Factor by which the best of another task, of another dtype or of an operator that is alike, must be as far as a
    task's own best for it to be carried over: first as it stands between dtypes, then by models; 0: none is. How far a
    kernel is, that is its share of what the machine allows, or its speedup where that is not known."""
    agent: AgentSettings | None = None
    """Limits of the dialogues of the mutator `agent`, in which models work with tools; none: it is not asked."""

    @field_validator("without")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if name not in MUTATORS:
                raise ValueError(unknown("mutator", name, MUTATORS))
        return value


@dataclass(frozen=True)
class _Pending:
    """State of a request until its tell."""

    arm: Arm
    parent: Elite | None
    """None: it is no elite of this task."""
    best_log_speedup: float
    """The best log speedup of its parents; infinite where none is known, as no gain can be told then."""
    failure: Failure | None = None
    """The failure that it mends."""
    idea: Idea | None = None
    """One of whose settings it is."""


class Islands(Chooser):
    """Requests go to the islands in turn; parents are elites of their island, fast ones more likely.

    First of all every transform is applied to the naive kernel once: some of them only apply to a kernel that no
    other one has touched. Then a bandit chooses among the mutators (and models) that have something to work on. An
    island that gets no further makes longer steps, as in variable neighbourhood search (Mladenovic and Hansen 1997,
    doi 10.1016/S0305-0548(97)00031-2). It asks nothing when there is nothing left to make of any elite.

    Models take their time, so they are asked early, in turn with the first transforms: as soon as the ancestors are
    judged, because a question about a kernel that is not timed yet, or far behind another ancestor, is paid in vain.
    At most `questions` of them are open, so that slow models keep nothing waiting.
    """

    Settings = IslandsSettings
    renews = True

    def __init__(self, context: StrategyContext, settings: Mapping[str, Any]) -> None:
        """`settings` are those of `IslandsSettings`; it raises pydantic's ValidationError for others."""
        self.context = context
        made = self.settings = self.Settings(**settings)
        self.population = Population(
            islands=made.islands, migration_interval=made.migration_interval, patience=made.patience, cells=made.cells
        )
        self.bandit = Bandit(memory=made.memory, least_share=made.least_share, usd_per_hour=made.usd_per_hour)
        self._ancestors = Ancestors(context)
        self._openings = deque(transform_names(context.task.target) if "transform" not in made.without else ())
        context.rng(0).shuffle(self._openings)
        self._question_next = bool(context.models) and "rewrite" not in made.without
        """Whether it is a model's turn among the openings."""
        self._pending: dict[int, _Pending] = {}
        self._outages = Outages()
        self._agents = AgentSessions(made.agent or AgentSettings())
        self._repairs = Repairs(0 if "repair" in made.without else made.repairs)
        self._ideas = Ideas()
        self._tuning = Tuning(context)
        self._lineage = Lineage()
        self._pairs = Pairs(self.population, self._lineage, abroad=made.abroad, focus=made.focus)
        self._ports = Ports(context.task, made.port)
        self._exhausted: Latest[tuple[str, str], bool] = Latest(MOST_EXHAUSTED)
        """Mutator and source file: nothing can be made of it that way; `route` and two kernels: it was asked for."""

    def choose(self, number: int) -> Request | None:
        """See `Chooser.choose`: nothing to start from until the naive kernel is back, or nothing left to make of what
        there is.
        """
        early = self._ancestors.request(number) or self._urgent(number)
        made = early or self._begin(number) or self._child(number)
        return replace(made, island=self._island(made), migrations=(*self.population.migrations,)) if made else None

    def take(self, request: Request) -> None:
        """See `Chooser.take`."""
        self.population.migrations.clear()
        self._outages.asked(request)
        if request.kind is Kind.ANCESTOR:
            self._ancestors.take()
            return
        arm, first = Arm(request.mutator, request.model), request.parents[0]
        failure = self._repairs.take(first) if arm.mutator == "repair" else None
        idea = self._ideas.take(first) if arm.mutator == "tune" else None
        parents = [failure.parent] if failure else [idea.answer] if idea else self._elites(request)
        if arm.mutator == "agent":
            parents = [*filter(None, [self._agents.take(request, parents[0] if parents else None)])]
        self._take_turn(request, failure)
        if source := self._ports.others.get(Task.parse(request.source_task)) if request.source_task else None:
            self._ports.asked(request.number, source, request.model)
        if arm.mutator == "tune":
            self._tuning.take(0 if idea else 1)
            if parents:
                self._tuning.asked(request, parents[0].kernel)
        if arm.mutator == "route":
            self._exhausted.put(("route", "".join(request.parents)), True)
        best = max((parent.log_speedup for parent in parents), default=math.inf)
        self._pending[request.number] = _Pending(arm, parents[0] if parents else None, best, failure, idea)

    def _elites(self, request: Request) -> list[Elite]:
        """A request's parents, as far as they are kernels of this task that are still of use."""
        own = request.parents[:-1] if request.source_task else request.parents
        ancestors = {elite.kernel.id: elite for elite in self._ancestors.correct.values()}
        return [*filter(None, (self.population.find(parent) or ancestors.get(parent) for parent in own))]

    def _take_turn(self, request: Request, failure: Failure | None) -> None:
        """Take a request's turn in the beginning: see `_begin`."""
        is_urgent = failure is not None and not failure.tries
        if request.params.get("rewrite") in self._openings:
            self._openings.remove(request.params["rewrite"])
            self._question_next = True
        elif request.model and not is_urgent:
            self._question_next = False

    def tell(self, individual: Individual) -> str:
        """See `Strategy.tell`."""
        request = individual.request
        island = self._island(request)
        self._tuning.told(individual)
        self._lineage.told(individual)
        self._ports.told(individual)
        if request.kind is Kind.ANCESTOR:
            self._ancestors.tell(individual)
            return self.population.add(individual, island, self._axis(request)).value
        if request.kind is Kind.GUEST:
            fresh = individual.fresh
            return self.population.add(individual, island, self._axis(request)).value if fresh else individual.status
        pending = self._pending.pop(request.number)
        self._outages.told(individual)
        self._agents.tell(individual)
        if individual.unavailable:  # says nothing of mutator, model or parents
            if pending.failure:
                self._repairs.back(pending.failure)
            return individual.status
        self._learn(individual, pending)
        if individual.kernel is None and pending.parent and pending.arm.mutator in ("tune", "transform"):
            self._exhausted.put((pending.arm.mutator, pending.parent.kernel.source_id), True)
        if pending.arm.model and pending.parent:
            self._repairs.consider(individual, pending.parent, pending.failure)
        status = self.population.add(individual, island, self._axis(request))
        return status.value if individual.fresh else individual.status

    def profiled(self, kernel_id: str, profile: Profile) -> None:
        """See `Strategy.profiled`: what limits a kernel steers what is tried on it and its children."""
        self._lineage.profiled(kernel_id, profile)
        if self.settings.bottleneck_axis and profile.bottleneck:
            self.population.refile(kernel_id, (profile.bottleneck.value,))

    def hear(self, leader: Leader) -> None:
        """See `Strategy.hear`."""
        self._ports.hear(leader)

    def rival(self, request: Request, cell: Cell) -> Rival:
        """Return the elite of its cell, to be raced; in an empty cell any correct kernel is welcome, see `Rival`."""
        elite = self.population.elite(self._island(request), (*cell, *self._axis(request)))
        return Rival(elite.as_anchor(), race=True) if elite else Rival()

    @property
    def best(self) -> Elite | None:
        """The fastest kernel of all islands."""
        return self.population.best

    def _axis(self, request: Request) -> Cell:
        return archive_axis(self._lineage, request) if self.settings.bottleneck_axis else ()

    def _island(self, request: Request) -> int:
        return request.number % self.settings.islands

    # --- asking -----------------------------------------------------------------------------------------------------

    def _begin(self, number: int) -> Request | None:
        """A request of the beginning: the first transforms in turn with questions."""
        naive = self._ancestors.naive
        if naive is None or not self._openings:
            return None
        if self._question_next and (question := self._child(number, questions_only=True)):
            return question
        params = {"rewrite": self._openings[0]}
        return self._request(number, Arm("transform"), (naive,), self.context.rng(number), params)

    def _child(self, number: int, *, questions_only: bool = False) -> Request | None:
        """The next request; None where no elite has anything left to be made of it."""
        if self._ancestors.naive is None:
            return None
        rng = self.context.rng(number)
        home = number % self.settings.islands
        pressure = 1.0 if rng.random() < self.settings.explore else 2.0
        for shift in range(self.settings.islands):
            island = (home + shift) % self.settings.islands
            for parent in self.population.draw(island, rng, pressure=pressure):
                partner = self._pairs.partner(parent, island, rng)
                shown = self._pairs.shown(island, rng) if self.context.models else (parent, partner)
                route = self._route(parent)
                arms = self._arms(parent, partner, shown[1], routed=bool(route))
                arms = [a for a in arms if (a.model or not questions_only) and a.mutator not in self.settings.without]
                if arms:
                    known = {arm: shown[0] if arm.model else parent for arm in arms}
                    limits = {arm: arm_context(self._lineage, arm, (each.kernel.id,)) for arm, each in known.items()}
                    arm = self.bandit.choose(arms, rng, limits)
                    return self._of(arm, number, shown if arm.model else (parent, partner), rng, route)
        return None

    def _urgent(self, number: int) -> Request | None:
        """The request that waits for nothing: a kernel of another dtype, a setting of a model's idea, or the first
        repair."""
        if self._ancestors.naive is None:
            return None
        rng = self.context.rng(number)
        if self._ports.source():
            return self._port(number, Arm("carry"), rng)
        if idea := self._ideas.next():
            return self._request(number, Arm("tune"), (idea.answer,), rng, {})
        if self._repairs.oldest(untried=True):
            models = filter(self._may_ask, filter(self._outages.askable, self.context.models))
            arms = [Arm("repair", model) for model in models]
            return self._repair(number, self.bandit.choose(arms, rng), rng, untried=True) if arms else None
        return None

    def _arms(self, parent: Elite, partner: Elite | None, mate: Elite | None, *, routed: bool) -> list[Arm]:
        """Everything that can be asked for right now; `mate` is a model's partner, `routed`: there is a route."""
        source = parent.kernel.source_id
        arms = []
        if ("transform", source) not in self._exhausted:
            arms.append(Arm("transform"))
        if ("tune", source) not in self._exhausted and self._can_be_tuned(parent.kernel):
            arms.append(Arm("tune"))
        if partner:
            arms.append(Arm("recombine"))
        if routed:
            arms.append(Arm("route"))
        for model in filter(self._may_ask, filter(self._outages.askable, self.context.models)):
            arms.append(Arm("rewrite", model))
            if self.settings.agent and self._agents.may_ask(model):
                arms.append(Arm("agent", model))
            if mate:
                arms.append(Arm("crossover", model))
            if self._ports.source(model):
                arms.append(Arm("port", model))
            if self._repairs:
                arms.append(Arm("repair", model))
        return arms

    def _may_ask(self, model: str) -> bool:
        """Whether one more question to a model may be open; answers from outside keep no other model waiting."""
        if not self._ancestors.settled:
            return False
        asked = (pending.arm.model for pending in self._pending.values())
        alike = (other for other in asked if other and is_outside(other) == is_outside(model))
        return sum(not self._outages.out(other) for other in alike) < self.context.questions

    def _route(self, parent: Elite) -> tuple[Elite, dict[str, float]] | None:
        """The next kernel that a parent is to be led to where that is faster, and its gains by workload."""
        known, found = self._exhausted, self._pairs.routes(parent)
        return next((each for each in found if ("route", parent.kernel.id + each[0].kernel.id) not in known), None)

    def _can_be_tuned(self, kernel: Kernel) -> bool:
        left = self._tuning.left and self._tuning.tunable(kernel)
        return bool(left) and len(self.population.trials(kernel)) < TRIALS_PER_SOURCE

    def _of(
        self, arm: Arm, number: int, pair: Pair, rng: Random, route: tuple[Elite, dict[str, float]] | None
    ) -> Request:
        """The request of the chosen arm, for a parent, its partner and its route."""
        parent, partner = pair
        params: dict[str, Any] = {}
        if arm.mutator == "repair":
            return self._repair(number, arm, rng)
        if arm.mutator == "port":
            return self._port(number, arm, rng)
        if arm.mutator == "agent":
            session = self._agents.next(arm.model, parent)
            params = self._agents.settings.params(session.fruitless)
            return self._request(number, arm, (session.parent,), rng, params, thread=session.thread)
        if arm.mutator == "transform":
            params["count"] = _steps(self.population.quiet[number % self.settings.islands], self.settings, rng)
            if limited := self._lineage.limited_by(parent.kernel.id):
                params["bottleneck"] = limited
        if arm.mutator == "route" and route:
            partner, params["gains"] = route
        with_partner = ("recombine", "crossover", "route")
        parents = (parent, partner) if partner and arm.mutator in with_partner else (parent,)
        return self._request(number, arm, parents, rng, params)

    def _repair(self, number: int, arm: Arm, rng: Random, *, untried: bool = False) -> Request:
        """For the failing child that has waited longest."""
        failure = self._repairs.oldest(untried=untried)
        assert failure
        return self._request(number, arm, (failure.parent,), rng, {}, failing=(failure.kernel.id,))

    def _port(self, number: int, arm: Arm, rng: Random) -> Request:
        """A kernel of another task, as it stands or carried over by a model, to beat the best one of this."""
        source, best = self._ports.source(arm.model), self.population.best
        assert source and best
        return self._request(number, arm, (best,), rng, {}, source=source)

    def _request(
        self,
        number: int,
        arm: Arm,
        parents: tuple[Elite, ...],
        rng: Random,
        params: dict[str, Any],
        *,
        failing: tuple[str, ...] = (),
        source: Leader | None = None,
        **named: Any,
    ) -> Request:
        tunes = arm.mutator == "tune"
        trials = self.population.trials(parents[0].kernel) if tunes else ()
        params |= self._tuning.params(parents[0].kernel) if tunes else {}
        ids = tuple(parent.kernel.id for parent in parents)
        if source:
            ids = (*(ids if arm.model else ()), source.kernel.id)
            named["source_task"] = str(source.task)
        kind = Kind.TRIAL if tunes else Kind.CHILD
        return self.context.request(
            number, arm.mutator, failing + ids, rng, params, kind=kind, trials=trials, model=arm.model, **named
        )

    # --- being told -------------------------------------------------------------------------------------------------

    def _learn(self, individual: Individual, pending: _Pending) -> None:
        idea = pending.idea
        if pending.arm == Arm("carry"):
            return  # it is tried whenever it can be: there is nothing to weigh
        if idea:
            idea.tried(individual, _gain(individual, idea.parents, idea.best_log_speedup))
            if idea.settled:
                context = arm_context(self._lineage, idea.arm, idea.parents)
                self.bandit.learn(
                    idea.arm, gain=idea.gain, seconds=idea.seconds, cost_usd=idea.cost_usd, context=context
                )
            return
        parents = individual.request.parents
        gain = _gain(individual, parents, pending.best_log_speedup)
        if pending.arm.model and self.settings.settle and _settles(individual, self._tuning):
            self._ideas.add(
                Idea(
                    as_parent(individual), pending.arm, parents, pending.best_log_speedup, gain, individual.seconds,
                    individual.cost_usd, left=self._tuning.take(self.settings.settle),
                )
            )  # fmt: skip
        else:
            arm, context = pending.arm, arm_context(self._lineage, pending.arm, parents)
            spent = {"seconds": individual.seconds, "cost_usd": individual.cost_usd}
            self.bandit.learn(arm, gain=gain, context=context, **spent)


def _settles(answer: Individual, tuning: Tuning) -> bool:
    """Whether settings of a model's answer are tried before its idea is judged."""
    kernel, evaluation = answer.kernel, answer.evaluation
    if not (tuning.left and kernel and evaluation and answer.fresh):
        return False
    return evaluation.verdict in TIMED and tuning.tunable(kernel)


def _gain(individual: Individual, parents: Sequence[str], best_log_speedup: float) -> float:
    """By how much an individual is clearly faster than these kernels, the best of which is known; else 0."""
    evaluation = individual.evaluation
    if not individual.fresh or evaluation is None or evaluation.log_speedup is None:
        return 0.0
    paired = evaluation.anchor_id in parents
    error = evaluation.log_ratio_se if paired else evaluation.log_speedup_se
    gain = evaluation.log_speedup - best_log_speedup
    return gain if gain > max(MARGIN, Z95 * (error or 0.0)) else 0.0


def _steps(quiet: int, settings: IslandsSettings, rng: Random) -> int:
    """The number of transforms in a row on an island that got no further for this many requests: the longer, the
    more."""
    longer = 1.0 - (1.0 - settings.long_step) ** (1.0 + quiet / settings.patience)
    steps = 1
    while steps < settings.most_steps and rng.random() < longer:
        steps += 1
    return steps


# --- repairs and ports ------------------------------------------------------------------------------------------------


FAILURES_KEPT = 16
"""Failing kernels that wait for a repair; the latest."""


@dataclass(frozen=True)
class Failure:
    """A failing child of a model that may be mended."""

    kernel: Kernel
    parent: Elite
    """The good kernel that it was made from."""
    tries: int = 0


class Repairs:
    """Failures that wait for a repair."""

    def __init__(self, most_tries: int) -> None:
        """`most_tries`: requests that may be spent on one failing child, what becomes of it included."""
        self._most_tries = most_tries
        self._waiting: deque[Failure] = deque(maxlen=FAILURES_KEPT)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def oldest(self, *, untried: bool) -> Failure | None:
        """Return what has waited longest, of all or of what was not tried to be mended yet; None: there is none."""
        return next((f for f in self._waiting if not (untried and f.tries)), None)

    def take(self, kernel_id: str) -> Failure | None:
        """Take out the failure that is this kernel, the one that has waited longest; None where there is none."""
        failure = next((failure for failure in self._waiting if failure.kernel.id == kernel_id), None)
        if failure:
            self._waiting.remove(failure)
        return failure

    def back(self, failure: Failure) -> None:
        """Let one wait again whose repair came to nothing for no fault of its own."""
        self._waiting.append(failure)

    def consider(self, individual: Individual, parent: Elite, mended: Failure | None) -> None:
        """Keep what a model made of a good kernel and what failed, as long as it has tries left.

        `mended` is the failure that the model was to mend, if it was.
        """
        tries = mended.tries + 1 if mended else 0
        if tries >= self._most_tries:
            return
        from mutators.asking.mutators import REPAIRABLE  # with its templates: not needed by runs without models

        kernel, evaluation = individual.kernel, individual.evaluation
        if kernel and evaluation and individual.fresh and evaluation.verdict in REPAIRABLE:
            self._waiting.append(Failure(kernel, parent, tries))
        elif mended and kernel is None:  # the model had no answer: it may be asked again
            self._waiting.append(Failure(mended.kernel, parent, tries))


AS_IT_STANDS = ""
"""In the place of a model's name: the kernel itself is tried."""
Way = tuple[Task, str]
"""The task that a kernel comes from, and the model that is to carry it over, or AS_IT_STANDS."""


@dataclass
class Ports:
    """Knows one task's leader and those of its relatives, and what of theirs was carried over. Pure: no randomness.

    A kernel of the same operator in another dtype is tried as it stands first; then models are asked. Each way is taken
    again only for a leader that is as much ahead of the one before as that was to be ahead of this task's own.
    """

    task: Task
    times: float
    """Factor by which a leader must be as far as this task's own; 0: nothing is carried over."""
    own: Leader | None = None
    others: dict[Task, Leader] = field(default_factory=dict)
    _taken: dict[Way, Leader] = field(default_factory=dict)
    """By way, the last leader that was carried over."""
    _open: dict[int, tuple[Way, Leader | None]] = field(default_factory=dict)
    """By number of a request that is not told yet: its way, and the leader that was carried over that way before."""
    _files: set[str] = field(default_factory=set)
    """Source ids of kernels that were told: they are known here."""

    def hear(self, leader: Leader) -> None:
        """Take note of the new leader of a task."""
        if leader.task == self.task:
            self.own = leader
        else:
            self.others[leader.task] = leader

    def told(self, individual: Individual) -> None:
        """Learn what became of a request, whatever it asked for."""
        if individual.kernel:
            self._files.add(individual.kernel.source_id)
        way, before = self._open.pop(individual.request.number, (None, None))
        if way and individual.unavailable:  # says nothing of the kernel: it may be carried over again
            del self._taken[way]
            if before:
                self._taken[way] = before

    def asked(self, number: int, leader: Leader, model: str = AS_IT_STANDS) -> None:
        """Take note that a leader is carried over by the request of this number."""
        way = leader.task, model
        self._open[number] = way, self._taken.get(way)
        self._taken[way] = leader

    def source(self, model: str = AS_IT_STANDS) -> Leader | None:
        """Return the leader that is to be tried without a model, or whose design this model is to carry over: of those
        whose way is to be taken, the one that is furthest ahead."""
        if not self.times or self.own is None:
            return None
        found = [leader for leader in self.others.values() if self._promises(leader, self.own, model)]
        return max(found, key=lambda leader: (leader.ahead(self.own), str(leader.task))) if found else None  # type: ignore[arg-type]

    def _promises(self, leader: Leader, own: Leader, model: str) -> bool:
        least = math.log(self.times)
        before = self._taken.get((leader.task, model))
        if leader.ahead(own) <= least or (before and leader.ahead(before) <= least):
            return False
        known = leader.kernel.source_id in self._files
        if model == AS_IT_STANDS:
            return leader.task.operator == self.task.operator and not known
        under_way = (leader.task, AS_IT_STANDS) in (way for way, _ in self._open.values())
        return leader.kernel.source_id != own.kernel.source_id and not under_way
