"""Equal terms of strategies in a comparison: limits on trials, tuning at the end, and what islands do without."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

from evo.individual import Individual
from evo.strategies.controls import RandomSearch, TuneOnly
from evo.strategies.islands import Islands
from evo.strategies.tuning import LAST_TRIALS, Tuned
from fitness.evaluation import Status
from mutators.base import Kind, Request
from operators.definition.spec import Operator
from operators.kernel import Kernel
from tests.choosing import some_slow
from tests.evo.test_strategies import MODELS, TASK, StrategyContract, make
from tests.evo.worlds import Event, World, by_chance, play, repeat, restore

MODELS_ALONE = {"without": ("transform", "tune", "recombine", "route")}


@pytest.mark.slow
class TestIslandsOfModelsAlone(StrategyContract):
    kind = Islands
    models = MODELS
    settings: ClassVar = {**MODELS_ALONE, "trials": 0}


class TestIslandsWithoutArchive(StrategyContract):
    kind = Islands
    models = MODELS
    settings: ClassVar = {"islands": 1, "cells": False, "trials": 9}


def asked(kind: Any, operator: Operator, *, requests: int = 200, **settings: Any) -> list[Request]:
    events = play(make(kind, operator, **settings), World(operator, TASK), requests=requests, order=Random(1))
    return [event.request for event in events if isinstance(event, Individual)]


@pytest.mark.parametrize("trials", some_slow([0, 1, 12], 3))
@pytest.mark.parametrize(("kind", "models"), [(Islands, MODELS), (Islands, ()), (TuneOnly, ())])
def test_no_strategy_asks_for_more_trials_than_it_may(
    axpb: Operator, kind: Any, models: tuple[str, ...], trials: int
) -> None:
    kinds = Counter(request.kind for request in asked(kind, axpb, models=models, trials=trials))
    assert kinds[Kind.TRIAL] == trials


def test_islands_do_without_what_they_are_told_to(axpb: Operator) -> None:
    used = {request.mutator for request in asked(Islands, axpb, models=MODELS)}
    assert {"transform", "tune", "recombine", "rewrite", "crossover", "repair"} <= used
    alone = {request.mutator for request in asked(Islands, axpb, models=MODELS, trials=0, **MODELS_ALONE)}
    assert alone == {"ancestor", "rewrite", "crossover", "repair"}
    without = {request.mutator for request in asked(Islands, axpb, models=MODELS, without=("crossover",))}
    assert "crossover" not in without and {"transform", "tune", "rewrite", "repair"} <= without
    with pytest.raises(ValidationError, match="crosover"):
        make(Islands, axpb, without=("crosover",))


def test_islands_without_cells_keep_their_best_kernel_alone(axpb: Operator) -> None:
    strategy = make(Islands, axpb, models=MODELS, islands=1, cells=False)
    play(strategy, World(axpb, TASK), requests=150, order=Random(3))
    (archive,) = strategy.population.islands
    assert len(archive) == 1 and archive.best.kernel == strategy.best.kernel
    cells = make(Islands, axpb, models=MODELS, islands=1)
    play(cells, World(axpb, TASK), requests=150, order=Random(3))
    assert len(cells.population.islands[0]) > 1


def tuned(operator: Operator, *, trials: int) -> Tuned:
    inner = make(RandomSearch, operator)
    return Tuned(inner, make(RandomSearch, operator, trials=trials).context)


def finish(strategy: Tuned, world: World) -> list[Individual]:
    """Ask for the last trials until there is none."""
    found = []
    while requests := strategy.ask(LAST_TRIALS):
        assert len(requests) == 1
        found.append(world.answer(requests[0]))
        strategy.tell(found[-1])
    return found


def test_the_best_kernel_of_a_strategy_is_tuned_after_all_else(axpb: Operator) -> None:
    def fate(request: Request, kernel: Kernel) -> Status | float:
        return 3.0 + sum(kernel.values.values()) / 10 if request.kind is Kind.TRIAL else by_chance(request, kernel)

    strategy, world = tuned(axpb, trials=4), World(axpb, TASK, fate)
    play(strategy, world, requests=30, order=Random(2), most_in_flight=1)
    best = strategy.best
    assert best
    trials = finish(strategy, world)
    assert [t.request.number for t in trials] == [30, 31, 32, 33]
    assert {t.request.kind for t in trials} == {Kind.TRIAL}
    assert all(t.request.parents == (best.kernel.id,) for t in trials)
    assert [len(t.request.trials) for t in trials] == [1, 2, 3, 4]  # each knows those before it
    assert strategy.ask(3) == []
    fastest = max(e.log_speedup for t in trials if (e := t.evaluation) and e.correct and e.log_speedup is not None)
    assert strategy.best and strategy.best.log_speedup == fastest > 3.0 > best.log_speedup


def test_last_trials_end_with_the_settings_there_are(axpb: Operator) -> None:
    strategy, world = tuned(axpb, trials=50), World(axpb, TASK)
    play(strategy, world, requests=10, order=Random(2), most_in_flight=1)
    assert 0 < len(finish(strategy, world)) <= 6  # of 3 x 2 values, and a last request that finds none left


def test_a_history_with_last_trials_applied_again_gives_the_same_requests(axpb: Operator) -> None:
    strategy, world = tuned(axpb, trials=4), World(axpb, TASK)
    events: list[Event] = play(strategy, world, requests=12, order=Random(4))
    for individual in finish(strategy, world):
        events += [(LAST_TRIALS, [individual.request]), individual]
    for cut in range(len(events)):
        again = tuned(axpb, trials=4)
        restore(again, events[:cut])
        repeat(again, events[cut:])
        assert again.best == strategy.best
