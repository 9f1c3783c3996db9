"""The judgement of a comparison: the winner of every cell is judged anew, on what no search has seen.

When the searches are over, each task's hidden shapes are joined by others, drawn now (`evo.compare.hidden`), and all
distinct winners of the task, of whatever arm and seed, are confirmed one after the other in random order: every shape
with new inputs, in fresh processes that time it in turns with the naive kernel and the vendor's library. The naive
kernel comes first, by itself, as a control: drawn shapes with which it is not right are given up. Everything is kept in
a store of the comparison's folder, winner by winner: what was judged is not judged again.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import SystemRandom

from evo import records
from evo.compare.config import Cell
from evo.compare.folder import Standing, begun, standing
from evo.compare.hidden import with_drawn_shapes
from evo.compare.inference import Outcome
from evo.compare.results import CellResult, cell_results
from evo.compare.running import WORK, at_work
from evo.pool import SharedPool
from evo.records import Rows
from evo.sessions import ENDING, Backend, run_context, run_row
from evo.store import Store, query
from evo.verdicts import Verdicts
from fitness.evaluation import Evaluation
from operators.catalog import load
from operators.errors import OperatorError
from operators.kernel import Kernel
from operators.spec import Operator, Task

FOLDER = "judgement"
STORE = "store"
"""Beside the cells' folders, and no cell: patterns over a comparison's runs do not match it."""
SHAPES = "hidden_shapes"
"""The event that says with which hidden shapes a task is judged: those of the operator in `folder`, `drawn` of them
for the judgement."""
DRAWS = 3
"""So often shapes are drawn for a task, before it is judged on the operator's own alone."""
JUDGED = """
    select e.*, (select list(t) from timings t where t.evaluation_id = e.evaluation_id) as timings,
        (select list(l) from library_timings l where l.evaluation_id = e.evaluation_id) as library_timings,
        (select list(r) from errors r where r.evaluation_id = e.evaluation_id) as errors
    from evaluations e
"""


@dataclass(frozen=True)
class JudgedCell:
    """A cell, and what the judgement says of its winner."""

    result: CellResult
    evaluation: Evaluation | None
    """None: it has no winner of its own, or that was not judged yet."""
    outcome: Outcome | None
    """For the statistics; None: its search is not done, or its winner not judged."""


@dataclass(frozen=True)
class _Bench:
    """One task with the winners that are to be judged."""

    task: Task
    cell: Cell
    naive: Kernel
    winners: Sequence[Kernel]


Say = Callable[[str], None]


def judge(folder: Path, say: Say, *, ray: str = "") -> bool:
    """Judge all winners that were not judged yet, when the searches of all cells are over; return whether it got there.

    Before that it judges none: a look at conclusions that are half done would be one more chance to be convinced.
    Ctrl-C ends it: what was judged stays. `ray` is that of `evo.sessions.Session`. It raises UserError.
    """
    standings = [standing(folder / cell.name)[0] for cell in begun(folder)[1]]
    if under_way := sum(each not in (Standing.DONE, Standing.FAILED) for each in standings):
        say(f"judgement: {under_way} of {len(standings)} cells are not over; winners are judged when all are")
        return True
    if not (benches := list(_benches(folder))):
        return True
    with at_work(folder, ray) as backend:
        return _judge(backend, folder, say, benches)


def judge_on(backend: Backend, folder: Path, say: Say) -> bool:
    """As `judge`, of cells that are done, on a backend that is there."""
    return _judge(backend, folder, say, list(_benches(folder)))


def judged_cells(folder: Path, results: Sequence[CellResult] | None = None) -> list[JudgedCell]:
    """All cells of the comparison in `folder` with their judgements so far. It raises UserError.

    `results` are those that `cell_results` has returned, where they are at hand.
    """
    known = _evaluations(folder)
    cells = zip(begun(folder)[1], cell_results(folder) if results is None else results, strict=True)
    return [_judged(cell, result, known) for cell, result in cells]


def outcomes(cells: Iterable[JudgedCell]) -> list[Outcome]:
    """What the statistics are made from."""
    return [cell.outcome for cell in cells if cell.outcome]


