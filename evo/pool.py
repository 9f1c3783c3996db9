"""Evaluation workers behind an asynchronous face. `LocalPool` runs them on this machine without Ray."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import Pipe
from typing import Any, Protocol, cast

from evo.worker import WorkerSpec
from fitness.base import Anchor, Built, Fitness, Reference
from fitness.evaluation import Evaluation, Timing
from fitness.profiling import Profile
from operators.errors import UserError
from operators.kernel import Kernel
from operators.spec import Task

ENTRY = "from evo.worker import main; main()"


class EngineError(Exception):
    """Our own bug or a broken machine; carries the traceback of the process where it happened."""


class WorkerLost(Exception):
    """The worker process ended during a job; the job may be given to another."""


class Pool(Protocol):
    """Runs `fitness.base.Fitness` methods elsewhere. Safe to call concurrently; jobs beyond `slots` wait."""

    slots: int

    async def build(self, task: Task, kernel: Kernel) -> Built | Evaluation: ...

    async def judge(
        self, task: Task, kernel: Kernel, anchor: Anchor, *, race: bool, best: float | None
    ) -> tuple[Evaluation, ...]: ...

    async def profile(self, task: Task, kernel: Kernel, timings: Sequence[Timing]) -> Profile: ...

    async def references(self, task: Task) -> tuple[Reference, ...]: ...

    async def close(self) -> None: ...


class LocalPool:
    """A fixed number of worker processes; one that dies is replaced and its job reported as WorkerLost."""

    def __init__(self, specs: Sequence[WorkerSpec]) -> None:
        """One worker for each of `specs`."""
        self.slots = len(specs)
        self._idle: asyncio.Queue[_Worker] = asyncio.Queue()
        self._workers: set[_Worker] = set()
        self._threads = ThreadPoolExecutor(max_workers=self.slots, thread_name_prefix="pool")
        for spec in specs:
            self._start(spec)

    async def build(self, task: Task, kernel: Kernel) -> Built | Evaluation:
        return cast(Built | Evaluation, await self._call("build", task, kernel))

    async def judge(
        self, task: Task, kernel: Kernel, anchor: Anchor, *, race: bool, best: float | None
    ) -> tuple[Evaluation, ...]:
        result = await self._call("judge", task, kernel, anchor, race=race, best=best)
        return cast(tuple[Evaluation, ...], result)

    async def profile(self, task: Task, kernel: Kernel, timings: Sequence[Timing]) -> Profile:
        return cast(Profile, await self._call("profile", task, kernel, timings))

    async def references(self, task: Task) -> tuple[Reference, ...]:
        return cast(tuple[Reference, ...], await self._call("references", task))

    async def close(self) -> None:
        """End every worker at once, whatever it is doing."""
        for worker in self._workers:
            worker.kill()
        self._workers.clear()
        self._threads.shutdown(wait=True)

    def _start(self, spec: WorkerSpec) -> None:
        """Must run in the thread that lives as long as the pool: workers die with the thread that made them."""
        worker = _Worker(spec)
        self._workers.add(worker)
        self._idle.put_nowait(worker)

    async def _call(self, method: str, task: Task, *arguments: Any, **options: Any) -> Any:
        worker = await self._idle.get()
        loop = asyncio.get_running_loop()
        try:
            kind, value = await loop.run_in_executor(self._threads, worker.ask, (method, task, arguments, options))
        except (EOFError, OSError) as error:
            worker.kill()
            if worker in self._workers:  # else the pool is being closed
                self._workers.discard(worker)
                self._start(worker.spec)
            raise WorkerLost(f"an evaluation worker ended during {method} of {task}") from error
        self._idle.put_nowait(worker)
        if kind == "user":
            raise UserError(value)
        if kind == "broken":
            raise EngineError(value)
        return value


class _Worker:
    """A fresh interpreter, whatever program this one is: nothing of it is imported again there."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self._connection, theirs = Pipe()
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", ENTRY, str(theirs.fileno()), str(os.getpid())],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            env=environment,
        )
        theirs.close()
        self._connection.send(spec)

    def ask(self, message: Any) -> Any:
        self._connection.send(message)
        return self._connection.recv()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        with suppress(OSError):
            self._connection.close()


class InlinePool:
    """Fitness stages called in the driver's own process, one job after the other; for scripted ones."""

    def __init__(self, stages: dict[Task, Fitness], *, slots: int = 2) -> None:
        self.slots = slots
        self.stages = stages

    async def build(self, task: Task, kernel: Kernel) -> Built | Evaluation:
        await asyncio.sleep(0)
        return self.stages[task].build(kernel)

    async def judge(
        self, task: Task, kernel: Kernel, anchor: Anchor, *, race: bool, best: float | None
    ) -> tuple[Evaluation, ...]:
        await asyncio.sleep(0)
        return self.stages[task].judge(kernel, anchor, race=race, best=best)

    async def profile(self, task: Task, kernel: Kernel, timings: Sequence[Timing]) -> Profile:
        return self.stages[task].profile(kernel, timings)

    async def references(self, task: Task) -> tuple[Reference, ...]:
        return self.stages[task].references()

    async def close(self) -> None:
        for stage in self.stages.values():
            stage.close()
