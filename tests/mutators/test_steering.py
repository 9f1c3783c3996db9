"""A kernel's profile orders what `transform` tries."""

from __future__ import annotations

from random import Random

import pytest

from fitness.profiling.profiles import Bottleneck
from mutators.base import Parent, Request
from mutators.transforms import TRANSFORMS
from mutators.transforms.mutator import SUITS, Transform, ordered
from operators.catalog import load
from operators.definition.spec import Task
from operators.kernel import Kernel


def test_every_class_has_transforms_that_suit_with_a_reason_each() -> None:
    assert set(SUITS) == set(Bottleneck)
    assert {name for suited in SUITS.values() for name in suited} <= set(TRANSFORMS)
    assert all(reason for suited in SUITS.values() for reason in suited.values())


@pytest.mark.parametrize("bottleneck", Bottleneck)
def test_those_that_suit_come_first_more_often_and_none_is_left_out(bottleneck: Bottleneck) -> None:
    names, suited = list(TRANSFORMS), SUITS[bottleneck]
    places = [ordered(names, bottleneck, Random(seed)) for seed in range(400)]
    assert all(sorted(order) == names for order in places)
    first = sum(order[0] in suited for order in places) / len(places)
    expected = 4 * len(suited) / (4 * len(suited) + len(names) - len(suited))
    assert first == pytest.approx(expected, abs=0.1) and first > 1.4 * len(suited) / len(names)


def child(seed: int, **params: object) -> str:
    operator = load("matrix_mul")
    kernel = Kernel("matrix_mul", "cpu", operator.naive("cpu"))
    request = Request(Task("matrix_mul", "fp32", "cpu"), 7, "transform", (kernel.id,), seed, params)
    proposal = Transform().propose(request, (Parent(kernel),), operator)
    return proposal.failure or proposal.description


def test_a_kernel_that_waits_is_given_more_to_do_at_once() -> None:
    def share(**params: object) -> float:
        made = [child(seed, **params).partition(":")[0] for seed in range(60)]
        return sum(name in SUITS[Bottleneck.LATENCY] for name in made) / len(made)

    assert share(bottleneck="latency") > share() + 0.15
    assert child(3, bottleneck="latency") == child(3, bottleneck="latency")
    assert "unknown bottleneck `slowness`" in child(3, bottleneck="slowness")
