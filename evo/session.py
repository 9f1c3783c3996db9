"""Runs a search from the command line's point of view: its folder, its processes, Ctrl-C, and how it is resumed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from evo import rows
from evo.api import Run
from evo.compatibility import Conditions, check_same, check_tasks, conditions, host
from evo.config import RunConfig
from evo.evaluate import TARGET_OF, source_of
from evo.folders import CONFIG, DATABASE, began
from evo.rows import compact, moment
from evo.search.driver import Search
from evo.store import Store, StoreError
from evo.store.reads import Journal, rows_of
from evo.strategies.base import Strategy
from evo.version import engine_version
from evo.workers.dispatch import WorkerPool
from evo.workers.local import Claims, LocalPool
from evo.workers.pool import ClusterLost
from evo.workers.worker import RunContext, WorkerSpec, gpu_specs, worker_cores
from fitness.cpu import build as cpu
from fitness.evaluation import Rejection
from fitness.install import evo_command
from fitness.sandbox.native import cache_folder
from fitness.targets import NO_GPUS, GpuModels, devices, gpu_models
from fitness.words import counted
from mutators.asking.answers import Invitation
from operators.definition.spec import Operator, Task
from operators.errors import DiskError, MachineError, PlanError, UserError, disk_error
from operators.kernel import Kernel
from operators.plan.reading import Plan, parse_plan

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a search in good order: Ctrl-C, a batch system's limit, a terminal that is closed."""
OWN_CLUSTER = "local"
"""Value of `Session.ray` where a Ray cluster is started for the search alone, on this machine."""
FRUITLESS = 3
"""Clusters lost in a row, before the search got on, from which the machine is said to let none live."""
BUILD_FOLDER = "build"
"""Folder of what is compiled during a session, and of its workers' locks; there only meanwhile."""
DEFINITIONS = "definitions"
"""The event that holds what the run's operators were when it began."""


@dataclass(frozen=True, kw_only=True)
class Session:
    """Settings of a session of a search."""

    ray: str = ""
    """Nothing to work without Ray; `local`, or the address of a cluster that this machine belongs to."""
    began: float = field(default_factory=time.time)
    """When the user's command began, by `time.time`: the run's time counts from there."""
    wait_s: float = 0.0
    """Seconds to wait for answers from outside when it has nothing else to do."""
    only_confirm: bool = False
    """Whether it only confirms the leaders that the time limit left unconfirmed, however long that takes."""


def start(config: RunConfig, folder: Path, on_change: Callable[[Search], None], session: Session | None = None) -> str:
    """It searches in a new folder and returns why that ended (`stopped` after Ctrl-C). It raises UserError."""
    session = session or Session()

    def begin() -> str:
        with backend_of(session.ray) as backend:
            store = _created(config, folder, backend.gpus(config))
            return asyncio.run(backend.run(_search(config, folder, backend, store, on_change, session)))

    try:
        return _lasting(folder, session, begin, lambda again: _resumed(folder, {}, on_change, again))
    except BaseException:
        if not began(folder):
            shutil.rmtree(folder, ignore_errors=True)
        raise


@contextmanager
def _created(config: RunConfig, folder: Path, gpus: GpuModels) -> Iterator[Store]:
    """The store of a new run."""
    with _opened(folder, create=True) as store:
        events = rows.event_rows(DEFINITIONS, conditions(config, gpus).definitions or {}, at=time.time())
        store.commit({"runs": [run_row(config, folder, gpus)], **events}).result()
        (folder / CONFIG).write_text(config.model_dump_json(indent=2), encoding="utf-8")
        yield store


@contextmanager
def begun_or_resumed(config: RunConfig, folder: Path, backend: Backend) -> Iterator[Store]:
    """The store of a run that is begun in `folder`, or goes on there. It raises UserError as `start` and `resume` do.

    What conditions have changed since then, and count for no verdict, is added to the backend's notes.
    """
    if any(folder.glob(f"{DATABASE}*")):
        with _opened(folder, create=False) as store:
            if rows_of(store, "runs.run"):
                backend.notes += _check_conditions(config, folder, backend, store)
                yield store
                return
        shutil.rmtree(folder)  # it was cut off before it began
    folder.mkdir(parents=True, exist_ok=True)
    with _created(config, folder, backend.gpus(config)) as store:
        yield store


