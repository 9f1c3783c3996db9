"""Bottlenecks of a kernel steer what the islands try on it: transforms, the bandit's arms, the archive's cells."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from evo.individual import Individual
from evo.lineage import STEPS_BACK, Lineage
from evo.strategies.islands import Islands
from evo.strategies.population import Archive, Elite
from fitness.profiling.profiles import Bottleneck, Profile
from mutators.base import Request
from operators.definition.spec import Operator
from operators.kernel import Kernel
from tests.evo.test_strategies import TASK, make
from tests.evo.worlds import World

Step = tuple[str, Any]


def profile(name: Bottleneck | None) -> Profile:
    return Profile(name, (), ("a note",))


def searched(strategy: Islands, world: World, *, tells: int, order: Random) -> list[Step]:
    """Ask, tell and profile in random order; return what was done."""
    flying: list[Request] = []
    known: list[str] = []
    steps: list[Step] = []
    told = 0
    while told < tells:
        if len(flying) < 6 and order.random() < 0.5:
            asked = strategy.ask(1)
            steps.append(("ask", [request.digest for request in asked]))
            flying += asked
        elif flying and order.random() < 0.8:
            individual = world.answer(flying.pop(order.randrange(len(flying))))
            strategy.tell(individual)
            steps.append(("tell", individual))
            known += [individual.kernel.id] if individual.kernel else []
            told += 1
        elif known:
            seen = order.choice(known), profile(order.choice([*Bottleneck, None]))
            strategy.profiled(*seen)
            steps.append(("profile", seen))
    return steps


@pytest.mark.parametrize("axis", [False, True])
def test_a_history_with_profiles_applied_again_gives_the_same_requests(axpb: Operator, axis: bool) -> None:
    settings: dict[str, Any] = {"models": ("m",), "bottleneck_axis": axis}
    steps = searched(make(Islands, axpb, **settings), World(axpb, TASK), tells=200, order=Random(5))
    again: Islands = make(Islands, axpb, **settings)
    for kind, what in steps:
        if kind == "ask":
            assert [request.digest for request in again.ask(1)] == what
        elif kind == "tell":
            again.tell(what)
        else:
            again.profiled(*what)
    cells = {elite.cell for island in again.population.islands for elite in island.ranked()}
    assert {len(cell) for cell in cells} == {2 if axis else 1}
    assert not axis or {cell[1] for cell in cells} & {each.value for each in Bottleneck}


def begun(operator: Operator, **settings: Any) -> tuple[Islands, World, Individual]:
    """A search whose naive kernel is known and which has made its first transforms."""
    strategy, world = make(Islands, operator, **settings), World(operator, TASK)
    (request,) = strategy.ask(1)
    naive = world.answer(request)
    strategy.tell(naive)
    for request in strategy.ask(100):
        if not request.params.get("rewrite"):
            break
    return strategy, world, naive


def limits(strategy: Islands) -> set[str]:
    """The bottlenecks of their parents that transforms which are asked for now are told."""
    asked = [request for request in strategy.ask(40) if request.mutator == "transform"]
    return {str(request.params.get("bottleneck", "")) for request in asked}


def test_transforms_are_told_what_limits_their_parent(axpb: Operator) -> None:
    strategy, _, naive = begun(axpb)
    assert limits(strategy) == {""}
    assert naive.kernel
    strategy.profiled(naive.kernel.id, profile(Bottleneck.BANDWIDTH))
    assert limits(strategy) == {"bandwidth"}


def test_a_kernel_that_was_not_profiled_counts_as_limited_like_its_nearest_ancestor(axpb: Operator) -> None:
    known = Lineage()
    kernels = [Kernel("axpb", "cpu", f"// {number}") for number in range(STEPS_BACK + 3)]
    for number, kernel in enumerate(kernels):
        parents = (kernels[number - 1].id,) if number else ()
        known.told(Individual(Request(TASK, number, "transform", parents, 0), kernel, None))
    known.profiled(kernels[0].id, profile(Bottleneck.LATENCY))
    known.profiled(kernels[1].id, profile(None))  # nothing was timed: that says nothing
    found = [known.limited_by(kernel.id) for kernel in kernels]
    assert found == ["latency"] * (STEPS_BACK + 1) + [""] * 2
    known.profiled(kernels[2].id, profile(Bottleneck.COMPUTE))
    assert [known.limited_by(kernel.id) for kernel in kernels][:4] == ["latency", "latency", "compute", "compute"]


def test_a_kernel_moves_to_the_cell_that_its_profile_names() -> None:
    def elite(name: str, log_speedup: float, *cell: str) -> Elite:
        return Elite(Kernel("axpb", "cpu", f"// {name}"), cell, log_speedup, 0.001)

    archive = Archive()
    slow, fast = elite("slow", 0.1, "simd", "latency"), elite("fast", 0.9, "simd", "bandwidth")
    for each in (slow, fast):
        archive.add(each, comparison_se=0.001)
    archive.refile(slow.kernel.id, ("compute",))
    assert {each.cell: each.kernel.id for each in archive.ranked()} == {
        ("simd", "compute"): slow.kernel.id, ("simd", "bandwidth"): fast.kernel.id
    }  # fmt: skip
    archive.refile(slow.kernel.id, ("bandwidth",))  # where a faster one is
    assert [each.kernel.id for each in archive.ranked()] == [fast.kernel.id]
    archive.refile(slow.kernel.id, ("latency",))
    assert len(archive) == 1
