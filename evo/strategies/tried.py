"""What was tried on kernels, as requests of runs older than INFORMED tell it; in later ones `evo.knowledge` has it."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Any

from evo.archive import Elite
from evo.individual import Individual
from fitness.evaluation import Evaluation, Status
from operators.kernel import Kernel

REMEMBERED = 2_000
"""Kernels of which is known what was tried, and files of which is known what cannot be made of them; the latest."""
SHOWN = 5
"""Earlier attempts at one kernel that a model is told of."""


class Tried:
    """By parent, what became of its latest children."""

    def __init__(self) -> None:
        self._attempts: OrderedDict[str, deque[Mapping[str, Any]]] = OrderedDict()

    def of(self, parent: Kernel) -> list[Mapping[str, Any]]:
        """Return the latest attempts at a kernel, as a request's params have them; often none."""
        return list(self._attempts.get(parent.id, ()))

    def note(self, individual: Individual, parent: Elite) -> None:
        """Remember what was tried on a parent, for the next model that is shown it."""
        if individual.evaluation and individual.description:
            tried = self._attempts.get(parent.kernel.id) or deque(maxlen=SHOWN)
            tried.append(_attempt(individual, individual.evaluation, parent))
            remember(self._attempts, parent.kernel.id, tried)


def remember(known: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    """Keep the latest REMEMBERED entries."""
    known[key] = value
    known.move_to_end(key)
    if len(known) > REMEMBERED:
        known.popitem(last=False)


def _attempt(individual: Individual, evaluation: Evaluation, parent: Elite) -> Mapping[str, Any]:
    entry: dict[str, Any] = {"description": individual.description[:200], "status": evaluation.verdict.value}
    if evaluation.log_speedup is not None:
        entry["speedup"] = math.exp(evaluation.log_speedup - parent.log_speedup)
    elif evaluation.verdict is not Status.SLOWER:
        entry["message"] = evaluation.message[:300]
    return entry
