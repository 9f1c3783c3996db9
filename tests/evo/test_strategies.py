"""Promises of every strategy, and what is particular to each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache
from random import Random
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

from evo.config import STRATEGIES, RunConfig
from evo.individual import Individual
from evo.strategies.agent import AgentAlone
from evo.strategies.astra import Astra
from evo.strategies.base import ANCESTOR, Strategy, StrategyContext
from evo.strategies.controls import BestOfN, RandomSearch, TuneOnly
from evo.strategies.cudaforge import CudaForge
from evo.strategies.cudamaster import CudaMaster
from evo.strategies.cutegen import CuTeGen
from evo.strategies.islands import Islands
from evo.strategies.refine import Refinement
from fitness.evaluation import Status
from mutators.bandit import Arm
from mutators.base import Kind, Request
from mutators.registry import MUTATORS
from mutators.transforms.mutator import transform_names
from operators.definition.spec import Operator, Task
from operators.kernel import Kernel
from tests.choosing import size, some_slow
from tests.evo.worlds import Event, World, play, repeat, restore

TASK = Task("axpb", "fp32", "cpu")
MODELS = ("large", "small")


def make(kind: Any, operator: Operator, *, seed: int = 1, models: tuple[str, ...] = (), **settings: Any) -> Any:
    given = {field.name for field in fields(StrategyContext)}
    own = {name: value for name, value in settings.items() if name not in given}
    of_run = {name: value for name, value in settings.items() if name in given}
    return kind(StrategyContext(operator, TASK, seed, "cpu", models, **of_run), own)


History = Callable[..., Sequence[Event]]


class StrategyContract:
    """Subclasses name a strategy and its settings; every one of these tests must hold."""

    kind: ClassVar[Any] = None
    settings: ClassVar[dict[str, Any]] = {}
    models: ClassVar[tuple[str, ...]] = ()
    requests = size(250, 80)

    @classmethod
    def make(cls, operator: Operator, seed: int = 1) -> Strategy:
        made: Strategy = make(cls.kind, operator, seed=seed, models=cls.models, **cls.settings)
        return made

    @pytest.fixture(scope="class")
    @classmethod
    def history(cls, axpb: Operator) -> History:
        """Makes a history of the strategy, each of them once: most tests read the first."""

        @cache
        def made(order: int = 0, seed: int = 1) -> Sequence[Event]:
            return play(cls.make(axpb, seed), World(axpb, TASK), requests=cls.requests, order=Random(order))

        return made

    @pytest.mark.parametrize("order", some_slow([0, 1, 2], 1))
    def test_a_history_applied_again_gives_the_same_requests(
        self, axpb: Operator, history: History, order: int
    ) -> None:
        events = history(order=order)
        repeat(self.make(axpb), events)

    def test_told_of_its_past_it_goes_on_as_if_it_had_asked(self, axpb: Operator, history: History) -> None:
        events = history()
        for cut in range(1, len(events), len(events) // size(9, 3)):
            strategy = self.make(axpb)
            restore(strategy, events[:cut])
            repeat(strategy, events[cut:])

    def test_a_past_that_it_would_never_have_asked_for_is_no_obstacle(self, axpb: Operator, history: History) -> None:
        """The questions of another seed stand for those of another version: it goes on from there."""
        events = history(seed=2)
        for cut in range(1, len(events), len(events) // size(9, 3)):
            strategy = self.make(axpb)
            restore(strategy, events[:cut])
            past = [event for event in events[:cut] if not isinstance(event, Individual)]
            known = {event.kernel.id for event in events[:cut] if isinstance(event, Individual) and event.kernel}
            for request in strategy.ask(5):
                assert request.number > past[-1][1][-1].number
                assert set(request.parents) <= known

    def test_requests_survive_their_json(self, history: History) -> None:
        for event in history():
            if isinstance(event, Individual):
                assert Request.from_json(event.request.to_json()) == event.request

    def test_requests_are_numbered_and_start_from_kernels_it_was_told_of(self, axpb: Operator) -> None:
        strategy, world, number = self.make(axpb), World(axpb, TASK), 0
        known = {world.unjudged.id}
        order = Random(5)
        flying: list[Request] = []
        for _ in range(self.requests):
            for request in strategy.ask(order.randint(0, 4)):
                assert request.number == number
                assert request.task == TASK
                assert request.mutator in MUTATORS or request.kind is Kind.PROFILE
                assert set(request.parents) <= known
                number += 1
                flying.append(request)
            if not flying:
                continue
            individual = world.answer(flying.pop(order.randrange(len(flying))))
            assert strategy.tell(individual)
            if individual.kernel:
                known.add(individual.kernel.id)

    def test_it_waits_for_the_ancestor(self, axpb: Operator) -> None:
        strategy = self.make(axpb)
        (first,) = strategy.ask(1)
        assert (first.mutator, first.params["name"]) == (ANCESTOR, "naive")
        world = World(axpb, TASK)
        assert strategy.ask(4) == []
        strategy.tell(world.answer(first))
        assert len(strategy.ask(2)) == 2

    def test_a_failing_ancestor_ends_it(self, axpb: Operator) -> None:
        strategy = self.make(axpb)
        (first,) = strategy.ask(1)
        good = World(axpb, TASK).answer(first)
        assert good.kernel and good.evaluation
        verdict = type(good.evaluation)(good.kernel.id, str(TASK), good.evaluation.level, Status.WRONG, "wrong")
        strategy.tell(Individual(first, good.kernel, verdict))
        assert strategy.ask(5) == []
        assert strategy.best is None

    def test_its_best_is_the_best_it_was_told_of(self, axpb: Operator) -> None:
        strategy = self.make(axpb)
        events = play(strategy, World(axpb, TASK), requests=self.requests, order=Random(6))
        told = [e.evaluation.log_speedup for e in events if isinstance(e, Individual) and e.evaluation and e.fresh]
        assert strategy.best
        best = max(s for s in told if s is not None)
        assert best - 0.02 <= strategy.best.log_speedup <= best

    def test_another_seed_asks_something_else(self, history: History) -> None:
        one, two = history(), history(seed=2)
        assert [e for e in one if not isinstance(e, Individual)] != [e for e in two if not isinstance(e, Individual)]

    def test_unknown_settings_are_refused(self, axpb: Operator) -> None:
        with pytest.raises(ValidationError, match="num_island"):
            make(self.kind, axpb, models=self.models, **self.settings, num_island=3)

    def test_where_no_mutator_has_a_child_it_ends(self, axpb: Operator) -> None:
        if self.models and self.kind is Islands:
            pytest.skip("a model may always be asked again; the driver's limit on idle requests ends such a run")
        world = World(axpb, TASK, barren=tuple(MUTATORS))
        events = play(self.make(axpb), world, requests=1_000, order=Random(8))
        assert sum(isinstance(event, Individual) for event in events) < 500


class TestIslands(StrategyContract):
    kind = Islands


@pytest.mark.slow
class TestManyIslands(StrategyContract):
    kind = Islands
    settings: ClassVar = {"islands": 5, "migration_interval": 3, "patience": 7}


class TestIslandsWithModels(StrategyContract):
    kind = Islands
    models = MODELS


@pytest.mark.slow
class TestIslandsOfSeveralAncestors(StrategyContract):
    kind = Islands
    settings: ClassVar = {"ancestors": ("naive", "tunable", "vector")}


class TestRandom(StrategyContract):
    kind = RandomSearch


class TestRandomOfSeveralAncestors(StrategyContract):
    kind = RandomSearch
    settings: ClassVar = {"ancestors": ("naive", "tunable")}


class TestBestOfN(StrategyContract):
    kind = BestOfN
    settings: ClassVar = {"n": 30}


class TestBestOfNWithModels(StrategyContract):
    kind = BestOfN
    models = MODELS


class TestBestOfNWithRepairs(StrategyContract):
    kind = BestOfN
    models = MODELS
    settings: ClassVar = {"n": 20, "steps": 3, "repairs": 2}


class TestTuneOnly(StrategyContract):
    kind = TuneOnly


class LoopContract(StrategyContract):
    """The same of loops that ask models, two of them side by side."""

    models = MODELS
    settings: ClassVar = {"n": 20, "width": 2}
    requests = 150


class TestRefine(LoopContract):
    kind = Refinement


class TestAstra(LoopContract):
    kind = Astra


class TestCudaMaster(LoopContract):
    kind = CudaMaster


class TestCuTeGen(LoopContract):
    kind = CuTeGen
    settings: ClassVar = {"n": 20, "width": 2, "fixes": 2}


class TestCudaForge(LoopContract):
    kind = CudaForge


class TestAgent(LoopContract):
    kind = AgentAlone


def test_every_strategy_without_peculiar_needs_is_held_to_the_contract() -> None:
    held = {kind.kind for kind in (*StrategyContract.__subclasses__(), *LoopContract.__subclasses__())} - {None}
    named = {place for place, path in STRATEGIES.items() if path.startswith("evo.")} - {"one_shot"}
    assert named <= set(STRATEGIES)
    assert {STRATEGIES[name].rpartition(":")[2] for name in named} == {kind.__name__ for kind in held}


@pytest.mark.parametrize("strategy", ["islands", "random", "best_of_n", "tune_only"])
def test_a_run_can_be_configured_with_it(strategy: str) -> None:
    made = RunConfig(operators=["softmax"], strategy=strategy).resolved()
    ((operator, task),) = made.tasks()
    assert made.make_strategy(operator, task).ask(1)


def test_islands_ask_models_in_turn_with_the_first_transforms(axpb: Operator) -> None:
    strategy, world = make(Islands, axpb, models=MODELS, questions=4, settle=0), World(axpb, TASK)
    (naive,) = strategy.ask(10)
    strategy.tell(world.answer(naive))
    first = strategy.ask(7)
    assert [bool(r.model) for r in first] == [True, False, True, False, True, False, True]
    assert not any(r.model for r in strategy.ask(10))  # four are open
    strategy.tell(world.answer(first[0]))
    assert sum(bool(r.model) for r in strategy.ask(4)) == 1


# --- islands --------------------------------------------------------------------------------------------------------


def told(events: list[Event]) -> list[Individual]:
    return [event for event in events if isinstance(event, Individual)]


def test_islands_ask_every_mutator_and_model(axpb: Operator) -> None:
    events = told(play(make(Islands, axpb, models=MODELS), World(axpb, TASK), requests=400, order=Random(0)))
    asked = Counter((i.request.mutator, i.request.model) for i in events)
    expected = {(m, "") for m in (ANCESTOR, "transform", "tune", "recombine", "route")}
    expected |= {(m, model) for m in ("rewrite", "crossover", "repair") for model in MODELS}
    assert set(asked) == expected


def test_islands_without_models_ask_none(axpb: Operator) -> None:
    events = told(play(make(Islands, axpb), World(axpb, TASK), requests=300, order=Random(0)))
    assert {i.request.mutator for i in events} == {ANCESTOR, "transform", "tune", "recombine", "route"}
    assert not any(i.request.model for i in events)


def test_two_parents_have_two_sources(axpb: Operator) -> None:
    world = World(axpb, TASK)
    events = told(play(make(Islands, axpb, models=MODELS), world, requests=400, order=Random(1)))
    pairs = [i.request.parents for i in events if i.request.mutator in ("recombine", "crossover")]
    assert len(pairs) > 10
    assert all(world.kernels[a].source != world.kernels[b].source for a, b in pairs)


def test_a_route_leads_to_a_kernel_that_is_faster_somewhere_and_no_pair_is_tried_twice(axpb: Operator) -> None:
    world = World(axpb, TASK)
    strategy = make(Islands, axpb)
    events = told(play(strategy, world, requests=300, order=Random(0)))
    routes = [i.request for i in events if i.request.mutator == "route"]
    assert len(routes) > 10 and len({request.parents for request in routes}) == len(routes)
    workloads = {t.workload for i in events if i.evaluation for t in i.evaluation.timings}
    assert all(set(request.params["gains"]) <= workloads for request in routes)
    assert all(min(r.params["gains"].values()) < 0 < max(r.params["gains"].values()) for r in routes)


@pytest.mark.parametrize("repairs", [0, 1, 3])
@pytest.mark.parametrize(
    ("kind", "settings"), [(Islands, {"least_share": 0.5}), (BestOfN, {"n": 30})], ids=["islands", "best_of_n"]
)
def test_a_failing_child_of_a_model_is_mended_a_bounded_number_of_times(
    axpb: Operator, kind: type[Any], settings: dict[str, Any], repairs: int
) -> None:
    world = World(axpb, TASK, fate=lambda request, _: Status.WRONG if request.model else 0.1)
    strategy = make(kind, axpb, models=("m",), repairs=repairs, **settings)
    events = told(play(strategy, world, requests=400, order=Random(2)))
    origin: dict[str, str] = {}
    tries: Counter[str] = Counter()
    for i in events:
        if i.request.mutator == "repair":
            failing, parent = i.request.parents
            assert world.verdicts[failing].verdict is Status.WRONG
            assert world.verdicts[parent].correct
            tries[origin.get(failing, failing)] += 1
            if i.kernel:
                origin.setdefault(i.kernel.id, origin.get(failing, failing))
    assert max(tries.values(), default=0) == repairs


def test_what_brings_more_for_its_price_is_asked_more(axpb: Operator) -> None:
    def fate(request: Request, kernel: Kernel) -> float:
        parent = world.verdicts[request.parents[0]].log_speedup or 0.0
        return parent + (0.3 if request.model == "large" else -0.05)

    world = World(axpb, TASK, fate=fate)
    strategy = make(Islands, axpb, models=MODELS, islands=1)
    events = told(play(strategy, world, requests=400, order=Random(4)))
    asked = Counter(i.request.model for i in events[100:])
    assert asked["large"] > 3 * asked["small"]


def test_a_stuck_island_makes_longer_steps(axpb: Operator) -> None:
    def steps(stuck: bool) -> float:
        world = World(axpb, TASK, fate=lambda request, _: 0.0 if stuck else 0.05 * request.number)
        strategy = make(Islands, axpb, islands=1, patience=30)
        events = told(play(strategy, world, requests=300, order=Random(5)))
        counts = [i.request.params["count"] for i in events if "count" in i.request.params][-50:]
        return sum(counts) / len(counts)

    assert steps(stuck=True) > steps(stuck=False) + 0.5


def test_an_exhausted_file_is_not_tuned_any_more(axpb: Operator) -> None:
    world = World(axpb, TASK, barren=("transform", "recombine"))
    strategy = make(Islands, axpb)
    events = told(play(strategy, world, requests=100, order=Random(6)))
    tunes = [i for i in events if i.request.mutator == "tune"]
    assert len({i.kernel.id for i in tunes if i.kernel}) == 5  # of 3 x 2 settings one is the ancestor's own
    assert strategy.ask(1) == []


@pytest.mark.parametrize("kind", [Islands, RandomSearch, BestOfN, TuneOnly])
def test_all_kernel_files_are_starting_points(axpb: Operator, kind: type[Any]) -> None:
    names = ("naive", "tunable", "vector")
    strategy = make(kind, axpb, ancestors=names)
    events = told(play(strategy, World(axpb, TASK), requests=size(1_000, 200), order=Random(7)))
    first = {i.request.params["name"]: i.kernel for i in events if i.request.mutator == ANCESTOR}
    assert tuple(first) == names[:1] + tuple(n for n in first if n != "naive")
    assert set(first) == set(names)
    parents = {parent for i in events for parent in i.request.parents}
    assert {kernel.id for kernel in first.values() if kernel} <= parents


@pytest.mark.parametrize("kind", [Islands, RandomSearch, BestOfN, TuneOnly])
def test_a_search_does_without_an_ancestor_that_fails_unless_it_is_the_naive_one(
    axpb: Operator, kind: type[Any]
) -> None:
    strategy, world = make(kind, axpb, ancestors=("naive", "tunable")), World(axpb, TASK)
    (naive,) = strategy.ask(3)
    strategy.tell(world.answer(naive))
    (tunable,) = (r for r in strategy.ask(3) if r.mutator == ANCESTOR)
    bad = world.answer(tunable)
    assert bad.kernel and bad.evaluation
    verdict = type(bad.evaluation)(bad.kernel.id, str(TASK), bad.evaluation.level, Status.WRONG, "wrong")
    strategy.tell(Individual(tunable, bad.kernel, verdict))
    events = told(play(strategy, world, requests=50, order=Random(8)))
    assert events
    assert bad.kernel.id not in {parent for i in events for parent in i.request.parents}


# --- the control arms -----------------------------------------------------------------------------------------------


def test_random_always_starts_from_the_ancestor(axpb: Operator) -> None:
    events = told(play(make(RandomSearch, axpb), World(axpb, TASK), requests=60, order=Random(0)))
    (ancestor,) = {i.kernel.id for i in events if i.request.mutator == ANCESTOR and i.kernel}
    children = [i.request for i in events if i.request.mutator != ANCESTOR]
    assert {r.parents for r in children} == {(ancestor,)}
    assert all(r.params["random_values"] for r in children)
    assert len({r.params["count"] for r in children}) > 3


def test_attempts_of_best_of_n_are_chains_that_know_nothing_of_each_other(axpb: Operator) -> None:
    events = told(play(make(BestOfN, axpb, n=12, steps=5), World(axpb, TASK), requests=500, order=Random(1)))
    (ancestor,) = (i.kernel.id for i in events if i.request.mutator == ANCESTOR and i.kernel)
    begun = [i for i in events if i.request.parents == (ancestor,)]
    assert len(begun) == 12
    assert len(events) <= 1 + 12 * 5
    fresh = {i.kernel.id for i in events if i.kernel and i.fresh}
    used = Counter(i.request.parents[0] for i in events if i.request.parents)
    assert all(used[kernel] <= 2 for kernel in fresh - {ancestor})  # twice if two chains came to the same program


def test_best_of_n_asks_its_models_in_turn(axpb: Operator) -> None:
    events = told(play(make(BestOfN, axpb, n=20, models=MODELS), World(axpb, TASK), requests=500, order=Random(2)))
    asked = [i.request for i in events if i.request.mutator != ANCESTOR]
    assert {r.mutator for r in asked} == {"rewrite"}
    assert Counter(r.model for r in asked) == {"large": 10, "small": 10}
    assert len({r.digest for r in asked}) == 20


def test_tune_only_tries_every_setting_of_every_file_and_ends(axpb: Operator) -> None:
    world = World(axpb, TASK, fate=lambda _, kernel: 0.01 * len(kernel.values))
    events = told(play(make(TuneOnly, axpb), world, requests=5_000, order=Random(3)))
    openings = [i for i in events if i.request.mutator == "transform"]
    assert [i.request.params["rewrite"] for i in sorted(openings, key=lambda i: i.request.number)] == list(
        transform_names("cpu")
    )
    files = {i.kernel.source_id for i in (*openings, events[0]) if i.kernel}
    tuned = [i for i in events if i.request.mutator == "tune"]
    assert len({i.kernel.id for i in tuned if i.kernel}) == 5 * len(files)
    assert {i.kernel.source_id for i in tuned if i.kernel} == files


@pytest.mark.parametrize("kind", [Islands, BestOfN])
def test_of_a_model_that_is_gone_one_request_at_a_time_is_made_and_nothing_is_learnt(
    axpb: Operator, kind: type[Any]
) -> None:
    world = World(axpb, TASK)
    strategy = make(kind, axpb, models=MODELS, **({"n": 10_000} if kind is BestOfN else {"settle": 0}))

    def asked(times: int, *, kept: str = "") -> list[Request]:
        """Requests that were made in so many asks; those for the model `kept` are not told."""
        made = [strategy.ask(1)[0] for _ in range(1)]
        for _ in range(times):
            if not kept or made[-1].model != kept:
                strategy.tell(world.answer(made[-1]))
            made += strategy.ask(1)
        strategy.tell(world.answer(made.pop()))
        return made

    def large(requests: list[Request]) -> list[Request]:
        return [request for request in requests if request.model == "large"]

    def tries() -> dict[Arm, float]:
        return {arm: record.tries for arm, record in strategy.bandit.records.items() if arm.model == "large"}

    assert len(large(asked(120))) > 5
    before = tries() if kind is Islands else {}
    world.gone = ("large",)
    while not large(asked(1)):
        pass
    # Its client keeps the next request until it tries the model again.
    requests = asked(size(300, 180), kept="large")
    (trial,) = large(requests)
    assert sum(request.model == "small" for request in requests) > 20
    assert all(tries()[arm] <= count for arm, count in before.items())
    strategy.tell(world.answer(trial))
    (trial,) = large(asked(60, kept="large"))
    world.gone = ()
    strategy.tell(world.answer(trial))
    assert len(large(asked(120))) > 5


def test_best_of_n_waits_for_its_only_model_and_loses_no_attempt(axpb: Operator) -> None:
    world = World(axpb, TASK, gone=("large",))
    strategy = make(BestOfN, axpb, models=("large",), n=4)
    strategy.tell(world.answer(strategy.ask(1)[0]))
    requests = strategy.ask(3)
    for request in requests:
        strategy.tell(world.answer(request))
    for _ in range(5):
        (request,) = strategy.ask(3)  # the trial
        assert strategy.ask(3) == []
        strategy.tell(world.answer(request))
    world.gone = ()
    answered = 0
    while requests := strategy.ask(1):
        for request in requests:
            answered += 1
            strategy.tell(world.answer(request))
    assert answered == 4
