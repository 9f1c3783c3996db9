"""The briefing of a prompt: what was known of a task, beside the parents, when a child was asked for.

All of it follows from what a run has stored by then, in the order in which it was stored, so that a run that is resumed
or replayed asks in the same words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fitness.evaluation import Z95, interval95
from fitness.judging.base import DeviceInfo
from fitness.words import estimate
from operators.definition.spec import Operator, Task
from operators.kernel import Kernel


@dataclass(frozen=True)
class Ratio:
    """Speed of one kernel over another's, as a logarithm with its standard error."""

    log: float
    se: float

    @property
    def low(self) -> float:
        """The lower end of its 95 % interval, as a logarithm."""
        return self.log - Z95 * self.se

    @property
    def high(self) -> float:
        """The upper end of its 95 % interval, as a logarithm."""
        return self.log + Z95 * self.se

    @property
    def resolved(self) -> bool:
        """Whether the interval leaves out 1: whether it is known which of the two is faster."""
        return self.low > 0 or self.high < 0

    def over(self, other: Ratio) -> Ratio:
        """Return this ratio divided by an independent one."""
        return Ratio(self.log - other.log, math.hypot(self.se, other.se))

    def __str__(self) -> str:
        return estimate(*interval95(self.log, self.se))


Standing = Mapping[str, Ratio]
"""By workload, how many times as fast as the naive kernel a kernel is."""


def mean(ratios: Sequence[float]) -> float:
    """Return the mean of logarithms of ratios, which need not be there: 0 of none."""
    return sum(ratios) / len(ratios) if ratios else 0.0


@dataclass(frozen=True)
class Attempt:
    """One idea that was tried, and what became of it."""

    description: str
    """In the words of who had it: text of a candidate's author."""
    status: str
    """The verdict, or what there was in place of one."""
    gain: Ratio | None = None
    """Over the kernel that it was tried on, where both were timed."""
    message: str = ""
    """Why it failed."""
    task: str = ""
    """Where it was tried, if that is another task than the one that is asked about."""


@dataclass(frozen=True)
class Winner:
    """A kernel that is the fastest one known on some workload."""

    kernel: Kernel
    standing: Standing
    wins: tuple[str, ...]
    """Workloads."""


@dataclass(frozen=True)
class Origin:
    """A kernel of another task that a child is to take over the design of."""

    operator: Operator
    task: Task
    kernel: Kernel
    speedup: Ratio
    """Over the naive kernel of its own task."""
    standing: Standing
    """On the workloads of its own task."""
    helped: tuple[Attempt, ...] = ()
    """On its own task, the greatest gain first."""


@dataclass(frozen=True)
class Briefing:
    """Facts that a prompt may tell beside the parents. Unknown ones are empty."""

    device: DeviceInfo | None = None
    naive_us: Mapping[str, float] = field(default_factory=dict)
    """By workload, the naive kernel's time."""
    library: Standing = field(default_factory=dict)
    """The standing of the vendor's call."""
    best_id: str = ""
    """The kernel id of the fastest kernel known."""
    best: Standing = field(default_factory=dict)
    parents: Mapping[str, Standing] = field(default_factory=dict)
    """By kernel id."""
    tried: tuple[Attempt, ...] = ()
    """On the principal parent, oldest first."""
    helped: tuple[Attempt, ...] = ()
    """On the task and on its siblings, the greatest gain first."""
    fruitless: tuple[Attempt, ...] = ()
    """On the task, what made nothing faster, oldest first."""
    failed: tuple[Attempt, ...] = ()
    """On the task, oldest first."""
    winners: tuple[Winner, ...] = ()
    """Others than the parents."""
    open_here: int = 0
    """Answers of models under way that begin from the same kernel."""
    open_elsewhere: int = 0
    """The same of the task's other kernels."""
    asked_before: int = 0
    """Number of times that the same was asked: mutator, parents, template, model and params."""
    origin: Origin | None = None
    """The origin of a request with a source in another task."""
    verdict_on: Callable[[str], str] = lambda _: ""
    """The verdict known of a program, given by `mutators.asking.novelty.text_digest`, or an empty text."""
