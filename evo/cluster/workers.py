"""Evaluation workers in actors, on any machine of the cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from evo.cluster.connection import ActorGone, Cluster, Host, Scratch
from evo.version import engine_version
from evo.workers.local import WorkerProcess
from evo.workers.pool import WorkerLost, value_of
from evo.workers.worker import Answer, Message, RunContext, WorkerSpec
from fitness.cpu.cores import processor
from operators import catalog
from operators.errors import MachineError
from operators.identity import digest

Files = Mapping[str, Mapping[str, bytes]]
"""The files of operators: by the operator's name, the content by the file's name."""


class WorkerActor(Host):
    """It holds a `HostedWorker`."""


class HostedWorker:
    """An evaluation worker's process. It is no actor itself: Ray's threads stay out of the process that times."""

    def __init__(self, spec: WorkerSpec, threads: str | None, *, far: bool) -> None:
        """`far`: it is on another machine than the driver, whose folders are not here."""
        self._far = far
        self._runs: dict[RunContext, RunContext] = {}
        """The runs as they are on this machine, by what the driver calls them."""
        if far:
            self._scratch = Scratch(f"build-{Path(spec.folder).parent.name}")
            spec = replace(spec, folder=str(self._scratch.path))
        self._process = WorkerProcess(spec, _environment(threads, cuda=spec.cuda))

    def ready(self) -> None:
        """It does nothing: to be answered shows that the actor has started."""

    def ask(self, message: Message, shipped: Files | None) -> Answer | None:
        """The answer; None: the process ended.

        `shipped` are the run's operators that do not come with the package: they come with the first message about it.
        """
        if self._far:
            message = self._translated(message, shipped)
        try:
            return self._process.ask(message)
        except (EOFError, OSError):
            return None

    def _translated(self, message: Message, shipped: Files | None) -> Message:
        """The message with this machine's folders."""
        ended = tuple(self._runs.pop(context) for context in message.ended if context in self._runs)
        context = message.context
        if context is not None and context not in self._runs:
            self._runs[context] = self._unpacked(context, shipped or {})
        return message._replace(context=self._runs[context] if context else None, ended=ended)

    def _unpacked(self, context: RunContext, shipped: Files) -> RunContext:
        folder = self._scratch.path / f"run-{digest(context.folder)[:16]}"  # the same for all workers of this machine
        folder.mkdir(exist_ok=True)
        places = {name: name for name, _ in context.operators}
        for operator, files in shipped.items():
            place = folder / f"operator-{operator}"
            place.mkdir(exist_ok=True)
            for name, content in files.items():
                part = place / f"{name}.{os.getpid()}"
                part.write_bytes(content)
                part.replace(place / name)
            places[operator] = str(place)
        return replace(context, operators=tuple(places.items()), folder=str(folder))


def _environment(threads: str | None, *, cuda: bool) -> dict[str, str]:
    """The variables that a worker has without Ray; `threads` is the driver's own OMP_NUM_THREADS, which Ray
    overrides."""
    ours = {
        k: v for k, v in os.environ.items() if not k.startswith("RAY_") and k not in ("OMP_NUM_THREADS", "SPT_NOENV")
    }
    if threads is not None:
        ours["OMP_NUM_THREADS"] = threads
    if not cuda:
        ours["CUDA_VISIBLE_DEVICES"] = ""
    return ours


class RemoteWorker:
    """`evo.workers.pool.Worker` whose process is on some machine of the cluster."""

    def __init__(
        self, cluster: Cluster, actor: Any, spec: WorkerSpec, shipped: Callable[[RunContext], Files] | None
    ) -> None:
        """`shipped`: on another machine than the driver's, the files that a run's operators need there."""
        self.spec = spec
        self.actor = actor
        self._cluster = cluster
        self._shipped = shipped
        self._knows: set[RunContext] = set()
        """Runs whose files were sent."""

    async def ask(self, message: Message) -> Answer:
        """See `evo.workers.pool.Worker`."""
        lost = f"an evaluation worker ended during {message.job or 'a look at its device'}"
        try:
            with self._cluster.translated():
                answer: Answer | None = value_of(await self.actor.call.remote("ask", message, self._files(message)))
        except (ActorGone, MachineError) as error:
            raise WorkerLost(f"{lost}: {error}") from error
        if answer is None:
            raise WorkerLost(lost)
        return answer

    def _files(self, message: Message) -> Files | None:
        """The files that have to go with a message, which is the first one about its run."""
        self._knows -= set(message.ended)
        if self._shipped is None or message.context is None or message.context in self._knows:
            return None
        self._knows.add(message.context)
        return self._shipped(message.context)

    def close(self) -> None:
        """See `evo.workers.pool.Worker`."""
        self._cluster.stop(self.actor)


def describe_machine() -> dict[str, Any]:
    """The machine that this runs on: `version` of the engine, `processor`, `cores`, and `niceness` of its actors."""
    return {
        "version": engine_version(),
        "processor": processor(),
        "cores": sorted(os.sched_getaffinity(0)),
        "niceness": os.nice(0),
    }


def shipped_files(context: RunContext) -> Files:
    """The files of every operator of a run that does not come with the package. It raises OSError."""
    return {
        name: {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir()) if path.is_file()}
        for name, folder in context.operators
        if catalog.folders().get(name) != Path(folder)
    }
