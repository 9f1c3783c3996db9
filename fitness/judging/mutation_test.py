"""Mutation test of an operator's verification: it must tell the naive kernel from mutants of it.

All kernels are run on the same cases, as many as a confirmation draws, each on two poisons and between guards; then
what the operator's relations promise is held against them. Nothing is timed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch

from fitness.evaluation import CheckError, Rejection, Status
from fitness.judging.base import Fitness
from fitness.judging.checks import Call, agreed_at_both_ends
from fitness.judging.device import NAN, KernelFault
from fitness.judging.pipeline import Pipeline, hand
from fitness.oracle.cases import Case, Question, Related
from fitness.oracle.verify import Oracle, worst
from fitness.sandbox.memory import Memory
from operators.definition.spec import Workload
from operators.kernel import Kernel

FAMILIES = 2
"""Input families for each shape, as of a confirmation."""
RELATED = 3
"""Cases whose relations are looked at, as of a confirmation."""


@dataclass(frozen=True)
class Ready:
    """A kernel that can be run."""

    held: Any
    """The object that the place which runs it made of it."""
    code: str
    """Equal for kernels that are the same program; empty where that is not known."""
    deterministic: bool


class KernelHost(Protocol):
    """Where kernels of one operator, dtype and target are built and called."""

    @property
    def oracle(self) -> Oracle:
        """The oracle that judges their answers."""
        ...

    @property
    def words(self) -> str:
        """The device that kernels run on, in words."""
        ...

    @property
    def stage(self) -> Fitness | None:
        """The fitness stage for verdicts of the same task, timed; None where it is only emulated."""
        ...

    def ready(self, kernel: Kernel) -> Ready | Rejection:
        """Check the plan and compile."""
        ...

    def opened(self, ready: Ready) -> AbstractContextManager[Call]:
        """A process with the kernel. Raises KernelFault where it cannot be loaded."""
        ...

    def close(self) -> None:
        """End every process."""
        ...

    def is_own_fault(self, status: Status) -> bool:
        """Whether a kernel that ends so is at fault itself, and not the place, which cannot do all that kernels may."""
        ...


class DevicePlace:
    """`KernelHost` on a device that is here."""

    def __init__(self, stage: Pipeline, words: str) -> None:
        self.oracle = stage.oracle
        self.words = words
        self.stage: Fitness = stage
        self._pipeline = stage

    def ready(self, kernel: Kernel) -> Ready | Rejection:
        prepared = self._pipeline.device.prepare(kernel)
        if isinstance(prepared, Rejection):
            return prepared
        return Ready(prepared, prepared.compiled.code_digest, prepared.deterministic)

    @contextmanager
    def opened(self, ready: Ready) -> Iterator[Call]:
        with self._pipeline.bench.session(ready.held) as session:

            def call(question: Question, at_end: bool, poison: int) -> Memory:
                with self._pipeline.device.machine(exclusive=False):
                    session.bind(0, question, at_end=at_end)
                    session.run(0, poison=poison, sealed=True)
                return session.work(0)

            yield call

    def close(self) -> None:
        self._pipeline.close()

    def is_own_fault(self, status: Status) -> bool:
        return True


@dataclass(frozen=True)
class Tried:
    """Outcome of a kernel."""

    rejection: Rejection | None = None
    """Why it was refused; None: it passed everything."""
    same_code: bool = False
    """It is the same program as the naive kernel, and was not run."""
    differs: bool | None = False
    """Some result of it was another number than the naive kernel's, rounding included; None: not known, as that one's
    own results vary from run to run."""
    errors: tuple[CheckError, ...] = field(default=(), repr=False)


class MutationTest:
    """Tries kernels of one task on cases that are drawn once."""

    def __init__(
        self, place: KernelHost, naive: Kernel, shapes: Sequence[Workload], *, seed: int | None = None
    ) -> None:
        self._place = place
        self._naive = naive
        self.shapes = shapes
        self._rng = np.random.default_rng(seed)
        self._open = ExitStack()
        self._answers: list[dict[str, torch.Tensor]] = []
        """Answers of the naive kernel, by case."""

    def close(self) -> None:
        """End every process."""
        self._open.close()
        self._place.close()

    @cached_property
    def cases(self) -> list[Case]:
        """Every shape with some input families, which are dealt in turn. Raises OperatorError where reference.py
        fails."""
        drawn = hand(self.shapes, FAMILIES * len(self.shapes), self._place.oracle.deals, self._rng, first=())
        return [self._case(w, f, at_end=number % 2 == 0) for number, (w, f) in enumerate(drawn)]

    @cached_property
    def _related(self) -> list[tuple[int, list[Related]]]:
        numbers = [int(n) for n in self._rng.permutation(len(self.cases))[:RELATED]]
        relations = self._place.oracle.relations
        return [(n, list(relations(self.cases[n], self._rng, trusted=self._trusted))) for n in numbers]

    def _case(self, workload: Workload, family: str, *, at_end: bool) -> Case:
        return self._place.oracle.case(workload, family, self._rng, at_end=at_end, trusted=self._trusted)

    @cached_property
    def _naive_ready(self) -> Ready:
        ready = self._place.ready(self._naive)
        if isinstance(ready, Rejection):
            raise KernelFault(ready.status, ready.message)
        return ready

    @cached_property
    def _naive_call(self) -> Call:
        return self._open.enter_context(self._place.opened(self._naive_ready))

    def _trusted(self, question: Question) -> list[dict[str, Any]]:
        work = self._naive_call(question, question.at_end, NAN)
        return [self._place.oracle.outputs(question, work)]

    def naive(self) -> Tried:
        """Try the naive kernel, which must pass before any other is tried. Raises OperatorError, as `cases` does."""
        try:
            return self._ran(self._naive_ready, self._answers)
        except KernelFault as fault:
            return Tried(fault.rejection)

    def tried(self, kernel: Kernel) -> Tried:
        """Try any other kernel."""
        ready = self._place.ready(kernel)
        if isinstance(ready, Rejection):
            return Tried(ready)
        if ready.code and ready.code == self._naive_ready.code:
            return Tried(same_code=True)
        return self._ran(ready, None)

    def _ran(self, ready: Ready, kept: list[dict[str, torch.Tensor]] | None) -> Tried:
        """The outcome of a kernel; answers are put into `kept`, or held against the naive kernel's."""
        differs = False if self._naive_ready.deterministic else None
        errors: list[CheckError] = []
        cases, related = self.cases, self._related
        try:
            with self._place.opened(ready) as call:
                for number, case in enumerate(cases):
                    errors += self._checked(call, ready, case)
                    answer = self._place.oracle.outputs(case, call(case, case.at_end, NAN))
                    if kept is not None:
                        kept.append(answer)
                    elif differs is False:
                        differs = any(_differ(y, self._answers[number][name]) for name, y in answer.items())
                for number, several in related:
                    self._relate(call, ready, cases[number], several)
        except KernelFault as fault:
            return Tried(fault.rejection, differs=True)
        return Tried(differs=differs, errors=worst(errors))

    def _checked(self, call: Call, ready: Ready, case: Case) -> list[CheckError]:
        return agreed_at_both_ends(self._place.oracle, case, call, self._rng, deterministic=ready.deterministic)

    def _relate(self, call: Call, ready: Ready, case: Case, related: Sequence[Related]) -> None:
        oracle = self._place.oracle
        before = oracle.outputs(case, call(case, case.at_end, NAN))
        for one in related:
            after = before
            if one.after is not case:
                self._checked(call, ready, one.after)
                after = oracle.outputs(one.after, call(one.after, case.at_end, NAN))
            if problem := oracle.related_problem(one, before, after, deterministic=ready.deterministic):
                raise KernelFault(Status.WRONG, problem)


def _differ(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two results are not the same numbers; NaN is like NaN, and 0 like -0."""
    return not bool(((one == other) | (one.isnan() & other.isnan())).all())
