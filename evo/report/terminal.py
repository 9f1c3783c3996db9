"""Tables of results, laid out for a terminal."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any, Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from evo.report.amounts import listed, tokens, usd
from evo.report.output import printable, raw
from fitness.words import counted, in_words, interval, ratio, standing, time_us
from operators.identity import short

GAP = 2
"""Spaces between columns."""
LEAST_NAME, LEAST_WORDS = 24, 12
"""Columns of names and of words that are longer get so much room at least."""
MOST_WORD = 40
"""Words that are longer may be broken."""


@dataclass(frozen=True)
class Field:
    """One column."""

    name: str
    kind: Literal["number", "id", "name", "words"] = "number"
    """Numbers and ids stand in one line. Names may be folded anywhere, words between words."""
    rank: int = 0
    """Where there is no room, columns of the highest rank give way first; those of rank 0 stay."""

    def natural(self, cells: Sequence[str]) -> int:
        """The width at which nothing has to be folded."""
        return max(_widest(text) for text in (self.name, *cells))

    def least(self, cells: Sequence[str]) -> int:
        """The width below which the column is no use."""
        natural = self.natural(cells)
        if self.kind == "name":
            return min(natural, LEAST_NAME)
        if self.kind == "words":
            longest = max((cell_len(word) for text in (self.name, *cells) for word in text.split()), default=0)
            return min(natural, max(LEAST_WORDS, min(longest, MOST_WORD)))
        return natural


class Fitted:
    """Rows of text as a table.

    Columns that do not fit are left out and told below, or with `details` stand below their row; where even those of
    rank 0 have no room beside each other, every row is a block with a line for each column.
    """

    def __init__(
        self, fields: Sequence[Field], rows: Sequence[Sequence[str]], *, details: bool = False, silent: bool = False
    ) -> None:
        """Each row has a text for each of `fields`; a `silent` table does not tell which it leaves out."""
        self._fields = tuple(fields)
        self._rows = [tuple(map(printable, row)) for row in rows]
        self._details = details
        self._silent = silent

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        shown = self._chosen(width)
        if self._width(shown) > width:
            yield from self._blocks()
            return
        left = [index for index in range(len(self._fields)) if index not in shown]
        if left and self._details:
            yield from self._with_details(shown, left, width)
            return
        yield self._table(shown, self._rows, self._widths(shown, width))
        if left and not self._silent:
            names = ", ".join(dict.fromkeys(self._fields[index].name for index in left))
            yield Text(f"no room for: {names} (a wider terminal, or --json)", style="dim")

    def _column(self, index: int) -> list[str]:
        return [row[index] for row in self._rows]

    def _chosen(self, width: int) -> list[int]:
        """The columns that there is room for, or those that must not be left out."""
        shown = list(range(len(self._fields)))
        while self._width(shown) > width:
            index = max(shown, key=lambda each: self._fields[each].rank, default=0)
            if not self._fields[index].rank:
                break
            shown.remove(index)
        return shown

    def _width(self, shown: Sequence[int]) -> int:
        """The least width of these columns."""
        return sum(self._fields[i].least(self._column(i)) for i in shown) + GAP * (len(shown) - 1)

    def _widths(self, shown: Sequence[int], width: int) -> list[int]:
        """Each column's width; what is left over goes to those that are folded most."""
        widths = [self._fields[i].least(self._column(i)) for i in shown]
        natural = [self._fields[i].natural(self._column(i)) for i in shown]
        spare = width - sum(widths) - GAP * (len(shown) - 1)
        while spare > 0 and (lacking := [n for n in range(len(shown)) if widths[n] < natural[n]]):
            part = max(spare // len(lacking), 1)
            for n in lacking:
                given = min(part, natural[n] - widths[n], spare)
                widths[n] += given
                spare -= given
        return widths

    def _table(
        self, shown: Sequence[int], rows: Sequence[Sequence[str]], widths: Sequence[int], *, header: bool = True
    ) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold", show_header=header)
        for index, width in zip(shown, widths, strict=True):
            field = self._fields[index]
            table.add_column(
                Text(printable(field.name)), width=width, overflow="fold", no_wrap=field.kind in ("number", "id"),
                justify="right" if field.kind == "number" else "left",
            )  # fmt: skip
        for row in rows:
            table.add_row(*(Text(row[index]) for index in shown))
        return table

    def _with_details(self, shown: Sequence[int], left: Sequence[int], width: int) -> Iterator[RenderableType]:
        widths = self._widths(shown, width)
        for number, row in enumerate(self._rows):
            yield self._table(shown, [row], widths, header=number == 0)
            told = "; ".join(f"{self._fields[i].name}: {row[i]}" for i in left if row[i] not in ("", "-"))
            if told:
                yield Padding(Text(told, style="dim", overflow="fold"), (0, 0, 0, 4))

    def _blocks(self) -> Iterator[RenderableType]:
        """Every row as a block."""
        for number, row in enumerate(self._rows):
            if number:
                yield Text()
            for field, text in zip(self._fields, row, strict=True):
                yield Text.assemble((f"{printable(field.name)}: ", "bold"), text, overflow="fold")


def _widest(text: str) -> int:
    return max(map(cell_len, text.split("\n")), default=0)


STANDING = (
    Field("baseline", rank=3), Field("best"), Field("certain"), Field("estimate", rank=2), Field("95 %", rank=2),
    Field("verdict", "words"), Field("vs library", rank=1), Field("95 %", rank=3),
)  # fmt: skip
"""Columns of a standing: `certain` is the speedup by which it leads, the times are those of the estimate."""
FEW = 8
"""The most rows of a table whose columns without room stand below each row; of longer tables they are only named."""
NAMED = 3
"""Tasks that a line names."""
UNBOUNDED = 1_000_000
"""The width of what is no terminal: nothing is folded there."""

if TYPE_CHECKING:  # not what `evo sql` would wait for
    from evo.report.reference import Page
    from evo.report.status import ModelCosts, Standing, TaskSummary


def summary_table(tasks: Iterable[TaskSummary]) -> Fitted:
    """The table that a run ends with."""
    more = Field("tried", rank=2), Field("of these", "words", rank=4), Field("not tried", "words", rank=5)
    rows = [
        (
            t.task, *_verdict(t), str(t.candidates), tally(t.outcomes),
            tally({"duplicate": t.duplicates, "no child": t.no_child, "unavailable": t.unavailable}),
        )
        for t in tasks
    ]  # fmt: skip
    return Fitted((Field("task", "name"), *STANDING, *more), rows, details=len(rows) <= FEW)


def _verdict(t: TaskSummary) -> tuple[str, ...]:
    """The cells of its standing; a task without a best kernel says why in the verdict's place."""
    cells = standing_cells(t)
    return cells if t.kernel_id or not t.state else (*cells[:5], t.state, *cells[6:])


def lack_line(tasks: Sequence[TaskSummary], total: int) -> str:
    """A line on tasks of one state and reason, of `total` tasks, with the command that goes on with them."""
    named = listed([t.task for t in tasks], NAMED)
    why = f": {tasks[0].why}" if tasks[0].why else ""
    command = f"; go on with: {tasks[0].goes_on_with}" if tasks[0].goes_on_with else ""
    return f"{len(tasks)} of {counted(total, 'task')} {tasks[0].state} ({named}){why}{command}"


def lack_lines(tasks: Sequence[TaskSummary]) -> list[str]:
    """A line for each state, reason and command of tasks that lack a confirmed best kernel when the search is over.

    Those that cannot go on have lines of their own, see `problem_lines`.
    """
    groups: dict[tuple[str, str, str], list[TaskSummary]] = {}
    for t in tasks:
        if t.goes_on_with and not t.problem:
            groups.setdefault((t.state, t.why, t.goes_on_with), []).append(t)
    return [lack_line(group, len(tasks)) for group in groups.values()]


def latest(tasks: Sequence[TaskSummary], changed: Mapping[str, float], count: int) -> list[TaskSummary]:
    """At most `count` tasks, in their order: those that cannot go on, then those whose best changed last."""
    order = sorted(tasks, key=lambda t: (not t.problem, -changed.get(t.task, 0.0)))
    chosen = {t.task for t in order[:count]}
    return [t for t in tasks if t.task in chosen]


def many_line(tasks: Sequence[TaskSummary]) -> str:
    """Many tasks in one line: `102 tasks, 80 faster than naive, 60 confirmed, 2 failed, geometric mean 1.45x`.

    A task counts with what its best certainly has.
    """
    speedups = [t.best_speedup for t in tasks if t.best_speedup]
    mean = geometric_mean(speedups) if speedups else None
    failed = sum(bool(t.problem) for t in tasks)
    flagged = sum(bool(t.flagged) for t in tasks)
    never = sum(t.state == "not begun" for t in tasks)
    vain = sum(t.unavailable for t in tasks)
    told = (flagged, "flagged"), (failed, "failed"), (never, "not begun"), (vain, "unavailable")
    lost = "".join(f", {n} {what}" for n, what in told if n)
    return (
        f"{counted(len(tasks), 'task')}, {sum(s > 1 for s in speedups)} faster than naive, "
        f"{sum(t.confirmed for t in tasks)} confirmed{lost}, geometric mean {ratio(mean)}"
    )


def best_table(rows: Iterable[tuple[str, Standing, Mapping[str, int]]]) -> Fitted:
    """Each task's best kernel with its tunables."""
    found = [
        (task, short(s.kernel_id), *standing_cells(s), " ".join(f"{k}={v}" for k, v in values.items()) or "-")
        for task, s, values in rows
    ]
    fields = Field("task", "name"), Field("kernel", "id"), *STANDING, Field("values", "words", rank=2)
    return Fitted(fields, found, details=len(found) <= FEW)


def standing_cells(s: Standing) -> tuple[str, ...]:
    """The cells of a standing, in the order of `STANDING`."""
    return (
        time_us(s.baseline_us),
        time_us(s.best_us),
        ratio(s.best_speedup),
        ratio(s.speedup),
        interval(s.speedup_low, s.speedup_high),
        standing(s.level, s.flagged),
        (ratio(s.against_library) + f" {s.library_kinds}").rstrip(),
        interval(s.against_library_low, s.against_library_high),
    )


def tally(counts: Mapping[str, int]) -> str:
    """`5 correct, 3 slower, 1 compile error`."""
    return ", ".join(f"{n} {in_words(name)}" for name, n in counts.items() if n) or "none"


def problem_lines(tasks: Sequence[TaskSummary]) -> list[str]:
    """Lines on the problems that kept tasks, or their libraries, from being measured as they should."""
    return [
        *(f"{t.task}: {t.problem}" for t in tasks if t.problem),
        *(f"{t.task}: the library was not timed: {t.library_problem}" for t in tasks if t.library_problem),
    ]


def costs_line(spent: ModelCosts) -> str:
    """Calls, tokens and dollars of language models; what was lost stands apart, as do models that are gone."""
    failed = f" ({spent.failed} failed)" if spent.failed else ""
    anew = f", {spent.asked_anew} asked anew" if spent.asked_anew else ""
    lost = doubted = ""
    if spent.lost_tokens:
        lost = (
            f"; lost at most {tokens(spent.lost_tokens)}, {usd(spent.lost_usd)}, "
            f"likely {tokens(spent.likely_lost_tokens)}, {usd(spent.likely_lost_usd)}"
        )
    if spent.doubted:
        doubted = f"; {counted(spent.doubted, 'answer')} told no usage that can be true: bounds or estimates count"
    gone = "".join(f"\nmodel {o.model} does not answer since {o.since}: {o.error}" for o in spent.out)
    return (
        f"language models: {counted(spent.calls, 'call')}{failed}{anew}, {tokens(spent.tokens_in)} in, "
        f"{tokens(spent.tokens_out)} out, {usd(spent.cost_usd)}{lost}{doubted}{gone}"
    )


def rows_table(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Fitted:
    """Rows of a query."""
    found = list(rows)
    return Fitted(
        [_field(name, [row[name] for row in found]) for name in names],
        [[cell(row[name]) for name in names] for row in found],
    )


def lineage_table(rows: Sequence[Mapping[str, Any]]) -> Fitted:
    """Ancestors of kernels, without the columns that say nothing of any."""
    several = len({row["task"] for row in rows}) > 1
    fields = {
        "task": Field("task", "name", rank=0 if several else 8),
        "generation": Field("generation", rank=2),
        "kernel_id": Field("kernel_id", "id"),
        "parents": Field("parents", "words"),
        "mutator": Field("mutator", "words"),
        "model": Field("model", "words", rank=3),
        "author": Field("author", "words", rank=3),
        "description": Field("description", "words", rank=6),
        "verdict": Field("verdict", "words"),
        "speedup": Field("speedup"),
        "interval": Field("95 %", rank=1),
    }
    told = [
        {
            **row, "kernel_id": short(row["kernel_id"]), "parents": [short(parent) for parent in row["parents"]],
            "verdict": _outcome(row), "speedup": ratio(row["speedup"]),
            "interval": interval(row["speedup_low"], row["speedup_high"]),
        }
        for row in rows
    ]  # fmt: skip
    seldom = ("model", "author")
    names = [name for name in fields if name not in seldom or any(row[name] for row in told)]
    return Fitted([fields[name] for name in names], [[cell(row[name]) for name in names] for row in told], details=True)


def _outcome(row: Mapping[str, Any]) -> str:
    """The level that a correct kernel stands at, or why it has no speedup."""
    if row["status"] == "correct":
        return standing(row["level"], row["flagged"])
    return in_words(row["status"]) if row["status"] else "not judged"


def _field(name: str, values: Sequence[Any]) -> Field:
    """The column of a query's values: only text may be folded."""
    if all(value is None or isinstance(value, int | float | Decimal) for value in values):
        return Field(name, "number")
    return Field(name, "words" if any(isinstance(value, str | list | dict) for value in values) else "id")


def page_table(page: Page) -> Table:
    """A table of a reference, with its title and what it is about above it."""
    title = Text.assemble((page.title, "bold"), f": {page.about}\n")
    table = Table(box=None, pad_edge=False, show_header=False, title=title, title_justify="left", title_style="")
    for width in (22, 18, 10):
        table.add_column(overflow="fold", max_width=width)
    table.add_column(overflow="fold")
    for entry in page.entries:
        table.add_row(*map(Text, (entry.name, entry.type, entry.default, entry.meaning)))
    table.add_row()
    return table


def cell(value: Any) -> str:
    """One value of a query, as text that is safe to show."""
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(map(cell, value))
    return f"{value:.6g}" if isinstance(value, float) else printable(str(value))


class SafeConsole(Console):
    """Writes control sequences of its own, and none that come with the text."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def console(*, stderr: bool = False) -> Console:
    """A console on stdout or stderr; where that is no terminal, of a width at which nothing is folded."""
    file = raw(sys.stderr if stderr else sys.stdout)
    made = SafeConsole(file=file, highlight=False)
    return made if made.is_terminal else SafeConsole(file=file, highlight=False, width=UNBOUNDED)


def show(shown: RenderableType) -> None:
    """Write to standard output: as wide as the terminal, elsewhere as wide as it needs."""
    made = console()
    if made.is_terminal:
        made.print(shown)
    else:
        raw(sys.stdout).write(unfolded(shown))


def unfolded(shown: RenderableType) -> str:
    """The text of something at which no line is folded, without spaces at the ends of lines."""
    text = io.StringIO()
    SafeConsole(file=text, width=UNBOUNDED, highlight=False).print(shown)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"
