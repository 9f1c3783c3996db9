"""How results look on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from evo.report.output import printable, raw
from evo.report.queries import ModelCosts
from evo.report.summary import Standing, TaskSummary

STANDING = ("baseline", "best", "speedup", "95 %", "verdict", "vs library", "95 %")
LEFT = ("task", "kernel", "verdict", "of these", "not tried", "values")

if TYPE_CHECKING:
    from evo.report.reference import Page


def summary_table(tasks: Iterable[TaskSummary]) -> Table:
    """The table that a run ends with."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("task", *STANDING, "tried", "of these", "not tried"):
        table.add_column(name, justify="left" if name in LEFT else "right")
    for t in tasks:
        table.add_row(
            t.task, *standing_cells(t), str(t.candidates), tally(t.outcomes),
            tally({"duplicate": t.duplicates, "no child": t.no_child}),
        )  # fmt: skip
    return table


def best_table(rows: Iterable[tuple[str, Standing, Mapping[str, int]]]) -> Table:
    """Each task's best kernel with its tunables."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("task", "kernel", *STANDING, "values"):
        table.add_column(name, justify="left" if name in LEFT else "right", overflow="fold")
    for task, standing, values in rows:
        settings = " ".join(f"{name}={value}" for name, value in values.items()) or "-"
        table.add_row(task, (standing.kernel_id or "")[:12], *standing_cells(standing), settings)
    return table


def standing_cells(s: Standing) -> tuple[str, ...]:
    """The cells of a standing, in the order of `STANDING`."""
    return (
        microseconds(s.baseline_us),
        microseconds(s.best_us),
        times(s.speedup),
        interval(s.speedup_low, s.speedup_high),
        "-" if s.level is None else "confirmed" if s.confirmed else f"unconfirmed ({s.level})",
        ("" if s.library_paired else "~") + times(s.against_library) + (" composed" if s.library_composed else ""),
        interval(s.against_library_low, s.against_library_high),
    )


def tally(counts: Mapping[str, int]) -> str:
    """`5 correct, 3 slower, 1 compile error`."""
    return ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in counts.items() if n) or "none"


def problem_lines(tasks: Sequence[TaskSummary]) -> list[str]:
    """What kept tasks, or their libraries, from being measured as they should."""
    early = [t.task for t in tasks if t.against_library is not None and not t.library_paired]
    return [
        *([f"~ an older version timed the library of {', '.join(early)} once, apart from the best"] if early else []),
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


def rows_table(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Table:
    """Rows of a query."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(Text(printable(name)), overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(row[name])) for name in names))
    return table


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
    """A time in microseconds for people: `12.3 us`, from 10,000 on in milliseconds; `-` for None."""
    if value is None:
        return "-"
    return f"{value / 1e3:.2f} ms" if value >= 1e4 else f"{value:.1f} us"


def times(value: float | None) -> str:
    """A ratio for people: `1.25x`; `-` for None."""
    return "-" if value is None else f"{value:.2f}x"


def interval(low: float | None, high: float | None) -> str:
    """Two bounds for people: `1.20-1.31`; nothing where one is None."""
    return "" if low is None or high is None else f"{low:.2f}-{high:.2f}"


class SafeConsole(Console):
    """Writes control sequences of its own, and none that come with the text."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def console(*, stderr: bool = False) -> Console:
    """A console on stdout or stderr, wide enough for tables where it is no terminal."""
    file = raw(sys.stderr if stderr else sys.stdout)
    made = SafeConsole(file=file, highlight=False)
    return made if made.is_terminal else SafeConsole(file=file, highlight=False, width=max(made.width, 160))
