"""Work for agents outside: a worker for their drafts, and sessions of the search that judge what they hand in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from evo.config import RunConfig
from evo.inbox import Inbox
from evo.session import BUILD_FOLDER, run_context
from evo.store.snapshots import has_writer
from evo.workers.dispatch import RunPool
from evo.workers.jobs import Found, Job
from evo.workers.local import LocalPool
from evo.workers.worker import WorkerSpec, gpu_specs, worker_cores
from fitness.targets import devices
from operators.errors import UserError

OWNER = "--owner"
"""Option by which a session knows the process that it ends with, however that ends."""
LOG = "mcp.log"
"""File in the run's folder with the words of sessions that were begun for an agent outside."""
SEARCHES = "is for the search alone, which nothing may disturb while it times: submit the draft and read its verdict"


class DraftWorkers:
    """`evo.workers.jobs.Runs` beside a search that may be under way.

    Timings of the search are not disturbed: on the CPU one worker shares the search's cores by its locks, and on a GPU
    nothing runs but the compiler and emulation: drafts are not timed there. The first job starts it.
    """

    def __init__(self, folder: Path, config: RunConfig) -> None:
        """`folder` is the run's."""
        self._shared = folder / BUILD_FOLDER
        self._config = config
        self._built = tempfile.TemporaryDirectory(prefix="kernel-evo-drafts-")
        self._pool: LocalPool | None = None
        self._view: RunPool | None = None

    async def run(self, job: Job[Found]) -> Found:
        """Return the answer of a draft's job. It raises UserError for one that is for a search alone."""
        if not job.builds and job.task.target != "cpu":
            raise UserError(f"to run a kernel {SEARCHES}")
        return await self._started().run(job)

    async def close(self) -> None:
        """End the worker."""
        if self._pool:
            await self._pool.close()
        self._built.cleanup()

    def _started(self) -> RunPool:
        """The pool, whose locks lie where the search's do, be one under way or not."""
        self._shared.mkdir(exist_ok=True)
        if self._view is None:
            self._pool = LocalPool(self._specs())
            self._view = self._pool.for_run(run_context(self._config, Path(self._built.name)))
        return self._view

    def _specs(self) -> list[WorkerSpec]:
        base, config = WorkerSpec(str(self._shared.resolve())), self._config
        available = os.sched_getaffinity(0)
        if config.target == "cuda":
            specs = gpu_specs(base, devices("cuda"), builders=1, cores=len(available))
            return [spec for spec in specs if not spec.judges]
        return [replace(base, cores=worker_cores(config.workers, config.threads, available)[0])]


class Sessions:
    """Goes on with a run's search whenever something was told and no search is under way."""

    def __init__(self, folder: Path, options: Sequence[str] | None) -> None:
        """`options` are those of `evo resume`; None: it starts nothing."""
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._tried: set[Path] = set()
        """Lines that lay in the inbox when its last session started."""

    @property
    def under_way(self) -> bool:
        """Whether a search is under way, or starts."""
        return has_writer(self._folder) or (self._process is not None and self._process.poll() is None)

    def ensure(self) -> None:
        """Start a session if something lies in the inbox that no session would take.

        One that ended and left all of it there would be followed by others that do the same: it needs more to be told.
        """
        files = Inbox(self._folder).files()
        if self._options is None or self.under_way or not set(files) - self._tried:
            return
        self._tried = set(files)
        words = ["resume", str(self._folder), OWNER, str(os.getpid()), *self._options]
        command = [sys.executable, "-m", "evo.cli", *words]
        with (self._folder / LOG).open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def last_words(self) -> str:
        """Return what a session of its own said last, where it failed; empty where none did."""
        if self._process is None or not self._process.poll():
            return ""
        text = (self._folder / LOG).read_text(encoding="utf-8", errors="replace").strip()
        return text.rpartition("\n")[2]

    def close(self) -> None:
        """End the session that it began, in good order."""
        if self._process and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait()
