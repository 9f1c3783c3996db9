"""Profiles of kernels. A profile guides mutation and never enters fitness, so that gaming it gains nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fitness.profiling.roofline import Roofline


class Bottleneck(StrEnum):
    """Limit that holds a kernel back, and with it the kind of change that may help."""

    LAUNCH = "launch"
    """Starting the work takes as long as doing it."""
    ROOFLINE = "roofline"
    """The kernel is as fast as the plain algorithm can be: only another algorithm or less traffic helps."""
    BANDWIDTH = "bandwidth"
    """Memory is busy most of the time."""
    COMPUTE = "compute"
    """Arithmetic units are busy most of the time."""
    LATENCY = "latency"
    """Neither is: it waits for single accesses, dependences, branches, or computes without vectors or threads."""


@dataclass(frozen=True)
class Metric:
    """One figure."""

    name: str
    value: float
    unit: str
    """Empty for ratios."""


@dataclass(frozen=True)
class Profile:
    """Findings on one kernel."""

    bottleneck: Bottleneck | None
    """Bottleneck; None when nothing was timed."""
    metrics: tuple[Metric, ...]
    notes: tuple[str, ...]
    """Lines for a prompt or a person, the most telling first; what could not be had is among them."""
    worker: str = ""
    """The worker that took it, as `Evaluation.worker` names one; empty: none, it was taken in this process."""
    seconds: float = 0.0
    """Seconds that the worker took, without the wait for it."""

    @property
    def values(self) -> dict[str, float]:
        """The metrics by name."""
        return {metric.name: metric.value for metric in self.metrics}


LAUNCH_SHARE = 3.0
AT_ROOFLINE = 1.1
BUSY = 0.6


def classify(model: Roofline, latency_us: float, *, empty_us: float, waste: float = 1.0) -> Bottleneck:
    """Which class a measured time falls into, going by the model alone.

    `waste` is the traffic a kernel was seen to cause as a multiple of the least; 1 where that is unknown.
    """
    if latency_us <= AT_ROOFLINE * model.attainable_us:
        return Bottleneck.ROOFLINE
    if latency_us < LAUNCH_SHARE * empty_us:
        return Bottleneck.LAUNCH
    memory = min(max(waste, 1.0) * model.memory_us / latency_us, 1.0)
    compute = model.compute_us / latency_us
    if max(memory, compute) < BUSY:
        return Bottleneck.LATENCY
    return Bottleneck.BANDWIDTH if memory > compute else Bottleneck.COMPUTE
