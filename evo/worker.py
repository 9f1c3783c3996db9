"""An evaluation worker: a process of its own that owns the fitness stages of every task of a run."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fitness.base import Fitness
from fitness.catalog import fitness
from fitness.cpu.cores import stay_on
from operators.catalog import load
from operators.errors import UserError
from operators.spec import Task

PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class WorkerSpec:
    """What a worker needs to make its fitness stages."""

    operators: dict[str, str]
    """Operator name to the name or folder it is loaded by."""
    workload_set: str
    folder: str
    cores: tuple[int, ...] = ()
    """That the worker stays on; empty: wherever it may."""


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
) -> tuple[str, Any]:
    try:
        if task not in stages:
            operator = load(spec.operators[task.operator])
            folder = Path(spec.folder)
            stages[task] = fitness(operator, task, workload_set=spec.workload_set, folder=folder)
        return "done", getattr(stages[task], method)(*arguments, **options)
    except UserError as error:
        return "user", str(error)
    except Exception:  # noqa: BLE001 the border of the process: the driver reports it, with where it happened
        return "broken", traceback.format_exc()


def main() -> None:
    """Entry point of the process: file descriptor and owner's pid as arguments."""
    serve(Connection(int(sys.argv[1])), int(sys.argv[2]))
