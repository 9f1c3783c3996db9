"""Runs the cells of a comparison: each a search of its own, all of them on one pool of evaluation workers."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from evo.api import Run
from evo.budget import Budget
from evo.compare.cells import CONFIG as BEGUN
from evo.compare.cells import CellState, begin, check_same, folder_of, standing, stored
from evo.compare.config import Cell, Comparison
from evo.compare.record import Seals, changed, content
from evo.config import RunConfig
from evo.folders import DATABASE
from evo.search.driver import Search
from evo.session import BUILD_FOLDER, Backend, backend_of, begun_or_resumed, explained, on_ending, run_context
from evo.workers.dispatch import WorkerPool
from evo.workers.worker import RunContext
from fitness.judging.base import DeviceInfo
from fitness.targets import check_target, device_info, measured_device
from mutators.asking.manual import first_question
from mutators.llm.client import LLM, check_reachable
from operators.errors import UserError

WORK = ".work"
"""The pool's folder, and the lock, in a comparison's folder; there only while it runs."""
SAFE = "all that was acknowledged is stored: {}begin again, it goes on"
"""Words on a comparison that a machine ends."""


@dataclass
class ComparisonState:
    """The state of a comparison under way, to be shown."""

    cells: Sequence[Cell]
    at_once: int = 0
    """Cells under way at most."""
    slots: int = 0
    """Jobs that the pool does at once."""
    searches: dict[Cell, Search] = field(default_factory=dict)
    """Searches of the cells that are under way."""
    ended: dict[Cell, tuple[CellState, str]] = field(default_factory=dict)
    """State of each cell that is not under way and not new, and why it ended."""
    stopped: bool = False
    """Whether the user ended it before its time."""


OnChange = Callable[[ComparisonState], None]


def prepare(comparison: Comparison, runs: Path) -> tuple[Path, list[Cell]]:
    """Begin a comparison below `runs`, or take it up again; return its folder and cells. It raises UserError.

    Every fault of a cell's configuration is found here, before anything is spent.
    """
    folder = folder_of(runs, comparison.name)
    if (folder / BEGUN).exists():
        known = stored(folder)
        check_same(folder, known.config, comparison)
        if told := changed(folder, known):
            raise UserError(f"{folder}: {told}; restore it, or give the comparison another name")
    else:
        for target in comparison.targets:
            check_target(target)
        for llm in {cell.arm: cell.config.llm for cell in check(comparison)}.values():
            if llm:
                check_reachable(llm)
        known = begin(folder, comparison, _devices(comparison))
    return folder, known.cells()


def check(comparison: Comparison) -> list[Cell]:
    """Return the cells of a comparison that could be begun on a machine with its devices. It raises UserError."""
    nothing: dict[str, DeviceInfo] = {target: DeviceInfo("unknown") for target in comparison.targets}
    cells = comparison.cells(nothing)
    for cell in cells:
        if cell.seed == comparison.seeds[0]:
            try:
                _check_limits(cell.config.resolved(elsewhere=True))
            except UserError as error:
                raise UserError(f"arm {cell.arm}: {error}") from None
    return cells


def _check_limits(config: RunConfig) -> None:
    """Raise UserError where the budget leaves no room for what a model is asked first."""
    if config.llm and not set(config.budget).isdisjoint(("tokens", "cost_usd")):
        asked = max(first_question(operator, task) for operator, task in config.tasks())
        LLM(config.llm, spending=Budget(config.budget).spending).check_limits(asked)


def _devices(comparison: Comparison) -> Mapping[str, DeviceInfo]:
    """The devices as prompts of all cells tell of them: measured once, so that they are the same in each."""
    asks = any(comparison.llm if arm.models is None else arm.models for arm in comparison.arms.values())
    look = measured_device if asks else device_info
    return {target: look(target, threads=comparison.threads) for target in comparison.targets}


def compare(
    folder: Path,
    comparison: Comparison,
    cells: Sequence[Cell],
    on_change: OnChange,
    *,
    ray: str = "",
    wait_s: float = 0.0,
) -> ComparisonState:
    """Run all cells that are not done; it returns when they are, or after Ctrl-C. It raises UserError.

    `ray` and `wait_s` are those of `evo.session.Session`.
    """
    running = ComparisonState(cells)
    with at_work(folder, ray) as backend:
        record = Seals(folder, stored(folder).digest)
        for cell in cells:
            found = standing(folder / cell.name)
            if found[0] is not CellState.NEW:
                running.ended[cell] = found
            if found[0] is CellState.DONE and not record.is_done(cell.name):  # the process was cut off just before
                _write_down(record, folder, cell)
        for target in comparison.targets:  # one after the other: neither disturbs the other's timings
            wanted = [cell for cell in cells if cell.target == target and not _is_done(running, cell)]
            if not wanted:
                continue
            group = _Group(backend, folder, wanted, running, record, on_change, wait_s)
            if not group.run(comparison.at_once):
                running.stopped = True
                break
    return running


def _write_down(record: Seals, folder: Path, cell: Cell) -> None:
    """Seal a cell that is done."""
    with Run(folder / cell.name) as run:
        record.done(cell.name, content(run))


def _is_done(running: ComparisonState, cell: Cell) -> bool:
    return cell in running.ended and running.ended[cell][0] is CellState.DONE


class _Group:
    """Cells of one target on one pool."""

    def __init__(
        self,
        backend: Backend,
        folder: Path,
        cells: Sequence[Cell],
        running: ComparisonState,
        record: Seals,
        on_change: OnChange,
        wait_s: float,
    ) -> None:
        self.stopping = False
        self._backend = backend
        self._folder = folder
        self._cells = cells
        self._context = shared_context(cells, folder / WORK / BUILD_FOLDER)
        self._running = running
        self._record = record
        self._on_change = on_change
        self._wait_s = wait_s
        self._errors: list[Exception] = []
        self._said: set[str] = set()

    def run(self, at_once: int) -> bool:
        """Run the cells; return whether it came to their end, rather than to that of the user's patience."""

        async def work() -> str:
            pool = self._backend.pool(self._cells[0].config, self._folder / WORK)
            try:
                return await self._all(pool, at_once)
            finally:
                await pool.close()

        Path(self._context.folder).mkdir(parents=True, exist_ok=True)
        asyncio.run(self._backend.run(work()))
        return not self.stopping

    async def _all(self, pool: WorkerPool, at_once: int) -> str:
        on_ending(self._stop)
        running, cells, queue = self._running, self._cells, deque(self._cells)
        view = pool.for_run(self._context)  # held, so that between two cells nothing is forgotten
        try:
            running.slots = view.slots
            running.at_once = at_once or cells_at_once(cells, running.slots)
            await asyncio.gather(*(self._work(pool, queue) for _ in range(min(running.at_once, len(cells)))))
        finally:
            await view.close()
        if self._errors:
            raise self._errors[0]
        return ""

    async def _work(self, pool: WorkerPool, queue: deque[Cell]) -> None:
        """Run one cell after the other. Where one fails for a reason that is not its own, all end in good order."""
        while queue and not self.stopping:
            try:
                await self._search(pool, queue.popleft())
            except Exception as error:  # noqa: BLE001 (it is raised when the other cells have ended)
                self._errors.append(error)
                self._stop()

    async def _search(self, pool: WorkerPool, cell: Cell) -> None:
        config, folder = cell.config.resolved(), self._folder / cell.name
        waits = max(1.0, self._running.at_once / max(self._running.slots, 1))  # for its turn at the pool
        patient = config.model_copy(update={"stall_s": waits * config.stall_s})
        is_new = not (folder / DATABASE).exists()
        with begun_or_resumed(config, folder, self._backend) as store:
            self._record.begun(cell.name, is_new=is_new)
            own = pool.for_run(self._context)
            try:
                search = Search(
                    patient, store, own, on_change=lambda _: self._on_change(self._running), began=time.time(),
                    wait_s=self._wait_s, say=partial(self._say, cell),
                )  # fmt: skip
                self._running.searches[cell] = search
                await search.run()
            finally:
                self._running.searches.pop(cell, None)
                await own.close()
        self._running.ended[cell] = standing(folder)
        if _is_done(self._running, cell):
            _write_down(self._record, self._folder, cell)
        self._on_change(self._running)

    def _say(self, cell: Cell, text: str) -> None:
        """Tell the user what is urgent; what other cells have said too, once."""
        if text not in self._said:
            self._said.add(text)
            print(f"evo: {cell.name}: {text}", file=sys.stderr)

    def _stop(self) -> None:
        self.stopping = True
        for search in list(self._running.searches.values()):
            search.stop()


