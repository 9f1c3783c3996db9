"""The lineage of one task's kernels in memory: where each comes from, how fast it is where, and what limits it.

It is told of every individual and profile, in the order in which they count, and reads nothing else. A driver has one
for what prompts say, and so has each strategy that chooses by it, which may live in another process; all of them follow
the same rules.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from evo.individual import Individual, is_naive
from fitness.evaluation import Evaluation, Timing
from fitness.judging.levels import LEAST_GAIN
from fitness.profiling.profiles import Profile
from mutators.briefing import Ratio, Standing
from operators.kernel import Kernel

Key = TypeVar("Key")
Value = TypeVar("Value")
KEPT = 20_000
"""Kernels that are remembered, the latest."""
STEPS_BACK = 4
"""Number of ancestors that are searched for a profile: a change seldom moves a kernel into another class."""


class Latest(OrderedDict[Key, Value]):
    """A table that keeps the entries that were put or recalled last; to look at one changes nothing."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def recall(self, key: Key) -> Value | None:
        """Return an entry, which counts as used now. A replay must recall the same entries in the same order."""
        if key in self:
            self.move_to_end(key)
        return self.get(key)

    def put(self, key: Key, value: Value) -> None:
        """Write an entry; the one that was not used for longest makes room for it."""
        self[key] = value
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)


@dataclass(frozen=True)
class Birth:
    """Where a kernel comes from."""

    source_id: str
    """The id of its file, which kernels that differ in tunables alone share."""
    parents: tuple[str, ...]
    """Ids of the kernels that it was made from, the principal one first."""
    depth: int
    """Steps from the first kernel of its line of principal parents."""
    log_speedup: float | None


class Lineage:
    """The kernels of a task that were told: each as it was told first, its standing as it was told last."""

    def __init__(self) -> None:
        self._births: Latest[str, Birth] = Latest(KEPT)
        """By kernel id."""
        self._made_from: Latest[str, frozenset[str]] = Latest(KEPT)
        """By source id, the files that a file was made from."""
        self._standings: Latest[str, Standing] = Latest(KEPT)
        """By kernel id, of correct kernels."""
        self._limits: Latest[str, str] = Latest(KEPT)
        """By kernel id, the bottleneck of those that were profiled."""
        self.naive_id = ""
        """The kernel that all others are compared with; empty before it is told."""

    def told(self, individual: Individual) -> None:
        """Learn of an individual."""
        kernel, evaluation, request = individual.kernel, individual.evaluation, individual.request
        if kernel is None:
            return
        if kernel.id not in self._births:
            self._born(kernel, request.parents, evaluation.estimate if evaluation else None)
        if evaluation and evaluation.correct and individual.fresh:
            if is_naive(request):
                self.naive_id = kernel.id
            self._standings.put(kernel.id, self._standing(evaluation))

    def profiled(self, kernel_id: str, profile: Profile) -> None:
        """Learn what a profiler said of a kernel."""
        if profile.bottleneck:
            self._limits.put(kernel_id, profile.bottleneck.value)

    def _born(self, kernel: Kernel, parents: tuple[str, ...], log_speedup: float | None) -> None:
        others = tuple(parent for parent in parents if parent != kernel.id)
        known = [birth for parent in others if (birth := self._births.get(parent))]
        principal = self._births.get(others[0]) if others else None
        depth = principal.depth + 1 if principal else 0
        self._births.put(kernel.id, Birth(kernel.source_id, others, depth, log_speedup))
        if kernel.source_id not in self._made_from:
            files = frozenset(birth.source_id for birth in known) - {kernel.source_id}
            self._made_from.put(kernel.source_id, files)

    # --- descent ----------------------------------------------------------------------------------------------------

    def birth(self, kernel_id: str) -> Birth | None:
        """Return where a kernel comes from; None where it is not known."""
        return self._births.get(kernel_id)

    def ancestors(self, kernel_id: str) -> Iterator[str]:
        """Yield the ids of STEPS_BACK principal parents, the nearest first."""
        for _ in range(STEPS_BACK):
            birth = self.birth(kernel_id)
            if birth is None or not birth.parents:
                return
            kernel_id = birth.parents[0]
            yield kernel_id

    def related(self, one: Kernel, other: Kernel) -> bool:
        """Return whether one was made from the other, however many steps ago, or both are the same file."""
        return self._descends(one, other) or self._descends(other, one)

    def _descends(self, kernel: Kernel, ancestor: Kernel) -> bool:
        seen, left = {kernel.source_id}, [kernel.source_id]
        while left:
            file = left.pop()
            if file == ancestor.source_id:
                return True
            new = (self._made_from.get(file) or frozenset()) - seen
            seen |= new
            left += new
        return False

    # --- speed ------------------------------------------------------------------------------------------------------

    def standing(self, kernel_id: str) -> Standing:
        """Return how many times as fast as the naive kernel a kernel is, by workload; empty where it is not known."""
        return self._standings.get(kernel_id) or {}

    def wins(self, kernel: Kernel, rival: Kernel) -> tuple[str, ...]:
        """Return the workloads on which a kernel is faster than its rival, by more than LEAST_GAIN and noise."""
        return tuple(workload for workload, gain in self.gains(kernel, rival).items() if gain > 0)

    def gains(self, kernel: Kernel, rival: Kernel) -> dict[str, float]:
        """Return the log of how many times as fast as its rival a kernel is, by workload, where it is not alike.

        Workloads on which the two differ by less than LEAST_GAIN or noise are left out.
        """
        mine, other = self.standing(kernel.id), self.standing(rival.id)
        gains = {workload: mine[workload].over(other[workload]) for workload in mine if workload in other}
        return {w: gain.log for w, gain in gains.items() if gain.resolved and abs(gain.log) > LEAST_GAIN}

    def _standing(self, evaluation: Evaluation) -> Standing:
        """By way of the anchor; all of it moved so that the mean is the verdict's speedup."""
        ratios = ratios_of(evaluation.timings)
        if evaluation.kernel_id == self.naive_id:
            return {workload: Ratio(0.0, 0.0) for workload in ratios}  # by definition, whatever its pairs showed
        if evaluation.anchor_id != self.naive_id:
            via = self._standings.recall(evaluation.anchor_id or "") or {}  # what others are paired with stays known
            if not via.keys() >= ratios.keys():
                return {}
            ratios = {w: Ratio(r.log + via[w].log, math.hypot(r.se, via[w].se)) for w, r in ratios.items()}
        if not ratios:
            return {}
        assert evaluation.log_speedup is not None
        shift = evaluation.log_speedup - sum(ratio.log for ratio in ratios.values()) / len(ratios)
        return {workload: Ratio(ratio.log + shift, ratio.se) for workload, ratio in ratios.items()}

    # --- limits -----------------------------------------------------------------------------------------------------

    def limited_by(self, kernel_id: str) -> str:
        """Return what limits a kernel, a name of `Bottleneck`, or its nearest profiled ancestor; empty: not known.

        Few kernels are profiled: those that models are asked about.
        """
        known = (self._limits.get(each) for each in (kernel_id, *self.ancestors(kernel_id)))
        return next(filter(None, known), "")


def ratios_of(timings: Iterable[Timing]) -> dict[str, Ratio]:
    """Return how many times as fast as its partner a kernel was, by workload."""
    return {timing.workload: Ratio(timing.log_ratio, timing.log_ratio_se) for timing in timings}
