"""What a search shows while it runs: a live table on a terminal, a short line for what is new elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import TracebackType

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from evo.individual import NO_CHILD
from evo.report.tables import console, tally, times, tokens
from evo.task_state import Running, TaskState
from fitness.evaluation import Status

LINE_EVERY_S = 10.0
"""Lines follow each other no sooner, but for the first improvement."""
QUIET_S = 60.0
"""A line comes so often at least, also where nothing is new."""
LINE_LENGTH = 120
NAMED = 3
"""Tasks with a new best that a line names; of more it tells the number."""


class Progress:
    """The search calls it whenever something changed; it shows what changed at a human pace."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._console = console(stderr=True)
        self._live = (
            Live(console=self._console, refresh_per_second=4, transient=True) if self._console.is_terminal else None
        )
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
            self._live.update(_view(search, self._first))
        elif (is_first and self._first) or self._is_due(search):
            self._last_line, self._phase = self._now(), _kind(search)
            self._console.print(self._line(search, is_first=is_first), soft_wrap=True)

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
        """What is going on, what is left and what is new, as far as there is room; what matters most comes first."""
        news = self._news(search)
        first = self._first if is_first else ""
        self._told |= {str(state.task): _best(state) for state in news}
        bests = ", ".join(f"{_name(state, search)} {_best(state)}" for state in news[:NAMED])
        more = f" and {len(news) - NAMED} more" if len(news) > NAMED else ""
        failed = sum(bool(state.fault) for state in search.states.values())
        parts = (
            _left(search), f"{bests}{more}", first, _count(search), f"{_rate(search):.0f} candidates/min",
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
    return f"{len(_improved(search))} of {total} tasks improved" if total > 1 else ""


def _left(search: Running) -> str:
    """What is left of every limit."""
    written: dict[str, Callable[[float], str]] = {
        "wall_s": _duration,
        "evaluations": lambda left: f"{left:.0f} evals",
        "tokens": tokens,
        "cost_usd": lambda left: f"{left:.4g} USD",
    }
    budget = search.budget
    left = [
        written[kind](max(limit - budget.spent[kind], 0.0)) for kind, limit in budget.limits.items() if kind in written
    ]
    return f"{', '.join(left)} left" if left else ""


def _duration(seconds: float) -> str:
    """For people: `48 s`, `12 min`, `7.5 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _rate(search: Running) -> float:
    candidates = sum(state.candidates for state in search.states.values())
    return 60 * candidates / max(search.budget.spent["wall_s"], 1.0)


def _models(search: Running) -> str:
    """What language models have cost, if any was asked."""
    spending = search.budget.spending
    if not spending.attempts:
        return ""
    likely = tokens(spending.likely_lost_tokens)
    lost = f" ({tokens(spending.lost_tokens)} lost at most, likely {likely})" if spending.lost_tokens else ""
    return f"models: {spending.attempts} attempts, {tokens(spending.tokens)}{lost}, {spending.dollars:.4g} USD"


def _name(state: TaskState, search: Running) -> str:
    """The operator, and what else it takes to know the task."""
    task = state.task
    same = [other for other in search.states if other.operator == task.operator]
    return task.operator if len(same) == 1 else f"{task.operator}/{task.dtype}"


def _best(state: TaskState) -> str:
    if state.fault:
        return "failed"
    elite = state.strategy.best
    return "-" if elite is None else times(math.exp(elite.log_speedup))


def _view(search: Running, first: str) -> Group:
    """All of it: a headline, and a line for each task."""
    parts = (f"{search.budget.spent['wall_s']:.0f} s", _left(search), f"{_rate(search):.0f} candidates/min")
    headline = ", ".join(filter(None, (search.phase, *parts, first, _models(search))))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("task", "best", "running", "tried", "of these", "not tried"):
        table.add_column(name)
    for state in search.states.values():
        counts = dict(state.statuses.most_common())
        rest = {name: counts.pop(name, 0) for name in (Status.DUPLICATE.value, NO_CHILD)}
        cells = (str(state.in_flight), str(state.candidates), tally(counts), tally(rest))
        table.add_row(str(state.task), _best(state), *cells)
    return Group(Text(headline), table)
