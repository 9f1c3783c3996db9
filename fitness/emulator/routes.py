"""Routes: the launches of a plan that happen on a shape, and small shapes that take the routes of large ones.

A route is never forced: its condition may be what makes it right. What a kernel says to do on a workload is tried on
the smallest shape that its own conditions send the same way, whose sizes leave the same remainders as the workload's.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from operators.definition.spec import Operator, Workload
from operators.errors import PlanError
from operators.expression import ExpressionError
from operators.kernel import Kernel
from operators.plan.lets import Environment
from operators.plan.reading import Plan, environment

Route = tuple[bool, ...]
"""For every launch of a plan whether it happens, and then for all that it clears on conditions whether it does."""
OWN = "emulated"
"""The set that shapes of our own belong to."""
MOST_FLOPS, MOST_BYTES = 2e8, 64e6
"""Most work of a shape that is emulated, by the operator's own formulas: about a second."""
CHEAP = 0.1
"""Share of these that a shape may take for which no smaller one is looked for."""
MOST_REPEATS = 64
"""Most repeats of a group that are asked whether a launch happens in them."""
MOST_TERMS = 10_000
"""Most terms of all conditions of a plan, repeats included, for which routes are looked for."""
GRID = 1.15
"""Ratio between sizes that are tried."""
SEARCH_S = 3.0
"""Longest search for small shapes."""
WIDE, NARROW = 64, 8
"""A size leaves the same remainder by this as the workload's: vectors, tiles and tails are as there."""


@dataclass(frozen=True)
class Routes:
    """The routes of a kernel's conditions, as one device with these facts sees them."""

    plan: Plan
    kernel: Kernel
    operator: Operator
    dtype: str
    facts: Mapping[str, int]

    def of(self, dims: Mapping[str, int]) -> Route | None:
        """Return the route of a shape; None where the kernel does not support it, or data decide."""
        try:
            env = environment(self.plan, self.operator, dims, self.kernel.values, self.facts, self.dtype)
            if not self.plan.requires.evaluate(env):
                return None
            launched = (self._happens(number, env) for number in range(len(self.plan.launches)))
            return (*launched, *(bool(zero.when.evaluate(env)) for zero in self.plan.zero if zero.when))
        except (ExpressionError, PlanError):
            return None

    @property
    def terms(self) -> int:
        """The largest number of terms that asking for one route evaluates."""
        asked = [(launch.when, launch.group) for launch in self.plan.launches]
        asked += [(zero.when, None) for zero in self.plan.zero]
        return sum(when.terms * (MOST_REPEATS if group else 1) for when, group in asked if when is not None)

    def _happens(self, number: int, env: Environment) -> bool:
        launch = self.plan.launches[number]
        if launch.group is None:
            return launch.when is None or bool(launch.when.evaluate(env))
        repeats = min(self.plan.groups[launch.group].evaluate(env), MOST_REPEATS)
        return any(launch.when is None or launch.when.evaluate(env.having("i", i)) for i in range(repeats))

    def named(self, route: Route) -> str:
        """Return a route in words: its kernels that have a condition, and where each stands in the plan."""
        chosen = [
            f"launch {number} `{launch.kernel}`"
            for number, (launch, happens) in enumerate(zip(self.plan.launches, route, strict=False), 1)
            if happens and (launch.when is not None or launch.group)
        ]
        return " with ".join(chosen[:3]) or "no launch"


def work(operator: Operator, dims: Mapping[str, int], dtype: str) -> tuple[float, float]:
    """Return flops of the plain algorithm and least bytes on a shape; infinite where they have no value."""
    try:
        env = operator.cost_environment(dims, dtype)
        return operator.flops.evaluate(env), operator.min_bytes.evaluate(env)
    except ExpressionError:
        return math.inf, math.inf


def is_small(operator: Operator, dims: Mapping[str, int], dtype: str, share: float = 1.0) -> bool:
    """Whether a shape can be emulated while its author waits, or in this share of the time."""
    flops, size = work(operator, dims, dtype)
    return flops <= share * MOST_FLOPS and size <= share * MOST_BYTES


