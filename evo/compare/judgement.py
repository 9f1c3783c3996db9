"""The judgement of a comparison: the winner of every cell is judged anew, on what no search has seen.

When the searches are over, sizes are drawn near each task's own: more hidden shapes, and as many to be timed as the
searches timed. All distinct winners of the task, of whatever arm and seed, are confirmed at them one after the other in
random order: every shape with new inputs, in fresh processes that time it in turns with the naive kernel and the
vendor's library. That is the endpoint; the sizes that were searched are timed beside. The naive kernel comes first, by
itself, as a control: drawn sizes with which it is not right are given up. At last the winners of a task are timed in
turns with the fastest of them, so that what is told of their order does not rest on two measurements beside a kernel
that may be a hundred times slower than both. Everything is kept in a store of the comparison's folder, winner by
winner: what was judged is not judged again.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
import tomllib
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

from evo import rows as records
from evo.api import Row, Run
from evo.compare.cells import CellResult, CellState, cell_results, stored
from evo.compare.config import Cell
from evo.compare.inference import Outcome
from evo.compare.record import FOLDER, JUDGEMENT, STORE, Seals, content
from evo.compare.running import WORK, at_work
from evo.rows import Rows
from evo.search.verdicts import Verdicts
from evo.session import Backend, on_ending, run_context, run_row
from evo.store import Store
from evo.store.reads import rows_of
from evo.workers.dispatch import WorkerPool
from fitness.evaluation import Evaluation
from fitness.judging.base import Anchor
from fitness.words import counted
from operators.catalog import load
from operators.definition.spec import Operator, Task, Workload
from operators.errors import OperatorError
from operators.files import read_text
from operators.kernel import Kernel

NEAR = 4
"""A drawn size differs from the own one by at most one part in so many."""
SMALL = 128
"""Smaller sizes keep all powers of two that divide them: tiles and vectors are made for them."""
TRIES = 20
FILE = "operator.toml"


@dataclass(frozen=True)
class Drawn:
    """Numbers of sizes that were drawn for the judgement of a task."""

    hidden: int = 0
    timed: int = 0
    """0: winners are timed at the sizes that were searched alone."""


def with_drawn_sizes(operator: Operator, folder: Path, rng: Random, searched: str, *, larger: bool = True) -> Drawn:
    """Write the operator to a new folder with more hidden shapes, and the set TIMED of workloads, near its own.

    These are near the workloads of the set `searched`; `larger` says whether any may be larger than them. Nothing else
    differs. Where its file lists shapes or workloads in a way that cannot be added to, it gets none.
    """
    text = read_text(operator.folder / FILE)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(operator.folder, folder, ignore=shutil.ignore_patterns("champions", "__pycache__"))
    own = tomllib.loads(text)
    if any(text.count(f"[[{name}]]") != len(own.get(name, ())) for name in ("hidden", "workload")):
        return Drawn()
    hidden = [*drawn_sizes(operator.hidden, rng)]
    timed = [*drawn_sizes(operator.workload_set(searched), rng, larger=larger)]
    inherited = [] if "hidden" in own else [dict(workload.dims) for workload in operator.hidden]
    tables = [_table("hidden", dims, "its form") for dims in inherited]
    tables += [_table("hidden", dims, "judgement") for dims in hidden]
    tables += [_table("workload", dims, "judgement", f'set = "{TIMED}"') for dims in timed]
    (folder / FILE).write_text("\n".join([text.rstrip("\n"), *tables, ""]), encoding="utf-8")
    return Drawn(len(hidden), len(timed))


def drawn_sizes(workloads: Sequence[Workload], rng: Random, *, larger: bool = True) -> Iterator[dict[str, int]]:
    """For each of these one near it that is none of them, where there is one."""
    known = {dict_name(workload.dims) for workload in workloads}
    for workload in workloads:
        for _ in range(TRIES):
            dims = near(workload.dims, rng, larger=larger)
            if dict_name(dims) not in known:
                known.add(dict_name(dims))
                yield dims
                break


def near(dims: Mapping[str, int], rng: Random, *, larger: bool = True) -> dict[str, int]:
    """Other sizes, in which equal ones stay equal, larger ones larger, and powers of two still divide what they did.

    What else a kernel or a reference asks of them, such as no more entries than a matrix has room for, is most often
    fulfilled by that. Powers beyond a fourth of a size of SMALL or more may divide it no longer.
    """
    for _ in range(TRIES):
        moved = {size: rng.choice(_neighbours(size, larger)) for size in sorted({*dims.values()})}
        values = list(moved.values())
        if all(low < high for low, high in pairwise(values)):
            return {name: moved[size] for name, size in dims.items()}
    return dict(dims)


def dict_name(dims: Mapping[str, int]) -> str:
    """The name of a workload with these dims; see `operators.definition.spec.Workload.name`."""
    return ",".join(f"{name}={value}" for name, value in dims.items())


def _neighbours(size: int, larger: bool) -> list[int]:
    if size < NEAR:
        return [size]
    step = size & -size
    if size >= SMALL:
        step = min(step, 1 << (size // NEAR).bit_length() - 1)
    most = size // NEAR // step
    return [size + step * count for count in range(-most, (most if larger else 0) + 1)]


def _table(name: str, dims: Mapping[str, int], source: str, *more: str) -> str:
    sizes = ", ".join(f"{name} = {size}" for name, size in dims.items())
    return "\n".join(("", f"[[{name}]]", *more, f'source = "{source}"', f"dims = {{ {sizes} }}"))


TIMED = "judgement"
"""The set of the workloads that are drawn for the judgement."""
SIZES = "drawn_sizes"
"""The event that says at which sizes a task is judged: those of the operator in `folder`; numbers as in `Drawn`."""
UNJUDGED = "not_judged"
"""The event that says why a task cannot be judged."""
JUDGED, SEARCHED, COMPARED = "judged", "searched", "beside"
"""Measurements of a winner: beside the naive kernel at sizes that were drawn, where there are any; beside it at those
that were searched; and beside the fastest winner of its task."""
DRAWS = 3
"""Attempts to draw shapes for a task, before it is judged on the operator's own alone."""


