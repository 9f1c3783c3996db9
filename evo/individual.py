"""A kernel with its verdict and its place in the lineage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fitness.evaluation import Evaluation, Status
from mutators.base import Kind, Request
from mutators.llm.settings import is_outside
from operators.identity import digest
from operators.kernel import Kernel

NO_CHILD = "no_child"
UNAVAILABLE = "unavailable"
SAID = "said"
PROFILED = "profiled"
NO_ANSWER = "no_answer"
"""A request for words or for a profile led to none."""


@dataclass(frozen=True)
class Individual:
    """Outcome of one request: a kernel with its verdict, or words, or metrics, or the reason why there are none."""

    request: Request
    kernel: Kernel | None = None
    """None when the mutator had no child to offer, or none was asked for."""
    evaluation: Evaluation | None = None
    """The most severe one, with its timings and errors; None without a kernel, or where no machine could judge it."""
    seconds: float = 0.0
    """Seconds of an evaluator until the screening verdict, without confirmations of a new best and without waiting for
    models."""
    cost_usd: float = 0.0
    """Cost of the language models' answers for it."""
    description: str = ""
    """The mutator's words on what it changed."""
    unavailable: bool = False
    """Whether there is no answer because the language model could not be asked, or no verdict because no machine could
    judge the kernel: nothing to learn from."""
    failure: str = ""
    """Why there is no answer."""
    text: str = ""
    """A language model's words, where the request asked for words."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Metrics that a profiler measured, by name, where the request asked for a profile."""

    @property
    def id(self) -> str:
        """The request's, by which later requests name it."""
        return self.request.id

    @property
    def status(self) -> str:
        """The evaluation's status, or `no_child`, `unavailable`, `said`, `profiled`, `no_answer`."""
        if self.evaluation:
            return self.evaluation.status.value
        if self.unavailable:
            return UNAVAILABLE
        if self.request.kind in WITHOUT_KERNEL:
            return NO_ANSWER if self.failure else WITHOUT_KERNEL[self.request.kind]
        return NO_CHILD

    @property
    def correct(self) -> bool:
        """Whether there is a kernel that is correct."""
        return bool(self.evaluation and self.evaluation.correct)

    @property
    def log_speedup(self) -> float:
        """The log speedup of a correct kernel."""
        assert self.evaluation and self.evaluation.log_speedup is not None
        return self.evaluation.log_speedup

    @property
    def built(self) -> bool:
        """Whether there is a kernel that compiled."""
        return bool(self.evaluation and self.evaluation.verdict not in (Status.INVALID, Status.COMPILE_ERROR))

    @property
    def undone(self) -> bool:
        """Whether the machine is the reason why there is no answer, and no model."""
        return self.unavailable and (self.kernel is not None or not self.request.model)

    @property
    def withdrawn(self) -> bool:
        """Whether it is a question to a model outside that was taken back, to be asked anew about faster kernels."""
        return self.unavailable and self.kernel is None and is_outside(self.request.model)

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
        """The identity of everything that a strategy may learn from."""
        e = self.evaluation
        learned: tuple[str, ...] = (
            (e.level.value, e.verdict.value, *map(repr, (e.log_speedup, e.log_ratio, e.cell))) if e else ()
        )
        spent: tuple[str, ...] = (repr(self.seconds), repr(self.cost_usd), self.description)
        kernel_id = self.kernel.id if self.kernel else ""
        learned += (repr((e.message, e.timings, e.errors)),) if e else ()
        spent += (self.failure, self.text, repr(sorted(self.metrics.items())))
        return digest("individual", self.request.digest, self.status, kernel_id, *learned, *spent)


WITHOUT_KERNEL: Mapping[Kind, str] = {Kind.SAY: SAID, Kind.PROFILE: PROFILED}
"""Kinds of requests that are answered with no kernel, and what status their answers have."""


NO_PROGRAM = frozenset({Status.DUPLICATE.value, NO_CHILD, UNAVAILABLE, NO_ANSWER, *WITHOUT_KERNEL.values()})
"""Statuses of requests that came to no new program with a verdict."""


def new_programs(told: Mapping[str, int]) -> int:
    """Return how many of those told are candidates, by how many had which status: a duplicate or no child is none."""
    return sum(n for status, n in told.items() if status not in NO_PROGRAM)


def is_naive(request: Request) -> bool:
    """Return whether it is for the kernel that all others are compared with."""
    return request.kind is Kind.ANCESTOR and request.params["name"] == "naive"
