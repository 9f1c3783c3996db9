"""The thin shell around Ray: a cluster that is started or joined, actors on it, and calls whose errors are ours."""

from __future__ import annotations

import asyncio
import fcntl
import math
import os
import secrets
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from evo.cluster import guard
from evo.cluster.guard import MARK, end_marked
from evo.workers.pool import ClusterLost, EngineError, value_of
from evo.workers.worker import Answer, answered
from operators.errors import MachineError, UserError

SCRATCH = Path("/tmp")
"""Not $TMPDIR: Ray keeps sockets below it, whose paths may have 107 bytes at most."""


class Scratch:
    """A folder below /tmp that lives as long as a process holds it.

    Several processes may hold the same one. What holders left that were killed is removed by the next one that is made.
    """

    def __init__(self, name: str) -> None:
        """It makes or shares this user's folder of that name. It raises UserError if another user has it."""
        self.path = SCRATCH / f"evo-{os.getuid()}-{name}"
        self.sweep(but=self.path)
        while True:
            self.path.mkdir(mode=0o700, exist_ok=True)
            if self.path.stat().st_uid != os.getuid():
                raise UserError(f"{self.path} belongs to another user; remove it")
            self._lock = os.open(self.path / "lock", os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_SH)
            with suppress(OSError):
                if (self.path / "lock").stat().st_ino == os.fstat(self._lock).st_ino:
                    return
            os.close(self._lock)  # swept between our opening and our locking

    def close(self) -> None:
        """It lets go of the folder; the last holder removes it."""
        os.close(self._lock)
        self.sweep()

    @staticmethod
    def sweep(but: Path | None = None) -> None:
        """It removes all folders of this user that no process holds, with the processes that are marked with them."""
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


def start_guard(folder: str) -> subprocess.Popen[bytes]:
    """A process that ends the cluster in `folder` when the calling thread dies; see `evo.cluster.guard`."""
    command = [sys.executable, "-I", "-S", guard.__file__, folder, str(os.getpid())]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)


def children() -> dict[int, str]:
    """The processes that this one started: id and name."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            if int(rest.split()[1]) == os.getpid():
                found[int(folder.name)] = name
    return found


HERE = "local"
"""The address of a cluster that is started for the run alone, on this machine."""
OBJECT_STORE_BYTES = 80 << 20
MOST_PORT = 65535
KNOCK_S = 10.0
TRIES = 5
"""Times in a row that an actor may die of one call."""
COPY_TOKEN = "copy the head's ~/.ray/auth_token here, or set RAY_AUTH_TOKEN to what `ray get-auth-token` prints there"
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # or it writes to stdout about every actor that dies
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",  # an actor that asked for no GPU sees none
}
SYSTEM = {
    "worker_niceness": 0,  # 15 by default: anything else would come before timings
    "memory_monitor_refresh_ms": 0,
    "task_events_max_num_task_in_gcs": 1000,  # or its head grows with every call
}


class ActorGone(Exception):
    """An actor died, or its machine."""


class Host:
    """An actor: it makes one object at the first call and passes calls on to it.

    Each kind of actor is a class of its own, because Ray names an actor's process after its class.
    """

    def __init__(self, make: Callable[..., Any], *arguments: Any) -> None:
        self._make = make
        self._arguments = arguments
        self._object: Any = None

    def call(self, method: str, *arguments: Any) -> Answer:
        """The answer of one of the object's methods; see `evo.workers.pool.value_of`."""

        def call() -> Any:
            if self._object is None:
                self._object = self._make(*self._arguments)
            return getattr(self._object, method)(*arguments)

        return answered(call)


