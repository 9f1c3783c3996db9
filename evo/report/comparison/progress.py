"""Progress of a comparison: a line for every cell that ends, and now and then one of what is under way."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from evo.compare.cells import CellState
from evo.compare.config import Cell
from evo.compare.running import ComparisonState
from evo.report.terminal import console
from evo.search.driver import Search

LINE_EVERY_S = 20.0
NAMED = 4
"""Cells under way that a line names."""


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
                self._say(f"{_count(running)}; {running.at_once} at once on a pool of {running.slots} jobs")
            for cell, (standing, reason) in running.ended.items():
                if cell not in self._told and cell not in running.searches:
                    self._told.add(cell)
                    self._say(f"{_count(running)}; {cell.name} is {standing.value}: {reason}")
            if self._now() - self._last_line >= LINE_EVERY_S and running.searches:
                shown = [f"{cell.name} {_spent(search)}" for cell, search in running.searches.items()]
                more = f" and {len(shown) - NAMED} more" if len(shown) > NAMED else ""
                self._say(f"{_count(running)}; under way: {', '.join(shown[:NAMED])}{more}")

    def _say(self, text: str) -> None:
        self._last_line = self._now()
        self._console.print(text, soft_wrap=True, markup=False, highlight=False)


def _count(running: ComparisonState) -> str:
    counts = Counter(standing for standing, _ in running.ended.values())
    failed = f", {counts[CellState.FAILED]} failed" if counts[CellState.FAILED] else ""
    waiting = f", {counts[CellState.WAITING]} wait for answers" if counts[CellState.WAITING] else ""
    return f"{counts[CellState.DONE]} of {len(running.cells)} cells done{failed}{waiting}"


def _spent(search: Search) -> str:
    spent = search.budget.spent
    return ", ".join(f"{spent[kind]:.4g}/{limit:.4g}" for kind, limit in search.budget.limits.items())
