"""The bandit: what pays for its price is chosen more, and lessons fade."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random

import pytest

from mutators.bandit import Arm, Bandit

ARMS = [Arm("a"), Arm("b"), Arm("c", "model")]

Outcome = Callable[[Arm, Random], tuple[float, float, float]]
"""Gain, seconds, dollars."""


def chosen(bandit: Bandit, outcome: Outcome, *, tries: int = 500, seed: int = 0) -> Counter[Arm]:
    counts: Counter[Arm] = Counter()
    for number in range(tries):
        rng = Random(f"{seed}/{number}")
        arm = bandit.choose(ARMS, rng)
        counts[arm] += 1
        gain, seconds, cost_usd = outcome(arm, rng)
        bandit.learn(arm, gain=gain, seconds=seconds, cost_usd=cost_usd)
    return counts


def test_what_gains_more_often_is_chosen_more() -> None:
    rates = {"a": 0.4, "b": 0.05, "c": 0.02}
    counts = chosen(Bandit(), lambda arm, rng: (0.1 if rng.random() < rates[arm.mutator] else 0.0, 1.0, 0.0))
    assert counts[ARMS[0]] > 300


def test_what_gains_more_each_time_is_chosen_more() -> None:
    sizes = {"a": 0.02, "b": 0.5, "c": 0.02}
    counts = chosen(Bandit(), lambda arm, rng: (sizes[arm.mutator] if rng.random() < 0.2 else 0.0, 1.0, 0.0))
    assert counts[ARMS[1]] > 250


@pytest.mark.parametrize(("seconds", "cost_usd"), [(20.0, 0.0), (1.0, 0.02)])
def test_what_costs_more_is_chosen_less_whatever_the_currency(seconds: float, cost_usd: float) -> None:
    def outcome(arm: Arm, rng: Random) -> tuple[float, float, float]:
        gain = 0.1 if rng.random() < 0.2 else 0.0
        return (gain, seconds, cost_usd) if arm.model else (gain, 1.0, 0.0)

    counts = chosen(Bandit(), outcome)
    assert counts[ARMS[2]] < 100 < min(counts[ARMS[0]], counts[ARMS[1]])


def test_it_follows_when_the_best_arm_changes() -> None:
    bandit = Bandit(memory=100)
    for good in ("a", "b", "a"):
        rates = {"a": 0.02, "b": 0.02, "c": 0.02, good: 0.4}
        chosen(bandit, lambda arm, rng, r=rates: (0.1 if rng.random() < r[arm.mutator] else 0.0, 1.0, 0.0))
        after = chosen(bandit, lambda arm, rng, r=rates: (0.1 if rng.random() < r[arm.mutator] else 0.0, 1.0, 0.0))
        assert after.most_common(1)[0][0] == Arm(good)


def test_an_arm_that_never_gains_keeps_its_least_share() -> None:
    counts = chosen(Bandit(least_share=0.3), lambda arm, _: (0.2 if arm.mutator == "a" else 0.0, 1.0, 0.0), tries=1000)
    assert counts[ARMS[1]] > 50
    assert counts[ARMS[2]] > 50


def test_free_tries_that_bring_nothing_are_not_free() -> None:
    """An arm whose requests die before they reach an evaluator must not look cheap."""

    def outcome(arm: Arm, rng: Random) -> tuple[float, float, float]:
        return (0.0, 0.0, 0.0) if arm.mutator == "b" else (0.1 if rng.random() < 0.1 else 0.0, 1.0, 0.0)

    assert chosen(Bandit(), outcome)[ARMS[1]] < 100


def test_the_same_history_and_generator_choose_the_same() -> None:
    def outcome(arm: Arm, rng: Random) -> tuple[float, float, float]:
        return rng.random() - 0.5, rng.random(), 0.01 * rng.random()

    one, two = Bandit(), Bandit()
    chosen(one, outcome, seed=3)
    chosen(two, outcome, seed=3)
    assert [one.choose(ARMS, Random(n)) for n in range(50)] == [two.choose(ARMS, Random(n)) for n in range(50)]


def test_an_arm_that_is_not_offered_is_not_chosen() -> None:
    bandit = Bandit()
    for _ in range(50):
        bandit.learn(ARMS[0], gain=1.0, seconds=1.0, cost_usd=0.0)
    assert {bandit.choose(ARMS[1:], Random(n)) for n in range(50)} == set(ARMS[1:])
    assert bandit.choose(ARMS[2:], Random(0)) == ARMS[2]


SWAPPED = {"latency": {"a": 0.3, "b": 0.02, "c": 0.02}, "bandwidth": {"a": 0.02, "b": 0.3, "c": 0.02}}
ALIKE = {"latency": {"a": 0.3, "b": 0.1, "c": 0.02}, "bandwidth": {"a": 0.3, "b": 0.1, "c": 0.02}}


def gained(rates: Mapping[str, Mapping[str, float]], *, told: bool, worlds: int = 10, tries: int = 400) -> float:
    """The gain of a bandit in all, with or without being told the context, which changes now and then."""
    total = 0.0
    for world in range(worlds):
        bandit, chance = Bandit(), Random(f"context/{world}")
        context = "latency"
        for number in range(tries):
            context = chance.choice(sorted(rates)) if chance.random() < 0.1 else context
            rng = Random(f"{world}/{number}")
            arm = bandit.choose(ARMS, rng, dict.fromkeys(ARMS, context) if told else None)
            gain = 0.1 if rng.random() < rates[context][arm.mutator] else 0.0
            total += gain
            bandit.learn(arm, gain=gain, seconds=1.0, cost_usd=0.0, context=context if told else "")
    return total


def test_a_context_pays_where_arms_differ_by_it_and_costs_little_where_they_do_not() -> None:
    assert gained(SWAPPED, told=True) > 1.15 * gained(SWAPPED, told=False)
    assert gained(ALIKE, told=True) > 0.97 * gained(ALIKE, told=False)


def test_what_is_known_of_an_arm_elsewhere_counts_where_nothing_else_is() -> None:
    bandit = Bandit(least_share=0.0)
    for _ in range(60):
        bandit.learn(ARMS[0], gain=0.1, seconds=1.0, cost_usd=0.0, context="latency")
        bandit.learn(ARMS[1], gain=0.0, seconds=1.0, cost_usd=0.0, context="latency")
    new = dict.fromkeys(ARMS[:2], "compute")
    assert {bandit.choose(ARMS[:2], Random(number), new) for number in range(30)} == {ARMS[0]}
