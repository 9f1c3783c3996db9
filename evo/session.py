"""Runs a search from the command line's point of view: its folder, its processes, Ctrl-C, and how it is resumed."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from evo import records
from evo.config import RunConfig
from evo.journal import Journal
from evo.pool import LocalPool, Pool
from evo.search import Search
from evo.store import Store
from evo.strategies.base import Strategy
from evo.worker import WorkerSpec, gpu_specs, worker_cores
from fitness.catalog import devices
from fitness.cpu.cores import processor
from operators.errors import UserError
from operators.spec import Operator, Task

DATABASE = "evo.duckdb"
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a search in good order: Ctrl-C, a batch system's limit, a terminal that is closed."""


def new_folder(runs: Path, config: RunConfig) -> Path:
    """Make `runs/<date>-<time>-<first operator>`; a number is added where that exists."""
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{config.tasks()[0][0].name}"
    for number in range(100):
        folder = runs / (stem if number == 0 else f"{stem}-{number + 1}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise UserError(f"{folder}: cannot be made: {error.strerror}") from None
        return folder
    raise UserError(f"{runs}: too many runs in this second")


def find_run(runs: Path, name: str) -> Path:
    """The folder of a run: a path, an id below `runs`, the beginning of one, or `last`. Raises UserError."""
    if (Path(name) / DATABASE).exists():
        return Path(name)
    folders = sorted(path.parent for path in runs.glob(f"*/{DATABASE}"))
    if name == "last" and folders:
        return max(folders, key=lambda folder: (folder / DATABASE).stat().st_ctime)
    matches = [folder for folder in folders if folder.name == name] or [f for f in folders if f.name.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    known = ", ".join(folder.name for folder in (matches or folders)[-5:]) or "none yet"
    problem = "is not unique" if matches else "does not exist"
    raise UserError(f"run {name} {problem} in {runs}/; there are: {known} (or say `last`)")


def start(config: RunConfig, folder: Path, on_change: Callable[[Search], None], *, ray: str = "") -> str:
    """Search in a new folder; returns why it ended (`stopped` after Ctrl-C).

    `ray`: nothing to work without Ray; `local`, or the address of a cluster that this machine belongs to.
    """
    (folder / "config.json").write_text(config.model_dump_json(indent=2), encoding="utf-8")
    with _place(ray) as place, closing(place.store(folder, create=True)) as store:
        store.commit({"runs": [run_row(config, folder)]}).result()
        return asyncio.run(place.carry(_search(config, folder, place, store, on_change)))


def run_row(config: RunConfig, folder: Path) -> dict[str, object]:
    """What the store keeps of a run as such."""
    return {
        "run_id": folder.name,
        "created_at": records.moment(time.time()),
        "engine_version": version("kernel-evo"),
        "seed": config.seed,
        "config_json": config.to_json(),
        "host_json": records.compact(_host()),
    }


def resume(folder: Path, budget: dict[str, float], on_change: Callable[[Search], None], *, ray: str = "") -> str:
    """Continue where the store ends; `budget` replaces the stored limits it names. `ray` as for `start`."""
    with _place(ray) as place, closing(place.store(folder, create=False)) as store:
        stored = store.rows("select config_json from runs").to_pylist()
        if not stored:
            raise UserError(f"{folder}: the run was stopped before it began; start a new one")
        config = RunConfig.from_json(stored[0]["config_json"])
        if budget:
            config = config.model_copy(update={"budget": {**config.budget, **budget}})
        return asyncio.run(place.carry(_search(config, folder, place, store, on_change)))


class Place(Protocol):
    """Where a run's store, strategies and evaluation workers are."""

    notes: list[str]
    """What the user should know of it, each a sentence."""

    def store(self, folder: Path, *, create: bool) -> Journal: ...

    def maker(self, config: RunConfig, store: Journal) -> Callable[[Operator, Task], Strategy]: ...

    def pool(self, config: RunConfig, build: Path) -> Pool:
        """`build` is the folder for what is compiled."""
        ...

    async def carry(self, work: Coroutine[Any, Any, str]) -> str:
        """Run a search for as long as the place itself lasts."""
        ...

    def close(self) -> None: ...


class Here:
    """All of it in this process and its children."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def store(self, folder: Path, *, create: bool) -> Store:
        return Store(folder, create=create)

    def maker(self, config: RunConfig, store: Journal) -> Callable[[Operator, Task], Strategy]:
        return config.make_strategy

    def pool(self, config: RunConfig, build: Path) -> LocalPool:
        operators = {operator.name: str(operator.folder) for operator, _ in config.tasks()}
        base = WorkerSpec(operators, config.workload_set, str(build.resolve()))
        available = os.sched_getaffinity(0)
        if config.target == "cuda":
            return LocalPool(gpu_specs(base, devices("cuda"), builders=config.workers, cores=len(available)))
        groups = worker_cores(config.workers, config.threads, available)
        return LocalPool([replace(base, cores=group) for group in groups])

    async def carry(self, work: Coroutine[Any, Any, str]) -> str:
        return await work

    def close(self) -> None: ...


@contextmanager
def _place(ray: str) -> Iterator[Place]:
    if not ray:
        yield Here()
        return
    from evo.cluster import Cluster

    with closing(Cluster(ray)) as cluster:
        yield cluster


async def _search(
    config: RunConfig, folder: Path, place: Place, store: Journal, on_change: Callable[[Search], None]
) -> str:
    build = folder / "build"
    shutil.rmtree(build, ignore_errors=True)
    build.mkdir()
    pool = place.pool(config, build)
    for note in (*store.notes, *place.notes):
        print(f"evo: {note}", file=sys.stderr)
    search = Search(config, store, pool, make_strategy=place.maker(config, store), on_change=on_change)
    loop = asyncio.get_running_loop()

    def interrupted() -> None:
        if search.stopping:  # the second one gives up paid answers too; a third one ends the program the hard way
            for number in ENDING:
                loop.remove_signal_handler(number)
        search.stop()

    for number in ENDING:
        loop.add_signal_handler(number, interrupted)
    try:
        return await search.run()
    finally:
        await pool.close()
        shutil.rmtree(build, ignore_errors=True)


def _host() -> dict[str, object]:
    return {
        "machine": platform.machine(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "cpus": len(os.sched_getaffinity(0)),
        "processor": processor(),
    }
