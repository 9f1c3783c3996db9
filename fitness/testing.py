"""The fitness stage that runs nothing: verdicts by a script, for tests and for measuring the engine alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fitness.evaluation import Evaluation, Level, Rejection, Status, Timing
from fitness.judging.base import Anchor, Built, Checked
from fitness.profiling.profiles import Metric, Profile
from operators.catalog import load
from operators.definition.spec import Operator, Task
from operators.identity import digest
from operators.kernel import Kernel

Script = Callable[[Kernel], Status | float]
"""The log speedup of a correct kernel, or how it fails."""


def by_digest(kernel: Kernel) -> Status | float:
    """One kernel in eight fails; the others are between 0.5 and 4 times as fast as the baseline, by their id."""
    number = int(digest("script", kernel.id)[:8], 16)
    failures = (Status.COMPILE_ERROR, Status.WRONG, Status.TIMEOUT, Status.RUNTIME_ERROR)
    if number % 8 == 0:
        return failures[number // 8 % len(failures)]
    return -0.7 + 2.1 * (number % 10_007) / 10_007


class ScriptedFitness:
    """`fitness.judging.base.Fitness` by a script. The kernel called `baseline` has a speedup of 1."""

    def __init__(
        self,
        task: Task,
        baseline: Kernel,
        script: Script = by_digest,
        *,
        cells: int = 24,
        operator: Operator | None = None,
    ) -> None:
        """Without an `operator` it is the one of the catalog that the task names."""
        self.task = task
        self._operator = operator
        self.baseline = baseline
        self.script = script
        self.cells = cells
        self.judged: list[str] = []
        """Kernel ids in the order they were screened."""

    @property
    def operator(self) -> Operator:
        """See `fitness.judging.base.Builder`."""
        return self._operator or load(self.task.operator)

    def build(self, kernel: Kernel) -> Built | Evaluation:
        outcome = self._outcome(kernel)
        if outcome in (Status.INVALID, Status.COMPILE_ERROR, Status.UNSUPPORTED):
            assert isinstance(outcome, Status)
            return Evaluation(kernel.id, str(self.task), Level.SCREEN, outcome, f"scripted {outcome}")
        return Built(kernel.id, digest("code", kernel.id), self._cell(kernel), build_ms=1.0)

    def emulate(self, kernel: Kernel) -> Checked:
        return Checked(lack="there is nothing to emulate")

    def spot_check(self, kernel: Kernel) -> Checked:
        outcome = self._outcome(kernel)
        return Checked(Rejection(outcome, f"scripted {outcome}") if isinstance(outcome, Status) else None)

    def screen(self, kernel: Kernel, anchor: Anchor, *, race: bool) -> Evaluation:
        self.judged.append(kernel.id)
        return self._verdict(kernel, anchor, Level.SCREEN, race=race)

    def full(self, kernel: Kernel, anchor: Anchor) -> Evaluation:
        return self._verdict(kernel, anchor, Level.FULL)

    def confirm(self, kernel: Kernel) -> Evaluation:
        return self._verdict(kernel, Anchor(self.baseline, 0.0, 0.0), Level.CONFIRMED)

    def _verdict(self, kernel: Kernel, anchor: Anchor, level: Level, *, race: bool = False) -> Evaluation:
        outcome = self._outcome(kernel)
        cell, task = self._cell(kernel), str(self.task)
        if isinstance(outcome, Status):
            return Evaluation(kernel.id, task, level, outcome, f"scripted {outcome}", cell=cell)
        ratio = outcome - anchor.log_speedup
        slower = race and ratio < -0.05
        return Evaluation(
            kernel.id,
            task,
            level,
            Status.SLOWER if slower else Status.CORRECT,
            log_speedup=None if slower else outcome,
            log_speedup_se=None if slower else 0.005,
            anchor_id=anchor.kernel.id,
            anchor_log_speedup=anchor.log_speedup,
            log_ratio=ratio,
            log_ratio_se=0.005,
            code_digest=digest("code", kernel.id),
            cell=cell,
            stage_ms={"confirm": 1.0} if level is Level.CONFIRMED else {"verify": 1.0, "time": 1.0},
        )

    def choose_rivals(self) -> None:
        pass

    def profile(self, kernel: Kernel, timings: Sequence[Timing]) -> Profile:
        occupancy = Metric("scripted_occupancy", int(kernel.id[:2], 16) / 255, "")
        return Profile(None, (occupancy,), (f"scripted profile of {kernel.id[:8]}",))

    def close(self) -> None:
        pass

    def _outcome(self, kernel: Kernel) -> Status | float:
        return 0.0 if kernel.id == self.baseline.id else self.script(kernel)

    def _cell(self, kernel: Kernel) -> tuple[str, ...]:
        return (f"cell{int(kernel.id[:6], 16) % self.cells}",)


def scripted(tasks: Iterable[tuple[Operator, Task]], **options: Any) -> dict[Task, ScriptedFitness]:
    """A stage for each task, whose baseline is the operator's naive kernel for the cpu."""

    def naive(operator: Operator) -> Kernel:
        return Kernel(operator.name, "cpu", operator.naive("cpu"))

    return {task: ScriptedFitness(task, naive(operator), operator=operator, **options) for operator, task in tasks}
