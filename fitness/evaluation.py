"""The verdict on one kernel, as frozen data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from operators.libraries import called

Z95 = 1.96
"""Standard errors from the middle to either end of a 95 % interval."""
RESOLVED, WIDE = 0.2, math.log(2)
"""Half of a 95 % interval of a log ratio up to which it is a result, even where it may hold 0, and where it may not."""
Z999 = 3.29
"""Half of a 99.9 % interval in standard errors: an error that is estimated from a few pairs is itself too small at
times, and a wide interval of 95 % that leaves 1 out by a hair loses good kernels."""


def interval95(log: float, se: float) -> tuple[float, float, float]:
    """Return a ratio and the ends of its 95 % interval, by its logarithm and the standard error of that."""
    value, low, high = (math.exp(min(log + side * Z95 * se, 700.0)) for side in (0, -1, 1))
    return value, low, high


class Status(StrEnum):
    """Outcome of an evaluation."""

    INVALID = "invalid"
    """The plan or the source was rejected before the compiler saw it."""
    COMPILE_ERROR = "compile_error"
    UNSUPPORTED = "unsupported"
    """Its `requires` excludes a workload, or too many of the hidden shapes."""
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    WRONG = "wrong"
    SLOWER = "slower"
    """Right as far as it was checked, and raced out by its anchor."""
    QUARANTINED = "quarantined"
    """Faster than physics or than its own clock allows; never a fitness."""
    CORRECT = "correct"
    DUPLICATE = "duplicate"
    """The same program as an evaluated kernel, whose verdict it inherits."""


class Level(StrEnum):
    """Severity of the examination."""

    SCREEN = "screen"
    FULL = "full"
    CONFIRMED = "confirmed"


@dataclass(frozen=True)
class Rejection:
    """Why a kernel got no further than a stage."""

    status: Status
    message: str


@dataclass(frozen=True)
class Timing:
    """One workload's paired measurement of a kernel against its anchor."""

    workload: str
    latency_us: float
    """The kernel's, median over the samples."""
    anchor_latency_us: float
    """Latency of the anchor in the pairs: `latency_us` exp(`log_ratio`), so that the two times always show the ratio
    beside them. So do their geometric means over workloads with the exponential of the mean log ratio."""
    log_ratio: float
    """Location over pairs of ln(anchor time / kernel time): above 0 the kernel is faster."""
    log_ratio_se: float
    """Standard error of `log_ratio`."""
    pairs: int


@dataclass(frozen=True)
class LibraryTiming(Timing):
    """Timing of a kernel paired with the vendor's call that is the fastest on this workload: another one may be on
    others.

    So a mean over workloads is against the library at its best on each, which no one call need reach.
    """

    library: str = ""
    """The call's name; empty in runs of versions that had one call an operator."""
    kind: str = "call"
    """The rival's class, as `operators.libraries.Kind` has them."""
    untried: str = ""
    """Names of rivals that were not tried, since it takes minutes to compile them: one of these may be faster still."""


def named(by_workload: Mapping[str, str]) -> str:
    """Return what workloads have in few words: alone where all have the same, otherwise each with its workloads."""
    found: dict[str, list[str]] = {}
    for workload, name in by_workload.items():
        found.setdefault(name, []).append(workload)
    if len(found) < 2:
        return "".join(found)
    return "; ".join(f"{name} ({', '.join(workloads)})" for name, workloads in found.items())


def library_calls(timings: Iterable[LibraryTiming]) -> str:
    """Return the names of the calls, those of several workloads as `named` has them; empty where they are not known."""
    return named({t.workload: called(t.library, t.kind) for t in timings if t.library})


def leaves_open(log_ratio: float, se: float) -> bool:
    """Whether a paired ratio with this standard error does not tell which kernel is faster, nor by how much."""
    half = Z95 * se
    return half > RESOLVED and (half > WIDE or Z999 * se > abs(log_ratio))


@dataclass(frozen=True)
class CheckError:
    """Distance of one output from the fp64 reference in one check."""

    workload: str
    tensor: str
    family: str
    """The input family, `nominal` and the like."""
    max_ratio: float
    """Largest |y - y64| as a multiple of the allowed error; above 1 the output is wrong."""
    mismatches: int
    first_bad: int | None = None
    """Flat index of the first element out of bounds."""
    rms_ratio: float = 0.0
    """Root mean square of the errors as a multiple of what trusted kernels make likely; above 1 the output is wrong."""

    @property
    def wrong(self) -> bool:
        """An element is out of bounds, or the errors are too large as a whole."""
        return self.mismatches > 0 or self.rms_ratio > 1

    @property
    def worst_ratio(self) -> float:
        """The larger of the two."""
        return max(self.max_ratio, self.rms_ratio)


