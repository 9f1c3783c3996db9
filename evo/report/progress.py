"""What a search shows while it runs: a live table on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from types import TracebackType

from rich.live import Live
from rich.table import Table

from evo.individual import NO_CHILD
from evo.report.tables import console, tally, times, tokens
from evo.task_state import Running, TaskState
from fitness.evaluation import Status

LINE_EVERY_S = 10.0


class Progress:
    """The search calls it whenever something changed; it shows what changed at a human pace."""

    def __init__(self) -> None:
        self._console = console(stderr=True)
        self._live = (
            Live(console=self._console, refresh_per_second=4, transient=True) if self._console.is_terminal else None
        )
        self._last_line = time.monotonic()

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            with suppress(OSError):
                self._live.stop()

    def __call__(self, search: Running) -> None:
        try:
            self._show(search)
        except OSError:  # the terminal was closed, or the disk that holds the log is full: no search ends for that
            self._console.quiet = True

    def _show(self, search: Running) -> None:
        if self._live:
            self._live.update(_table(search))
        elif time.monotonic() - self._last_line >= LINE_EVERY_S:
            self._last_line = time.monotonic()
            self._console.print(_line(search), soft_wrap=True)


def _rate(search: Running) -> float:
    candidates = sum(state.candidates for state in search.states.values())
    return 60 * candidates / max(search.budget.spent["wall_s"], 1.0)


def _line(search: Running) -> str:
    parts = [f"{state.task} {_best(state)} after {state.candidates}" for state in search.states.values()]
    return (
        f"{search.budget.spent['wall_s']:.0f} s, {search.phase}: {'; '.join(parts)}; {_rate(search):.0f} candidates/min"
        f"{_models(search)}"
    )


def _models(search: Running) -> str:
    """What language models have cost, if any was asked."""
    spending = search.budget.spending
    if not spending.attempts:
        return ""
    likely = tokens(spending.likely_lost_tokens)
    lost = f" ({tokens(spending.lost_tokens)} lost at most, likely {likely})" if spending.lost_tokens else ""
    return f"; models: {spending.attempts} attempts, {tokens(spending.tokens)}{lost}, {spending.dollars:.4g} USD"


def _best(state: TaskState) -> str:
    if state.fault:
        return "failed"
    elite = state.strategy.best
    return "-" if elite is None else times(math.exp(elite.log_speedup))


def _table(search: Running) -> Table:
    spent = search.budget.spent
    used = f"{spent['wall_s']:.0f} s ({100 * search.budget.share():.0f} % of the budget)"
    title = f"{search.phase}, {used}, {_rate(search):.0f} candidates/min{_models(search)}"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in ("task", "best", "running", "tried", "of these", "not tried"):
        table.add_column(name)
    for state in search.states.values():
        counts = dict(state.statuses.most_common())
        rest = {name: counts.pop(name, 0) for name in (Status.DUPLICATE.value, NO_CHILD)}
        cells = (str(state.in_flight), str(state.candidates), tally(counts), tally(rest))
        table.add_row(str(state.task), _best(state), *cells)
    return table
