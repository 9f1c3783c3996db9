"""The fitness stages there are, by target; each is imported when it is first asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fitness.judging.base import Builder, DeviceInfo, Fitness
from fitness.profiling.roofline import Peaks
from operators.definition.spec import Operator, Task
from operators.errors import UserError

if TYPE_CHECKING:
    from fitness.judging.mutation_test import KernelHost

MEASURE_TIMEOUT_S = 120.0
"""Time limit of a measurement, most of which may be spent on loading libraries for the first time."""
JUDGED_TARGETS = ("cpu", "cuda")


def check_target(target: str) -> None:
    """Raise UserError unless kernels of this target can be judged on this machine."""
    if target not in JUDGED_TARGETS:
        raise UserError(f"target {target}: there are {', '.join(JUDGED_TARGETS)}")
    if target == "cuda":
        from fitness.cuda.running.driver import device_facts

        device_facts()


def present_target(targets: Collection[str]) -> str:
    """The one of these targets that this machine is best at: cuda where there is a GPU."""
    if "cuda" in targets:
        try:
            check_target("cuda")
        except UserError:
            return "cpu"
        return "cuda"
    return "cpu"


def peaks(target: str) -> Peaks:
    """The peak rates of the machine's processor, with all cores that this process may use, or of its first GPU.

    Raises UserError for a target that cannot be used here. The cpu is measured (1 s) where no one has done it yet.
    """
    check_target(target)
    if target == "cuda":
        from fitness.cuda import peaks as cuda

        return cuda.peaks(0)
    from fitness.cpu import peaks as cpu

    return cpu.peaks(len(os.sched_getaffinity(0)))


def devices(target: str) -> list[str]:
    """The GPUs that this process sees, as CUDA_VISIBLE_DEVICES names them; none for other targets. Raises UserError."""
    if target != "cuda":
        return []
    from fitness.cuda.running.driver import visible_devices

    return visible_devices()


@dataclass(frozen=True)
class GpuModels:
    """The models of the GPUs that kernels run on; no names: they run on none."""

    names: tuple[str, ...] = ()
    driver: str = ""
    """Its version; empty where it is not known."""


NO_GPUS = GpuModels()


def gpu_models(target: str) -> GpuModels:
    """The models of this machine's GPUs. It raises UserError."""
    if target != "cuda":
        return NO_GPUS
    from fitness.cuda.running.driver import device_count, device_facts, driver_version

    return GpuModels(tuple(sorted({device_facts(n).name for n in range(device_count())})), driver_version())


def device_info(target: str, *, threads: int = 0) -> DeviceInfo:
    """Return what kernels of this target run on here; `threads` as `RunConfig` has them. It raises UserError."""
    if target == "cuda":
        from fitness.cuda.running.driver import device_facts

        return device_facts().info
    from fitness.cpu.cores import device_info as cpu

    return cpu(threads)


def measured_device(target: str, *, threads: int = 0) -> DeviceInfo:
    """Return `device_info` with the peaks of the device, measured in seconds where no process has done it here yet.

    It raises UserError as that does; a machine whose peaks cannot be measured has none. Of a GPU they are measured in
    another process, so that this one takes none of its memory.
    """
    found = device_info(target, threads=threads)
    with suppress(UserError, OSError, subprocess.SubprocessError):
        return replace(found, peaks=_gpu_peaks() if target == "cuda" else _cpu_peaks(found))
    return found


def _gpu_peaks() -> Peaks | None:
    from fitness.cuda import peaks as cuda

    if found := cuda.known(0):
        return found
    subprocess.run([sys.executable, "-m", cuda.__name__], check=True, capture_output=True, timeout=MEASURE_TIMEOUT_S)
    return cuda.known(0)


def _cpu_peaks(device: DeviceInfo) -> Peaks:
    from fitness.cpu import peaks as cpu

    return cpu.peaks(device.facts["cpu_count"])


def prepare(target: str, *, computes: bool, shared: Path) -> None:
    """Have at hand what the first verdict would wait for: what takes long to load, and what is made once.

    For `computes` and `shared` see `check_device` and `fitness`. It raises what they raise.
    """
    if target == "cuda":
        from fitness.cuda.target import prepare as cuda

        cuda(shared, computes=computes)
    else:
        import fitness.cpu.target  # noqa: F401 (which loads torch)


def fitness(
    operator: Operator,
    task: Task,
    *,
    workload_set: str,
    folder: Path,
    shared: Path | None = None,
) -> Fitness:
    """The fitness stage of one task on this machine.

    `folder` keeps what is compiled of the operators as they are defined there, for all instances of a run. `shared` is
    one folder for runs that work side by side, by which they agree on a timing's cores and a GPU's memory: `folder`,
    where there is one run.
    """
    if task.target == "cuda":
        from fitness.cuda.target import CudaFitness

        return CudaFitness(operator, task, workload_set=workload_set, folder=folder, shared=shared)
    check_target(task.target)
    from fitness.cpu.target import CpuFitness

    return CpuFitness(operator, task, workload_set=workload_set, folder=folder, shared=shared)


def builder(
    operator: Operator,
    task: Task,
    *,
    workload_set: str,
    folder: Path,
    shared: Path | None = None,
) -> Builder:
    """The fitness stage as far as a kernel's build goes: it takes no memory of a GPU."""
    if task.target == "cuda":
        from fitness.cuda.target import CudaBuilder

        return CudaBuilder(operator, task, workload_set=workload_set, folder=folder, shared=shared)
    return fitness(operator, task, workload_set=workload_set, folder=folder, shared=shared)


def place(operator: Operator, task: Task, *, workload_set: str, folder: Path) -> KernelHost:
    """Where kernels of a task are tried untimed (`fitness.judging.mutation_test`); without a GPU cuda is emulated."""
    from fitness.judging.mutation_test import DevicePlace
    from fitness.judging.pipeline import Pipeline

    if task.target == "cuda" and present_target([task.target]) != task.target:
        from fitness.emulator.look import EmulatedPlace

        return EmulatedPlace(operator, task.dtype, folder)
    stage = fitness(operator, task, workload_set=workload_set, folder=folder)
    assert isinstance(stage, Pipeline)
    return DevicePlace(stage, device_info(task.target).name)


def check_device(target: str, *, computes: bool) -> None:
    """Raise DeviceError unless the target's device is there, and computes, which takes some of its memory."""
    check_target(target)
    if target == "cuda" and computes:
        from fitness.cuda.target import probe

        probe()
