"""Questions of islands to models: which parents, which partners, when repairs, and ideas that wait."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from evo.individual import Individual
from evo.lineage import Lineage
from evo.search.knowledge import Knowledge
from evo.strategies.islands import Islands
from evo.strategies.tuning import Tuning
from fitness.evaluation import Evaluation, Level, Status, Timing
from mutators.bandit import Arm
from mutators.base import Kind, Request
from operators.definition.spec import Operator
from operators.kernel import Kernel
from tests.evo.test_strategies import MODELS, TASK, make, told
from tests.evo.worlds import TUNABLE, World, play

PLAIN = TUNABLE.replace("A = [1, 2, 4]\nB = [1, 2]\n", "")


def asked_of_models(events: list[Individual], *, after: int = 60) -> list[Individual]:
    return [i for i in events if i.request.model and i.request.number > after and i.request.mutator != "repair"]


def history(axpb: Operator, world: World, **settings: Any) -> list[Individual]:
    return told(play(make(Islands, axpb, models=MODELS, **settings), world, requests=500, order=Random(3)))


def near_best(axpb: Operator, world: World, events: list[Individual]) -> float:
    """The share of questions about a kernel within 80 % of the fastest that was told before."""
    best, near = 0.0, []
    standing: dict[str, float] = {}
    for individual in events:
        if individual in asked_of_models(events):
            near.append(standing.get(individual.request.parents[0], 0.0) >= best + math.log(0.8))
        evaluation, kernel = individual.evaluation, individual.kernel
        if kernel and evaluation and evaluation.log_speedup is not None:
            standing[kernel.id] = evaluation.log_speedup
            best = max(best, evaluation.log_speedup)
    return sum(near) / len(near)


def test_models_are_asked_about_kernels_near_the_fastest(axpb: Operator) -> None:
    def fate(request: Request, kernel: Kernel) -> float:
        return Random(kernel.id).expovariate(4.0)

    def near(**settings: Any) -> float:
        world = World(axpb, TASK, fate=fate, ancestor=PLAIN)
        return near_best(axpb, world, history(axpb, world, **settings))

    # What was the fastest when it was asked may have been overtaken when it is told.
    assert near() > 0.6 > near(focus=0)


def test_a_partner_wins_on_a_workload_and_neither_was_made_from_the_other(axpb: Operator) -> None:
    world = World(axpb, TASK, ancestor=PLAIN)
    events = history(axpb, world)
    lineage = Lineage()
    for individual in events:
        lineage.told(individual)
    pairs = [i.request.parents for i in events if i.request.mutator == "crossover"]
    assert len(pairs) > 5
    for parent, partner in pairs:
        assert not lineage.related(world.kernels[parent], world.kernels[partner])
        assert lineage.wins(world.kernels[partner], world.kernels[parent])


def test_without_a_partner_that_wins_models_rewrite(axpb: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.evo.worlds.timings", lambda kernel, log_speedup: ())
    asked = Counter(i.request.mutator for i in history(axpb, World(axpb, TASK)) if i.request.model)
    assert asked["crossover"] == 0 and asked["rewrite"] > 10


def test_a_failing_answer_is_repaired_before_anything_else_is_asked(axpb: Operator) -> None:
    world = World(axpb, TASK, fate=lambda request, _: Status.WRONG if request.mutator == "rewrite" else 0.1)
    strategy = make(Islands, axpb, models=("m",), questions=1)
    failing = world.answer(question(strategy, world))
    strategy.tell(failing)
    (first,) = strategy.ask(1)
    assert failing.kernel
    assert (first.mutator, first.parents[0]) == ("repair", failing.kernel.id)


def question(strategy: Islands, world: World) -> Request:
    """The first request to a model that is about the judged naive kernel, which has tunables."""
    (naive,) = strategy.ask(9)
    strategy.tell(world.answer(naive))
    return next(request for request in strategy.ask(2) if request.model)


def test_no_model_is_asked_before_the_ancestors_are_judged(axpb: Operator) -> None:
    world, strategy = World(axpb, TASK), make(Islands, axpb, models=("m",), ancestors=("naive", "tunable"))
    (naive,) = strategy.ask(9)
    strategy.tell(world.answer(naive))
    tunable, *children = strategy.ask(9)
    assert tunable.kind is Kind.ANCESTOR and not any(request.model for request in children)
    strategy.tell(world.answer(tunable))
    assert any(request.model for request in strategy.ask(2))


def tunable_answers(request: Request, kernel: Kernel) -> float:
    """A model's ideas are slow as they come, and fast with A = 4."""
    return 1.0 if kernel.values.get("A") == 4 else -0.5


