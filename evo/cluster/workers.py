"""Evaluation workers in actors, on any machine of the cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from evo.cluster.connection import ActorGone, Cluster, Host
from evo.cluster.scratch import Scratch
from evo.config import RunConfig
from evo.pool import Message, WorkerLost, value_of
from evo.processes import WorkerProcess
from evo.version import engine_version
from evo.worker import Answer, WorkerSpec
from fitness.cpu.cores import processor
from operators import catalog

Files = Mapping[str, Mapping[str, bytes]]
"""Of operators: name, file name, content."""


class WorkerActor(Host):
    """It holds a `HostedWorker`."""


class HostedWorker:
    """An evaluation worker's process. It is no actor itself: Ray's threads stay out of the process that times."""

    def __init__(self, spec: WorkerSpec, shipped: Files | None, threads: str | None) -> None:
        """`shipped`: on another machine than the driver's, files of operators that do not come with the package."""
        if shipped is not None:
            name = Path(spec.folder).parent.name
            self._scratch = Scratch(f"build-{name}")
            spec = replace(spec, folder=str(self._scratch.path), operators=self._unpack(spec, shipped))
        self._process = WorkerProcess(spec, _environment(threads, cuda=spec.cuda))

    def _unpack(self, spec: WorkerSpec, shipped: Files) -> dict[str, str]:
        places = {name: name for name in spec.operators}
        for operator, files in shipped.items():
            folder = self._scratch.path / f"operator-{operator}"
            folder.mkdir(exist_ok=True)
            for name, content in files.items():
                part = folder / f"{name}.{os.getpid()}"
                part.write_bytes(content)
                part.replace(folder / name)
            places[operator] = str(folder)
        return places

    def ready(self) -> None: ...

    def ask(self, message: Message) -> Answer | None:
        """None: the process ended."""
        try:
            return self._process.ask(message)
        except (EOFError, OSError):
            return None


def _environment(threads: str | None, *, cuda: bool) -> dict[str, str]:
    """What a worker has without Ray; `threads` is the driver's own OMP_NUM_THREADS, which Ray overrides."""
    ours = {
        k: v for k, v in os.environ.items() if not k.startswith("RAY_") and k not in ("OMP_NUM_THREADS", "SPT_NOENV")
    }
    if threads is not None:
        ours["OMP_NUM_THREADS"] = threads
    if not cuda:
        ours["CUDA_VISIBLE_DEVICES"] = ""
    return ours


class RemoteWorker:
    """`evo.pool.Worker` whose process is on some machine of the cluster."""

    def __init__(self, cluster: Cluster, actor: Any, spec: WorkerSpec) -> None:
        self.spec = spec
        self.actor = actor
        self._cluster = cluster

    async def ask(self, message: Message) -> Answer:
        lost = f"an evaluation worker ended during {message[0]} of {message[1]}"
        try:
            with self._cluster.translated():
                answer: Answer | None = value_of(await self.actor.call.remote("ask", message))
        except ActorGone as error:
            raise WorkerLost(f"{lost}: {error}") from error
        if answer is None:
            raise WorkerLost(lost)
        return answer

    def close(self) -> None:
        self._cluster.stop(self.actor)


def describe_machine() -> dict[str, Any]:
    """The machine that this runs on."""
    return {
        "version": engine_version(),
        "processor": processor(),
        "cores": sorted(os.sched_getaffinity(0)),
        "niceness": os.nice(0),
    }


def shipped_files(config: RunConfig) -> dict[str, dict[str, bytes]]:
    """The files of every operator that does not come with the package."""
    return {
        operator.name: {path.name: path.read_bytes() for path in sorted(operator.folder.iterdir()) if path.is_file()}
        for operator, _ in config.tasks()
        if catalog.folders().get(operator.name) != operator.folder
    }
