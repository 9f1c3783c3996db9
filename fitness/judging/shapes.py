"""The shapes that kernels of one task are judged on, as every target needs them before it compiles."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from fitness.evaluation import Rejection, Status
from fitness.oracle.inputs import Inputs, draw
from fitness.oracle.verify import Oracle
from operators.definition.domain import LARGEST_PARAMETER, conditions, is_doubled, listed_sizes
from operators.definition.spec import HIDDEN, HIDDEN_NEEDED, Operator, Task, Workload
from operators.expression import ExpressionError, parse
from operators.kernel import Kernel
from operators.plan.header import read_header
from operators.plan.reading import Plan, ResolvedPlan

LEAST_SIZE = 16
"""Smallest size that grows: numbers below it, such as a stride, are as often parameters as sizes."""
GROWTH = 16
"""A size beside a workload's exceeds it by this part at most, so that memory which holds one holds the other."""
COARSEST_GRAIN = 7
"""Power of two that drawn sizes may be multiples of: kernels ask for multiples of a vector, and take tiles for
granted."""
ONE_EVERY = 4
"""Number of shapes on the way from a hidden one to a workload to one of which a size is 1."""
REDRAWS = 16
"""Number of draws of one shape, of which the first is taken that has all that listed shapes have in common."""


def varied(ordered: Sequence[Workload], most: int) -> list[Workload]:
    """Return at most so many of these shapes, in their order: the largest by each dim, and some from end to end.

    Kernels choose their way by a dim, so that no shape which is large by all of them shows the ways of those that are
    large by one.
    """
    longest = [max(ordered, key=lambda workload: workload.dims[dim]) for dim in ordered[0].dims]
    chosen = list(dict.fromkeys(longest))[:most]
    others = [workload for workload in ordered if workload not in chosen]
    rest = min(most - len(chosen), len(others))
    chosen += [others[-1 - number * len(others) // rest] for number in range(rest)]
    return [workload for workload in ordered if workload in chosen]


class Shapes:
    """Workloads and hidden shapes of one task."""

    def __init__(self, operator: Operator, task: Task, workloads: Sequence[Workload], oracle: Oracle) -> None:
        self.workloads = workloads
        self._operator = operator
        self._task = task
        self._oracle = oracle

    def supported(self, plan: Plan, kernel: Kernel, facts: Mapping[str, int]) -> frozenset[str] | Rejection:
        """Names of the hidden shapes that the kernel supports; it must support every workload too."""
        supported = {
            w: plan.supports(self._operator, dims, kernel.values, facts, self._task.dtype)
            for w, dims in self.canonical_dims.items()
        }
        for workload in self.workloads:
            if not supported[workload]:
                message = f"requires `{plan.requires.text}`, which workload {workload.name} does not fulfil"
                return Rejection(Status.UNSUPPORTED, message)
        hidden = frozenset(w.name for w in self._operator.hidden if supported[w])
        needed = min(HIDDEN_NEEDED, len(self._operator.hidden))
        if len(hidden) < needed:
            message = f"requires `{plan.requires.text}`, which too few hidden shapes fulfil; at least {needed} must"
            return Rejection(Status.UNSUPPORTED, message)
        return hidden

    def judged(self, supported: Collection[str]) -> Iterator[tuple[Workload, dict[str, int]]]:
        """Workloads, and the hidden shapes of these names, with their canonical dims."""
        for workload, dims in self.canonical_dims.items():
            if workload in self.workloads or workload.name in supported:
                yield workload, dims

    def small(self, supported: Collection[str], most: int) -> list[Workload]:
        """The judged shapes of at most so many operations and bytes each, for tools that slow a kernel down, the
        smallest first; the smallest of all where none is so small."""

        def work(dims: Mapping[str, int]) -> int:
            costs = self._operator.cost_environment(dims, self._task.dtype)
            return int(self._operator.flops.evaluate(costs) + self._operator.min_bytes.evaluate(costs))

        works = {w: work(dims) for w, dims in self.judged(supported)}
        ordered = sorted(works, key=works.__getitem__)
        return [w for w in ordered if works[w] <= most] or ordered[:1]

    def verdict_text(
        self, kernel: Kernel, plan: Plan, resolved: Iterable[ResolvedPlan], supported: Collection[str]
    ) -> str:
        """The text that a verdict rests on beside the code: the plan on every judged shape, which those are, what it
        promises.

        Where data decide about dims, a plan is called with others than the canonical ones: then it is all that it says.
        """
        parts = [*(r.canonical() for r in resolved), *sorted(supported), str(plan.deterministic)]
        if self._operator.data_dims:
            said = {"header": read_header(kernel.source).table, "values": plan.settings(kernel.values)}
            parts.append(json.dumps(said, sort_keys=True, default=str))
        return "\n".join(parts)

    @cached_property
    def canonical_dims(self) -> dict[Workload, dict[str, int]]:
        """Dims as plans are digested with: data-dependent ones from inputs of a fixed seed."""
        workloads = (*self.workloads, *self._operator.hidden)
        if not self._operator.data_dims:
            return {w: self._operator.environment(w.dims) for w in workloads}
        return {w: dict(self._drawn(w).dims) for w in workloads}

    def _drawn(self, workload: Workload) -> Inputs:
        offers, rng = self._oracle.functions, np.random.default_rng(0)
        return draw(self._operator, offers, dims=workload.dims, dtype=self._task.dtype, family="nominal", rng=rng)


class UnlistedShapes:
    """Shapes that no file lists, drawn anew for every check.

    A plan chooses its way by sizes, and the ways of large sizes are seen on workloads alone, whose sizes are round. A
    shape keeps what all listed ones have in common (`operators.definition.domain.conditions`).
    """

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        sizes = listed_sizes(operator)
        self._step = {dim: math.gcd(*values) for dim, values in sizes.items()}
        self._fixed = {dim for dim, values in sizes.items() if len(values) == 1}
        self._sizes = [
            dim for dim, values in sizes.items() if max(values) > LARGEST_PARAMETER and dim not in self._fixed
        ]
        self._doubled = {dim for dim, values in sizes.items() if is_doubled(values)}
        known = {*operator.dims, *operator.derived}
        self._conditions = [parse(text, known) for text in conditions(operator)]

    def beside(self, workload: Workload, rng: np.random.Generator, *, odd: bool) -> Workload | None:
        """A shape of which some sizes are a little larger than a workload's, and none is smaller; None where none may
        be. They are `odd`, against kernels that go by vectors, or as round as vectors are, against those that go by
        tiles."""
        may = [dim for dim, size in workload.dims.items() if self._varies(dim, size) and dim not in self._doubled]

        def drawn() -> dict[str, int]:
            grain, all_move = (1, True) if odd else (self._grain(rng), rng.integers(2))
            moved = [dim for dim in may if all_move or rng.integers(4)] or [may[int(rng.integers(len(may)))]]
            grown = {dim: self._larger(dim, workload.dims[dim], grain, rng) for dim in moved}
            return {**workload.dims, **grown}

        return self._first(drawn) if may else None

    def between(self, workload: Workload, rng: np.random.Generator) -> Workload | None:
        """A shape on the way from a hidden one to a workload, by the logarithms of sizes; None where none may be."""
        hidden = self._operator.hidden[int(rng.integers(len(self._operator.hidden)))]

        def drawn() -> dict[str, int]:
            grain, way = self._grain(rng) if rng.integers(2) else 1, rng.random()
            found = {d: self._on_the_way(d, n, hidden.dims[d], way, grain) for d, n in workload.dims.items()}
            if self._sizes and not rng.integers(ONE_EVERY):
                found[self._sizes[int(rng.integers(len(self._sizes)))]] = 1
            return found

        return self._first(drawn)

    def _varies(self, dim: str, size: int) -> bool:
        return size >= LEAST_SIZE and dim not in self._fixed

    def _grain(self, rng: np.random.Generator) -> int:
        """The number that sizes of one shape are multiples of."""
        return int(2 ** rng.integers(1, COARSEST_GRAIN + 1))

    def _larger(self, dim: str, size: int, grain: int, rng: np.random.Generator) -> int:
        room, own = size // GROWTH, self._step[dim]
        step = next((step for step in (math.lcm(own, grain), own) if step <= room), 0)
        if not step:
            return size
        least, most = size // step + 1, (size + room) // step
        count = int(rng.integers(least, most + 1))
        if grain == 1 and count % 2 == 0:
            count = count - 1 if count > least else min(count + 1, most)
        return count * step

    def _on_the_way(self, dim: str, size: int, other: int, way: float, grain: int) -> int:
        if min(size, other) < 1 or dim in self._fixed:
            return size
        found = math.pow(size, 1 - way) * math.pow(other, way)
        if dim in self._doubled:
            return int(2 ** round(math.log2(found)))
        step = math.lcm(self._step[dim], grain)
        step = step if step <= found / 2 else self._step[dim]
        return max(round(found / step), 1) * step

    def _first(self, draw_dims: Callable[[], dict[str, int]]) -> Workload | None:
        shapes = (Workload(HIDDEN, draw_dims()) for _ in range(REDRAWS))
        return next((shape for shape in shapes if self._may_be(shape)), None)

    def _may_be(self, shape: Workload) -> bool:
        try:
            env = self._operator.environment(shape.dims)
            known = env | dict.fromkeys(self._operator.data_dims, 1)
            holds = all(condition.evaluate(env) for condition in self._conditions)
            return holds and all(size >= 0 for tensor in self._operator.tensors for size in tensor.sizes(known))
        except ExpressionError:
            return False