def run_row(config: RunConfig, folder: Path, gpus: GpuModels = NO_GPUS) -> dict[str, object]:
    """The row that the store keeps of a run as such."""
    cell = config.cell
    return {
        "comparison": cell.comparison if cell else None,
        "arm": cell.arm if cell else None,
        "run_id": folder.name,
        "created_at": moment(time.time()),
        "engine_version": engine_version(),
        "seed": config.seed,
        "config_json": config.to_json(),
        "host_json": compact(host(gpus, config.target)),
    }


def resume(
    folder: Path, budget: dict[str, float], on_change: Callable[[Search], None], session: Session | None = None
) -> str:
    """It continues where the store ends; `budget` replaces the stored limits it names. Else it is like `start`."""
    session = session or Session()

    def go_on(again: Session) -> str:
        return _resumed(folder, budget, on_change, again)

    return _lasting(folder, session, lambda: go_on(session), go_on)


def _lasting(folder: Path, session: Session, first: Callable[[], str], again: Callable[[Session], str]) -> str:
    """A search over as many clusters of its own as it takes; why it ended. FRUITLESS in a row are the last ones."""
    search, fruitless = first, 0
    with explained(folder, partial(_safe, folder)):
        while True:
            told = _told(folder)
            _signals_interrupt()
            try:
                return search()
            except ClusterLost as error:
                fruitless = 0 if _told(folder) > told else fruitless + 1
                if session.ray != OWN_CLUSTER or fruitless == FRUITLESS:
                    raise
                print(f"evo: {error}; the search goes on with another cluster", file=sys.stderr)
                search = partial(again if began(folder) else lambda _: first(), replace(session, began=time.time()))


def _signals_interrupt() -> None:
    """Let all that ends a session raise KeyboardInterrupt, as Ctrl-C does, while no search hears of it: when a cluster
    begins, or is given back."""
    if threading.current_thread() is threading.main_thread():
        for number in ENDING:
            signal.signal(number, signal.default_int_handler)


def _told(folder: Path) -> int:
    """The number of finished requests."""
    return int(Run(folder).rows("runs.told")[0]["n"]) if began(folder) else 0


def _resumed(folder: Path, budget: dict[str, float], on_change: Callable[[Search], None], session: Session) -> str:
    with backend_of(session.ray) as backend, _opened(folder, create=False) as store:
        stored = rows_of(store, "runs.run")
        if not stored:
            raise UserError(f"{folder}: the run was stopped before it began; start a new one")
        config = RunConfig.from_json(stored[0]["config_json"]).resolved()
        if budget and config.cell:
            raise UserError(f"{folder}: a cell of comparison {config.cell.comparison}, where all have the same budget")
        backend.notes += _check_conditions(config, folder, backend, store)
        if budget:
            config = config.model_copy(update={"budget": {**config.budget, **budget}})
            config.check_budget()
        with suppress(FileNotFoundError):
            os.utime(folder / CONFIG)
        return asyncio.run(backend.run(_search(config, folder, backend, nullcontext(store), on_change, session)))


def _check_conditions(config: RunConfig, folder: Path, backend: Backend, store: Journal) -> list[str]:
    """See `evo.compatibility.check_same`."""
    (run,) = rows_of(store, "runs.run")
    begun = rows_of(store, "runs.event", kind=DEFINITIONS)
    definitions = json.loads(begun[0]["detail_json"]) if begun else None  # it does not say
    then = Conditions(run["engine_version"], dict(json.loads(run["host_json"])), definitions)
    check_tasks([row["task"] for row in rows_of(store, "runs.tasks")], config)
    return check_same(then, conditions(config, backend.gpus(config)), config, run=folder.name)


@contextmanager
def _opened(folder: Path, *, create: bool) -> Iterator[Store]:
    """The run's store; where something fails, what closing it would add does not hide that."""
    store = Store(folder, create=create)
    try:
        yield store
    except BaseException:
        with suppress(UserError):
            store.close()
        raise
    store.close()


@contextmanager
def explained(folder: Path, safe: Callable[[str], str]) -> Iterator[None]:
    """A session that a machine ends is one line: its fault, and what is `safe`, given what comes before going on."""
    try:
        yield
    except (MachineError, OSError) as error:
        fault = error if isinstance(error, MachineError) else disk_error(error, folder)
        if fault is None:
            raise
        if isinstance(fault, DiskError):
            raise DiskError(f"{fault}; {safe('see to that disk and ')}") from error
        raise MachineError(f"{fault}; {safe('')}") from error


