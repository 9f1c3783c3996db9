"""Inputs that a kernel is run on, and with them the right answers, which only the verifier has."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fitness.oracle.bounds import Judgement
from fitness.oracle.inputs import Inputs
from fitness.sandbox.memory import Memory
from operators.definition.spec import Workload
from operators.relations import Relation


@dataclass(frozen=True)
class Question:
    """One set of inputs in the verifier's memory."""

    workload: Workload
    family: str
    inputs: Inputs
    region: Memory
    """The `in` tensors, for others to map read-only."""
    at_end: bool
    """Whether the data of the region's buffers end where their pages end."""

    @property
    def dims(self) -> Mapping[str, int]:
        """The dims of its inputs, those that depend on the data included."""
        return self.inputs.dims


@dataclass(frozen=True)
class Case(Question):
    """A question with its answer. The expected values never leave the verifier's process.

    `expected` and `allowed` are flat and fp64: numpy arrays, or tensors where the oracle computes on a GPU.
    """

    expected: Mapping[str, Any]
    allowed: Mapping[str, Any]
    rms_limit: dict[str, float]
    """Largest root mean square of error / allowed; a second look at the case may raise it."""
    out_of_bounds: Mapping[str, str]
    """By output, which of the trusted implementations is out of bounds itself, in words; most often none."""
    roundoffs: Mapping[str, float]
    """Errors that sums of an output may have, in roundoffs of their magnitudes, where trusted kernels were asked."""
    second_look: Callable[[], Mapping[str, float]] | None = None
    """The same limits with more on what they rest: what an output exceeds them by must hold against these as well."""

    def quotient(self, output: str, found: Judgement) -> float:
        """The rms of an output's errors as a multiple of what is allowed; above 1 it is wrong.

        It looks twice at what is within bounds by its elements and would be wrong by this alone.
        """
        if found.rms_ratio > self.rms_limit[output] and not found.mismatches and self.second_look:
            self.rms_limit.update(self.second_look())
        if found.rms_ratio == 0:
            return 0.0
        return found.rms_ratio / self.rms_limit[output] if self.rms_limit[output] > 0 else math.inf


NAIVE = "The naive kernel"
"""Name of the naive kernel among the trusted implementations."""
Trusted = Callable[[Question], Sequence[Mapping[str, Any]]]
"""Runs kernels that are known to be right, in processes of their own; their outputs by name, in any shape."""


@dataclass(frozen=True)
class Related:
    """A relation on a case, and the case it leads to."""

    relation: Relation
    before: Case
    after: Case
    """The same as `before` when the relation changes no input; otherwise it must be run as well."""
