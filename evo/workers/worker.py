"""An evaluation worker: a process of its own that owns the fitness stages of every task of the runs it works for."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, cast

from evo.workers.jobs import Job
from evo.workers.parent import end_with
from fitness.cpu.cores import groups, stay_on
from fitness.evaluation import Evaluation
from fitness.judging.base import Builder, Fitness
from fitness.profiling.profiles import Profile
from fitness.targets import builder, check_device, fitness, prepare
from operators.catalog import load
from operators.definition.spec import Task
from operators.errors import DeviceError, DiskError, MachineError, OperatorError, UserError, machine_error

MAX_RUNS = 4
"""A worker keeps the fitness stages of so many runs."""
MAX_FILES = 1 << 16
BUILDERS_PER_GPU = 3
Answer = tuple[str, Any]
"""Outcome of a call in another process: (`done`, value), (a kind of RAISED, text), or (`broken`, traceback)."""
RAISED: Mapping[str, type[Exception]] = {
    "device": DeviceError, "disk": DiskError, "machine": MachineError, "operator": OperatorError, "user": UserError,
}  # fmt: skip
"""By the kind of an answer that is none, the exception that it stands for; the first that fits."""
SPENT = frozenset({"device", "machine"})
"""Answers after which a process had better be replaced: what it holds may be what failed."""


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
    judging = [replace(base, cuda=True, device=device, gpus=1, compiles=False) for device in devices]
    # Those that compile ask their device for its properties, and for occupancies at times.
    compiling = [
        replace(base, cuda=True, device=devices[i % len(devices)], judges=False, cores=()) for i in range(count)
    ]
    return judging + compiling


def answered(call: Callable[[], Any]) -> Answer:
    """The outcome of a call, for the process that asked for it: here alone a machine's failures become data."""
    try:
        return "done", call()
    except Exception as error:  # noqa: BLE001 the border of the process: the driver reports it, with where it happened
        found = machine_error(error) or error
        kind = next((kind for kind, raised in RAISED.items() if isinstance(found, raised)), "broken")
        return kind, traceback.format_exc() if kind == "broken" else str(found)


@dataclass(frozen=True)
class RunContext:
    """Facts that an evaluation worker needs of the run that a job belongs to. Equal ones share fitness stages."""

    operators: tuple[tuple[str, str], ...]
    """Each operator's name, and the name or folder that it is loaded by."""
    workload_set: str
    folder: str
    """The folder that keeps what is compiled for the run."""


@dataclass(frozen=True)
class WorkerSpec:
    """Kind of a worker, whatever runs it works for."""

    folder: str
    """The folder for what its runs have in common: the lock that gives a timing its cores."""
    cores: tuple[int, ...] = ()
    """Cores that the worker stays on; empty: wherever it may."""
    cuda: bool = False
    """Whether its kernels run on GPUs."""
    device: str = ""
    """The only GPU that it sees, as CUDA_VISIBLE_DEVICES names it; empty: what this process sees, or Ray gives."""
    gpus: int = 0
    """The number of devices that the worker has to itself."""
    compiles: bool = True
    """Whether it is asked to do jobs that build."""
    judges: bool = True
    """Whether it is asked to do the others, for which it needs memory of its device."""
    machine: str = ""
    """The machine whose disk holds what it builds; empty: this one."""

    @property
    def target(self) -> str:
        """The target of its kernels."""
        return "cuda" if self.cuda else "cpu"

    @property
    def place(self) -> str:
        """The device or the cores that it works on, in words, and its machine where that is another one."""
        device = self.device or os.environ.get("CUDA_VISIBLE_DEVICES", "") or "0"
        cores = f"cores {', '.join(map(str, self.cores))}" if self.cores else "any core"
        return " of ".join(filter(None, (f"GPU {device}" if self.cuda else cores, self.machine)))

    def does(self, job: Job[Any]) -> bool:
        """Whether it is asked to do a job of this kind."""
        return self.compiles if job.builds else self.judges


class Message(NamedTuple):
    """A message to a worker."""

    job: Job[Any] | None = None
    """Without one it is asked whether its device works."""
    context: RunContext | None = None
    """The run that asks; none does without a job."""
    ended: tuple[RunContext, ...] = ()
    """Runs that have ended since the last message: the worker gives back what it keeps for them."""


class Stages:
    """A worker's fitness stages, by run and task, each made when it is first asked for.

    They hold processes and a GPU's memory: those of MAX_RUNS runs are kept, and the least recently used are closed.
    """

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._runs: OrderedDict[RunContext, dict[Task, Builder]] = OrderedDict()

    def of(self, context: RunContext, task: Task) -> Builder:
        """The stage of a run's task. It raises OperatorError, and what making a stage raises."""
        stages = self._runs.setdefault(context, {})
        self._runs.move_to_end(context)
        while len(self._runs) > MAX_RUNS:
            self.end(next(iter(self._runs)))
        if task not in stages:
            operator = load(dict(context.operators)[task.operator])
            make = fitness if self._spec.judges else builder
            folder, shared = made(context.folder), made(self._spec.folder)
            stages[task] = make(operator, task, workload_set=context.workload_set, folder=folder, shared=shared)
        return stages[task]

    def end(self, context: RunContext) -> None:
        """It closes the stages of a run; there need not be any."""
        for stage in self._runs.pop(context, {}).values():
            stage.close()

    def close(self) -> None:
        """It closes all of them."""
        for context in list(self._runs):
            self.end(context)


def made(folder: str) -> Path:
    """A folder that may have been removed while its run goes on; a run that is itself gone is not begun again."""
    Path(folder).mkdir(exist_ok=True)
    return Path(folder)


def serve(connection: Connection, owner: int) -> None:
    """The worker takes a WorkerSpec, then answers messages until its owner, by process id, is gone."""
    end_with(owner, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, which ends us in good order
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # it was held back while we started
    try:
        spec: WorkerSpec = connection.recv()
        if spec.cores:
            stay_on(spec.cores)
        answered(lambda: prepare(spec.target, computes=spec.judges, shared=made(spec.folder)))
        # What is wrong there, the first job says.
        with closing(Stages(spec)) as stages:
            while True:
                connection.send(answer(connection.recv(), spec, stages))
    except (EOFError, BrokenPipeError):
        pass


def answer(message: Message, spec: WorkerSpec, stages: Stages) -> Answer:
    """The outcome of a job."""

    def call() -> Any:
        for context in message.ended:
            stages.end(context)
        if message.job is None or message.context is None:
            return check_device(spec.target, computes=spec.judges)
        stage = stages.of(message.context, message.job.task)
        began = time.monotonic()
        found = message.job.asked_of(cast(Fitness, stage))  # a mere Builder gets jobs that build alone
        if isinstance(found, Profile):
            return replace(found, worker=spec.place, seconds=time.monotonic() - began)
        return replace(found, worker=spec.place) if isinstance(found, Evaluation) else found

    return answered(call)


def main() -> None:
    """It is the entry point of the process: file descriptor and owner's pid are its arguments.

    Every block of GPU memory keeps a file open, and the usual limit is a thousand.
    """
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if now != resource.RLIM_INFINITY:
        wanted = MAX_FILES if most == resource.RLIM_INFINITY else min(MAX_FILES, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(now, wanted), most))
    serve(Connection(int(sys.argv[1])), int(sys.argv[2]))