@dataclass(frozen=True)
class Evaluation:
    """The verdict. Only a correct kernel has a `log_speedup`; impossible combinations do not construct."""

    kernel_id: str
    task: str
    """`operator/dtype/target`."""
    level: Level
    status: Status
    message: str = ""
    """Why it failed, in words a person or a model can act on; empty for a correct kernel."""
    log_speedup: float | None = None
    """Fitness: mean over workloads of ln(baseline time / kernel time)."""
    log_speedup_se: float | None = None
    anchor_id: str | None = None
    """The kernel it was paired with; None when nothing was timed."""
    anchor_log_speedup: float | None = None
    log_ratio: float | None = None
    """Mean over workloads of ln(anchor time / kernel time); with `anchor_log_speedup` it adds up to `log_speedup`."""
    log_ratio_se: float | None = None
    code_digest: str | None = None
    duplicate_of: str | None = None
    """Kernel whose verdict this one inherits; only with status duplicate."""
    inherited: Status | None = None
    """Status of the verdict that it inherits."""
    cell: tuple[str, ...] = ()
    """Behaviour descriptors, from build facts alone."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Build facts: registers, vector width, code bytes, ..."""
    timings: tuple[Timing, ...] = ()
    library_timings: tuple[LibraryTiming, ...] = ()
    """Timings of a confirmation with the vendor's library as the anchor, from calls between those of `timings`."""
    library_lack: str = ""
    """Why a confirmation has no such timings although there is a library."""
    errors: tuple[CheckError, ...] = ()
    stage_ms: Mapping[str, float] = field(default_factory=dict)
    """Wall time of each stage that ran: build, verify, time, confirm."""
    worker: str = ""
    """The device or the cores that it was found on, and of which machine; empty where no worker found it."""

    def __post_init__(self) -> None:
        if self.log_speedup is not None:
            if self.verdict is not Status.CORRECT:
                raise ValueError(f"a kernel that is {self.verdict} has no fitness")
            if not math.isfinite(self.log_speedup):
                raise ValueError(f"log_speedup is {self.log_speedup}")
        if self.verdict is Status.CORRECT and (self.log_speedup is None or self.log_speedup_se is None):
            raise ValueError("a correct kernel needs log_speedup and log_speedup_se")
        if (self.status is Status.DUPLICATE) != (self.duplicate_of is not None and self.inherited is not None):
            raise ValueError("duplicate_of and inherited go with the status duplicate, and only with it")

    @property
    def verdict(self) -> Status:
        """The status, a duplicate's inherited one included."""
        return self.inherited or self.status

    def bare(self) -> Evaluation:
        """Return the verdict alone, without what was measured: for many of them to be kept at hand."""
        if not (self.timings or self.library_timings or self.errors or self.stage_ms or self.worker):
            return self
        return replace(self, timings=(), library_timings=(), errors=(), stage_ms={}, worker="")

    @property
    def estimate(self) -> float | None:
        """ln(baseline / kernel) as far as it is known: of raced-out kernels too, so that tuning learns from them."""
        if self.log_ratio is None or self.anchor_log_speedup is None:
            return self.log_speedup
        return self.anchor_log_speedup + self.log_ratio

    @property
    def standing(self) -> float | None:
        """The log speedup by which it is ranked for a report: what is not confirmed counts as the lower end of its 95 %
        interval, because of many estimates the largest is the luckiest."""
        if self.log_speedup is None or self.level is Level.CONFIRMED:
            return self.log_speedup
        return self.log_speedup - Z95 * (self.log_speedup_se or 0.0)

    @property
    def correct(self) -> bool:
        return self.verdict is Status.CORRECT

    @property
    def unresolved(self) -> bool:
        """Whether its pairs leave open which of the two is faster, and by more than RESOLVED, or by how much, by more
        than WIDE: they were timed in bad seconds, and say nothing of the kernel. A confirmation stands as it is."""
        if self.log_ratio is None or self.log_ratio_se is None or self.level is Level.CONFIRMED:
            return False
        if self.status is Status.DUPLICATE:  # its verdict is another kernel's
            return False
        return self.anchor_id not in (None, self.kernel_id) and leaves_open(self.log_ratio, self.log_ratio_se)

    @property
    def speedup(self) -> float | None:
        """Geometric mean over workloads of baseline time / kernel time."""
        return None if self.log_speedup is None else math.exp(self.log_speedup)
