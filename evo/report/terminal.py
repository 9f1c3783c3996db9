"""How results look on a terminal."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from evo.report.fitted import Field, Fitted
from evo.report.output import printable, raw
from fitness import flags

STANDING = (
    Field("baseline", rank=3), Field("best"), Field("speedup"), Field("95 %"), Field("verdict", "words"),
    Field("vs library", rank=1), Field("95 %", rank=3),
)  # fmt: skip
FEW = 8
"""Of so many rows at most, what has no room beside the rest stands below it."""
UNBOUNDED = 1_000_000
"""The width of what is no terminal: nothing is folded there."""

if TYPE_CHECKING:  # not what `evo sql` would wait for
    from evo.report.queries import ModelCosts
    from evo.report.reference import Page
    from evo.report.status import Standing, TaskSummary


def summary_table(tasks: Iterable[TaskSummary]) -> Fitted:
    """The table that a run ends with."""
    more = Field("tried", rank=2), Field("of these", "words", rank=4), Field("not tried", "words", rank=5)
    rows = [
        (
            t.task, *standing_cells(t), str(t.candidates), tally(t.outcomes),
            tally({"duplicate": t.duplicates, "no child": t.no_child}),
        )
        for t in tasks
    ]  # fmt: skip
    return Fitted((Field("task", "name"), *STANDING, *more), rows, details=len(rows) <= FEW)


def latest(tasks: Sequence[TaskSummary], changed: Mapping[str, float], count: int) -> list[TaskSummary]:
    """So many of the tasks, in their order: those that cannot go on, then those whose best kernel changed last."""
    order = sorted(tasks, key=lambda t: (not t.problem, -changed.get(t.task, 0.0)))
    chosen = {t.task for t in order[:count]}
    return [t for t in tasks if t.task in chosen]


def many_line(tasks: Sequence[TaskSummary]) -> str:
    """Many tasks in one line: `102 tasks, 80 faster than naive, 60 confirmed, 2 failed, geometric mean 1.45x`."""
    speedups = [t.speedup for t in tasks if t.speedup]
    mean = math.exp(sum(map(math.log, speedups)) / len(speedups)) if speedups else None
    failed = sum(bool(t.problem) for t in tasks)
    flagged = sum(bool(t.flagged) for t in tasks)
    lost = (f", {flagged} flagged" if flagged else "") + (f", {failed} failed" if failed else "")
    return (
        f"{len(tasks)} tasks, {sum(s > 1 for s in speedups)} faster than naive, "
        f"{sum(t.confirmed for t in tasks)} confirmed{lost}, geometric mean {times(mean)}"
    )


def best_table(rows: Iterable[tuple[str, Standing, Mapping[str, int]]]) -> Fitted:
    """Each task's best kernel with its tunables."""
    found = [
        (task, (s.kernel_id or "")[:12], *standing_cells(s), " ".join(f"{k}={v}" for k, v in values.items()) or "-")
        for task, s, values in rows
    ]
    fields = Field("task", "name"), Field("kernel", "id"), *STANDING, Field("values", "words", rank=2)
    return Fitted(fields, found, details=len(found) <= FEW)


def standing_cells(s: Standing) -> tuple[str, ...]:
    """The cells of a standing, in the order of `STANDING`."""
    return (
        microseconds(s.baseline_us),
        microseconds(s.best_us),
        times(s.speedup),
        interval(s.speedup_low, s.speedup_high),
        flags.standing(s.level, s.flagged),
        times(s.against_library) + _composed(s),
        interval(s.against_library_low, s.against_library_high),
    )


def _composed(s: Standing) -> str:
    """What is to be said of a library that has no one call for it."""
    return " composed" * s.library_composed + " partly composed" * s.library_partly_composed


def tally(counts: Mapping[str, int]) -> str:
    """`5 correct, 3 slower, 1 compile error`."""
    return ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in counts.items() if n) or "none"


