"""The fitness stages there are, by target; each is imported when it is first asked for."""

from __future__ import annotations

from pathlib import Path

from fitness.base import Fitness
from operators.errors import UserError
from operators.spec import Operator, Task

JUDGED_TARGETS = ("cpu",)


def check_target(target: str) -> None:
    """Raise UserError unless kernels of this target can be judged here."""
    if target not in JUDGED_TARGETS:
        raise UserError(f"target {target}: this version compiles CUDA kernels but cannot time them; use --target cpu")


def fitness(operator: Operator, task: Task, *, workload_set: str, folder: Path) -> Fitness:
    """The fitness stage of one task on this machine. `folder` keeps what is compiled, shared among instances."""
    check_target(task.target)
    from fitness.cpu.target import CpuFitness

    return CpuFitness(operator, task, workload_set=workload_set, folder=folder)