class Cluster:
    """A Ray cluster as one run uses it: started for it, or one that exists. A process can have one at a time."""

    def __init__(self, address: str) -> None:
        """`address` is `local`, or host:port of a cluster that this machine belongs to. It raises UserError."""
        self.lost = ""
        """Which of Ray's own processes has ended, if one has."""
        self.own = address == HERE
        """Whether the cluster was started for this run."""
        self._scratch = Scratch(f"ray-{os.getpid()}") if self.own else None
        self.mark = str(self._scratch.path) if self._scratch else ""
        """The folder of our own cluster, and the mark of its processes (`evo.cluster.guard.marked`)."""
        self._guard = start_guard(self.mark) if self.mark else None
        self._watched: dict[int, str] = {}
        """Descriptors of Ray's own processes on this machine, and their names."""
        self._actors: dict[type[Host], Any] = {}
        self._ray: Any = None
        try:
            self._connect(address)
        except BaseException:
            self.close()
            raise

    def _connect(self, address: str) -> None:
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        if self.own and "RAY_AUTH_MODE" not in os.environ:  # its ports are open to all that reach this machine
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
            knock(address, ray)
        try:
            with signals_kept():
                ray.init(**options)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            reason = " ".join(str(error).split())[:300]
            raise UserError(f"Ray does not start at {address}: {reason}") from error
        finally:
            for name in (MARK, "SPT_NOENV"):
                os.environ.pop(name, None)
        self.node: str = ray.get_runtime_context().get_node_id()
        if self._scratch:
            for pid, name in children().items():
                if name in ("raylet", "gcs_server"):
                    self._watched[os.pidfd_open(pid)] = name
        else:  # Ray itself would notice after a minute, and end this process
            own = next(node for node in self.nodes() if node["NodeID"] == self.node)
            with suppress(OSError):
                self._watched[os.pidfd_open(listener(own["RayletSocketName"]))] = "raylet"

    def close(self) -> None:
        """It ends every process that the run has started on this machine, and leaves the cluster."""
        for descriptor in self._watched:
            os.close(descriptor)
        self._watched = {}
        if self._ray is not None:
            self._ray.shutdown()
        if self._scratch:
            end_marked(self.mark)
            self._scratch.close()
            self._scratch = None
        if self._guard:
            self._guard.kill()
            self._guard.wait()
            self._guard = None

    # --- machines ---

    def nodes(self) -> list[Mapping[str, Any]]:
        """Every machine that the cluster has or had, as Ray describes it."""
        found: list[Mapping[str, Any]] = self._ray.nodes()
        return found

    def runs_on(self, node: str) -> bool:
        """Whether a node is still there."""
        return any(n["Alive"] and n["NodeID"] == node for n in self.nodes())

    # --- calls ---

    def start(self, actor: type[Host], *arguments: Any, node: str = "", cpus: float = 0.0, gpus: int = 0) -> Any:
        """A new actor on a node, by default the driver's own; the call returns before it is there."""
        self.check()
        if actor not in self._actors:
            self._actors[actor] = self._ray.remote(actor)
        placed = self._on(self._actors[actor], node or self.node, num_cpus=cpus, num_gpus=gpus, max_restarts=0)
        return placed.remote(*arguments)

    def stop(self, actor: Any) -> None:
        """It ends an actor at once, if it still lives; those of a cluster that is lost end with it."""
        if self.lost:
            return
        with suppress(self._ray.exceptions.RayError, ValueError):
            self._ray.kill(actor)

    def call_on(self, node: str, function: Callable[[], Any]) -> Any:
        """A reference to what a function returns that is called on a node, in a process of its own."""
        return self._on(self._ray.remote(function), node, num_cpus=0).remote()

    def get(self, reference: Any, *, limit_s: float = math.inf) -> Any:
        """It waits for an answer, and raises ActorGone if its actor died, ClusterLost, or TimeoutError."""
        deadline_s = time.monotonic() + limit_s
        while True:
            ready, _ = self._ray.wait([reference], timeout=min(0.5, max(deadline_s - time.monotonic(), 0)))
            self.check()
            if ready:
                with self.translated():
                    return self._ray.get(ready[0])
            if time.monotonic() > deadline_s:
                raise TimeoutError

    def answer(self, reference: Any) -> Any:
        """The result of an actor's call; raises as `get` does. An actor whose machine failed it is as good as gone."""
        try:
            return value_of(self.get(reference))
        except MachineError as error:
            raise ActorGone(str(error)) from error

    def check(self) -> None:
        """It raises ClusterLost if a process has ended that the cluster cannot do without here."""
        if not self.lost and self._watched:
            ended, _, _ = select.select(list(self._watched), [], [], 0)
            self.lost = self._watched[ended[0]] if ended else ""
        if self.lost:
            raise ClusterLost(self._loss)

    @property
    def _loss(self) -> str:
        return f"Ray's {self.lost} has ended"

    @contextmanager
    def translated(self) -> Iterator[None]:
        """A context in which Ray's errors become ours: EngineError or ActorGone."""
        errors = self._ray.exceptions
        try:
            yield
        except errors.RayTaskError as error:
            raise EngineError(str(error)) from error
        except errors.RayError as error:
            raise ActorGone(" ".join(str(error).split())[:300]) from error

    async def run(self, work: Coroutine[Any, Any, str]) -> str:
        """It runs a search, and ends it with ClusterLost when one of the cluster's own processes ends."""
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()

        def ended(descriptor: int) -> None:
            loop.remove_reader(descriptor)
            self.lost = self._watched[descriptor]
            task.cancel(self._loss)

        for descriptor in self._watched:
            loop.add_reader(descriptor, ended, descriptor)
        try:
            return await task
        except (Exception, asyncio.CancelledError):
            self.check()  # whatever else fails when the cluster is lost
            raise
        finally:
            for descriptor in self._watched:
                loop.remove_reader(descriptor)

    def _on(self, remote: Any, node: str, **options: Any) -> Any:
        """An actor class or a function, on this node."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return remote.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False), **options)


@contextmanager
def signals_kept() -> Iterator[None]:
    """A context after which signals do what they did before: Ray takes SIGTERM for itself."""
    if threading.current_thread() is not threading.main_thread():  # no other may set them, nor does Ray there
        yield
        return
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    except SystemExit:
        raise KeyboardInterrupt from None
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def listener(path: str) -> int:
    """The id of the process that listens at a socket's path."""
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(path)
        credentials = caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, _, _ = struct.unpack("3i", credentials)
    return int(pid)


def reach(address: str) -> None:
    """It raises UserError where nothing listens."""
    host, _, port = address.rpartition(":")
    if address.startswith("ray://") or not host or not port.isdecimal() or int(port) > MOST_PORT:
        raise UserError(f"--ray-address {address}: write HOST:PORT, and run evo on a machine of that cluster")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_S).close()
    except OSError as error:
        raise UserError(f"--ray-address {address}: no Ray there ({error}); see `ray status`") from None


def knock(address: str, ray: Any) -> None:
    """It raises UserError where no cluster listens, or not to us; Ray itself would try for long and not say why."""
    reach(address)
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
