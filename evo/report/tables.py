"""How results look on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from evo.report.queries import Spending, TaskSummary


def summary_table(tasks: Iterable[TaskSummary]) -> Table:
    """The table that a run ends with."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("task", "baseline", "best", "speedup", "95 %", "vs library", "95 %", "tried", "failures"):
        table.add_column(name, justify="left" if name in ("task", "failures") else "right")
    for t in tasks:
        failures = ", ".join(f"{n} {status}" for status, n in t.failures.items()) or "none"
        table.add_row(
            t.task,
            microseconds(t.baseline_us),
            microseconds(t.best_us),
            times(t.speedup),
            interval(t.speedup_low, t.speedup_high),
            times(t.against_library),
            interval(t.against_library_low, t.against_library_high),
            str(t.candidates),
            failures,
        )
    return table


def spending_line(spent: Spending) -> str:
    """Calls, tokens and dollars of language models; what was lost stands apart."""
    failed = f" ({spent.failed} failed)" if spent.failed else ""
    lost = f"; lost at most {tokens(spent.lost_tokens)}, {spent.lost_usd:.4g} USD" if spent.lost_tokens else ""
    return (
        f"language models: {spent.calls} calls{failed}, {tokens(spent.tokens_in)} in, {tokens(spent.tokens_out)} out, "
        f"{spent.cost_usd:.4g} USD{lost}"
    )


def tokens(count: float) -> str:
    """As budgets write them."""
    return f"{count:g}tok" if count < 1e4 else f"{count / 1e3:.3g}ktok" if count < 1e6 else f"{count / 1e6:.3g}Mtok"


def rows_table(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Table:
    """Rows of a query."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(row[name])) for name in names))
    return table


def cell(value: Any) -> str:
    """One value of a query, as text."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def microseconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value / 1e3:.2f} ms" if value >= 1e4 else f"{value:.1f} us"


def times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"


def interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:.2f}-{high:.2f}"


def console(*, stderr: bool = False) -> Console:
    """Wide enough for tables when nobody looks."""
    made = Console(stderr=stderr, highlight=False)
    return made if made.is_terminal else Console(stderr=stderr, highlight=False, width=max(made.width, 160))