@dataclass(frozen=True)
class JudgedCell:
    """A cell, and what the judgement says of its winner."""

    result: CellResult
    evaluation: Evaluation | None
    """None: it has no winner of its own, or that was not judged yet."""
    outcome: Outcome | None
    """For the statistics; None: not all cells of its task are done and all of their winners judged."""
    beside: Evaluation | None = None
    """The evaluation of its winner in turns with the fastest winner of its task, whose `anchor_id` it names; None: it
    is that winner, was not right, or was not timed beside it yet."""
    left_out: bool = False
    """Whether it is no part of any figure: its operator is at fault, or its task cannot be judged."""


@dataclass(frozen=True)
class _Bench:
    """One task with the winners that are to be judged."""

    task: Task
    cell: Cell
    naive: Kernel
    winners: Sequence[Kernel]
    judged: dict[str, Evaluation]
    """Their evaluations, by kernel id."""
    searched: set[str]
    """Ids of those that were timed at the sizes that were searched; all, where no others were drawn."""
    compared: set[str]
    """Ids of those that were timed beside the fastest one."""

    @property
    def unjudged(self) -> list[Kernel]:
        return [kernel for kernel in self.winners if kernel.id not in self.judged]

    @property
    def fastest(self) -> Kernel | None:
        """The fastest kernel of those that were judged; None: none of them is right."""
        return max(self._right, key=lambda kernel: (self.judged[kernel.id].log_speedup or 0.0, kernel.id), default=None)

    @property
    def unsearched(self) -> list[Kernel]:
        """Winners that are right, and were not timed at the sizes that were searched yet."""
        return [kernel for kernel in self._right if kernel.id not in self.searched]

    @property
    def uncompared(self) -> list[Kernel]:
        """Winners that are right, but for the fastest one, which were not timed beside it yet."""
        fastest = self.fastest
        return [kernel for kernel in self._right if kernel is not fastest and kernel.id not in self.compared]

    @property
    def _right(self) -> list[Kernel]:
        return [kernel for kernel in self.winners if kernel.id in self.judged and self.judged[kernel.id].correct]

    @property
    def left(self) -> int:
        """The number of measurements that are still to be made, if all of them turn out to be right."""
        new = len(self.unjudged)
        return 2 * new + len(self.unsearched) + len(self.uncompared) + max(new - (self.fastest is None), 0)