def _judge(backend: Backend, folder: Path, say: Say, benches: Sequence[_Bench]) -> bool:
    if not benches:
        return True
    store = Store(folder / FOLDER / STORE, create=True)
    try:
        for target in dict.fromkeys(bench.task.target for bench in benches):
            wanted = [bench for bench in benches if bench.task.target == target]
            if not _Judging(backend, folder, store, say).run(wanted):
                return False
    finally:
        store.close()
    return True


def _judged(cell: Cell, result: CellResult, known: Mapping[tuple[str, str], Evaluation]) -> JudgedCell:
    failed = Outcome(result.arm, result.operator, result.task, result.seed)
    if result.standing is not Standing.DONE:
        return JudgedCell(result, None, None)
    if (kernel := _own(cell, result)) is None:
        return JudgedCell(result, None, failed)
    evaluation = known.get((result.task, kernel.id))
    if evaluation is None or not evaluation.correct:
        return JudgedCell(result, evaluation, failed if evaluation else None)
    assert evaluation.log_speedup is not None and evaluation.log_speedup_se is not None
    times_us = tuple((timing.anchor_latency_us, timing.latency_us) for timing in evaluation.timings)
    outcome = replace(
        failed, log_speedup=evaluation.log_speedup, log_speedup_se=evaluation.log_speedup_se, correct=True,
        times_us=times_us,
    )  # fmt: skip
    return JudgedCell(result, evaluation, outcome)


def _benches(folder: Path) -> Iterator[_Bench]:
    """Tasks with winners that were not judged yet."""
    known = _evaluations(folder)
    found: dict[Task, dict[str, Kernel]] = {}
    cells: dict[Task, Cell] = {}
    for cell, result in zip(begun(folder)[1], cell_results(folder), strict=True):
        task = Task.parse(result.task)
        kernel = _own(cell, result) if result.standing is Standing.DONE else None
        if kernel and (result.task, kernel.id) not in known:
            found.setdefault(task, {})[kernel.id] = kernel
            cells[task] = cell
    for task, kernels in found.items():
        yield _Bench(task, cells[task], _naive(cells[task]), list(kernels.values()))


def _own(cell: Cell, result: CellResult) -> Kernel | None:
    """The winner of a cell, unless that is the naive kernel itself."""
    winner = result.winner
    return winner.kernel if winner and winner.kernel.id != _naive(cell).id else None


def _naive(cell: Cell) -> Kernel:
    return Kernel(cell.operator, cell.target, load(cell.path).naive(cell.target))


def _evaluations(folder: Path) -> dict[tuple[str, str], Evaluation]:
    """What was judged, by task and kernel id."""
    if not (folder / FOLDER / STORE).is_dir():
        return {}
    found = {}
    for row in query(folder / FOLDER / STORE, JUDGED).to_pylist():
        measured = {table: row.pop(table) or () for table in records.MEASURED}
        found[row["task"], row["kernel_id"]] = records.evaluation_from(row, **measured)
    return found


