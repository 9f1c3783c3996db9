"""The backend of a run that uses Ray: its populations and evaluation workers on a cluster's machines."""

from __future__ import annotations

import asyncio
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from evo.cluster.connection import ActorGone, Cluster, Scratch
from evo.cluster.populations import RemotePopulations, RemoteStrategy
from evo.cluster.workers import HostedWorker, RemoteWorker, WorkerActor, describe_machine, shipped_files
from evo.compatibility import ACCELERATOR
from evo.config import RunConfig
from evo.store.reads import Journal
from evo.strategies.base import Strategy
from evo.workers.dispatch import WorkerPool
from evo.workers.pool import EngineError, value_of
from evo.workers.worker import WorkerSpec, gpu_specs, worker_cores
from fitness.targets import GpuModels, devices, gpu_models
from fitness.words import counted
from operators.definition.spec import Operator, Task
from operators.errors import UserError

START_LIMIT_S = 120.0
"""Time that actors may take to start before the cluster is taken to have no room for them."""
TIDY_S = 20.0
JOIN_S = 10.0
"""Seconds between two looks for machines that have joined the run's cluster."""


class ClusterBackend:
    """`evo.session.Backend` on a Ray cluster."""

    closing_s = 3.0

    def __init__(
        self, address: str, say: Callable[[str], None] = lambda text: print(f"evo: {text}", file=sys.stderr)
    ) -> None:
        """`address` is `local`, or host:port of a cluster that this machine belongs to. It raises UserError.

        `say` tells the user of machines that join.
        """
        self.notes: list[str] = []
        self._threads = os.environ.get("OMP_NUM_THREADS")  # as it was before Ray
        self._others: set[str] = set()
        """Nodes of other machines that have evaluation workers."""
        self._known: set[str] = set()
        """Nodes that take part, or never will."""
        self._alike: dict[str, Any] = {}
        """Facts that all machines have in common, by the names of `describe_machine`."""
        self._gpu_models: set[str] = set()
        self._join: Callable[[str, Sequence[int]], None] = lambda *_: None
        """Makes the workers of a node, by its cores."""
        self._say = say
        self.cluster = Cluster(address)

    async def run(self, work: Coroutine[Any, Any, str]) -> str:
        """It runs a search, and ends it with ClusterLost when one of the cluster's own processes ends.

        Machines that join the cluster meanwhile take part.
        """
        welcoming = None if self.cluster.own else asyncio.ensure_future(self._welcome())
        try:
            return await self.cluster.run(work)
        finally:
            if welcoming:
                welcoming.cancel()

    def close(self) -> None:
        """It ends every process that the run has started, and removes what workers left on other machines."""
        for node in self._others:
            with suppress(ActorGone, EngineError, TimeoutError):
                self.cluster.get(self.cluster.call_on(node, Scratch.sweep), limit_s=TIDY_S)
        self.cluster.close()

    def maker(self, config: RunConfig, store: Journal) -> Callable[[Operator, Task], Strategy]:
        """A function that makes strategies whose populations live in actors, one for each operator."""
        populations: dict[str, RemotePopulations] = {}

        def make(operator: Operator, task: Task) -> Strategy:
            if operator.name not in populations:
                populations[operator.name] = RemotePopulations(self.cluster, config, operator, store)
            return RemoteStrategy(populations[operator.name], task)

        return make

    def gpus(self, config: RunConfig) -> GpuModels:
        """The models of GPU that the run's kernels run on. It raises UserError."""
        if self.cluster.own or config.target != "cuda":
            return gpu_models(config.target)
        return GpuModels(tuple(sorted(_models(self.cluster.nodes()))))

    def pool(self, config: RunConfig, folder: Path) -> WorkerPool:
        """Evaluation workers on every machine, as many on each as there would be without Ray.

        `folder` is for what the pool's runs have in common; other machines have one of their own. It raises UserError.
        """
        base = WorkerSpec(str(folder.resolve()))
        specs = self._specs(config, base)
        sharing = Counter((spec.machine, spec.cores) for spec in specs)
        shipped = cache(shipped_files)  # every worker gets what the first one got, also if a file is edited meanwhile
        started: list[RemoteWorker] = []

        def start(spec: WorkerSpec) -> RemoteWorker | None:
            if not self.cluster.runs_on(spec.machine):
                return None
            far = spec.machine != self.cluster.node
            share = 0.0 if spec.cuda else _cpus(len(spec.cores) / sharing[spec.machine, spec.cores])
            make = partial(HostedWorker, spec, self._threads, far=far)
            actor = self.cluster.start(WorkerActor, make, node=spec.machine, cpus=share, gpus=spec.gpus)
            started.append(RemoteWorker(self.cluster, actor, spec, shipped if far else None))
            return started[-1]

        pool = WorkerPool(specs, start)
        if not self.cluster.own:
            self._await_start([worker.actor for worker in started])

            def join(node: str, cores: Sequence[int]) -> None:
                more = self._specs_of(config, replace(base, machine=node), cores)
                sharing.update((spec.machine, spec.cores) for spec in more)
                pool.add(more)

            self._join = join
        return pool

    def _specs(self, config: RunConfig, base: WorkerSpec) -> list[WorkerSpec]:
        machines = self._machines().items()
        specs = [
            spec for node, cores in machines for spec in self._specs_of(config, replace(base, machine=node), cores)
        ]
        if config.target == "cuda" and not any(spec.gpus for spec in specs):
            raise UserError("no machine of the cluster offers a GPU; start Ray there with --num-gpus")
        return specs

    def _specs_of(self, config: RunConfig, here: WorkerSpec, available: Sequence[int]) -> list[WorkerSpec]:
        """The workers of one machine, which `here` names, and whose cores are `available`."""
        if config.target == "cuda":
            return gpu_specs(here, self._gpus(here.machine), builders=config.workers, cores=len(available))
        return [replace(here, cores=c) for c in worker_cores(config.workers, config.threads, available)]

    # --- machines that join ---

    async def _welcome(self) -> None:
        """Let machines take part that join the cluster; one that cannot be compared is left alone, which is said."""
        while True:
            await asyncio.sleep(JOIN_S)
            for node in await asyncio.to_thread(self._new_nodes):
                self._known.add(node)
                try:
                    machine = await asyncio.to_thread(self._described, node)
                except (ActorGone, EngineError, TimeoutError):
                    self._known.discard(node)  # gone again, or not ready yet
                    continue
                if difference := self._difference(node, machine):
                    self._say(f"a machine that joined the cluster takes no part: {difference}")
                    continue
                self._say(f"a machine joined the cluster: it takes part, with {counted(len(machine['cores']), 'core')}")
                self._others.add(node)
                self._join(node, machine["cores"])

    def _new_nodes(self) -> list[str]:
        if not self._known:  # the run has not looked at its own machines yet
            return []
        return [node for node in _nodes(self.cluster) if node not in self._known]

    def _described(self, node: str) -> dict[str, Any]:
        found: dict[str, Any] = self.cluster.get(self.cluster.call_on(node, describe_machine), limit_s=START_LIMIT_S)
        return found

    def _difference(self, node: str, machine: Mapping[str, Any]) -> str:
        """In what it differs from the machines of the run; empty: in nothing that counts."""
        for what, value in self._alike.items():
            if machine[what] != value:
                return f"its {what} is {machine[what]}, theirs {value}"
        models = self._models_of(node)
        if models and self._gpu_models and models != self._gpu_models:
            return f"its GPUs are {', '.join(models)}, theirs {', '.join(self._gpu_models)}"
        return ""

    def _models_of(self, *nodes: str) -> set[str]:
        return _models(n for n in self.cluster.nodes() if n["NodeID"] in nodes)

    def _gpus(self, node: str) -> list[str]:
        """A node's GPUs as `WorkerSpec.device` has them: Ray says which of another machine's are free."""
        if self.cluster.own:
            return devices("cuda")
        offered = next(n["Resources"].get("GPU", 0) for n in self.cluster.nodes() if n["NodeID"] == node)
        return [""] * int(offered)

    def _await_start(self, actors: Sequence[Any]) -> None:
        deadline_s = time.monotonic() + START_LIMIT_S
        for actor in actors:
            try:
                answer = self.cluster.get(actor.call.remote("ready"), limit_s=max(0.0, deadline_s - time.monotonic()))
                value_of(answer)
            except TimeoutError:
                raise UserError(
                    f"the cluster had no room for {counted(len(actors), 'evaluation worker')} in {START_LIMIT_S:g} s; "
                    "see `ray status`, or ask for fewer with --workers (per machine)"
                ) from None
            except ActorGone as error:
                told = f"RAY_AUTH_MODE must be here what it was for `ray start`: {error}"
                raise UserError(f"the cluster starts no evaluation workers for this run; {told}") from error

    def _machines(self) -> dict[str, list[int]]:
        """The cores of every node that offers CPUs. Raises UserError for machines that cannot be compared."""
        if self.cluster.own:
            return {self.cluster.node: sorted(os.sched_getaffinity(0))}
        asked = {node: self.cluster.call_on(node, describe_machine) for node in _nodes(self.cluster)}
        try:
            told = {node: self.cluster.get(reference, limit_s=START_LIMIT_S) for node, reference in asked.items()}
        except (ActorGone, EngineError, TimeoutError) as error:
            raise UserError(f"a machine of the cluster does not answer; is kernel-evo there? {error}") from error
        for what, cure in (("version", "install the same kernel-evo"), ("processor", "timings could not be compared")):
            self._alike[what] = next(iter(told.values()))[what]
            found = sorted({str(machine[what]) for machine in told.values()})
            if len(found) > 1:
                raise UserError(f"the cluster's machines differ in their {what} ({', '.join(found)}): {cure}")
        if any(machine["niceness"] > 0 for machine in told.values()):
            self.notes.append(
                "Ray runs its workers with low priority: timings are noisier; start it with RAY_worker_niceness=0"
            )
        self._known = {*told}
        self._gpu_models = self._models_of(*told)
        self._others = {*told} - {self.cluster.node}
        return {node: machine["cores"] for node, machine in told.items()}


def _nodes(cluster: Cluster) -> list[str]:
    """The machines of a cluster that are there and offer CPUs."""
    return [n["NodeID"] for n in cluster.nodes() if n["Alive"] and n["Resources"].get("CPU")]


def _models(nodes: Iterable[Mapping[str, Any]]) -> set[str]:
    """The models of GPU of these machines, as Ray calls them."""
    return {name for node in nodes for name in node["Resources"] if name.startswith(ACCELERATOR)}


def _cpus(share: float) -> float:
    """Ray takes whole CPUs, or a part of one."""
    return math.floor(share) if share >= 1 else math.floor(share * 100) / 100
