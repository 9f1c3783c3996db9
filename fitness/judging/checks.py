"""Checks of a kernel in a session: drawn inputs on poisoned memory, probes, relations, and what lies around."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from fitness.evaluation import CheckError, Status
from fitness.judging.device import LARGE, NAN, Device, KernelFault, KernelSession, Prepared, Sample
from fitness.oracle.cases import Case, Question, Related, Trusted
from fitness.oracle.verify import Oracle
from fitness.sandbox.memory import Memory
from operators.definition.spec import Workload

CALLS_S, CALLS_TO_NAIVE = 20.0, 5.0
"""Time limit of all checked calls of one level, to which this many times the naive kernel's time is added."""


Call = Callable[[Question, bool, int], Memory]
"""Runs a kernel on a question, with data at the end of their pages or not, in memory filled with a poison; what it
wrote. Raises KernelFault."""
T = TypeVar("T")


class Checks:
    """The checks of one operator's kernels. Every one raises KernelFault with the first thing that is wrong."""

    def __init__(self, oracle: Oracle, device: Device, rng: np.random.Generator, trusted: Trusted) -> None:
        """`rng` draws what no candidate may foresee; `trusted` runs the naive kernel."""
        self._oracle = oracle
        self._device = device
        self._rng = rng
        self._trusted = trusted
        self._count = 0
        self._called_s = self._naive_s = 0.0

    def begin(self) -> None:
        """A level begins, which has a limit of its own to what its checked calls take."""
        self._called_s = self._naive_s = 0.0

    def took_naive(self, sample: Sample) -> None:
        """The naive kernel answered a question of this level."""
        self._naive_s += 1e-9 * sample.elapsed_ns

    def case(self, workload: Workload, family: str, *, at_end: bool) -> Case:
        return self._oracle.case(workload, family, self._rng, at_end=at_end, trusted=self._trusted)

    def renewed(self, case: Case) -> Case:
        """Other inputs like those of a case, in their place."""
        return self._oracle.renewed(case, self._rng, trusted=self._trusted)

    def verify(
        self, session: KernelSession, prepared: Prepared, checks: Iterable[tuple[Workload, str]], *, reruns: int = 0
    ) -> list[CheckError]:
        """Run every check on inputs drawn now; raises KernelFault with the first thing wrong."""
        errors: list[CheckError] = []
        drawn = (self.case(w, family, at_end=number % 2 == 0) for number, (w, family) in enumerate(checks))
        self.in_turn(drawn, lambda case: errors.extend(self.check(session, prepared, case, reruns=reruns)))
        return errors

    def in_turn(self, made: Iterator[T], use: Callable[[T], object]) -> None:
        """Call `use` with each thing that is made, within the machine's share.

        Where answers are computed on the CPU, the next one is made meanwhile, in another thread: a kernel is not timed
        here, and what it computes on is not kept waiting.
        """
        upcoming: Future[T | None] | None = None
        while True:
            with self._device.machine(exclusive=False):
                one = next(made, None) if upcoming is None else upcoming.result()
                if one is None:
                    return
                if self._oracle.device.type == "cpu":
                    upcoming = self._ahead.submit(next, made, None)
                try:
                    use(one)
                finally:
                    if upcoming:
                        wait([upcoming])

    @cached_property
    def _ahead(self) -> ThreadPoolExecutor:
        """One thread for as long as this lives: a process that it starts, the naive kernel's, would die with it."""
        return ThreadPoolExecutor(1, thread_name_prefix="answers")

    def check(self, session: KernelSession, prepared: Prepared, case: Case, *, reruns: int = 0) -> list[CheckError]:
        """One set of inputs on two poisons, NaN and a large number; a deterministic kernel gives the same on both.

        Outputs lie at the same end of their pages as the inputs, and at the other one for the second poison: so what is
        copied from beyond an input to beyond an output differs from what stood there.
        """
        self._count += 1
        large = int(self._rng.choice(LARGE[self._count % 2]))

        def call(run: int, poison: int) -> Memory:
            if run < 2:
                session.bind(0, case, at_end=case.at_end == (run == 0))
            self._call(session, poison)
            return session.work(0)

        return agreed(self._oracle, case, (NAN, large, *[NAN] * reruns), call, deterministic=prepared.deterministic)

    def probe(self, session: KernelSession, prepared: Prepared, workload: Workload) -> list[CheckError]:
        """It changes some elements of the inputs in place: a right kernel sees that, wherever they are."""
        with self._device.machine(exclusive=False):
            case = self.case(workload, "nominal", at_end=True)
            errors = self.check(session, prepared, case)
            probed = self._oracle.probe(case, self._rng, trusted=self._trusted)
            self._call(session, NAN)
            return errors + self.accept(probed, session, 0)

    def relate(self, session: KernelSession, prepared: Prepared, workload: Workload) -> list[CheckError]:
        """The errors against the operator's relations, which need no reference."""
        errors: list[CheckError] = []
        family = str(self._rng.permutation(self._oracle.families)[0])
        with self._device.machine(exclusive=False):
            case = self.case(workload, family, at_end=False)
            errors += self.check(session, prepared, case)
            before = self._oracle.outputs(case, session.work(0))

        def compare(related: Related) -> None:
            after = before
            if related.after is not case:
                errors.extend(self.check(session, prepared, related.after))
                after = self._oracle.outputs(related.after, session.work(0))
            problem = self._oracle.related_problem(related, before, after, deterministic=prepared.deterministic)
            if problem:
                raise KernelFault(Status.WRONG, problem)

        self.in_turn(self._oracle.relations(case, self._rng, trusted=self._trusted), compare)
        return errors

    def _call(self, session: KernelSession, poison: int) -> None:
        """Each call has a limit of its own, and there are more than a hundred in a confirmation."""
        self._called_s += 1e-9 * session.run(0, poison=poison, sealed=True).elapsed_ns
        if self._called_s > CALLS_S + CALLS_TO_NAIVE * self._naive_s:
            took = f"{self._called_s:.0f} s, where the naive kernel takes {self._naive_s:.1f} s"
            raise KernelFault(Status.TIMEOUT, f"its checked calls take {took}")

    def accept(self, case: Case, session: KernelSession, slot: int) -> list[CheckError]:
        """The errors of one run; raises KernelFault, see `accepted`."""
        return accepted(self._oracle, case, session.work(slot))