class _Judging:
    """Judges winners of one target on a pool of its own: its workers' draws are no other pool's."""

    def __init__(self, backend: Backend, folder: Path, store: Store, say: Say) -> None:
        self._backend = backend
        self._folder = folder
        self._store = store
        self._say = say
        self._random = SystemRandom()  # no seed that a search could have had
        self._left = 0

    def run(self, benches: Sequence[_Bench]) -> bool:
        """Judge these; return whether it came to their end."""
        self._left = sum(len(bench.winners) for bench in benches)
        (self._folder / WORK).mkdir(exist_ok=True)
        stopped = False

        async def work() -> str:
            nonlocal stopped
            pool = self._backend.pool(benches[0].cell.config, self._folder / WORK)
            judging = asyncio.ensure_future(self._all(pool, benches))
            _on_ending(judging.cancel)
            try:
                await judging
            except asyncio.CancelledError:
                stopped = True
            finally:
                await pool.close()
            return ""

        asyncio.run(self._backend.run(work()))
        return not stopped

    async def _all(self, pool: SharedPool, benches: Sequence[_Bench]) -> None:
        """As many tasks side by side as kernels can be timed at once, in random order."""
        config = benches[0].cell.config.resolved()
        if not self._store.rows("select 1 from runs").num_rows:
            row = run_row(config, self._folder / FOLDER, self._backend.gpus(config))
            await self._commit({"runs": [row | {"arm": None}]})
        view = pool.for_run(run_context(config, self._folder / WORK))
        at_once = view.judges
        await view.close()
        waiting = deque(self._random.sample(benches, len(benches)))

        async def work() -> None:
            while waiting:
                await self._task(pool, waiting.popleft())

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(at_once, len(benches))):
                    group.create_task(work())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _task(self, pool: SharedPool, bench: _Bench) -> None:
        """Judge the winners of one task, one after the other in random order."""
        operator = await self._operator(pool, bench)
        if operator is None:
            return
        async with self._verdicts(pool, bench, operator) as verdicts:
            for kernel in self._random.sample(bench.winners, len(bench.winners)):
                try:
                    await self._keep(kernel, await verdicts.confirm(bench.task, kernel))
                except OperatorError as error:
                    self._say(f"judgement: {bench.task}: {error}")
                    return
                self._left -= 1
                self._say(f"judgement: a winner at {bench.task} is judged, {self._left} left")

    async def _operator(self, pool: SharedPool, bench: _Bench) -> Operator | None:
        """The operator with the hidden shapes that the task is judged on; None where its naive kernel is not right."""
        sql = f"select detail_json from events where kind = '{SHAPES}' and task = ?"
        for row in self._store.rows(sql, [str(bench.task)]).to_pylist():
            place = json.loads(row["detail_json"])["folder"]
            return load(str((self._folder / place).resolve()) if place else bench.cell.path)
        fault = ""
        for operator, place, drawn in self._candidates(bench):
            try:
                async with self._verdicts(pool, bench, operator) as verdicts:
                    control = await verdicts.confirm(bench.task, bench.naive)
            except OperatorError as error:
                fault = str(error)
                continue
            if control.correct:
                detail = {"folder": place, "drawn": drawn}
                noted = records.event_rows(SHAPES, detail, at=time.time(), task=bench.task)
                await self._keep(bench.naive, control, noted)
                return operator
            fault = control.message
        self._say(f"judgement: {bench.task} cannot be judged, its naive kernel fails: {fault}")
        return None

    def _candidates(self, bench: _Bench) -> Iterator[tuple[Operator, str, int]]:
        """The operator with drawn shapes, some times, and as it is; with its place in the comparison's folder."""
        own = load(bench.cell.path)
        for number in range(DRAWS):
            place = f"{FOLDER}/operators/{str(bench.task).replace('/', '-')}-{number}"
            drawn = with_drawn_shapes(own, self._folder / place, self._random)
            if not drawn:
                break
            with suppress(OperatorError):
                yield load(str((self._folder / place).resolve())), place, drawn
        yield own, "", 0

    @asynccontextmanager
    async def _verdicts(self, pool: SharedPool, bench: _Bench, operator: Operator) -> AsyncIterator[Verdicts]:
        """Verdicts on kernels of one task, by stages of its own."""
        build = self._folder / WORK / f"{str(bench.task).replace('/', '-')}-{operator.folder.name}"
        build.mkdir(exist_ok=True)
        context = run_context(bench.cell.config.resolved(), build)
        view = pool.for_run(replace(context, operators=((operator.name, str(operator.folder)),)))
        try:
            yield Verdicts(view, self._commit, time.time)
        finally:
            await view.close()
            shutil.rmtree(build, ignore_errors=True)

    async def _keep(self, kernel: Kernel, found: Evaluation, more: Rows | None = None) -> None:
        known = self._store.rows("select 1 from kernels where kernel_id = ?", [kernel.id]).num_rows
        kernels: Rows = {} if known else {"kernels": [records.kernel_row(kernel)]}
        name = f"{found.task}/judged/{kernel.id}"
        rows = records.evaluation_rows(found, evaluation_id=name, request_id=None, at=time.time())
        await self._commit(records.join(kernels, rows, more or {}))

    async def _commit(self, rows: Rows) -> None:
        await asyncio.wrap_future(self._store.commit(rows))


def _on_ending(cancel: Callable[[], object]) -> None:
    """Have the first signal that ends a program cancel the work; a second one ends it the hard way."""
    loop = asyncio.get_running_loop()

    def ended() -> None:
        for number in ENDING:
            loop.remove_signal_handler(number)
        cancel()

    for number in ENDING:
        loop.add_signal_handler(number, ended)