Say = Callable[[str], None]
_Evaluations = Mapping[tuple[str, str], Evaluation]
"""By task and kernel id."""


def judge(folder: Path, results: Sequence[CellResult], say: Say, *, ray: str = "") -> bool:
    """Judge all winners that were not judged yet, when the searches of all cells are over; return whether it got there.

    `results` are those of `cell_results`. Before that it judges none: a look at conclusions that are half done would be
    one more chance to be convinced. Ctrl-C ends it: what was judged stays. `ray` is that of `evo.session.Session`. It
    raises UserError.
    """
    if under_way := sum(each.standing not in (CellState.DONE, CellState.FAILED) for each in results):
        say(f"judgement: {under_way} of {counted(len(results), 'cell')} not over; winners are judged when all are")
        return True
    if not (benches := list(_benches(folder, results))):
        return True
    with at_work(folder, ray) as backend:
        return _judge(backend, folder, say, benches)


def judged_cells(folder: Path, results: Sequence[CellResult] | None = None) -> list[JudgedCell]:
    """All cells of the comparison in `folder` with their judgements so far. It raises UserError.

    `results` are those that `cell_results` has returned, where they are at hand.
    """
    measured = {kind: _evaluations(folder, kind) for kind in (JUDGED, SEARCHED, COMPARED)}
    unjudged = {row["task"] for row in _rows(folder, "cells.events", kind=UNJUDGED)}
    unjudged -= {row["task"] for row in _rows(folder, "cells.events", kind=SIZES)}  # later on they could be
    cells = zip(stored(folder).cells(), cell_results(folder) if results is None else results, strict=True)
    found = [_judged(cell, result, measured, unjudged) for cell, result in cells]
    waiting = {each.result.task for each in found if each.outcome is None and not each.left_out}
    return [replace(each, outcome=None) if each.result.task in waiting else each for each in found]


def outcomes(cells: Iterable[JudgedCell]) -> list[Outcome]:
    """The outcomes that the statistics are made from."""
    return [cell.outcome for cell in cells if cell.outcome]


def _judge(backend: Backend, folder: Path, say: Say, benches: Sequence[_Bench]) -> bool:
    place = folder / FOLDER / STORE
    record, is_new = Seals(folder, stored(folder).digest), not place.exists()
    store = Store(place, create=True)
    try:
        record.begun(JUDGEMENT, is_new=is_new)
        for target in dict.fromkeys(bench.task.target for bench in benches):
            wanted = [bench for bench in benches if bench.task.target == target]
            if not _Judging(backend, folder, store, say).run(wanted):
                return False
    finally:
        store.close()
        with Run(place) as run:
            record.done(JUDGEMENT, content(run))
    return True


def _judged(
    cell: Cell, result: CellResult, measured: Mapping[str, _Evaluations], unjudged: Collection[str]
) -> JudgedCell:
    failed = Outcome(result.arm, result.operator, result.task, result.seed)
    if result.standing is not CellState.DONE or result.task in unjudged:
        return JudgedCell(result, None, None, left_out=result.standing in (CellState.FAILED, CellState.DONE))
    if (kernel := _own(cell, result)) is None:
        return JudgedCell(result, None, failed)
    found = {kind: evaluations.get((result.task, kernel.id)) for kind, evaluations in measured.items()}
    evaluation, searched, beside = found[JUDGED], found[SEARCHED], found[COMPARED]
    if wrong := next((each for each in (searched, beside) if each and not each.correct), None):
        return JudgedCell(result, wrong, failed)  # whatever finds out that it is wrong: it is
    if evaluation is None or not evaluation.correct:
        return JudgedCell(result, evaluation, failed if evaluation else None)
    searched = searched or evaluation
    assert evaluation.log_speedup is not None and evaluation.log_speedup_se is not None
    assert searched.log_speedup is not None
    outcome = replace(
        failed, log_speedup=evaluation.log_speedup, log_speedup_se=evaluation.log_speedup_se, has_winner=True,
        searched=searched.log_speedup,
        times_us=tuple((timing.anchor_latency_us, timing.latency_us) for timing in searched.timings),
    )  # fmt: skip
    return JudgedCell(result, evaluation, outcome, beside)


