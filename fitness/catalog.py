"""The fitness stages there are, by target; each is imported when it is first asked for."""

from __future__ import annotations

from pathlib import Path

from fitness.base import Fitness
from operators.errors import UserError
from operators.spec import Operator, Task

JUDGED_TARGETS = ("cpu", "cuda")


def check_target(target: str) -> None:
    """Raise UserError unless kernels of this target can be judged on this machine."""
    if target not in JUDGED_TARGETS:
        raise UserError(f"target {target}: there are {', '.join(JUDGED_TARGETS)}")
    if target == "cuda":
        from fitness.cuda.driver import device_facts

        device_facts()


def fitness(operator: Operator, task: Task, *, workload_set: str, folder: Path) -> Fitness:
    """The fitness stage of one task on this machine. `folder` keeps what is compiled, shared among instances."""
    if task.target == "cuda":
        from fitness.cuda.target import CudaFitness

        return CudaFitness(operator, task, workload_set=workload_set, folder=folder)
    check_target(task.target)
    from fitness.cpu.target import CpuFitness

    return CpuFitness(operator, task, workload_set=workload_set, folder=folder)
