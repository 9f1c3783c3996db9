"""An evaluation worker: a process of its own that owns the fitness stages of every task of a run."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fitness.base import Builder
from fitness.cpu.cores import groups, stay_on
from fitness.targets import builder, check_device, fitness
from operators.catalog import load
from operators.errors import DeviceError, DiskError, OperatorError, UserError, disk_error
from operators.spec import Task

PR_SET_PDEATHSIG = 1
ALL_JOBS = frozenset({"build", "screen", "full", "confirm", "profile"})
"""The methods of `fitness.base.Fitness` that a worker can be asked for."""
BUILD_JOBS = frozenset({"build"})
JUDGE_JOBS = ALL_JOBS - BUILD_JOBS
MAX_FILES = 1 << 16
PROBE = "probe"
"""Asks a worker whether its device works."""
BUILDERS_PER_GPU = 3
Answer = tuple[str, Any]
"""How a call in another process ended: (`done`, value), (`user`, text of a UserError), (`operator`, text of
an OperatorError), (`device`, text of a DeviceError), (`disk`, text of a DiskError) or (`broken`, traceback)."""


def worker_cores(workers: int, threads: int, available: Collection[int]) -> list[tuple[int, ...]]:
    """The cores of each evaluation worker; `workers` and `threads` as RunConfig has them.

    Two workers share a group: one builds while the other one times; more would only wait for the clock.
    """
    found = groups(threads, sorted(available))
    count = workers or min(2 * len(found), len(available))
    return [found[i % len(found)] for i in range(count)]


def gpu_specs(base: WorkerSpec, devices: Sequence[str], *, builders: int, cores: int) -> list[WorkerSpec]:
    """One worker that judges for each of `devices`, and others that compile: `builders`, or as many as go with them.

    Two that judge on one device would hinder each other: most of a verdict is timing, for which each wants it alone.
    """
    if not devices:
        return []
    count = builders or max(1, min(BUILDERS_PER_GPU * len(devices), cores - len(devices)))
    judging = [replace(base, cuda=True, device=device, gpus=1, jobs=JUDGE_JOBS) for device in devices]
    # Those that compile ask their device for its properties, and for occupancies at times.
    compiling = [
        replace(base, cuda=True, device=devices[i % len(devices)], jobs=BUILD_JOBS, cores=()) for i in range(count)
    ]
    return judging + compiling


def answered(call: Callable[[], Any], *, folder: str = "") -> Answer:
    """What a call came to, for the process that asked for it; `folder`, if there is one, is where it writes."""
    try:
        return "done", call()
    except DeviceError as error:
        return "device", str(error)
    except OperatorError as error:
        return "operator", str(error)
    except DiskError as error:
        return "disk", str(error)
    except UserError as error:
        return "user", str(error)
    except Exception as error:  # noqa: BLE001 the border of the process: the driver reports it, with where it happened
        disk = disk_error(error, folder) if isinstance(error, OSError) else None
        return ("disk", str(disk)) if disk else ("broken", traceback.format_exc())


@dataclass(frozen=True)
class WorkerSpec:
    """What a worker needs to make its fitness stages."""

    operators: dict[str, str]
    """Operator name to the name or folder it is loaded by."""
    workload_set: str
    folder: str
    cores: tuple[int, ...] = ()
    """That the worker stays on; empty: wherever it may."""
    cuda: bool = False
    """Whether its kernels run on GPUs."""
    device: str = ""
    """The only GPU that it sees, as CUDA_VISIBLE_DEVICES names it; empty: what this process sees, or Ray gives."""
    gpus: int = 0
    """Devices that the worker has to itself."""
    jobs: frozenset[str] = ALL_JOBS
    """What it is asked to do."""
    machine: str = ""
    """Whose disk holds what it builds; empty: this one."""


def serve(connection: Connection, owner: int) -> None:
    """Take a WorkerSpec, then answer (method, task, arguments, options) with (kind, value) until nobody is there."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != owner:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, which ends us in good order
    stages: dict[Task, Builder] = {}
    try:
        spec: WorkerSpec = connection.recv()
        if spec.cores:
            stay_on(spec.cores)
        while True:
            method, task, arguments, options = connection.recv()
            connection.send(_answer(stages, spec, method, task, arguments, options))
    except (EOFError, BrokenPipeError):
        pass
    finally:
        for stage in stages.values():
            stage.close()


def _answer(
    stages: dict[Task, Builder], spec: WorkerSpec, method: str, task: Task, arguments: Any, options: Any
) -> Answer:
    def call() -> Any:
        if method == PROBE:
            return check_device("cuda" if spec.cuda else "cpu", computes=spec.jobs != BUILD_JOBS)
        if task not in stages:
            operator = load(spec.operators[task.operator])
            make = builder if spec.jobs == BUILD_JOBS else fitness
            stages[task] = make(operator, task, workload_set=spec.workload_set, folder=Path(spec.folder))
        return getattr(stages[task], method)(*arguments, **options)

    return answered(call, folder=spec.folder)


def main() -> None:
    """Entry point of the process: file descriptor and owner's pid as arguments.

    Every block of GPU memory keeps a file open, and the usual limit is a thousand.
    """
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if now != resource.RLIM_INFINITY:
        wanted = MAX_FILES if most == resource.RLIM_INFINITY else min(MAX_FILES, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(now, wanted), most))
    serve(Connection(int(sys.argv[1])), int(sys.argv[2]))