def _benches(folder: Path, results: Sequence[CellResult]) -> Iterator[_Bench]:
    """Tasks with winners that were not judged yet."""
    known, searched, compared = (_evaluations(folder, kind) for kind in (JUDGED, SEARCHED, COMPARED))
    drawn = {row["task"]: _drawn(row) for row in _rows(folder, "cells.events", kind=SIZES)}
    found: dict[Task, dict[str, Kernel]] = {}
    cells: dict[Task, Cell] = {}
    for cell, result in zip(stored(folder).cells(), results, strict=True):
        if result.standing is CellState.DONE and (kernel := _own(cell, result)):
            task = Task.parse(result.task)
            found.setdefault(task, {})[kernel.id] = kernel
            cells[task] = cell
    for task, kernels in found.items():
        judged = {id: known[str(task), id] for id in kernels if (str(task), id) in known}
        need_not = str(task) in drawn and not drawn[str(task)].timed
        timed = {id for id in kernels if need_not or (str(task), id) in searched}
        done = {id for id in kernels if (str(task), id) in compared}
        bench = _Bench(task, cells[task], _naive(cells[task]), list(kernels.values()), judged, timed, done)
        if bench.left:
            yield bench


def _own(cell: Cell, result: CellResult) -> Kernel | None:
    """The winner of a cell, unless that is the naive kernel itself."""
    winner = result.winner
    return winner.kernel if winner and winner.kernel.id != _naive(cell).id else None


def _naive(cell: Cell) -> Kernel:
    return Kernel(cell.operator, cell.target, load(cell.path).naive(cell.target))


def _evaluations(folder: Path, kind: str) -> _Evaluations:
    """The measurements, JUDGED or COMPARED, by task and kernel id."""
    names = [row["evaluation_id"] for row in _rows(folder, "cells.judgements", kind=kind)]
    rows = _rows(folder, "kernels.measured", evaluations=names) if names else []
    return {(row["task"], row["kernel_id"]): records.evaluation_from(row) for row in rows}


def _rows(folder: Path, name: str, **values: Any) -> list[Row]:
    """The answer of a named query to the judgement in a comparison's folder; empty where there is none yet."""
    if not (folder / FOLDER / STORE).is_dir():
        return []
    with Run(folder / FOLDER / STORE) as run:
        return run.rows(name, **values)