def shared_context(cells: Sequence[Cell], build: Path) -> RunContext:
    """The facts that evaluation workers need of cells of one target: the same for all.

    So what a task's workers drew, compiled and keep warm serves all of its cells. What they find out of a kernel they
    tell the cell that asked.
    """
    known = [run_context(cell.config.resolved(), build) for cell in {cell.operator: cell for cell in cells}.values()]
    operators = {name: place for context in known for name, place in context.operators}
    return replace(known[0], operators=tuple(sorted(operators.items())))


def cells_at_once(cells: Sequence[Cell], slots: int) -> int:
    """The number of cells that keep a pool of so many slots busy: twice its jobs, more where models are waited for."""
    under_way = max(cell.config.cell.under_way if cell.config.cell else 1 for cell in cells)
    asked = max(cell.config.llm.concurrency if cell.config.llm else 0 for cell in cells)
    return max(-(-2 * slots // under_way), asked // under_way, 1)


@contextmanager
def at_work(folder: Path, ray: str) -> Iterator[Backend]:
    """The backend for all work on a comparison; no other process does something for it meanwhile."""
    with explained(folder, SAFE.format), _alone(folder), backend_of(ray) as backend:
        yield backend


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No two processes run one comparison at the same time."""
    import fcntl

    (folder / WORK).mkdir(exist_ok=True)
    with (folder / WORK / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"{folder}: another process runs this comparison; wait for its end, or end it") from None
        try:
            yield
        finally:
            shutil.rmtree(folder / WORK, ignore_errors=True)
