"""An evaluation worker: a process of its own that owns the fitness stages of every task of a run."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fitness.base import Fitness
from fitness.catalog import fitness
from fitness.cpu.cores import groups, stay_on
from operators.catalog import load
from operators.errors import UserError
from operators.spec import Task

PR_SET_PDEATHSIG = 1
ALL_JOBS = frozenset({"build", "judge", "profile", "references"})
"""The methods of `fitness.base.Fitness` that a worker can be asked for."""
Answer = tuple[str, Any]
"""How a call in another process ended: (`done`, value), (`user`, text of a UserError) or (`broken`, traceback)."""


def worker_cores(workers: int, threads: int, available: Collection[int]) -> list[tuple[int, ...]]:
    """The cores of each evaluation worker; `workers` and `threads` as RunConfig has them.

    Two workers share a group: one builds while the other one times; more would only wait for the clock.
    """
    found = groups(threads, sorted(available))
    count = workers or min(2 * len(found), len(available))
    return [found[i % len(found)] for i in range(count)]


def answered(call: Callable[[], Any]) -> Answer:
    """What a call came to, for the process that asked for it."""
    try:
        return "done", call()
    except UserError as error:
        return "user", str(error)
    except Exception:  # noqa: BLE001 the border of the process: the driver reports it, with where it happened
        return "broken", traceback.format_exc()


@dataclass(frozen=True)
class WorkerSpec:
    """What a worker needs to make its fitness stages."""

    operators: dict[str, str]
    """Operator name to the name or folder it is loaded by."""
    workload_set: str
    folder: str
    cores: tuple[int, ...] = ()
    """That the worker stays on; empty: wherever it may."""
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
    stages: dict[Task, Fitness] = {}
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
    stages: dict[Task, Fitness], spec: WorkerSpec, method: str, task: Task, arguments: Any, options: Any
) -> Answer:
    def call() -> Any:
        if task not in stages:
            operator = load(spec.operators[task.operator])
            folder = Path(spec.folder)
            stages[task] = fitness(operator, task, workload_set=spec.workload_set, folder=folder)
        return getattr(stages[task], method)(*arguments, **options)

    return answered(call)


def main() -> None:
    """Entry point of the process: file descriptor and owner's pid as arguments."""
    serve(Connection(int(sys.argv[1])), int(sys.argv[2]))
