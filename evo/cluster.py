"""Ray: a run's populations and evaluation workers as actors. The only module that imports ray.

Actors are plain objects behind `Host`. The driver makes each of them anew when it dies: a worker starts empty, a
population is rebuilt from the store. Ray itself restarts nothing, so that nobody ever talks to an actor that has
forgotten something. The store is the driver's own, as without Ray: it commits in a thread anyway.
"""

from __future__ import annotations

import asyncio
import fcntl
import math
import os
import secrets
import select
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evo import guard, records
from evo.archive import Cell, Elite
from evo.conditions import ACCELERATOR
from evo.config import RunConfig
from evo.guard import MARK, end_marked
from evo.individual import Individual
from evo.journal import Journal
from evo.pool import EngineError, Message, WorkerLost, WorkerPool, WorkerProcess, value_of
from evo.strategies.base import Rival, Strategy, other_request
from evo.version import engine_version
from evo.worker import Answer, WorkerSpec, answered, gpu_specs, worker_cores
from fitness.cpu.cores import processor
from fitness.targets import GpuModels, devices, gpu_models
from mutators.base import Request
from operators import catalog
from operators.errors import UserError
from operators.spec import Operator, Task

HERE = "local"
"""The address of a cluster that is started for the run alone, on this machine."""
OBJECT_STORE_BYTES = 80 << 20
START_LIMIT_S = 120.0
"""How long actors may take to start before the cluster is taken to have no room for them."""
KNOCK_S = 10.0
TIDY_S = 20.0
TRIES = 5
"""How often in a row an actor may die of one call."""
PAGE_ROWS = 2_000
"""Tells that are read from the store, and sent to an actor, at a time."""
UNHEARD_LIMIT = 50
"""Tells that may be on their way to a population before the driver waits for it."""
COPY_TOKEN = "copy the head's ~/.ray/auth_token here, or set RAY_AUTH_TOKEN to what `ray get-auth-token` prints there"
SCRATCH = Path("/tmp")
"""Not $TMPDIR: Ray keeps sockets below it, whose paths may have 107 bytes at most."""
Files = Mapping[str, Mapping[str, bytes]]
"""Of operators: name, file name, content."""
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # or it writes to stdout about every actor that dies
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",  # who asked for no GPU sees none
}
SYSTEM = {
    "worker_niceness": 0,  # 15 by default: timings would give way to anything else
    "memory_monitor_refresh_ms": 0,
    "task_events_max_num_task_in_gcs": 1000,  # or its head grows with every call
}


# --- What runs inside actors ------------------------------------------------------------------------------------------


class Host:
    """An actor: makes one object at the first call and passes calls on to it."""

    def __init__(self, make: Callable[..., Any], *arguments: Any) -> None:
        self._make = make
        self._arguments = arguments
        self._object: Any = None

    def call(self, method: str, *arguments: Any) -> Answer:
        def call() -> Any:
            if self._object is None:
                self._object = self._make(*self._arguments)
            return getattr(self._object, method)(*arguments)

        return answered(call)


class PopulationActor(Host):
    """Holds `Populations`."""


class WorkerActor(Host):
    """Holds a `HostedWorker`."""


class Populations:
    """The strategies of one operator's tasks, each with its population."""

    def __init__(self, config_json: str, operator: str) -> None:
        config = RunConfig.from_json(config_json)
        self._strategies: dict[Task, Strategy] = {
            task: config.make_strategy(made, task) for made, task in config.tasks() if made.name == operator
        }

    def ask(self, task: Task, count: int) -> list[Request]:
        return self._strategies[task].ask(count)

    def tell(self, task: Task, individual: Individual) -> str:
        return self._strategies[task].tell(individual)

    def rival(self, task: Task, request: Request, cell: Cell) -> Rival:
        return self._strategies[task].rival(request, cell)

    def best(self, task: Task) -> Elite | None:
        return self._strategies[task].best

    def replay(self, task: Task, history: Sequence[Mapping[str, Any]]) -> None:
        """Apply stored asks (`wanted`, `digests`) and tells (rows of `records.TOLD`) again, in this order."""
        strategy = self._strategies[task]
        for entry in history:
            if "wanted" not in entry:
                strategy.tell(records.individual_from(entry))
            elif [request.digest for request in strategy.ask(entry["wanted"])] != entry["digests"]:
                raise other_request(task, f"of ask {entry['seq']}")


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


