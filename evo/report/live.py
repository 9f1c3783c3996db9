"""A search on a terminal: what is under way, what is left, what was found last; whatever the terminal's size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from evo.report.fitted import Field, Fitted
from evo.report.gpus import EVERY_S, GpuLoad, loads
from evo.report.output import printable
from evo.report.terminal import times

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

    name: str
    best: str
    """Its speedup, or why there is none; after a ~ where that may be chance so far."""
    against_library: float | None
    in_flight: int
    tried: int
    correct: int
    slower: int
    failed: int
    not_new: int
    changed: float
    """When its best last changed, in seconds of any clock; 0 where it never did."""

    @property
    def cells(self) -> tuple[str, ...]:
        """In the order of `TASK_FIELDS`."""
        counts = (self.in_flight, self.tried, self.correct, self.slower, self.failed, self.not_new)
        now, *rest = map(str, counts)
        return (self.name, self.best, times(self.against_library), now, *rest)


@dataclass(frozen=True)
class View:
    """All that is shown at one moment. It changes no more, so that another thread may draw it."""

    phase: str
    share: float
    """Of the budget, used so far; from 0 to 1."""
    spent: str
    left: str
    counts: Sequence[str]
    """Of candidates, requests and tasks, each in a few words."""
    models: str
    gpus: Sequence[GpuLoad]
    jobs: Sequence[str]
    """What is judged now, the oldest first."""
    events: Sequence[str]
    """What was found, the newest first."""
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
            yield Text(f"{loads(self.gpus)} (a sample every {EVERY_S} s)")

    def _tasks(self, count: int) -> Iterable[RenderableType]:
        """So many tasks at most, those whose best changed last; and how many more there are."""
        order = sorted(self.tasks, key=lambda task: (-task.changed, not task.in_flight))
        chosen = {task.name for task in order[:count]}
        shown = [task for task in self.tasks if task.name in chosen]
        yield Fitted(TASK_FIELDS, [task.cells for task in shown], silent=True)
        if more := len(self.tasks) - len(shown):
            yield Text(f"and {more} tasks that changed earlier: evo status RUN --all", style="dim")


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