def agreed(
    oracle: Oracle, case: Case, poisons: Iterable[int], call: Callable[[int, int], Memory], *, deterministic: bool
) -> list[CheckError]:
    """The errors of as many runs as there are poisons; a deterministic kernel's outputs are the same after all of them.

    `call` makes the run of a number, from 0 on, in memory filled with a poison, and returns that memory. Raises
    KernelFault with the first thing that is wrong.
    """
    first: dict[str, Any] = {}
    errors: list[CheckError] = []
    for run, poison in enumerate(poisons):
        work = call(run, poison)
        errors += accepted(oracle, case, work)
        if deterministic:
            outputs = {t.name: work.contents(t.name) for t in oracle.operator.outputs}
            if run and outputs != first:
                raise KernelFault(Status.WRONG, _differs(case, first, outputs))
            first = outputs
    return errors


def agreed_at_both_ends(
    oracle: Oracle, case: Case, call: Call, rng: np.random.Generator, *, deterministic: bool
) -> list[CheckError]:
    """The errors of two runs, on NaN and on a large number where it has not written; raises KernelFault.

    What it writes lies at the end of its pages once and at their beginning once: an access just past the end meets
    the guard page only where sizes are multiples of the alignment.
    """
    large = int(rng.choice(LARGE[rng.integers(2)]))
    return agreed(
        oracle,
        case,
        (NAN, large),
        lambda run, poison: call(case, case.at_end == (run == 0), poison),
        deterministic=deterministic,
    )


def accepted(oracle: Oracle, case: Case, work: Memory) -> list[CheckError]:
    """The errors of one run that left everything around its outputs as it was; raises KernelFault otherwise."""
    errors = list(oracle.errors(case, work))
    for error in errors:
        if error.wrong:
            raise KernelFault(Status.WRONG, oracle.describe(error, case, work))
    if name := work.touched():
        raise KernelFault(Status.WRONG, f"it wrote past the end of `{name}` on {case.workload.name}")
    return errors


def _differs(case: Case, first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    name = next(n for n in first if first[n] != second[n])
    return (
        f"`{name}` differs between two runs on the same inputs ({case.workload.name}): memory that was never written "
        "is read, or threads race; declare `deterministic = false` only if sums really depend on the order of threads"
    )
