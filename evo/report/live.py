"""A search, or a comparison, on a terminal: what is under way, what is left, what was found last."""

from __future__ import annotations

import csv
import math
import os
import shutil
import subprocess
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from evo.api import Run
from evo.compare.cells import CellState
from evo.individual import NO_CHILD
from evo.report.amounts import listed, of_budget, tokens, usd
from evo.report.health import health
from evo.report.output import printable
from evo.report.status import last_changes, summary
from evo.report.terminal import Field, Fitted, console, latest, many_line, summary_table
from evo.search.task import Running, TaskState
from evo.workers.pool import RunningJob
from fitness.evaluation import Status
from fitness.words import counted, duration, ratio
from operators.identity import short

if TYPE_CHECKING:  # not what a single search would wait for
    from evo.compare.config import Cell
    from evo.compare.running import ComparisonState

TASK_FIELDS = (
    Field("task", "name"), Field("best"), Field("vs library", rank=2), Field("now", rank=4), Field("tried", rank=1),
    Field("correct", rank=5), Field("slower", rank=6), Field("failed", rank=3), Field("not new", rank=7),
)  # fmt: skip
BAR = 30
"""Cells of the bar at most."""
TITLE = len("+99 more")
"""Cells of what stands beside the lines of a part."""


@dataclass(frozen=True)
class TaskLine:
    """One task."""

    cells: tuple[str, ...]
    """The cells of its row, in the order of `TASK_FIELDS`."""
    is_under_way: bool
    changed: float
    """When its best last changed, in seconds of any clock; 0 where it never did."""


