"""Judges cases by the real fitness stage, on one small workload and every hidden shape of their operator."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fitness.cpu.target import CpuFitness
from fitness.evaluation import Evaluation, Level, Status
from fitness.judging.base import Anchor, Built
from fitness.judging.levels import judge
from operators.definition.spec import Task
from tests.admission.cases import Case, cases, small


class Judge:
    """Keeps one fitness stage, that of the last task asked for; all kernels of a task are compiled two at a time."""

    def __init__(self, folder: Path, *, slow: bool) -> None:
        self._folder = folder
        self._slow = slow
        self._stage: CpuFitness | None = None

    def cases(self, operator: str) -> list[Case]:
        """Those of an operator that are judged here, by task: each task has a fitness stage of its own."""
        return sorted((c for c in cases(operator) if self._slow or not c.slow), key=lambda case: case.dtype)

    def verdict(self, case: Case) -> Evaluation:
        """The last evaluation: a mutant goes as far as to be confirmed, a variant is judged at the full level."""
        stage, kernel = self._of(Task(case.operator, case.dtype, "cpu")), case.kernel()
        built = stage.build(kernel)
        if not isinstance(built, Built):
            return built
        until = Level.CONFIRMED if case.is_mutant else Level.FULL
        for _ in range(3):
            result = judge(stage, kernel, Anchor(stage.baseline, 0.0, 0.0), race=False, until=until)[-1]
            if result.status is not Status.QUARANTINED:  # which is for clocks, and those of a busy machine may err
                break
        return result

    def close(self) -> None:
        if self._stage:
            self._stage.close()
        self._stage = None

    def _of(self, task: Task) -> CpuFitness:
        if self._stage is None or self._stage.task != task:
            self.close()
            self._stage = CpuFitness(small(task.operator), task, workload_set="admission", folder=self._folder)
            wanted = (c for c in self.cases(task.operator) if c.dtype == task.dtype)
            kernels = [c.kernel() for c in wanted if c.status is not Status.INVALID]  # which nothing keeps
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(self._stage.build, kernels))
        return self._stage