def _describe() -> dict[str, Any]:
    """The machine that this runs on."""
    return {
        "version": engine_version(),
        "processor": processor(),
        "cores": sorted(os.sched_getaffinity(0)),
        "niceness": os.nice(0),
    }


# --- Folders and processes that must not outlive a run ----------------------------------------------------------------


class Scratch:
    """A folder below /tmp that lives as long as somebody holds it; what killed holders left is removed by the next."""

    def __init__(self, name: str) -> None:
        """Of this user; several processes may hold the same one."""
        self.path = SCRATCH / f"evo-{os.getuid()}-{name}"
        self.sweep(but=self.path)
        while True:
            self.path.mkdir(mode=0o700, exist_ok=True)
            if self.path.stat().st_uid != os.getuid():
                raise UserError(f"{self.path} belongs to somebody else; remove it")
            self._lock = os.open(self.path / "lock", os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_SH)
            with suppress(OSError):
                if (self.path / "lock").stat().st_ino == os.fstat(self._lock).st_ino:
                    return
            os.close(self._lock)  # swept between our opening and our locking

    def close(self) -> None:
        """Let go; the last holder removes it."""
        os.close(self._lock)
        self.sweep()

    @staticmethod
    def sweep(but: Path | None = None) -> None:
        """Remove all of this user's that nobody holds, with their processes."""
        for path in SCRATCH.glob(f"evo-{os.getuid()}-*"):
            if path != but:
                Scratch._sweep(path)

    @staticmethod
    def _sweep(path: Path) -> None:
        try:
            if path.stat().st_uid != os.getuid():
                return
            lock = os.open(path / "lock", os.O_RDWR)
        except OSError:
            return  # just being made, or just removed
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            end_marked(str(path))
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)


# --- The driver's side ------------------------------------------------------------------------------------------------


class ClusterLost(EngineError):
    """A process that Ray cannot do without has ended."""