@dataclass(frozen=True)
class View:
    """All that is shown at one moment. It changes no more, so that another thread may draw it."""

    phase: str
    share: float
    """The used share of the budget, from 0 to 1."""
    spent: str
    left: str
    counts: Sequence[str]
    """Counts of candidates, requests and tasks, each in a few words."""
    models: str
    gpus: Sequence[GpuLoad]
    jobs: Sequence[str]
    """Jobs of now, the oldest first."""
    events: Sequence[str]
    """Finds, the newest first."""
    tasks: Sequence[TaskLine]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, height = options.max_width, console.size.height
        few = height <= 30
        head = list(self._head(width, ascii_only=options.ascii_only))
        jobs = _part("judging", self.jobs, 3 if few else 8, width)
        events = _part("found", self.events, 4 if few else 12, width)
        parts = [*head, *jobs, *events]
        used = sum(len(console.render_lines(part, options, pad=False)) for part in parts)
        yield from parts
        room = max(height - used - 1, 1)
        count = len(self.tasks)
        while len(lines := list(self._tasks(count))) and count > 1:
            over = sum(len(console.render_lines(part, options, pad=False)) for part in lines) - room
            if over <= 0:
                break
            count = max(count - max(over // 2, 1), 1)  # a task whose name is folded takes several lines
        yield from lines

    def _head(self, width: int, *, ascii_only: bool) -> Iterable[RenderableType]:
        filled, empty = ("#", "-") if ascii_only else ("█", "░")
        size = min(BAR, width // 4)
        done = round(size * min(max(self.share, 0.0), 1.0))
        figures = ", ".join(filter(None, (self.spent, self.left)))
        yield Text.assemble(
            (filled * done, "green"), (empty * (size - done), "dim"), f" {100 * self.share:.0f} %  {figures}"
        )
        phase = Text(printable(self.phase), "bold")
        for count in filter(None, self.counts):  # the most important ones come first
            if phase.cell_len + len(count) + 2 <= width:
                phase.append(f", {count}", "not bold")
        yield phase
        if self.models:
            yield Text(printable(self.models))
        if self.gpus:
            yield Text(f"{loads(self.gpus)} (a sample every {GPUS_EVERY_S} s)")

    def _tasks(self, count: int) -> Iterable[RenderableType]:
        """The tasks whose best changed last, `count` at most, and how many more there are."""
        chosen = sorted(self.tasks, key=lambda task: (-task.changed, not task.is_under_way))[:count]
        shown = [task for task in self.tasks if task in chosen]
        yield Fitted(TASK_FIELDS, [task.cells for task in shown], silent=True)
        if more := len(self.tasks) - len(shown):
            yield Text(f"and {counted(more, 'task')} that changed earlier: evo status RUN --all", style="dim")


def _part(title: str, lines: Sequence[str], most: int, width: int) -> list[Table]:
    """Lines beside their title, each in one line of the terminal; none where there is nothing to tell."""
    if not lines:
        return []
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(width=TITLE, no_wrap=True)
    table.add_column(width=max(width - TITLE - 2, 10), no_wrap=True, overflow="crop")
    for number, line in enumerate(lines[:most]):
        more = f"+{len(lines) - most} more" if number == most - 1 and len(lines) > most else ""
        table.add_row(Text(title if number == 0 else more, style="dim" if number else "bold"), Text(printable(line)))
    return [table]


LINE_EVERY_S = 10.0
"""Least seconds between two lines, but for the first improvement."""
QUIET_S = 60.0
"""Most seconds between two lines, also where nothing is new."""
LINE_LENGTH = 120
VIEW_EVERY_S = 0.25
"""Least seconds between two states of the live view."""
FINDS = 16
LIMITS = ("wall_s", "evaluations", "calls", "tokens", "cost_usd")
"""Kinds of limits whose rest is told."""
NAMED = 3
"""Tasks with a new best that a line names; of more it tells the number."""


class Finds:
    """Improvements as they were seen, the newest first."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._looked = False
        self._known: dict[str, float] = {}
        """By task, the standing that was seen last."""
        self.changed: dict[str, float] = {}
        """By task, when that was."""
        self.lines: deque[str] = deque(maxlen=FINDS)

    def look(self, search: Running) -> None:
        """Take note of the tasks whose fastest kernel is another one than before."""
        is_first, self._looked = not self._looked, True
        for task, state in search.states.items():
            if state.fastest is None or self._known.get(str(task)) == state.fastest[0]:
                continue
            before = self._known.get(str(task), 0.0)
            self._known[str(task)] = log = state.fastest[0]
            if state.fastest[1] == state.baseline.id or is_first:  # what an earlier session found is no news
                continue
            self.changed[str(task)] = self._now()
            self.lines.appendleft(
                f"{duration(search.budget.spent['wall_s'])}  {_name(state, search)} {ratio(math.exp(log))} "
                f"by {state.fastest_by}, {100 * math.expm1(log - before):+.0f} %"
            )


class Progress:
    """The search calls it whenever something changed; it shows what changed at a human pace."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._console = console(stderr=True)
        self._live = (
            Live(console=self._console, refresh_per_second=4, transient=True, vertical_overflow="crop")
            if self._console.is_terminal
            else None
        )
        self._gpus = GpuWatch()
        self._finds = Finds(now)
        self._last_view = -math.inf
        self._now = now
        self._last_line = now()
        self._phase = ""
        """The first word of the phase that lines told of; none is before the first call."""
        self._told: dict[str, str] = {}
        """By task, its best as lines told it."""
        self._first = ""
        """When a task first had a kernel that is faster than its naive one; empty where an earlier session saw that."""
        self._awaits_first = True

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._gpus.close()
            with suppress(OSError):
                self._live.stop()

    def __call__(self, search: Running) -> None:
        try:
            self._show(search)
        except OSError:  # the terminal was closed, or the disk that holds the log is full: no search ends for that
            self._console.quiet = True

    def _show(self, search: Running) -> None:
        is_first = self._awaits_first and bool(_improved(search))
        if is_first:
            self._awaits_first = False
            self._first = f"first improvement after {search.budget.spent['wall_s']:.0f} s" if self._phase else ""
        self._phase = self._phase or _kind(search)
        if self._live:
            self._show_live(search, self._live)
        elif (is_first and self._first) or self._is_due(search):
            self._last_line, self._phase = self._now(), _kind(search)
            self._console.print(self._line(search, is_first=is_first), soft_wrap=True)

    def _show_live(self, search: Running, live: Live) -> None:
        """Draw the view anew, a few times a second at most."""
        if self._now() - self._last_view < VIEW_EVERY_S and _kind(search) == self._phase:
            return
        self._last_view, self._phase = self._now(), _kind(search)
        if any(task.target == "cuda" for task in search.states):
            self._gpus.start()
        self._finds.look(search)
        live.update(_view(search, self._first, self._gpus, self._finds))

    def _is_due(self, search: Running) -> bool:
        """Whether a line is to be written now. What happens in the first seconds deserves none, but an improvement."""
        still_s = self._now() - self._last_line
        if still_s < LINE_EVERY_S:
            return False
        is_new = _kind(search) != self._phase or self._phase != "searching" or bool(self._news(search))
        return is_new or still_s >= QUIET_S

    def _news(self, search: Running) -> list[TaskState]:
        """The tasks whose best is another one than was told last, the greatest gain first."""
        found = [state for state in _improved(search) if self._told.get(str(state.task)) != _best(state)]
        return sorted(found, key=lambda state: -state.fastest[0] if state.fastest else 0.0)

    def _line(self, search: Running, *, is_first: bool) -> str:
        """The work of now, what is left and what is new, as far as there is room; the most important comes first."""
        news = self._news(search)
        first = self._first if is_first else ""
        self._told |= {str(state.task): _best(state) for state in news}
        bests = listed([f"{_name(state, search)} {_best(state)}" for state in news], NAMED)
        failed = sum(bool(state.fault) for state in search.states.values())
        parts = (
            _left(search), _unavailable(search), bests, first, "" if news else _waits(search), _count(search),
            f"{_rate(search):.0f} candidates/min",
            f"{failed} failed" if failed else "", _models(search),
        )  # fmt: skip
        return _fitting(f"{search.budget.spent['wall_s']:.0f} s, {search.phase}", parts)


def _fitting(head: str, parts: Iterable[str]) -> str:
    """One line of as many of these parts as it has room for."""
    line, joint = head[:LINE_LENGTH], ": "
    for part in filter(None, parts):
        if len(line) + len(joint) + len(part) <= LINE_LENGTH:
            line, joint = f"{line}{joint}{part}", "; "
    return line


def _kind(search: Running) -> str:
    return search.phase.split(maxsplit=1)[0]


def _improved(search: Running) -> Sequence[TaskState]:
    """The tasks with a kernel that is faster than the naive one, by more than chance."""
    return [
        state
        for state in search.states.values()
        if state.fastest and state.fastest[0] > 0 and state.fastest[1] != state.baseline.id
    ]


def _count(search: Running) -> str:
    total = len(search.states)
    return f"{len(_improved(search))} of {counted(total, 'task')} improved" if total > 1 else ""


def _left(search: Running) -> str:
    """The rest of every limit."""
    spent = search.budget.spent
    limits = {kind: limit for kind, limit in search.budget.limits.items() if kind in LIMITS}
    left = [of_budget(kind, max(limit - spent[kind], 0.0)) for kind, limit in limits.items()]
    return f"{', '.join(left)} left" if left else ""


def _unavailable(search: Running) -> str:
    """The requests that use no budget up, since the machine or the model had no time for them."""
    lost = sum(state.unavailable for state in search.states.values())
    return f"{lost} unavailable" if lost else ""


def _waits(search: Running) -> str:
    return f"waits for {search.waits}" if search.waits else ""


def _rate(search: Running) -> float:
    candidates = sum(state.candidates for state in search.states.values())
    return 60 * candidates / max(search.budget.spent["wall_s"], 1.0)


def _models(search: Running) -> str:
    """The cost of language models so far, if any was asked."""
    spending = search.budget.spending
    if not spending.attempts:
        return ""
    likely = tokens(spending.likely_lost_tokens)
    lost = f" ({tokens(spending.lost_tokens)} lost at most, likely {likely})" if spending.lost_tokens else ""
    return f"models: {counted(spending.attempts, 'attempt')}, {tokens(spending.tokens)}{lost}, {usd(spending.dollars)}"


def _name(state: TaskState, search: Running) -> str:
    """The operator, and what else it takes to know the task."""
    task = state.task
    same = [other for other in search.states if other.operator == task.operator]
    return task.operator if len(same) == 1 else f"{task.operator}/{task.dtype}"


def _best(state: TaskState) -> str:
    if state.fault:
        return "failed"
    return "-" if state.fastest is None else ratio(math.exp(state.fastest[0]))


def _against_library(state: TaskState) -> float | None:
    leader, known = state.fastest, state.knowledge.best
    if leader is None or known is None or known.source[0] != leader[1] or leader[1] not in state.confirmed:
        return None
    return state.knowledge.over_library


def _view(search: Running, first: str, gpus: GpuWatch, finds: Finds) -> View:
    """The view of the search as it is now."""
    jobs = search.pool.jobs() if search.pool else ()
    waiting = max(sum(state.in_flight for state in search.states.values()) - len(jobs), 0)
    failed = sum(bool(state.fault) for state in search.states.values())
    counts = (
        f"{_rate(search):.0f} candidates/min", f"{failed} failed" if failed else "", _unavailable(search),
        _count(search), f"{counted(waiting, 'more request')} under way" if waiting else "", first, _waits(search),
    )  # fmt: skip
    return View(
        phase=search.phase, share=search.budget.share(), spent=duration(search.budget.spent["wall_s"]),
        left=_left(search), counts=counts, models=_models(search), gpus=gpus.loads, jobs=[_job(at) for at in jobs],
        events=tuple(finds.lines), tasks=[_task_line(state, search, finds) for state in search.states.values()],
    )  # fmt: skip


def _job(at: RunningJob) -> str:
    return f"{at.job.name:<8} {at.job.task} {short(at.job.kernel.id)}  {time.monotonic() - at.began:.0f} s"


def _task_line(state: TaskState, search: Running, finds: Finds) -> TaskLine:
    counts = state.statuses
    correct, slower = counts[Status.CORRECT.value], counts[Status.SLOWER.value]
    failed = max(state.candidates - correct - slower, 0)
    not_new = counts[Status.DUPLICATE.value] + counts[NO_CHILD]
    told = map(str, (state.in_flight, state.candidates, correct, slower, failed, not_new))
    cells = (_name(state, search), _best(state), ratio(_against_library(state)), *told)
    return TaskLine(cells, bool(state.in_flight), finds.changed.get(str(state.task), 0.0))


LOOK_EVERY_S = 2.0
ROOM_BESIDE, LEAST_SHOWN = 8, 4
"""Lines of a terminal that are kept for what is said beside the table; tasks that are shown at least."""


def attach(folder: Path, *, sleep: Callable[[float], None] = time.sleep) -> str:
    """Show the run until it ends, or for good; return how it is then. It raises StoreError, and KeyboardInterrupt."""
    run, made = Run(folder), console()
    last: tuple[Any, ...] = ()
    with Live(console=made, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            found = health(run)
            if made.is_terminal:
                live.update(_attached_view(run, made.height, found.line), refresh=True)
            elif (new := (replace(found, verdict_s=None), many_line(summary(run)))) != last:
                last = new
                made.print(f"{found.line}; {last[1]}", soft_wrap=True)
            if found.state != "running":
                return found.line
            sleep(LOOK_EVERY_S)


def _attached_view(run: Run, height: int, line: str) -> Group:
    tasks = summary(run)
    room = max(height - ROOM_BESIDE, LEAST_SHOWN)
    shown = latest(tasks, last_changes(run), room) if len(tasks) > room else tasks
    return Group(Text(f"run {run.folder}"), Text(line), Text(many_line(tasks)), summary_table(shown))


CELLS_EVERY_S = 20.0
"""Seconds between two lines on the cells of a comparison that are under way."""
CELLS_NAMED = 4
"""Cells that such a line names."""


class ComparisonProgress:
    """A comparison calls it whenever something changed; it writes to standard error at a human pace."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._console = console(stderr=True)
        self._now = now
        self._last_line = now()
        self._told: set[Cell] | None = None
        """Cells whose end was told; None before the first call."""

    def __call__(self, running: ComparisonState) -> None:
        with suppress(OSError):  # the terminal was closed: no comparison ends for that
            if self._told is None:
                self._told = set(running.ended)
                self._say(f"{_done(running)}; {running.at_once} at once on a pool of {counted(running.slots, 'job')}")
            for cell, (standing, reason) in running.ended.items():
                if cell not in self._told and cell not in running.searches:
                    self._told.add(cell)
                    self._say(f"{_done(running)}; {cell.name} is {standing.value}: {reason}")
            if self._now() - self._last_line >= CELLS_EVERY_S and running.searches:
                shown = [f"{cell.name} {_spent(search)}" for cell, search in running.searches.items()]
                self._say(f"{_done(running)}; under way: {listed(shown, CELLS_NAMED)}")

    def _say(self, text: str) -> None:
        self._last_line = self._now()
        self._console.print(text, soft_wrap=True, markup=False, highlight=False)


def _done(running: ComparisonState) -> str:
    counts = Counter(standing for standing, _ in running.ended.values())
    failed = f", {counts[CellState.FAILED]} failed" if counts[CellState.FAILED] else ""
    waiting = f", {counts[CellState.WAITING]} wait for answers" if counts[CellState.WAITING] else ""
    return f"{counts[CellState.DONE]} of {counted(len(running.cells), 'cell')} done{failed}{waiting}"


def _spent(search: Running) -> str:
    spent = search.budget.spent
    return ", ".join(f"{spent[kind]:.4g}/{limit:.4g}" for kind, limit in search.budget.limits.items())


# --- the load of this machine's GPUs, as nvidia-smi tells it ----------------------------------------------------------


GPUS_EVERY_S = 30
"""Seconds between two samples, which one process takes for the whole session: each asks the driver, so that they are
rare and disturb no timing."""
PROGRAM = "nvidia-smi"
FIELDS = ("index", "utilization.gpu", "memory.used", "memory.total")


@dataclass(frozen=True)
class GpuLoad:
    """One GPU as it was seen last."""

    index: str
    busy: int | None
    """Percent of the sample's moment in which some kernel ran, of any process; None where the device does not tell."""
    used_mib: int | None
    total_mib: int | None

    def __str__(self) -> str:
        busy = "busy ?" if self.busy is None else f"{self.busy} % busy"
        if self.used_mib is None or self.total_mib is None:
            return f"GPU {self.index} {busy}"
        return f"GPU {self.index} {busy}, {self.used_mib / 1024:.1f} of {self.total_mib / 1024:.0f} GiB"


GPUS_NAMED = 3
"""The most GPUs that are named one by one; of more the least and the most are told."""


def loads(gpus: Sequence[GpuLoad]) -> str:
    """GPUs in few words."""
    if len(gpus) <= GPUS_NAMED:
        return "; ".join(map(str, gpus))
    busy = [gpu.busy for gpu in gpus if gpu.busy is not None]
    used = [gpu.used_mib / 1024 for gpu in gpus if gpu.used_mib is not None]
    parts = [
        f"{min(busy)}-{max(busy)} % busy" if busy else "busy ?",
        f"{min(used):.1f}-{max(used):.1f} GiB used" if used else "",
    ]
    return f"{len(gpus)} GPUs {', '.join(filter(None, parts))}"


def load_of(line: str) -> GpuLoad | None:
    """The load that a line of `nvidia-smi` tells; None for one that is something else."""
    cells = [cell.strip() for cell in next(csv.reader([line]), [])]
    if len(cells) != len(FIELDS) or not cells[0].isdigit():
        return None
    busy, used, total = (int(cell) if cell.isdigit() else None for cell in cells[1:])
    return GpuLoad(cells[0], busy, used, total)


class GpuWatch:
    """The GPUs that this process may use, as they were at the last sample; none before the first one."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        visible = environment.get("CUDA_VISIBLE_DEVICES", "")
        self._visible = set(visible.split(",")) if visible.replace(",", "").isdigit() else None
        self._process: subprocess.Popen[str] | None = None
        self._loads: dict[str, GpuLoad] = {}
        self._asked = False
        self.ended = Event()
        """Set once the program says no more."""

    def start(self) -> None:
        """Begin to sample, once, if this machine has the program."""
        if self._asked:
            return
        self._asked = True
        program = shutil.which(PROGRAM)
        if not program:
            return
        command = [
            program,
            f"--query-gpu={','.join(FIELDS)}",
            "--format=csv,noheader,nounits",
            f"--loop={GPUS_EVERY_S}",
        ]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        except OSError:
            return
        assert self._process.stdout
        Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    @property
    def loads(self) -> Sequence[GpuLoad]:
        """The GPUs in their order."""
        return sorted(self._loads.copy().values(), key=lambda load: int(load.index))

    def close(self) -> None:
        """End the program."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _read(self, lines: IO[str]) -> None:
        with lines:
            for line in lines:
                load = load_of(line)
                if load and (self._visible is None or load.index in self._visible):
                    self._loads[load.index] = load
        self.ended.set()
