"""The interface of a target to the verdict: kernels that can be called, in processes that the verifier does not
share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fitness.evaluation import Rejection, Status, Timing
from fitness.judging.base import Checked
from fitness.judging.timing import ProcessSpread
from fitness.oracle.cases import Case, Question
from fitness.profiling.profiles import Profile
from fitness.profiling.roofline import Peaks
from fitness.sandbox.memory import Memory
from operators.definition.spec import Workload
from operators.errors import MachineError, OperatorError
from operators.kernel import Kernel
from operators.libraries import LibraryCall

NAN = 0xFF
"""The byte that makes a NaN of every floating type."""
LARGE = (range(0x70, 0x7C), range(0xF0, 0xFC))
"""Bytes that make large numbers, positive and negative ones: a maximum or minimum swallows NaN and one of them."""


def unwritten(rng: np.random.Generator) -> int:
    """The byte that fills memory which a kernel has not written, before a timed call and those in its midst.

    As often any byte as one of those that checks use, NaN and large numbers: so a kernel that takes note of it neither
    knows what a call is for, nor can it do without its work where memory holds something else.
    """
    if rng.integers(2):
        return int(rng.integers(256))
    return NAN if rng.integers(2) else int(rng.choice(LARGE[rng.integers(2)]))


class KernelFault(Exception):
    """The kernel broke its own process, overstayed, or was wrong. Never leaves this package: it becomes a status."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.rejection = Rejection(status, message)


class KilledFromOutside(MachineError):
    """Something that no kernel can cause befell the process or its clock: the kernel may be asked again, in another
    process if this one ended."""


class ProcessEnded(OperatorError):
    """A vendor's call ended its process, or the device failed under it: its own fault where it does so again."""


UNANSWERED = (KernelFault, KilledFromOutside)
"""The errors of a session that gave no answer, whichever side is at fault: who keeps one must not go on with it."""


@dataclass(frozen=True)
class Sample:
    """One timed call."""

    elapsed_ns: int
    outside_ns: int
    """Time of the call beside that, by the clock of the process that ran it; time that a forged clock hides shows
    here."""


@dataclass(frozen=True)
class BuildFacts:
    """Facts that every target's build tells."""

    code_digest: str
    cell: tuple[str, ...]
    facts: Mapping[str, Any]


class Prepared(Protocol):
    """A kernel that compiled and whose plan fits it."""

    @property
    def kernel(self) -> Kernel:
        """The kernel as it was proposed."""
        ...

    @property
    def compiled(self) -> BuildFacts:
        """The build's facts."""
        ...

    @property
    def deterministic(self) -> bool:
        """Whether its plan promises the same bits from every run on the same inputs."""
        ...

    def supports(self, workload: Workload) -> bool:
        """Whether it declares support for a workload's shape."""
        ...


class KernelSession(Protocol):
    """One kernel (or the vendor's library) in a disposable process. Not thread-safe.

    Every method may raise KernelFault; after one of `run` the session can still be used, after others only closed.
    """

    @property
    def charged(self) -> bool:
        """Whether what is seen of a call beside its clock, and is more than an anchor's, counts as its time.

        Not where the clock is out of a kernel's reach, or what lies beside it is the driver's.
        """
        ...

    @property
    def seals(self) -> bool:
        """Whether threads of a kernel could go on behind the end of a call, which a sealed call does not let them."""
        ...

    def bind(self, slot: int, question: Question, *, at_end: bool) -> None:
        """Hand it the inputs of a question, and memory for outputs and scratch; again for the same slot replaces it."""
        ...

    def run(self, slot: int, *, poison: int, cold: bool = False, sealed: bool = False) -> Sample:
        """Fill outputs, scratch and what lies around them, put inout tensors in place, call the kernel once.

        What lies around is filled anew for every call, with another byte than `poison`: nothing of one call is found
        by the next, or held against it. `cold`: from cold caches. `sealed`: what the kernel has not written when it
        says that it is done is not written any more; that takes time where it `seals`.
        """
        ...

    def work(self, slot: int) -> Memory:
        """Outputs and scratch as the last call left them."""
        ...

    def close(self, *, sound: bool = False) -> None:
        """`sound`: the kernel did nothing wrong, so that the process may serve another one."""
        ...


class Device(Protocol):
    """Builds kernels of one task and opens sessions with them."""

    @property
    def forgets(self) -> bool:
        """Whether no memory of a process outlives a call, so that nothing a kernel saw serves it again."""
        ...

    @property
    def differs(self) -> bool:
        """Whether a program may know facts of the machine that are others on a machine of the same name."""
        ...

    @property
    def processes(self) -> int:
        """The number of processes of each kernel that a confirmation takes its samples from."""
        ...

    @property
    def spread(self) -> ProcessSpread:
        """The spread between clocks of processes with one kernel, as far as several processes do not show it."""
        ...

    @property
    def driver(self) -> str:
        """Version of the device's driver; empty where it has none."""
        ...

    def prepare(self, kernel: Kernel) -> Prepared | Rejection:
        """Parse, check and compile; what was compiled before is taken from disk."""
        ...

    def takes(self, prepared: Prepared, dims: Mapping[str, int]) -> bool:
        """Whether what a kernel requires holds for these dims, those that depend on the data included."""
        ...

    def open(self, prepared: Prepared, *, fresh: bool = False, elsewhere: bool = False) -> KernelSession:
        """`fresh`: in a process that has run no other kernel. `elsewhere`: for checks alone, as on other machines,
        where the device `differs`."""
        ...

    def expect(self, sessions: int) -> None:
        """Announces the number of fresh sessions that will be opened soon: their processes may start meanwhile."""
        ...

    def open_library(self, call: LibraryCall, cases: Sequence[Sequence[Case]]) -> KernelSession:
        """Begin to start a vendor's call, to be bound to these cases in their order, slots counting from 1.

        The first `bind` waits for it. Both raise KernelFault where it does not start.
        """
        ...

    def machine(self, *, exclusive: bool) -> AbstractContextManager[None]:
        """Timings have the device to themselves among all processes that use it; other work shares it. Not nested."""
        ...

    def emulate(self, kernel: Kernel) -> Checked:
        """See `fitness.judging.base.Builder`; where there is nothing to emulate, it says so."""
        ...

    def profile(self, prepared: Prepared, timings: Sequence[Timing]) -> Profile:
        """The kernel's profile; it takes seconds on the shared machine, and never raises because of the kernel."""
        ...

    def audit(self, prepared: Prepared) -> Callable[[], Mapping[str, Any]]:
        """Begin what the device's own tools can find in a kernel; call the result to wait for it.

        It returns facts for the verdict, what could not be run among them, or raises KernelFault.
        """
        ...

    def peaks(self, *, again: bool = False) -> Peaks:
        """`again`: measured anew, which can only raise them. Takes the machine where it measures."""
        ...