class Cluster:
    """A Ray cluster as one run uses it: started for it, or one that exists. One at a time in a process."""

    def __init__(self, address: str) -> None:
        """`address`: `local`, or host:port of a cluster that this machine belongs to. Raises UserError."""
        self.lost = ""
        """Which process of our own cluster has ended, if one has."""
        self.notes: list[str] = []
        """What the user should know, each a sentence."""
        self._own = address == HERE
        self._scratch = Scratch(f"ray-{os.getpid()}") if self._own else None
        self.mark = str(self._scratch.path) if self._scratch else ""
        """The folder of our own cluster, and the mark of its processes (`evo.guard.marked`)."""
        self._guard = _guard(self.mark) if self.mark else None
        self._watched: dict[int, str] = {}
        self._actors: dict[type[Host], Any] = {}
        self._threads = os.environ.get("OMP_NUM_THREADS")
        self._others: set[str] = set()
        """Nodes of other machines that have evaluation workers."""
        self._ray: Any = None
        try:
            self._connect(address)
        except BaseException:
            self.close()
            raise

    def _connect(self, address: str) -> None:
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        if self._own and "RAY_AUTH_MODE" not in os.environ:  # its ports are open to whoever reaches this machine
            os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        import ray  # reads its environment now

        self._ray = ray
        options: dict[str, Any] = {"logging_level": "CRITICAL", "log_to_driver": False, "address": address}
        if self._scratch:
            options |= {
                "num_cpus": len(os.sched_getaffinity(0)),
                "include_dashboard": False,
                "object_store_memory": OBJECT_STORE_BYTES,
                "_temp_dir": str(self._scratch.path),
                "_system_config": SYSTEM,
            }
            os.environ |= {MARK: self.mark, "SPT_NOENV": "1"}  # titles of processes must not overwrite the mark
        else:
            _knock(address, ray)
        try:
            ray.init(**options)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            reason = " ".join(str(error).split())[:300]
            raise UserError(f"Ray does not start at {address}: {reason}") from error
        finally:
            for name in (MARK, "SPT_NOENV"):
                os.environ.pop(name, None)
        self.node: str = ray.get_runtime_context().get_node_id()
        if self._scratch:
            for pid, name in _children().items():
                if name in ("raylet", "gcs_server"):
                    self._watched[os.pidfd_open(pid)] = name

    def close(self) -> None:
        """End every process that the run has started."""
        for descriptor in self._watched:
            os.close(descriptor)
        self._watched = {}
        if self._ray is not None:
            self._tidy()
            self._ray.shutdown()
        if self._scratch:
            end_marked(self.mark)
            self._scratch.close()
            self._scratch = None
        if self._guard:
            self._guard.kill()
            self._guard.wait()
            self._guard = None

    def _tidy(self) -> None:
        """Have the other machines remove what workers left there."""
        tidy = self._ray.remote(Scratch.sweep)
        for node in self._others:
            with suppress(ActorGone, EngineError, TimeoutError):
                self.get(self._on(tidy, node, num_cpus=0).remote(), limit_s=TIDY_S)

    # --- calls ---

    def _on(self, remote: Any, node: str, **options: Any) -> Any:
        """An actor class or a function, on this node."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return remote.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False), **options)

    def start(self, actor: type[Host], *arguments: Any, node: str = "", cpus: float = 0.0, gpus: int = 0) -> Any:
        """A new actor on a node, by default the driver's own; returns at once."""
        if actor not in self._actors:
            self._actors[actor] = self._ray.remote(actor)
        placed = self._on(self._actors[actor], node or self.node, num_cpus=cpus, num_gpus=gpus, max_restarts=0)
        return placed.remote(*arguments)

    def stop(self, actor: Any) -> None:
        """End an actor at once, if it still lives."""
        with suppress(self._ray.exceptions.RayError, ValueError):
            self._ray.kill(actor)

    def get(self, reference: Any, *, limit_s: float = math.inf) -> Any:
        """Wait for an answer. Raises ActorGone if its actor died, ClusterLost, and TimeoutError."""
        deadline_s = time.monotonic() + limit_s
        while True:
            ready, _ = self._ray.wait([reference], timeout=min(0.5, max(deadline_s - time.monotonic(), 0)))
            self.check()
            if ready:
                with self.translated():
                    return self._ray.get(ready[0])
            if time.monotonic() > deadline_s:
                raise TimeoutError

    def check(self) -> None:
        """Raises ClusterLost."""
        if not self.lost and self._watched:
            ended, _, _ = select.select(list(self._watched), [], [], 0)
            self.lost = self._watched[ended[0]] if ended else ""
        if self.lost:
            raise ClusterLost(f"Ray's {self.lost} has ended")

    def translated(self) -> _Translated:
        return _Translated(self._ray)

    def runs_on(self, node: str) -> bool:
        """Whether a node is still there."""
        return any(n["Alive"] and n["NodeID"] == node for n in self._ray.nodes())

    async def carry(self, work: Coroutine[Any, Any, str]) -> str:
        """Run a search, and end it when one of the cluster's own processes ends. Raises ClusterLost."""
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()

        def ended(descriptor: int) -> None:
            loop.remove_reader(descriptor)
            self.lost = self._watched[descriptor]
            task.cancel()

        for descriptor in self._watched:
            loop.add_reader(descriptor, ended, descriptor)
        try:
            return await task
        except asyncio.CancelledError:
            self.check()
            raise
        finally:
            for descriptor in self._watched:
                loop.remove_reader(descriptor)

    # --- what a run needs ---

    def maker(self, config: RunConfig, store: Journal) -> Callable[[Operator, Task], Strategy]:
        """Makes strategies whose populations live in actors, one for each operator."""
        populations: dict[str, RemotePopulations] = {}

        def make(operator: Operator, task: Task) -> Strategy:
            if operator.name not in populations:
                populations[operator.name] = RemotePopulations(self, config, operator, store)
            return RemoteStrategy(populations[operator.name], task)

        return make

    def gpus(self, config: RunConfig) -> GpuModels:
        if self._own or config.target != "cuda":
            return gpu_models(config.target)
        offered = {name for node in self._ray.nodes() for name in node["Resources"] if name.startswith(ACCELERATOR)}
        return GpuModels(tuple(sorted(offered)))

    def pool(self, config: RunConfig, build: Path) -> WorkerPool:
        """Evaluation workers on every machine, as many on each as there would be without Ray. Raises UserError.

        `build` is the folder for what is compiled; other machines have one of their own.
        """
        operators = {operator.name: str(operator.folder) for operator, _ in config.tasks()}
        base = WorkerSpec(operators, config.workload_set, str(build.resolve()))
        specs: list[WorkerSpec] = []
        for node, available in self._machines().items():
            here = replace(base, machine=node)
            if config.target == "cuda":
                specs += gpu_specs(here, self._gpus(node), builders=config.workers, cores=len(available))
            else:
                specs += [replace(here, cores=c) for c in worker_cores(config.workers, config.threads, available)]
        if config.target == "cuda" and not any(spec.gpus for spec in specs):
            raise UserError("no machine of the cluster offers a GPU; start Ray there with --num-gpus")
        sharing = Counter((spec.machine, spec.cores) for spec in specs)
        shipped = _files(config)
        started: list[RemoteWorker] = []

        def start(spec: WorkerSpec) -> RemoteWorker | None:
            if not self.runs_on(spec.machine):
                return None
            arguments = (spec, None if spec.machine == self.node else shipped, self._threads)
            share = 0.0 if spec.cuda else _cpus(len(spec.cores) / sharing[spec.machine, spec.cores])
            actor = self.start(WorkerActor, HostedWorker, *arguments, node=spec.machine, cpus=share, gpus=spec.gpus)
            worker = RemoteWorker(self, actor, spec)
            started.append(worker)
            return worker

        pool = WorkerPool(specs, start)
        if not self._own:
            self._await_start([worker.actor for worker in started])
        return pool

    def _gpus(self, node: str) -> list[str]:
        """A node's GPUs as `WorkerSpec.device` has them: Ray says which of another machine's are free."""
        if self._own:
            return devices("cuda")
        offered = next(n["Resources"].get("GPU", 0) for n in self._ray.nodes() if n["NodeID"] == node)
        return [""] * int(offered)

    def _await_start(self, actors: Sequence[Any]) -> None:
        deadline_s = time.monotonic() + START_LIMIT_S
        for actor in actors:
            try:
                value_of(self.get(actor.call.remote("ready"), limit_s=max(0.0, deadline_s - time.monotonic())))
            except TimeoutError:
                raise UserError(
                    f"the cluster had no room for {len(actors)} evaluation workers in {START_LIMIT_S:g} s; "
                    "see `ray status`, or ask for fewer with --workers (per machine)"
                ) from None
            except ActorGone as error:
                raise UserError(f"an evaluation worker does not start on the cluster: {error}") from error

    def _machines(self) -> dict[str, list[int]]:
        """The cores of every node that offers CPUs. Raises UserError for machines that cannot be compared."""
        if self._own:
            return {self.node: sorted(os.sched_getaffinity(0))}
        nodes = [n["NodeID"] for n in self._ray.nodes() if n["Alive"] and n["Resources"].get("CPU")]
        describe = self._ray.remote(_describe)
        asked = {node: self._on(describe, node, num_cpus=0).remote() for node in nodes}
        try:
            told = {node: self.get(reference, limit_s=START_LIMIT_S) for node, reference in asked.items()}
        except (ActorGone, EngineError, TimeoutError) as error:
            raise UserError(f"a machine of the cluster does not answer; is kernel-evo there? {error}") from error
        for what, cure in (("version", "install the same kernel-evo"), ("processor", "timings could not be compared")):
            found = sorted({str(machine[what]) for machine in told.values()})
            if len(found) > 1:
                raise UserError(f"the cluster's machines differ in their {what} ({', '.join(found)}): {cure}")
        if any(machine["niceness"] > 0 for machine in told.values()):
            self.notes.append(
                "Ray runs its workers with low priority: timings are noisier; start it with RAY_worker_niceness=0"
            )
        self._others = {*told} - {self.node}
        return {node: machine["cores"] for node, machine in told.items()}