def _drawn(row: Row) -> Drawn:
    detail = json.loads(row["detail_json"])
    return Drawn(detail["hidden"], detail["timed"])


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
        self._left = sum(bench.left for bench in benches)
        (self._folder / WORK).mkdir(exist_ok=True)
        stopped = False

        async def work() -> str:
            nonlocal stopped
            pool = self._backend.pool(benches[0].cell.config, self._folder / WORK)
            judging = asyncio.ensure_future(self._all(pool, benches))
            on_ending(judging.cancel, times=1)
            try:
                await judging
            except asyncio.CancelledError:
                stopped = True
            finally:
                await pool.close()
            return ""

        asyncio.run(self._backend.run(work()))
        return not stopped

    async def _all(self, pool: WorkerPool, benches: Sequence[_Bench]) -> None:
        """Judge the tasks in random order, as many side by side as kernels can be timed at once."""
        config = benches[0].cell.config.resolved()
        if not rows_of(self._store, "runs.run"):
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

    async def _task(self, pool: WorkerPool, bench: _Bench) -> None:
        """Judge the winners of one task, one after the other in random order, and then beside the fastest of them."""
        found = await self._operator(pool, bench)
        if found is None:
            return
        operator, drawn = found
        try:
            async with self._verdicts(pool, bench, operator, drawn) as verdicts:
                if bench.unjudged:
                    await verdicts.choose_rivals(bench.task, bench.naive)
                for kernel in self._shuffled(bench.unjudged):
                    judged = bench.judged[kernel.id] = await verdicts.confirm(bench.task, kernel)
                    await self._keep(kernel, judged, JUDGED)
                    self._tell(bench, "judged")
            if drawn.timed:
                async with self._verdicts(pool, bench, operator, Drawn()) as verdicts:
                    for kernel in self._shuffled(bench.unsearched):
                        await self._keep(kernel, await verdicts.confirm(bench.task, kernel), SEARCHED)
                        self._tell(bench, "timed at the sizes that were searched")
            async with self._verdicts(pool, bench, operator, drawn) as verdicts:
                if fastest := bench.fastest:
                    of_it = bench.judged[fastest.id]
                    anchor = Anchor(fastest, of_it.log_speedup or 0.0, of_it.log_speedup_se or 0.0)
                    for kernel in self._shuffled(bench.uncompared):
                        await self._keep(kernel, await verdicts.beside(bench.task, kernel, anchor), COMPARED)
                        self._tell(bench, "timed beside the fastest one")
        except OperatorError as error:
            self._say(f"judgement: {bench.task}: {error}")

    def _shuffled(self, kernels: Sequence[Kernel]) -> list[Kernel]:
        return self._random.sample(kernels, len(kernels))

    def _tell(self, bench: _Bench, done: str) -> None:
        self._left -= 1
        left = counted(max(self._left, 0), "measurement")
        self._say(f"judgement: a winner at {bench.task} is {done}, {left} left at most")

    async def _operator(self, pool: WorkerPool, bench: _Bench) -> tuple[Operator, Drawn] | None:
        """The operator with the sizes that the task is judged at; None where its naive kernel is not right."""
        for row in rows_of(self._store, "cells.events", kind=SIZES):
            if row["task"] == str(bench.task):
                place = json.loads(row["detail_json"])["folder"]
                return load(str((self._folder / place).resolve()) if place else bench.cell.path), _drawn(row)
        fault = ""
        for operator, place, drawn in self._candidates(bench):
            try:
                async with self._verdicts(pool, bench, operator, drawn) as verdicts:
                    control = await verdicts.confirm(bench.task, bench.naive)
            except OperatorError as error:
                fault = str(error)
                continue
            if control.correct:
                detail = {"folder": place, **asdict(drawn)}
                noted = records.event_rows(SIZES, detail, at=time.time(), task=bench.task)
                await self._keep(bench.naive, control, JUDGED, noted)
                return operator, drawn
            fault = control.message
        await self._commit(records.event_rows(UNJUDGED, {"fault": fault}, at=time.time(), task=bench.task))
        self._say(f"judgement: {bench.task} cannot be judged, its naive kernel fails: {fault}")
        return None

    def _candidates(self, bench: _Bench) -> Iterator[tuple[Operator, str, Drawn]]:
        """The operator with drawn sizes, some times, and as it is; with its place in the comparison's folder.

        Where sizes that may be larger than its own were in vain, there may be no room for them.
        """
        own, searched = load(bench.cell.path), bench.cell.config.resolved().workload_set
        for number in range(DRAWS):
            place = f"{FOLDER}/operators/{str(bench.task).replace('/', '-')}-{number}"
            drawn = with_drawn_sizes(own, self._folder / place, self._random, searched, larger=number == 0)
            if drawn == Drawn():
                break
            with suppress(OperatorError):
                yield load(str((self._folder / place).resolve())), place, drawn
        yield own, "", Drawn()

    @asynccontextmanager
    async def _verdicts(
        self, pool: WorkerPool, bench: _Bench, operator: Operator, drawn: Drawn
    ) -> AsyncIterator[Verdicts]:
        """Verdicts on kernels of one task, by stages of its own, at sizes that were drawn where there are any."""
        timed = TIMED if drawn.timed else bench.cell.config.resolved().workload_set
        build = self._folder / WORK / f"{str(bench.task).replace('/', '-')}-{operator.folder.name}-{timed}"
        build.mkdir(exist_ok=True)
        context = run_context(bench.cell.config.resolved(), build)
        operators = ((operator.name, str(operator.folder)),)
        view = pool.for_run(replace(context, operators=operators, workload_set=timed))
        try:
            yield Verdicts(view, self._commit, time.time)
        finally:
            await view.close()
            shutil.rmtree(build, ignore_errors=True)

    async def _keep(self, kernel: Kernel, found: Evaluation, kind: str, more: Rows | None = None) -> None:
        known = rows_of(self._store, "kernels.files", kernels=[kernel.id])
        kernels: Rows = {} if known else {"kernels": [records.kernel_row(kernel)]}
        name = f"{found.task}/{kind}/{kernel.id}"
        rows = records.evaluation_rows(found, evaluation_id=name, request_id=None, at=time.time())
        await self._commit(records.join(kernels, rows, more or {}))

    async def _commit(self, rows: Rows) -> None:
        await asyncio.wrap_future(self._store.commit(rows))
