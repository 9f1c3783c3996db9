"""A kernel with its verdict and its place in the lineage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fitness.evaluation import Evaluation, Status
from mutators.base import Request
from operators.identity import digest
from operators.kernel import Kernel

NO_CHILD = "no_child"
UNAVAILABLE = "unavailable"


@dataclass(frozen=True)
class Individual:
    """What became of one request."""

    request: Request
    kernel: Kernel | None
    """None when the mutator had no child to offer."""
    evaluation: Evaluation | None
    """The most severe one; None without a kernel."""
    seconds: float = 0.0
    """Of an evaluator's time until the screening verdict: a new best is not charged for its confirmation, nor anybody
    for waiting on a language model, which keeps no evaluator busy."""
    cost_usd: float = 0.0
    """What the language models were paid for it."""
    description: str = ""
    """What the mutator says it changed."""
    unavailable: bool = False
    """Whether there is no kernel because the language model could not be asked: nothing to learn from."""

    @property
    def status(self) -> str:
        """The evaluation's status, `no_child` or `unavailable`."""
        if self.evaluation:
            return self.evaluation.status.value
        return UNAVAILABLE if self.unavailable else NO_CHILD

    @property
    def fresh(self) -> bool:
        """Whether this is the first sight of the program: there is a kernel, and it is no duplicate."""
        return self.evaluation is not None and self.evaluation.status is not Status.DUPLICATE

    @property
    def repeats(self) -> bool:
        """Whether its verdict is that of another request for the same kernel."""
        return self.evaluation is not None and self.evaluation.duplicate_of == self.evaluation.kernel_id

    @property
    def digest(self) -> str:
        """Over everything a strategy may learn from."""
        e = self.evaluation
        learned = (e.level.value, e.verdict.value, *map(repr, (e.log_speedup, e.log_ratio, e.cell))) if e else ()
        spent = (repr(self.seconds), repr(self.cost_usd), self.description)
        kernel_id = self.kernel.id if self.kernel else ""
        return digest("individual", self.request.digest, self.status, kernel_id, *learned, *spent)


def new_programs(told: Mapping[str, int]) -> int:
    """How many of those told are candidates, by how many had which status: a duplicate or no child is none."""
    return sum(n for status, n in told.items() if status not in (Status.DUPLICATE.value, NO_CHILD, UNAVAILABLE))