def _knock(address: str, ray: Any) -> None:
    """Raise UserError where nobody listens, or not to us; Ray itself would try for long and not say why."""
    host, _, port = address.rpartition(":")
    if address.startswith("ray://") or not host or not port.isdecimal():
        raise UserError(f"--ray-address {address}: write HOST:PORT, and run evo on a machine of that cluster")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_S).close()
    except OSError as error:
        raise UserError(f"--ray-address {address}: no Ray there ({error}); see `ray status`") from None
    if os.environ.get("RAY_AUTH_MODE") == "token" and not _has_token():  # of which Ray itself dies
        raise UserError(f"--ray-address {address}: RAY_AUTH_MODE is token, and there is none here: {COPY_TOKEN}")
    try:
        ray._raylet.GcsClient(address=address)
    except ray.exceptions.AuthenticationError:
        ours = "ours is another:" if os.environ.get("RAY_AUTH_MODE") == "token" else "set RAY_AUTH_MODE=token and"
        raise UserError(f"--ray-address {address}: the cluster wants its token; {ours} {COPY_TOKEN}") from None


def _has_token() -> bool:
    """Whether there is one where Ray looks for it."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return True
    with suppress(OSError):
        return bool(
            Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token").read_text().strip()
        )
    return False


def _guard(folder: str) -> subprocess.Popen[bytes]:
    """Watches over this thread's life."""
    command = [sys.executable, "-I", "-S", guard.__file__, folder, str(os.getpid())]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)


