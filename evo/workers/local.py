"""Evaluation workers as processes of this machine, without Ray."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

from evo.workers.dispatch import WorkerPool
from evo.workers.pool import WorkerLost
from evo.workers.worker import Answer, Message, WorkerSpec


def fresh_python(
    entry: str, *arguments: str, environment: Mapping[str, str] = os.environ, own_session: bool = False
) -> tuple[subprocess.Popen[bytes], Connection]:
    """Run the statement `entry` in a fresh interpreter, whatever program this one is; return it and our end of a pipe.

    In its `sys.argv` stand the descriptor of the other end, and the arguments. What it prints is no part of what this
    program says, JSON perhaps. One of its `own_session` hears no Ctrl-C.
    """
    own, theirs = Pipe()
    with theirs:
        process = subprocess.Popen(
            # -P: what is called `types.py` in the current folder is no module of ours.
            [sys.executable, "-P", "-c", entry, str(theirs.fileno()), *arguments],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=2,
            start_new_session=own_session,
            env={**environment, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
    return process, own


ENTRY = "from evo.workers.worker import main; main()"
REAP_S = 5.0
"""A process that is not gone so long after its kill is stuck in the kernel of the system, and left there."""


class LocalPool(WorkerPool):
    """Worker processes of this machine."""

    def __init__(self, specs: Sequence[WorkerSpec]) -> None:
        """The thread that makes the pool must live as long: workers die with the thread that made them."""
        super().__init__(specs, _LocalWorker)

    async def close(self) -> None:
        """See `WorkerPool.close`."""
        # All before the first is waited for: the driver of a GPU takes seconds to give up what a process had there.
        for worker in self._workers:
            if isinstance(worker, _LocalWorker):
                worker.signal()
        await super().close()


class _LocalWorker:
    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        # A thread of its own: one that waits for a process that cannot even be killed takes no other worker's.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="worker")
        self._starting = self._thread.submit(WorkerProcess, spec, dict(os.environ))
        """The process, in time; where it cannot be started, the first job finds that out."""

    async def ask(self, message: Message) -> Answer:
        """See `evo.workers.pool.Worker`."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, lambda: self._starting.result().ask(message))
        except (EOFError, OSError, MemoryError) as error:
            said = f": {error}" if str(error) else ""
            raise WorkerLost(
                f"an evaluation worker ended during {message.job or 'a look at its device'}{said}"
            ) from error

    def signal(self) -> None:
        """It is told to end at once; its end is not waited for yet."""
        if process := self._started:
            process.signal()

    @property
    def _started(self) -> WorkerProcess | None:
        """Its process, which takes milliseconds to start; None: it could not be started."""
        return None if self._starting.exception() else self._starting.result()

    def close(self) -> None:
        """See `evo.workers.pool.Worker`."""
        if process := self._started:
            process.kill()
        self._thread.shutdown(wait=False)


class WorkerProcess:
    """A fresh interpreter, which dies with the thread that makes this."""

    def __init__(self, spec: WorkerSpec, environment: Mapping[str, str]) -> None:
        seen = {"CUDA_VISIBLE_DEVICES": spec.device} if spec.device else {}
        # Ctrl-C is for the driver: a worker that starts has it held back, until it is ready to ignore it.
        held_back = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process, self._connection = fresh_python(ENTRY, str(os.getpid()), environment={**environment, **seen})
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held_back)
        self._connection.send(spec)
        self._asking = threading.Lock()

    def ask(self, message: Message) -> Answer:
        """The answer; it raises EOFError or OSError if the process ends before it answers."""
        with self._asking:
            try:
                self._connection.send(message)
                answer: Answer = self._connection.recv()
                return answer
            except (EOFError, OSError):
                self._connection.close()
                raise

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def signal(self) -> None:
        """It ends the process, without waiting for that."""
        self._process.kill()

    def kill(self) -> None:
        """It ends the process at once and reaps it; any thread may call it, and twice.

        A thread that waits in `ask` hears the end of the file, and closes it: closed here, its number could already
        belong to the next worker, whose answers that thread would then read.
        """
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=REAP_S)
        if self._asking.acquire(blocking=False):
            self._connection.close()
            self._asking.release()


class Claims:
    """Marks of one run on devices of this machine, which end with its process; all users of a device share its mark."""

    def __init__(self, folder: Path) -> None:
        """`folder` is one of the user's account, where all its runs look."""
        self._folder = folder
        self._held: list[IO[str]] = []

    def take(self, devices: Iterable[str], run: str) -> dict[str, str]:
        """Mark devices as used by `run`; return those that another run uses, with that run's name."""
        others = {}
        for device in devices:
            name = "".join(each if each.isalnum() else "_" for each in device)
            file = (self._folder / f"gpu-{name}.run").open("a+", encoding="utf-8")
            self._held.append(file)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                others[device] = file.read().strip() or "another run"
            else:
                file.truncate(0)
                file.write(run)
                file.flush()
            fcntl.flock(file, fcntl.LOCK_SH)
        return others

    def close(self) -> None:
        """Take the marks away."""
        for file in self._held:
            file.close()
        self._held = []