def test_settings_of_an_answer_are_tried_before_its_idea_is_judged(axpb: Operator) -> None:
    world, strategy = World(axpb, TASK, fate=tunable_answers), make(Islands, axpb, models=("m",), settle=4)
    arm = Arm("rewrite", "m")
    answer = world.answer(question(strategy, world))
    strategy.tell(answer)
    assert arm not in strategy.bandit.records
    trials = strategy.ask(4)
    assert answer.kernel
    assert {(t.kind, t.parents) for t in trials} == {(Kind.TRIAL, (answer.kernel.id,))}
    assert [len(t.params.get("under_way", ())) for t in trials] == [0, 1, 2, 3]
    for trial, a in zip(trials, (2, 4, 2, 4), strict=True):
        assert arm not in strategy.bandit.records
        child = answer.kernel.with_values({"A": a, "B": 1 + (trial is trials[-1])})
        world.kernels[child.id] = child
        verdict = world._evaluation(trial, child)
        strategy.tell(Individual(trial, child, verdict, 1.0))
    record = strategy.bandit.records[arm]
    assert record.tries == 1.0 and record.rewards > 0.0
    assert strategy.ask(1)[0].parents != (answer.kernel.id,)


def test_a_setting_paired_with_its_answer_alone_is_no_clear_gain_over_the_answers_parent(axpb: Operator) -> None:
    """The answer is 1.04 times as fast as its parent, give or take 6 %: that a setting is its equal shows no more."""
    world, strategy = World(axpb, TASK, fate=lambda *_: 0.04), make(Islands, axpb, models=("m",), settle=1)
    asked = world.answer(question(strategy, world))
    assert asked.kernel and asked.evaluation
    strategy.tell(replace(asked, evaluation=replace(asked.evaluation, log_speedup_se=0.03, log_ratio_se=0.03)))
    (trial,) = strategy.ask(1)
    child = asked.kernel.with_values({"A": 4})
    world.kernels[child.id] = child
    verdict = replace(
        world._evaluation(trial, child), anchor_id=asked.kernel.id, log_speedup=0.04, log_ratio_se=0.001,
        log_speedup_se=0.03,
    )  # fmt: skip
    strategy.tell(Individual(trial, child, verdict, 1.0))
    record = strategy.bandit.records[Arm("rewrite", "m")]
    assert record.tries == 1.0 and record.rewards == 0.0


def test_an_idea_without_another_setting_is_judged_at_once(axpb: Operator) -> None:
    world = World(axpb, TASK, barren=("tune",))
    strategy = make(Islands, axpb, models=("m",), settle=4)
    strategy.tell(world.answer(question(strategy, world)))
    (trial,) = strategy.ask(1)
    strategy.tell(world.answer(trial))
    assert Arm("rewrite", "m") in strategy.bandit.records


# --- what is remembered ---------------------------------------------------------------------------------------------


def measured(source: str, parents: tuple[str, ...], logs: dict[str, float], **more: Any) -> Individual:
    kernel = Kernel("axpb", "cpu", source, more.pop("values", {}))
    mean = sum(logs.values()) / len(logs)
    timings = tuple(Timing(name, 1.0, 1.0, log, 0.01, 20) for name, log in logs.items())
    base = more.get("anchor_log_speedup", 0.0)
    verdict = Evaluation(
        kernel.id, str(TASK), Level.SCREEN, Status.CORRECT, log_speedup=base + mean, log_speedup_se=0.01,
        timings=timings, **more,
    )  # fmt: skip
    return Individual(Request(TASK, 0, "transform", parents, 0), kernel, verdict)