def _safe(folder: Path, cure: str) -> str:
    if not folder.exists():
        return "the run's folder was removed while it ran, and with it what was found"
    if not began(folder):
        return "nothing was begun"
    try:
        told = _told(folder)
    except StoreError as error:
        return f"what was acknowledged is in {folder}, which cannot be read now: {error}"
    known = f"all that was acknowledged is stored, {counted(told, 'finished request')} among it"
    return f"{known}; {cure}go on with: {evo_command('resume', folder)}"


def run_context(config: RunConfig, folder: Path) -> RunContext:
    """The facts that evaluation workers need of a run whose compiled kernels are kept in `folder`."""
    operators = tuple((operator.name, str(operator.folder)) for operator, _ in config.tasks())
    return RunContext(tuple(dict(operators).items()), config.workload_set, str(folder.resolve()))


class Backend(Protocol):
    """Where a run's strategies and evaluation workers are."""

    notes: list[str]
    """Sentences that the user should know of it."""
    closing_s: float
    """Seconds that it needs to end its processes, besides what any run needs."""

    def gpus(self, config: RunConfig) -> GpuModels:
        """The models of GPU that the run's kernels run on. It raises UserError."""
        ...

    def maker(self, config: RunConfig, store: Journal) -> Callable[[Operator, Task], Strategy]:
        """A function that makes the strategy of one task; some rebuild their state from the store."""
        ...

    def pool(self, config: RunConfig, folder: Path) -> WorkerPool:
        """Evaluation workers as a run with this configuration wants them, for it and any that want the same.

        `folder`, which must exist, is for what the pool's runs have in common. It raises UserError.
        """
        ...

    async def run(self, work: Coroutine[Any, Any, str]) -> str:
        """It runs a search for as long as the backend itself lasts."""
        ...

    def close(self) -> None:
        """The backend ends every process that it has started."""
        ...


class LocalBackend:
    """The backend that works in this process and its children."""

    closing_s = 0.0

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._claims: Claims | None = None

    def gpus(self, config: RunConfig) -> GpuModels:
        """The models of this machine's GPUs; see `Backend`."""
        return gpu_models(config.target)

    def maker(self, config: RunConfig, store: Journal) -> Callable[[Operator, Task], Strategy]:
        """The configuration makes them; see `Backend`."""
        return config.make_strategy

    def pool(self, config: RunConfig, folder: Path) -> LocalPool:
        """Worker processes; see `Backend`."""
        base = WorkerSpec(str(folder.resolve()))
        if config.target == "cuda":
            seen = devices("cuda")
            self._claims = Claims(cache_folder())
            for device, run in self._claims.take(seen, str(folder.resolve().parent)).items():
                self.notes.append(
                    f"run {run} uses GPU {device} too: both take turns there and reach less; give each its own by "
                    "CUDA_VISIBLE_DEVICES"
                )
            return LocalPool(gpu_specs(base, seen, builders=config.workers, cores=len(os.sched_getaffinity(0))))
        return LocalPool([replace(base, cores=group) for group in _groups(config)])

    async def run(self, work: Coroutine[Any, Any, str]) -> str:
        """It waits for the search."""
        return await work

    def close(self) -> None:
        """A pool ends its own processes; marks on GPUs are taken away."""
        if self._claims:
            self._claims.close()


def judging_here(config: RunConfig) -> int:
    """The number of workers that judge kernels on this machine; 1 where it has no GPU that can be used."""
    if config.target != "cuda":
        return len(_groups(config))
    try:
        return max(len(devices(config.target)), 1)
    except UserError:
        return 1


def _groups(config: RunConfig) -> list[tuple[int, ...]]:
    """The cores of each worker for the cpu."""
    return worker_cores(config.workers, config.threads, os.sched_getaffinity(0))


@contextmanager
def backend_of(ray: str) -> Iterator[Backend]:
    """The backend that a session asks for; see `Session.ray`."""
    if not ray:
        with closing(LocalBackend()) as local:
            yield local
        return
    from evo.cluster.backend import ClusterBackend

    with closing(ClusterBackend(ray)) as cluster:
        yield cluster


