"""The fitness stages there are, by target; each is imported when it is first asked for."""

from __future__ import annotations

from pathlib import Path

from fitness.base import Fitness
from operators.errors import UserError
from operators.spec import Operator, Task


def fitness(operator: Operator, task: Task, *, workload_set: str, folder: Path, threads: int | None = None) -> Fitness:
    """The fitness stage of one task on this machine. `folder` keeps what is compiled, shared among instances."""
    if task.target == "cpu":
        from fitness.cpu.target import CpuFitness

        return CpuFitness(operator, task, workload_set=workload_set, folder=folder, threads=threads)
    raise UserError(f"target {task.target}: this version compiles CUDA kernels but cannot time them; use --target cpu")
