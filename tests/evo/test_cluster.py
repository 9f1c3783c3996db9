"""The engine in Ray actors: the same search as without, and whatever is killed is made again without a loss."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from evo import session
from evo.cluster.backend import ClusterBackend
from evo.cluster.connection import HERE, Cluster, Scratch, knock, reach, signals_kept
from evo.cluster.guard import MARK, end_marked, marked
from evo.config import RunConfig
from evo.replay import replay
from evo.search.driver import Search
from evo.session import run_context, run_row
from evo.store import Store, query
from evo.store.reads import Journal
from evo.strategies.base import Strategy
from evo.workers.dispatch import RunPool
from evo.workers.jobs import Build, Confirm
from evo.workers.local import ENTRY
from evo.workers.pool import ClusterLost, WorkerLost
from fitness.judging.base import Built
from fitness.testing import scripted
from operators.definition.spec import Operator, Task
from operators.errors import UserError
from operators.kernel import Kernel
from tests.inline import InlinePool

AXPB = str(Path(__file__).parents[1] / "data" / "axpb")
MakeStrategy = Callable[[Operator, Task], Strategy]


@pytest.fixture(scope="module")
def backend() -> Iterator[ClusterBackend]:
    made = ClusterBackend(HERE)
    mark = made.cluster.mark
    assert marked(mark)
    yield made
    made.close()
    assert not marked(mark)
    assert not Path(mark).exists()


def kill(backend: ClusterBackend, title: str) -> int:
    """SIGKILL to every process of the cluster that calls itself so; how many there were."""
    killed = 0
    for pid in marked(backend.cluster.mark):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # some end by themselves meanwhile
            if Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").startswith(title.encode()):
                os.kill(pid, signal.SIGKILL)
                killed += 1
    return killed


def config(**changes: Any) -> RunConfig:
    settings: dict[str, Any] = {"operators": [AXPB, "softmax"], "budget": {"evaluations": 24}, "seed": 3}
    return RunConfig(**(settings | changes)).resolved()


def search(made: RunConfig, store: Journal, make: MakeStrategy, on_change: Callable[[int], None] | None = None) -> str:
    """A search with one slot, so that its order is fixed."""
    stages = scripted(made.tasks())

    def changed(running: Search) -> None:
        if on_change:
            on_change(sum(state.told for state in running.states.values()))

    async def session() -> str:
        pool = InlinePool(dict(stages), slots=1)
        return await Search(made, store, pool, make_strategy=make, on_change=changed).run()

    return asyncio.run(session())


def told(folder: Path) -> list[dict[str, Any]]:
    """Every individual with a kernel; a last request without a child may be told or not when the budget is used up."""
    columns = "task, number, kernel_id, status, log_speedup"
    sql = f"select {columns} from tells where kernel_id is not null order by task, number"
    found: list[dict[str, Any]] = query(folder, sql).to_pylist()
    assert len(found) >= 24
    return found


@pytest.fixture(scope="module")
def without_ray(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("run")
    made = config()
    with Store(folder, create=True) as store:
        search(made, store, made.make_strategy)
    return told(folder)


@pytest.mark.slow
def test_it_is_the_same_search(backend: ClusterBackend, tmp_path: Path, without_ray: list[dict[str, Any]]) -> None:
    made = config()
    with Store(tmp_path, create=True) as store:
        assert search(made, store, backend.maker(made, store)) == "evaluations 24 of 24"
    assert told(tmp_path) == without_ray


@pytest.mark.slow
def test_a_run_begun_without_ray_goes_on_with_it_whatever_is_killed(
    backend: ClusterBackend, tmp_path: Path, without_ray: list[dict[str, Any]]
) -> None:
    made = config()
    with Store(tmp_path, create=True) as local:
        search(made.model_copy(update={"budget": {"evaluations": 6}}), local, made.make_strategy)
    moments = (9, 13, 18, 22)
    killed: dict[int, int] = {}

    def on_change(count: int) -> None:
        for moment in moments:
            if count >= moment and moment not in killed:
                killed[moment] = kill(backend, "ray::PopulationActor")

    with Store(tmp_path, create=False) as store:
        assert search(made, store, backend.maker(made, store), on_change) == "evaluations 24 of 24"
    assert killed.keys() == set(moments)
    assert all(killed.values())
    assert told(tmp_path) == without_ray


@pytest.mark.slow
def test_populations_hear_of_leaders_of_other_tasks_also_those_that_are_made_again(
    backend: ClusterBackend, tmp_path: Path
) -> None:
    """They ask what strategies in the driver's own process would ask: the replay has those."""
    folder = tmp_path / "run"
    made = config(operators=["relu", "softmax"], dtypes=["fp32", "fp64"], settings={"port": 1})
    killed: dict[int, int] = {}

    def on_change(count: int) -> None:
        if count >= 16 and not killed:
            killed[count] = kill(backend, "ray::PopulationActor")

    for create, limit in ((True, 8), (False, 24)):
        with Store(folder, create=create) as store:
            if create:
                store.commit({"runs": [run_row(made, folder)]}).result()
            session = made.model_copy(update={"budget": {"evaluations": limit}})
            search(session, store, backend.maker(made, store), on_change)
    assert len(killed) == 1 and all(killed.values())
    carried = query(folder, "select distinct task from proposals where mutator = 'carry'").to_pylist()
    assert carried
    done = replay(folder)
    assert done.equal, done.difference