def problem_lines(tasks: Sequence[TaskSummary]) -> list[str]:
    """What kept tasks, or their libraries, from being measured as they should."""
    return [
        *(f"{t.task}: {t.problem}" for t in tasks if t.problem),
        *(f"{t.task}: the library was not timed: {t.library_problem}" for t in tasks if t.library_problem),
    ]


def costs_line(spent: ModelCosts) -> str:
    """Calls, tokens and dollars of language models; what was lost stands apart, as do models that are gone."""
    failed = f" ({spent.failed} failed)" if spent.failed else ""
    lost = doubted = ""
    if spent.lost_tokens:
        lost = (
            f"; lost at most {tokens(spent.lost_tokens)}, {spent.lost_usd:.4g} USD, "
            f"likely {tokens(spent.likely_lost_tokens)}, {spent.likely_lost_usd:.4g} USD"
        )
    if spent.doubted:
        doubted = f"; {spent.doubted} answers told no usage that can be true, and count with bounds or estimates"
    gone = "".join(f"\nmodel {o.model} does not answer since {o.since}: {o.error}" for o in spent.out)
    return (
        f"language models: {spent.calls} calls{failed}, {tokens(spent.tokens_in)} in, {tokens(spent.tokens_out)} out, "
        f"{spent.cost_usd:.4g} USD{lost}{doubted}{gone}"
    )


def tokens(count: float) -> str:
    """A number of tokens for people, written as in budgets: `850tok`, `12.5ktok`, `3Mtok`."""
    return f"{count:g}tok" if count < 1e4 else f"{count / 1e3:.3g}ktok" if count < 1e6 else f"{count / 1e6:.3g}Mtok"


def rows_table(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Fitted:
    """Rows of a query."""
    found = list(rows)
    return Fitted(
        [_field(name, [row[name] for row in found]) for name in names],
        [[cell(row[name]) for name in names] for row in found],
    )


def lineage_table(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Fitted:
    """Ancestors of kernels, whose ids stay whole."""
    several = len({row["task"] for row in rows}) > 1
    fields = {
        "task": Field("task", "name", rank=0 if several else 6),
        "generation": Field("generation", rank=2),
        "kernel_id": Field("kernel_id", "id"),
        "parents": Field("parents", "words"),
        "mutator": Field("mutator", "words"),
        "author": Field("author", "words", rank=1),
        "description": Field("description", "words", rank=4),
        "status": Field("status", "words", rank=3),
        "level": Field("level", "words", rank=5),
        "flagged": Field("flagged", "words", rank=1),
        "speedup": Field("speedup"),
    }
    cells: dict[str, Callable[[Any], str]] = {"speedup": times}
    shown = [[cells.get(n, cell)(row[n]) for n in names] for row in rows]
    return Fitted([fields[n] for n in names], shown, details=True)


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


def microseconds(value: float | None) -> str:
    """A time in microseconds for people: `12.3 us`, `14.20 ms`, `3.10 s`; `-` for None."""
    if value is None:
        return "-"
    for limit, unit_us, unit, digits in ((0.1, 1.0, "us", ".2g"), (1e4, 1.0, "us", ".1f"), (1e7, 1e3, "ms", ".2f")):
        if value < limit:
            return f"{value / unit_us:{digits}} {unit}"
    return f"{value / 1e6:.2f} s" if value < 1e12 else f"{value / 1e6:.3g} s"


def times(value: float | None) -> str:
    """A ratio for people: `1.25x`; `-` for None."""
    return "-" if value is None else f"{_ratio(value)}x"


def _ratio(value: float) -> str:
    """Three digits at least where two behind the point show nothing, and no more than people can use."""
    return f"{value:.2f}" if 0.01 <= value < 1e4 else f"{value:.3g}"


def interval(low: float | None, high: float | None) -> str:
    """Two bounds for people: `1.20-1.31`; nothing where one is None."""
    return "" if low is None or high is None else f"{_ratio(low)}-{_ratio(high)}"


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
    """It writes to standard output: as wide as the terminal, elsewhere as wide as it needs."""
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