def shrunk(workload: Workload, wanted: Route, routes: Routes, end: float = math.inf) -> Workload | None:
    """Return a small shape that takes a workload's route; None where there is none, or none is found until `end`.

    One size after the other becomes the smallest that still leads there, the largest size first.
    """
    operator, dims = routes.operator, dict(workload.dims)
    rules = Likeness(operator)
    for name in 2 * sorted(dims, key=lambda name: -dims[name]):
        for size in rules.sizes(name, dims[name], workload.dims[name]):
            tried = {**dims, name: size}
            if rules.has(tried) and routes.of(tried) == wanted:
                dims = tried
                break
            if time.monotonic() > end:
                return None
    if routes.of(dims) != wanted or not is_small(operator, dims, routes.dtype):
        return None
    return Workload(OWN, dims)


class Likeness:
    """Properties that all shapes have in common which an operator names itself: others may make no sense.

    Sizes that are always powers of two stay such; what never exceeds another, or the product of two, or always divides
    or equals another, goes on doing so.
    """

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        shapes = [w.dims for w in (*operator.workloads, *operator.hidden)]
        self._least = {name: min(dims[name] for dims in shapes) for name in operator.dims}
        self._powers = {name for name in operator.dims if all(_is_power(dims[name]) for dims in shapes)}
        pairs = list(permutations(operator.dims, 2))
        self._ordered = [(a, b) for a, b in pairs if all(dims[a] <= dims[b] for dims in shapes)]
        self._dividing = [(a, b) for a, b in pairs if all(_divides(dims[a], dims[b]) for dims in shapes)]
        triples = [(a, b, c) for a, b, c in permutations(operator.dims, 3) if b < c]
        self._fitting = [(a, b, c) for a, b, c in triples if all(dims[a] <= dims[b] * dims[c] for dims in shapes)]

    def has(self, dims: Mapping[str, int]) -> bool:
        """Whether a shape is like those."""
        return (
            all(dims[name] >= least for name, least in self._least.items())
            and all(_is_power(dims[name]) for name in self._powers)
            and all(dims[a] <= dims[b] for a, b in self._ordered)
            and all(_divides(dims[a], dims[b]) for a, b in self._dividing)
            and all(dims[a] <= dims[b] * dims[c] for a, b, c in self._fitting)
        )

    def sizes(self, name: str, largest: int, like: int) -> Iterator[int]:
        """Sizes of a dim up to the largest, small ones first, that are like another one."""
        if name in self._powers:
            yield from (1 << n for n in range(largest.bit_length()) if 1 << n < largest)
            return
        modulus = WIDE if like > WIDE else NARROW
        remainder, step, last = like % modulus, 0.0, -1
        while (size := remainder + modulus * int(step)) < largest:
            if size != last and size > 0:
                yield size
            last, step = size, max(step + 1, step * GRID)


def _is_power(size: int) -> bool:
    return size > 0 and size & (size - 1) == 0


def _divides(a: int, b: int) -> bool:
    return a > 0 and b % a == 0


def missing(
    judged: Iterable[Workload], seen: Iterable[Workload], there: Routes, here: Routes
) -> tuple[list[Workload], list[Route]]:
    """Return shapes for the routes that judged shapes take on a device and `seen` ones do not take in emulation, and
    the routes for which there are none.

    `there` has the device's facts and `here` those of the emulation. A judged shape that is small goes first.
    """
    if there.terms > MOST_TERMS:
        return [], []
    wanted: dict[Route, list[Workload]] = {}
    for workload in judged:
        if route := there.of(workload.dims):
            wanted.setdefault(route, []).append(workload)
    for shape in seen:
        if route := here.of(shape.dims):
            wanted.pop(route, None)
    end = time.monotonic() + SEARCH_S
    nearest = {route: _nearest(route, shapes, here, end) for route, shapes in wanted.items()}
    return [shape for shape in nearest.values() if shape], [route for route, shape in nearest.items() if not shape]


def _nearest(route: Route, shapes: Sequence[Workload], here: Routes, end: float) -> Workload | None:
    """The smallest of the judged shapes that lead there; one of our own where that saves much."""
    ordered = sorted(shapes, key=lambda w: work(here.operator, w.dims, here.dtype))
    for shape in ordered:
        if here.of(shape.dims) == route and is_small(here.operator, shape.dims, here.dtype, CHEAP):
            return shape
    own = next((small for shape in ordered[:3] if (small := shrunk(shape, route, here, end))), None)
    if own and is_small(here.operator, own.dims, here.dtype, CHEAP):
        return own
    judged = (s for s in ordered if here.of(s.dims) == route and is_small(here.operator, s.dims, here.dtype))
    return next(judged, own)
