"""Who descends from whom, and who is faster on which workload: what makes two kernels worth crossing."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import TypeVar

from evo.individual import Individual
from evo.strategies.archive import MARGIN
from operators.kernel import Kernel

Value = TypeVar("Value")
KEPT = 20_000
"""Kernels that are remembered, the latest."""
Standing = tuple[float, float]
"""A log speedup over the baseline on one workload, and its standard error."""


class Kinship:
    """What was told of a task's kernels, in the order of the tells; files that differ in tunables alone are one."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, str] = OrderedDict()
        """By kernel id, its source id."""
        self._parents: OrderedDict[str, frozenset[str]] = OrderedDict()
        """By source id, those of the kernels that it was made from."""
        self._standings: OrderedDict[str, Mapping[str, Standing]] = OrderedDict()
        """By kernel id and workload, of correct kernels."""

    def told(self, individual: Individual) -> None:
        """Learn of an individual."""
        kernel, evaluation = individual.kernel, individual.evaluation
        if kernel is None or evaluation is None:
            return
        _keep(self._files, kernel.id, kernel.source_id)
        if kernel.source_id not in self._parents:
            files = (self._files.get(parent) for parent in individual.request.parents)
            _keep(self._parents, kernel.source_id, frozenset(f for f in files if f and f != kernel.source_id))
        if evaluation.correct and individual.fresh and evaluation.timings:
            _keep(self._standings, kernel.id, self._standing(individual))

    def related(self, one: Kernel, other: Kernel) -> bool:
        """Whether one of the two was made from the other, however many steps ago, or both are the same file."""
        return self._descends(one, other) or self._descends(other, one)

    def wins_somewhere(self, kernel: Kernel, rival: Kernel) -> bool:
        """Whether a kernel is faster than its rival on some workload, by more than MARGIN and what noise explains."""
        mine, other = self._standings.get(kernel.id, {}), self._standings.get(rival.id, {})
        for workload in mine.keys() & other.keys():
            (log_speedup, error), (rival_speedup, rival_error) = mine[workload], other[workload]
            if log_speedup - rival_speedup > max(MARGIN, 1.96 * math.hypot(error, rival_error)):
                return True
        return False

    def _descends(self, kernel: Kernel, ancestor: Kernel) -> bool:
        seen, left = {kernel.source_id}, [kernel.source_id]
        while left:
            file = left.pop()
            if file == ancestor.source_id:
                return True
            new = self._parents.get(file, frozenset()) - seen
            seen |= new
            left += new
        return False

    def _standing(self, individual: Individual) -> dict[str, Standing]:
        """The log speedup on each workload: what its anchor has there, as far as that is known, and their ratio."""
        evaluation = individual.evaluation
        assert evaluation
        mean = evaluation.anchor_log_speedup or 0.0
        # A mean of exactly 0 is the baseline's own; what was measured of that besides is noise.
        known = self._standings.get(evaluation.anchor_id or "", {}) if mean else {}
        standings = {}
        for timing in evaluation.timings:
            base, error = known.get(timing.workload, (mean, 0.0))
            standings[timing.workload] = base + timing.log_ratio, math.hypot(error, timing.log_ratio_se)
        return standings


def _keep(known: OrderedDict[str, Value], key: str, value: Value) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > KEPT:
        known.popitem(last=False)