class AuthenticationError(Exception):
    """Ray's."""


class GuardedRay:
    """The part of ray that is asked whether a cluster, of which there is only the port, takes this process's token."""

    exceptions = SimpleNamespace(AuthenticationError=AuthenticationError)

    def __init__(self, token: str) -> None:
        self.token = token
        self.asked = 0
        self._raylet = SimpleNamespace(GcsClient=self._connect)

    def _connect(self, *, address: str) -> None:
        self.asked += 1
        if os.environ.get("RAY_AUTH_MODE") != "token" or os.environ.get("RAY_AUTH_TOKEN") != self.token:
            raise AuthenticationError


@pytest.mark.parametrize(
    ("environment", "words", "asked"),
    [
        ({}, "the cluster wants its token; set RAY_AUTH_MODE=token and copy", 1),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "other"}, "the cluster wants its token; ours is another", 1),
        ({"RAY_AUTH_MODE": "token"}, "RAY_AUTH_MODE is token, and there is none here", 0),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "empty"}, "and there is none here", 0),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "right"}, "", 1),
    ],
)
def test_a_cluster_that_wants_a_token_is_told_at_once_which(
    environment: dict[str, str], words: str, asked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": str(tmp_path), **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").write_text("\n")
    ray = GuardedRay("right")
    told = ""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        try:
            knock(address, ray)
        except UserError as error:
            told = str(error)
    assert words in told
    assert bool(told) == bool(words)
    assert not told or (address in told and "the head's ~/.ray/auth_token here" in told)
    assert ray.asked == asked


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced(backend: ClusterBackend, tmp_path: Path) -> None:
    made = config(operators=[AXPB], workers=1)
    ((operator, task),) = made.tasks()
    naive = Kernel(operator.name, "cpu", operator.ancestor("naive", "cpu").read_text())

    async def lose(pool: RunPool, victim: str) -> None:
        """Kill the worker's actor or its process while it has a job."""
        job = asyncio.ensure_future(pool.run(Confirm(task, naive)))
        deadline = time.monotonic() + 180
        while not kill(backend, victim):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        with pytest.raises(WorkerLost):
            await job

    async def session() -> None:
        shared = backend.pool(made, tmp_path)
        pool = shared.for_run(run_context(made, tmp_path))
        assert pool.slots == 1
        await lose(pool, "ray::WorkerActor")
        await lose(pool, f"{sys.executable} -P -c {ENTRY}")
        assert isinstance(await pool.run(Build(task, naive)), Built)
        await shared.close()

    asyncio.run(session())


class GrowingCluster:
    """Machines by name, each as `describe_machine` and Ray describe it; no actor, no process."""

    own = False

    def __init__(self, _: str) -> None:
        self.node = "driver"
        self.machines = {"driver": machine("A")}
        self.asked: list[str] = []

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": n, "Alive": True, "Resources": m["resources"]} for n, m in self.machines.items()]

    def call_on(self, node: str, _: object) -> str:
        return node

    def get(self, node: str, *, limit_s: float) -> dict[str, Any]:
        self.asked.append(node)
        return self.machines[node]

    async def run(self, work: Any) -> str:
        done: str = await work
        return done


def machine(processor: str, gpu: str = "H200") -> dict[str, Any]:
    resources = {"CPU": 2.0, f"accelerator_type:{gpu}": 1.0}
    return {"version": "1", "processor": processor, "cores": [0, 1], "niceness": 0, "resources": resources}