class ActorGone(Exception):
    """An actor died, or its machine."""


class _Translated:
    """Makes Ray's errors ours."""

    def __init__(self, ray: Any) -> None:
        self._errors = ray.exceptions

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, self._errors.RayTaskError):
            raise EngineError(str(error)) from error
        if isinstance(error, self._errors.RayError):
            raise ActorGone(" ".join(str(error).split())[:300]) from error


def _children() -> dict[int, str]:
    """Processes that this one started: id and name."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            if int(rest.split()[1]) == os.getpid():
                found[int(folder.name)] = name
    return found


def _cpus(share: float) -> float:
    """Ray takes whole CPUs, or a part of one."""
    return math.floor(share) if share >= 1 else math.floor(share * 100) / 100


def _files(config: RunConfig) -> dict[str, dict[str, bytes]]:
    """The files of every operator that does not come with the package."""
    return {
        operator.name: {path.name: path.read_bytes() for path in sorted(operator.folder.iterdir()) if path.is_file()}
        for operator, _ in config.tasks()
        if catalog.folders().get(operator.name) != operator.folder
    }


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


@dataclass
class _Progress:
    """How far a strategy has come: asks that were answered with something, and tells."""

    asks: int = 0
    tells: int = 0
    wanted: int = 0
    """By the last of these asks."""
    digests: Sequence[str] = ()
    """Of the requests that it was answered with."""


class RemotePopulations:
    """One operator's populations in an actor on the driver's machine. If it dies, another one is rebuilt.

    Used by one thread, as strategies are.
    """

    def __init__(self, cluster: Cluster, config: RunConfig, operator: Operator, store: Journal) -> None:
        here = config.model_copy(update={"operators": [str(operator.folder)]})
        self._cluster = cluster
        self._arguments = (here.to_json(), operator.name)
        self._store = store
        self._progress: dict[Task, _Progress] = {}
        self._unheard: list[Any] = []
        self._start()

    def ask(self, task: Task, count: int) -> list[Request]:
        requests: list[Request] = self._call("ask", task, count)
        if requests:
            progress = self._of(task)
            progress.asks += 1
            progress.wanted, progress.digests = count, [request.digest for request in requests]
        return requests

    def tell(self, task: Task, individual: Individual) -> None:
        """Does not wait until it is heard: calls arrive in order."""
        self._of(task).tells += 1
        self._unheard.append(self._actor.call.remote("tell", task, individual))
        if len(self._unheard) >= UNHEARD_LIMIT:
            self._settle()

    def rival(self, task: Task, request: Request, cell: Cell) -> Rival:
        rival: Rival = self._call("rival", task, request, cell)
        return rival

    def best(self, task: Task) -> Elite | None:
        elite: Elite | None = self._call("best", task)
        return elite

    def restore(self, task: Task, asks: int, tells: int) -> None:
        """Bring a new population to where the store says that it was."""
        progress = self._of(task)
        progress.asks, progress.tells = asks, tells
        try:
            self._replay(task, progress)
        except ActorGone:
            self._rebuild()

    def _of(self, task: Task) -> _Progress:
        return self._progress.setdefault(task, _Progress())

    def _start(self) -> None:
        self._actor = self._cluster.start(PopulationActor, Populations, *self._arguments)

    def _call(self, method: str, *arguments: Any) -> Any:
        for _ in range(TRIES):
            reference = self._actor.call.remote(method, *arguments)
            try:
                self._hear()
                return value_of(self._cluster.get(reference))
            except ActorGone:
                self._rebuild()
        raise EngineError(f"the actor of {self._arguments[1]}'s populations died {TRIES} times in a row")

    def _settle(self) -> None:
        try:
            self._hear()
        except ActorGone:
            self._rebuild()

    def _hear(self) -> None:
        while self._unheard:
            value_of(self._cluster.get(self._unheard[0]))
            del self._unheard[0]

    def _rebuild(self) -> None:
        """Another actor, brought to where the last one was. Every tell is in the store, and every ask but the last."""
        for _ in range(TRIES):
            self._cluster.stop(self._actor)
            self._unheard.clear()
            self._start()
            with suppress(ActorGone):
                for task, progress in self._progress.items():
                    self._replay(task, progress)
                return
        raise EngineError(f"the actor of {self._arguments[1]}'s populations died {TRIES} times in a row")

    def _replay(self, task: Task, progress: _Progress) -> None:
        """The actor works on one page while the next is read."""
        replayed: list[Any] = []
        for page in _history(self._store, task, progress):
            replayed.append(self._actor.call.remote("replay", task, page))
            if len(replayed) > 1:
                value_of(self._cluster.get(replayed.pop(0)))
        value_of(self._cluster.get(replayed.pop()))


class RemoteStrategy:
    """`evo.strategies.base.Strategy` whose state is in its operator's actor."""

    def __init__(self, populations: RemotePopulations, task: Task) -> None:
        self._populations = populations
        self._task = task
        self._best: Elite | None = None
        self._best_is_known = True

    def ask(self, count: int) -> list[Request]:
        return self._populations.ask(self._task, count)

    def tell(self, individual: Individual) -> str:
        """What is done with it is only known over there."""
        self._best_is_known = False
        self._populations.tell(self._task, individual)
        return "sent"

    def restore(self, asks: int, tells: int) -> None:
        self._best_is_known = False
        self._populations.restore(self._task, asks, tells)

    def rival(self, request: Request, cell: Cell) -> Rival:
        return self._populations.rival(self._task, request, cell)

    @property
    def best(self) -> Elite | None:
        if not self._best_is_known:
            self._best = self._populations.best(self._task)
            self._best_is_known = True
        return self._best


def _history(store: Journal, task: Task, progress: _Progress) -> Iterator[list[dict[str, Any]]]:
    """What the strategy has heard and answered so far, in order, for `Populations.replay`."""
    asked = store.rows(
        "select seq, any_value(wanted) as wanted, list(digest order by position) as digests from asks "
        "where task = ? group by seq order by seq limit ?",
        [str(task), progress.asks],
    ).to_pylist()
    if len(asked) < progress.asks:  # the driver has not stored the last one yet
        asked.append({"seq": math.inf, "wanted": progress.wanted, "digests": progress.digests})
    left, after = progress.tells, -1
    while left:
        told = store.rows(
            f"select * from ({records.TOLD}) where task = ? and seq > ? order by seq limit ?",
            [str(task), after, min(PAGE_ROWS, left)],
        ).to_pylist()
        left, after = left - len(told), told[-1]["seq"]
        earlier = [entry for entry in asked if entry["seq"] < after]
        asked = asked[len(earlier) :]
        yield sorted([*earlier, *told], key=lambda entry: entry["seq"])
    yield asked