def naive() -> Individual:
    kernel = Kernel("axpb", "cpu", "naive")
    found = measured("naive", (), {"x": 0.0, "y": 0.0}, anchor_log_speedup=0.0, anchor_id=kernel.id)
    return replace(found, request=Request(TASK, 0, "ancestor", (), 0, {"name": "naive"}, kind=Kind.ANCESTOR))


def test_wins_are_counted_over_different_anchors() -> None:
    """B was timed beside A: twice as fast on one workload and half as fast on the other."""
    lineage = Lineage()
    first = naive()
    lineage.told(first)
    assert first.kernel
    a = measured("a", (), {"x": 1.0, "y": 2.0}, anchor_log_speedup=0.0, anchor_id=first.kernel.id)
    assert a.kernel
    b = measured("b", (), {"x": 0.7, "y": -0.7}, anchor_log_speedup=1.5, anchor_id=a.kernel.id)
    c = measured("c", (), {"x": 1.7, "y": 1.29}, anchor_log_speedup=0.0, anchor_id=first.kernel.id)
    for individual in (a, b, c):
        lineage.told(individual)
    assert b.kernel and c.kernel
    assert lineage.wins(b.kernel, a.kernel) and lineage.wins(a.kernel, b.kernel)
    assert not lineage.wins(c.kernel, b.kernel) and not lineage.wins(b.kernel, c.kernel)


def test_prompts_and_the_choice_of_parents_agree_on_who_is_faster_where() -> None:
    """B was timed beside a kernel of which nothing is known: where it is faster is not guessed."""
    knowledge, lineage, first = Knowledge(TASK), Lineage(), naive()
    assert first.kernel
    a = measured("a", (), {"x": 1.0, "y": 2.0}, anchor_log_speedup=0.0, anchor_id=first.kernel.id)
    b = measured("b", (), {"x": 0.7, "y": -0.7}, anchor_log_speedup=1.5, anchor_id="forgotten")
    for individual in (first, a, b):
        knowledge.told(individual)
        lineage.told(individual)
    assert a.kernel and b.kernel
    question = Request(TASK, 9, "rewrite", (a.kernel.id, b.kernel.id), 0, model="m")
    brief = knowledge.brief(question)
    assert brief
    told = {name: dict(standing) for name, standing in brief.parents.items()}
    assert told == {kernel.id: dict(lineage.standing(kernel.id)) for kernel in (a.kernel, b.kernel)}
    assert told[a.kernel.id]["x"].log == 1.0 and told[b.kernel.id] == {}
    assert not lineage.wins(b.kernel, a.kernel)


def test_a_descendant_of_any_degree_is_related_and_a_cousin_is_not() -> None:
    lineage = Lineage()
    kernels: dict[str, Kernel] = {}
    for name, parents in {"a": "", "b": "a", "c": "b", "d": "a", "e": "cd"}.items():
        told_of = measured(name, tuple(kernels[p].id for p in parents), {"x": 0.0})
        assert told_of.kernel
        kernels[name] = told_of.kernel
        lineage.told(told_of)
    related = {
        one + other for one in kernels for other in kernels if one < other
        and lineage.related(kernels[one], kernels[other])
    }  # fmt: skip
    assert related == {"ab", "ac", "ad", "ae", "bc", "be", "ce", "de"}
    assert lineage.related(kernels["a"], kernels["a"].with_values({"A": 2}))


def test_siblings_are_files_with_the_same_tunables_whose_best_differs_from_the_default(axpb: Operator) -> None:
    tuning = Tuning(make(Islands, axpb).context)
    for mark, values, log in (("x", {"A": 2}, 0.1), ("y", {"A": 4, "B": 2}, 0.2), ("z", {}, 0.9), ("y", {"A": 2}, 0.1)):
        tuning.told(measured(f"{TUNABLE}// {mark}\n", (), {"x": log}, values=values))
    params = tuning.params(Kernel("axpb", "cpu", TUNABLE))
    assert params["siblings"] == [{"A": 4, "B": 2}, {"A": 2, "B": 1}]
    assert tuning.params(Kernel("axpb", "cpu", PLAIN)) == {}