def test_machines_that_join_take_part_if_they_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evo.cluster.backend.Cluster", GrowingCluster)
    monkeypatch.setattr("evo.cluster.backend.JOIN_S", 0.0)
    said: list[str] = []
    joined: list[str] = []
    made = ClusterBackend("10.0.0.1:6379", said.append)
    cluster: Any = made.cluster
    assert made._machines() == {"driver": [0, 1]}
    monkeypatch.setattr(made, "_join", lambda node, cores: joined.append(node))

    async def work() -> str:
        cluster.machines |= {"alike": machine("A"), "other processor": machine("B"), "other GPU": machine("A", "H100")}
        while len(said) < 3:
            await asyncio.sleep(0.001)
        cluster.machines["late"] = machine("A")
        while len(said) < 4:
            await asyncio.sleep(0.001)
        return "done"

    assert asyncio.run(made.run(work())) == "done"
    assert joined == ["alike", "late"]
    refused = [text for text in said if "takes no part" in text]
    assert "its processor is B, theirs A" in refused[0] and "its GPUs are accelerator_type:H100" in refused[1]
    assert sorted(cluster.asked) == ["alike", "driver", "late", "other GPU", "other processor"], "each is asked once"


def test_what_a_killed_holder_left_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evo.cluster.connection.SCRATCH", tmp_path)
    left = tmp_path / f"evo-{os.getuid()}-left"
    left.mkdir()
    (left / "lock").touch()
    held = Scratch("held")
    again = Scratch("held")
    other = Scratch("other")
    assert not left.exists()
    held.close()
    assert held.path.exists()
    again.close()
    assert not held.path.exists()
    other.close()


def test_signals_do_what_they_did_before_ray_began() -> None:
    def ray_ends(number: int, _: object) -> None:
        sys.exit(number)

    before = signal.getsignal(signal.SIGTERM)
    with signals_kept():
        signal.signal(signal.SIGTERM, ray_ends)
    assert signal.getsignal(signal.SIGTERM) == before
    with pytest.raises(KeyboardInterrupt), signals_kept():
        signal.signal(signal.SIGTERM, ray_ends)
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


MEMBER = """
import sys, time
from evo.cluster.connection import Cluster
from evo.workers.pool import ClusterLost
cluster = Cluster(sys.argv[1])
print("joined", flush=True)
while True:
    try:
        cluster.check()
    except ClusterLost as error:
        sys.exit(str(error))
    time.sleep(0.1)
"""


@pytest.mark.slow
def test_a_cluster_that_one_joined_is_lost_with_the_ray_of_this_machine(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    mark = str(tmp_path)
    program = "from ray.scripts.scripts import main; main()"
    started = ["start", "--head", "--block", "--num-cpus=1", "--include-dashboard=False", "--disable-usage-stats"]
    started += ["--node-ip-address=127.0.0.1", f"--port={address.rpartition(':')[2]}"]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = {**os.environ, MARK: mark, "SPT_NOENV": "1"}
    head = subprocess.Popen([sys.executable, "-c", program, *started], env=environment, **quiet)
    try:
        wait_until(lambda: _listens(address))
        with subprocess.Popen(
            [sys.executable, "-c", MEMBER, address], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as member:
            assert member.stdout and member.stderr and member.stdout.readline() == "joined\n"
            for pid in marked(mark):
                with contextlib.suppress(OSError):
                    if Path(f"/proc/{pid}/comm").read_text() == "raylet\n":
                        os.kill(pid, signal.SIGKILL)
            try:
                assert member.wait(20) == 1 and "Ray's raylet has ended" in member.stderr.read()
            finally:
                member.kill()
    finally:
        end_marked(mark)
        head.wait()


def _listens(address: str) -> bool:
    with contextlib.suppress(UserError):
        reach(address)
        return True
    return False


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_session_whose_cluster_is_lost_stores_which_process_ended() -> None:
    stored: list[Any] = []

    def commit(batch: Any) -> Any:
        stored.extend(json.loads(row["detail_json"])["reason"] for row in batch["events"])
        return SimpleNamespace(result=lambda: None)

    process = subprocess.Popen(["sleep", "60"])
    cluster = Cluster.__new__(Cluster)
    cluster.lost, cluster._watched = "", {os.pidfd_open(process.pid): "raylet"}

    async def search() -> str:
        with session._reason_stored(cast(Any, SimpleNamespace(commit=commit))):
            process.kill()
            await asyncio.Event().wait()
        return ""

    with pytest.raises(ClusterLost, match="Ray's raylet has ended"):
        asyncio.run(cluster.run(search()))
    assert stored == ["Ray's raylet has ended"] and process.wait() < 0
    os.close(next(iter(cluster._watched)))
