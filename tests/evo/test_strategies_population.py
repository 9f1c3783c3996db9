"""Populations: migration, restarts, trials, and that memory does not grow with history."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from evo.individual import Individual
from evo.strategies.population import SOURCES_REMEMBERED, TRIALS_PER_SOURCE, AddStatus, Archive, Elite, Population
from fitness.evaluation import Evaluation, Level, Status
from mutators.base import Request
from operators.definition.spec import Task
from operators.kernel import Kernel

TASK = Task("axpb", "fp32", "cpu")


def individual(
    number: int,
    log_speedup: float | None,
    *,
    cell: str = "a",
    source: str = "",
    values: dict[str, int] | None = None,
    se: float = 0.001,
) -> Individual:
    kernel = Kernel("axpb", "cpu", source or f"source {number}", values or {})
    status = Status.WRONG if log_speedup is None else Status.CORRECT
    known = {} if log_speedup is None else {"log_speedup": log_speedup, "log_speedup_se": se}
    verdict = Evaluation(kernel.id, str(TASK), Level.SCREEN, status, cell=(cell,), **known)  # type: ignore[arg-type]
    return Individual(Request(TASK, number, "transform", (), number), kernel, verdict)


def duplicate(original: Individual, source: str, values: dict[str, int]) -> Individual:
    kernel, verdict = Kernel("axpb", "cpu", source, values), original.evaluation
    assert verdict
    inherited = Evaluation(
        kernel.id, str(TASK), Level.SCREEN, Status.DUPLICATE, log_speedup=verdict.log_speedup,
        log_speedup_se=verdict.log_speedup_se, duplicate_of=verdict.kernel_id, inherited=verdict.verdict,
    )  # fmt: skip
    return Individual(original.request, kernel, inherited)


def population(islands: int = 2, *, migration_interval: int = 10**6, patience: int = 10**6) -> Population:
    return Population(islands=islands, migration_interval=migration_interval, patience=patience)


outcomes = st.lists(
    st.tuples(st.none() | st.floats(-2, 3), st.sampled_from("abcd"), st.integers(0, 2)), min_size=1, max_size=60
)


@given(outcomes)
def test_the_best_is_never_lost_to_restarts_and_migration(offers: list[tuple[float | None, str, int]]) -> None:
    made = population(3, migration_interval=2, patience=3)
    seen: list[float] = []
    for number, (log_speedup, cell, island) in enumerate(offers):
        before = made.best
        made.add(individual(number, log_speedup, cell=cell), island)
        seen += [log_speedup] if log_speedup is not None else []
        if before:
            assert made.best and made.best.stands_at >= before.stands_at
        for archive in made.islands:
            ranked = [elite.stands_at for elite in archive.ranked()]
            assert ranked == sorted(ranked, reverse=True)
            assert len(archive) == len(ranked) <= 4
    if seen:
        assert made.best and max(seen) - 0.011 <= made.best.log_speedup <= max(seen)
    else:
        assert made.best is None


@given(outcomes, st.integers(0, 2**32))
def test_parents_are_distinct_elites_of_the_island(offers: list[tuple[float | None, str, int]], seed: int) -> None:
    made = population(3)
    for number, (log_speedup, cell, island) in enumerate(offers):
        made.add(individual(number, log_speedup, cell=cell), island)
    for island, archive in enumerate(made.islands):
        drawn = list(made.draw(island, Random(seed)))
        if len(archive):
            assert sorted(e.kernel.id for e in drawn) == sorted(e.kernel.id for e in archive.ranked())
        else:
            assert drawn == ([made.best] if made.best else [])


def test_fast_elites_are_parents_more_often() -> None:
    made = population(1)
    for number, cell in enumerate("abcd"):
        made.add(individual(number, float(number), cell=cell), 0)
    drawn = [next(made.draw(0, Random(seed))).log_speedup for seed in range(400)]
    assert drawn.count(3.0) > drawn.count(1.0) > drawn.count(0.0) > 0


def test_a_lucky_kernel_is_not_bred_from_before_those_that_certainly_are_faster() -> None:
    made = population(2, migration_interval=3)
    made.add(individual(0, 0.7, cell="a", se=0.01), 0)
    made.add(individual(1, 0.6, cell="b", se=0.01), 0)
    made.add(individual(2, 1.0, cell="c", se=0.45), 0)
    assert made.best and made.best.log_speedup == 0.7
    assert [elite.cell for elite in made.islands[0].ranked()] == [("a",), ("b",), ("c",)]
    assert {elite.cell for elite in made.near_best(0, Random(0))} == {("a",), ("b",)}
    assert made.islands[1].best == made.best, "a lucky kernel migrated"


def test_every_island_offers_its_best_to_the_next() -> None:
    made = population(2, migration_interval=2)
    made.add(individual(0, 1.0), 0)
    made.add(individual(1, 0.0, cell="b"), 1)
    assert [archive.best and archive.best.log_speedup for archive in made.islands] == [1.0, 1.0]
    assert len(made.islands[0]) == 2
    there, back = made.migrations
    assert (there.kernel_id, there.source_island, there.island) == (individual(0, 1.0).kernel.id, 0, 1)  # type: ignore[union-attr]
    assert (there.kind, there.outcome, back.source_island, back.outcome) == ("migration", "new", 1, "new")


def test_the_worst_island_starts_again_once_it_is_stuck() -> None:
    made = population(2, patience=3)
    made.add(individual(0, 1.0), 0)
    made.add(individual(1, 0.2), 1)
    made.add(individual(2, 0.1, cell="b"), 1)
    for number in (3, 4):
        made.add(individual(number, None), 1)
    assert [e.log_speedup for e in made.islands[1].ranked()] == [1.0]
    assert made.quiet == [0, 0]
    assert [(m.kind, m.source_island, m.island) for m in made.migrations] == [("restart", 0, 1)]


def test_the_best_island_is_left_alone_however_long_it_is_stuck() -> None:
    made = population(2, patience=3)
    made.add(individual(0, 1.0), 0)
    made.add(individual(1, 0.2), 1)
    for number in range(2, 20):
        made.add(individual(number, None), 0)
    assert [e.log_speedup for e in made.islands[0].ranked()] == [1.0]
    assert made.quiet[0] == 18


def test_a_better_best_ends_the_wait_and_a_new_cell_does_not() -> None:
    made = population(1)
    made.add(individual(0, 1.0), 0)
    made.add(individual(1, 0.5, cell="b"), 0)
    assert made.quiet == [1]
    made.add(individual(2, 1.5, cell="b"), 0)
    assert made.quiet == [0]


def test_settings_are_remembered_per_source_once_and_duplicates_count() -> None:
    made = population(1)
    first = individual(0, 1.0, source="s", values={"A": 2})
    made.add(first, 0)
    made.add(duplicate(first, "s", {"A": 4}), 0)
    made.add(first, 0)
    assert first.kernel
    trials = made.trials(first.kernel)
    assert [(dict(t.values), t.log_speedup) for t in trials] == [({"A": 2}, 1.0), ({"A": 4}, 1.0)]
    assert made.add(duplicate(first, "s", {"A": 8}), 0) is AddStatus.REJECTED


def test_a_failed_trial_is_replaced_by_one_that_succeeds() -> None:
    made = population(1)
    failed, right = (individual(n, s, source="s", values={"A": 2}) for n, s in ((0, None), (1, 0.5)))
    for one in (failed, right, failed):
        made.add(one, 0)
    assert right.kernel
    assert [t.log_speedup for t in made.trials(right.kernel)] == [0.5]


def test_memory_is_bounded_in_files_and_in_settings() -> None:
    made = population(1)
    for number in range(SOURCES_REMEMBERED + 50):
        made.add(individual(number, 0.1), 0)
    for number in range(TRIALS_PER_SOURCE + 50):
        made.add(individual(0, 0.1, source="last", values={"A": number}), 0)
    assert len(made.trials(Kernel("axpb", "cpu", "last"))) == TRIALS_PER_SOURCE
    assert made.trials(Kernel("axpb", "cpu", "source 0")) == ()
    assert len(made._trials) == SOURCES_REMEMBERED


@given(st.lists(st.tuples(st.floats(-3, 3), st.sampled_from("abc")), max_size=30), st.integers(0, 29))
def test_an_archive_that_was_emptied_is_as_new(offers: list[tuple[float, str]], at: int) -> None:
    one, two = Archive(), Archive()
    for log_speedup, cell in offers[:at]:
        one.add(Elite(Kernel("op", "cpu", str(log_speedup)), (cell,), log_speedup, 0.0), comparison_se=0.0)
    one.clear()
    assert one.best is None
    for log_speedup, cell in offers[at:]:
        for archive in (one, two):
            archive.add(Elite(Kernel("op", "cpu", str(log_speedup)), (cell,), log_speedup, 0.0), comparison_se=0.0)
    assert one.ranked() == two.ranked()
