"""The shapes that kernels of one task are judged on, as every target needs them before it compiles."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from fitness.evaluation import Rejection, Status
from fitness.oracle.inputs import Inputs, draw
from fitness.oracle.verify import Oracle
from operators.definition.spec import HIDDEN_NEEDED, Operator, Task, Workload
from operators.kernel import Kernel
from operators.plan.header import read_header
from operators.plan.reading import Plan, ResolvedPlan


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
