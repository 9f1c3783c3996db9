"""What limits the kernels of a task, as far as profilers said so: for choices that depend on it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from evo.individual import Individual
from evo.strategies.archive import Cell
from fitness.profiling import Profile
from mutators.bandit import Arm
from mutators.base import Request

STEPS_BACK = 4
"""Of the lineage that are looked at for a profile: a change seldom moves a kernel into another class."""
KEPT = 20_000
"""Kernels that are remembered, the latest."""
UNPROFILED = "unprofiled"
"""The place along an archive's axis of kernels of which nothing is known."""


class Bottlenecks:
    """Follows a task's tells and profiles, in their order.

    Few kernels are profiled: those that models are asked about. Others count as limited like the nearest profiled
    ancestor, along principal parents.
    """

    def __init__(self) -> None:
        self._own: OrderedDict[str, str] = OrderedDict()
        """By kernel id, of those that were profiled."""
        self._parents: OrderedDict[str, str] = OrderedDict()
        """By kernel id, the principal parent's id."""

    def told(self, individual: Individual) -> None:
        """Learn of an individual."""
        kernel, parents = individual.kernel, individual.request.parents
        if kernel and kernel.id not in self._parents and (others := [each for each in parents if each != kernel.id]):
            self._parents[kernel.id] = others[0]
            if len(self._parents) > KEPT:
                self._parents.popitem(last=False)

    def profiled(self, kernel_id: str, profile: Profile) -> None:
        """Learn what a profiler said."""
        if profile.bottleneck:
            self._own[kernel_id] = profile.bottleneck.value
            if len(self._own) > KEPT:
                self._own.popitem(last=False)

    def of(self, kernel_id: str) -> str:
        """Return what limits a kernel, a name of `Bottleneck`; empty where it is not known."""
        for _ in range(STEPS_BACK + 1):
            if kernel_id in self._own:
                return self._own[kernel_id]
            if kernel_id not in self._parents:
                break
            kernel_id = self._parents[kernel_id]
        return ""

    def context(self, arm: Arm, parents: Sequence[str]) -> str:
        """Return the context in which an arm is used on these kernels; empty: any.

        What limits a kernel says nothing of how to mend a failure.
        """
        return self.of(parents[0]) if parents and arm.mutator != "repair" else ""

    def axis(self, request: Request) -> Cell:
        """Return where a request's child lies along an archive's axis: it is taken to be limited like its parent."""
        return (next(filter(None, map(self.of, request.parents)), UNPROFILED),)
