"""The interface of a fitness stage to the search, the same for every target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fitness.evaluation import CheckError, Evaluation, Rejection, Timing
from fitness.profiling.profiles import Profile
from fitness.profiling.roofline import Peaks
from operators.definition.spec import Operator
from operators.kernel import Kernel

COMPILE_LIMIT_S: Mapping[str, float] = {"cpu": 20.0, "cuda": 60.0}
"""By target, what the compiler may take for one kernel."""
PATIENCE = 10
"""Factor by which a compilation may exceed its limit by the wall's clock, on a machine that has much else to do."""
JUDGE_LIMIT_S = 1800.0
"""Time limit of one level of a verdict, or of a profile, by the wall's clock; most take seconds."""
CALL_LIMIT_S = 2.0
"""Time limit of one call of a kernel."""


@dataclass(frozen=True)
class Anchor:
    """A correct kernel that another one is paired with, and what is known of its own speed."""

    kernel: Kernel
    log_speedup: float
    log_speedup_se: float


@dataclass(frozen=True)
class DeviceInfo:
    """The device that kernels run on, as prompts and plans know it."""

    name: str
    """Name in words, with the figures that a programmer of kernels asks for first."""
    facts: Mapping[str, int] = field(default_factory=dict)
    """By the names that expressions of plans have for them (`operators.plan.reading.FACTS`)."""
    details: tuple[str, ...] = ()
    """Further facts that an expert would ask for, in words: units and their instructions, registers, memories."""
    peaks: Peaks | None = None
    """Its measured peak rates; None: not known, as in runs without language models."""


@dataclass(frozen=True)
class Built:
    """A kernel that compiled: what is known before it runs."""

    kernel_id: str
    code_digest: str
    cell: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    build_ms: float = 0.0


@dataclass(frozen=True)
class Checked:
    """Result of a look at a few answers of a kernel, untimed: for its author, never for a verdict."""

    rejection: Rejection | None = None
    """Fault that was found; None: there was none, as far as was looked."""
    errors: tuple[CheckError, ...] = ()
    """The worst of a right kernel, all within bounds."""
    lack: str = ""
    """Why it could not be looked at; empty where it was."""
    seconds: float = 0.0
    scope: str = ""
    """The examined cases in words, as far as they are more than a few small shapes."""


class Builder(Protocol):
    """Compiles kernels of one task. One instance serves one caller at a time; several may share a machine."""

    @property
    def operator(self) -> Operator:
        """The task's operator."""
        ...

    def build(self, kernel: Kernel) -> Built | Evaluation:
        """Check the plan and compile; an Evaluation when it got no further."""
        ...

    def emulate(self, kernel: Kernel) -> Checked:
        """Run a kernel that was built on a few hidden shapes, on a CPU in place of its device."""
        ...

    def close(self) -> None:
        """End every process this instance started."""
        ...


class Fitness(Builder, Protocol):
    """Judges kernels of one task, level by level; `fitness.judging.levels` has the order of the levels.

    A bad kernel never raises: whatever it does becomes an Evaluation. What raises is an operator at fault, whose naive
    kernel fails (OperatorError), a broken machine (DeviceError, where another device may still work) or our own bug.
    Every level is complete in itself: it may be asked of another instance than the one before it. Where the anchor's
    process fails, killed perhaps, the level is examined once more beside the baseline, as its evaluation says.
    """

    @property
    def baseline(self) -> Kernel:
        """The kernel whose speedup is 1 by definition."""
        ...

    def screen(self, kernel: Kernel, anchor: Anchor, *, race: bool) -> Evaluation:
        """Verify a kernel that was built on few inputs and time it beside the anchor.

        `race`: a kernel clearly slower than the anchor is stopped and marked so.
        """
        ...

    def full(self, kernel: Kernel, anchor: Anchor) -> Evaluation:
        """Verify a kernel that was screened on more inputs and time it beside the anchor again, in other processes."""
        ...

    def confirm(self, kernel: Kernel) -> Evaluation:
        """Verify a kernel on every shape, and time it and the library beside the baseline, in fresh processes."""
        ...

    def choose_rivals(self) -> None:
        """Find the library's fastest call of each workload, compiled ones among them, where this machine has not yet.

        It takes up to minutes. A confirmation compiles none: it takes what was found, else the fastest of the others.
        """
        ...

    def spot_check(self, kernel: Kernel) -> Checked:
        """Run a kernel that was built on a few small hidden shapes, on its device."""
        ...

    def profile(self, kernel: Kernel, timings: Sequence[Timing]) -> Profile:
        """The profile of a correct kernel that was timed; for those who propose changes, never for fitness."""
        ...