async def _search(
    config: RunConfig,
    folder: Path,
    backend: Backend,
    opening: AbstractContextManager[Store],
    on_change: Callable[[Search], None],
    session: Session,
) -> str:
    build = folder / BUILD_FOLDER
    shutil.rmtree(build, ignore_errors=True)
    build.mkdir(exist_ok=True)  # a process that tries out drafts beside the search may have made it just now
    pool = backend.pool(config, build)  # first of all: its workers load what they need while the store opens
    try:
        with opening as store:
            for note in (*store.notes, *backend.notes):
                print(f"evo: {note}", file=sys.stderr)
            search = Search(
                config, store, pool.for_run(run_context(config, build)), make_strategy=backend.maker(config, store),
                on_change=on_change, began=session.began, only_confirm=session.only_confirm, wait_s=session.wait_s,
                closing_s=backend.closing_s,
            )  # fmt: skip
            with _reason_stored(store):
                on_ending(search.stop)
                return await search.run()
    finally:
        await pool.close()
        shutil.rmtree(build, ignore_errors=True)


@contextmanager
def _reason_stored(store: Journal) -> Iterator[None]:
    """Keep in the store by what fault a session ends, before it is told elsewhere."""
    try:
        yield
    except BaseException as error:
        said = " ".join(str(error).split())
        told = isinstance(error, UserError) or (said and isinstance(error, asyncio.CancelledError))
        reason = said if told else f"{type(error).__name__}{f': {said}' if said else ''}"
        with suppress(UserError, OSError):  # a store that fails has its own words for it
            store.commit(rows.event_rows(rows.FAILED, {"reason": reason}, at=time.time())).result()
        raise


def on_ending(stop: Callable[[], object], times: int = 2) -> None:
    """Have as many signals of ENDING call `stop` in the running event loop; the next one ends the program the hard way.

    A search that is stopped a second time gives up paid answers too.
    """
    loop, left = asyncio.get_running_loop(), times

    def ended() -> None:
        nonlocal left
        left -= 1
        for number in ENDING if not left else ():
            loop.remove_signal_handler(number)
        stop()

    for number in ENDING:
        loop.add_signal_handler(number, ended)


def invitations(config: RunConfig, files: Sequence[Path], author: str) -> list[str]:
    """Return the lines that tell a run of these files.

    It raises UserError, one line, for a file that the run cannot start from: it cannot be read, is for another target,
    has no plan that fits, or does not compile. Whether it is right and how fast it is, the search finds out.
    """
    if not files:
        return []
    if config.cell is not None:
        raise UserError("--from: a run of a comparison starts from its naive kernel alone")
    tasks = config.tasks()
    if len(tasks) > 1:
        said = ", ".join(str(task) for _, task in tasks)
        raise UserError(f"--from: the run has several tasks ({said}); name one operator, and one --dtype")
    ((operator, task),) = tasks
    lines: dict[str, str] = {}
    for file in files:
        source = _source(file, task)
        kernel = Kernel(operator.name, task.target, source)
        _check(file, kernel, operator, task)
        note = f"started from {file.name}"
        lines.setdefault(kernel.id, Invitation(source, author=author, task=str(task), note=note).to_line())
    return list(lines.values())


def _source(file: Path, task: Task) -> str:
    if TARGET_OF.get(file.suffix) != task.target:
        wanted = " or ".join(suffix for suffix, target in TARGET_OF.items() if target == task.target)
        raise UserError(f"--from {file}: a kernel for {task.target} ends in {wanted}; --target names another target")
    return source_of(file)


def _check(file: Path, kernel: Kernel, operator: Operator, task: Task) -> None:
    try:
        plan = parse_plan(kernel.source, operator, task.target, name=str(file)).for_dtype(task.dtype)
    except PlanError as error:
        raise UserError(f"--from {error}") from None
    built = _built(kernel, plan, operator, task)
    if isinstance(built, Rejection):
        lines = [line.strip() for line in built.message.splitlines()]
        first = next((line for line in lines if "error" in line), lines[0])
        raise UserError(f"--from {file}: does not compile: {first}")


def _built(kernel: Kernel, plan: Plan, operator: Operator, task: Task) -> object:
    if task.target == "cuda":
        from fitness.cuda.compile.build import ARCH, compile_cuda
        from fitness.cuda.running.driver import present_arch

        return compile_cuda(kernel, operator, task.dtype, arch=present_arch(ARCH))
    with tempfile.TemporaryDirectory(prefix="evo-") as folder:
        return cpu.build(kernel, plan, operator, dtype=task.dtype, folder=Path(folder), resolved="")
