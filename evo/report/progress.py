"""What a search shows while it runs: a live table on a terminal, a short line for what is new elsewhere."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import TracebackType

from rich.live import Live

from evo.individual import NO_CHILD
from evo.report.gpus import GpuWatch
from evo.report.live import TaskLine, View
from evo.report.terminal import console, times, tokens
from evo.report.words import duration
from evo.search.task import Running, TaskState
from evo.workers.pool import Job
from fitness.evaluation import Status

LINE_EVERY_S = 10.0
"""Lines follow each other no sooner, but for the first improvement."""
QUIET_S = 60.0
"""A line comes so often at least, also where nothing is new."""
LINE_LENGTH = 120
VIEW_EVERY_S = 0.25
"""The live view changes no sooner."""
FINDS = 16
NAMED = 3
"""Tasks with a new best that a line names; of more it tells the number."""


class Finds:
    """Improvements as they were seen, the newest first."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._looked = False
        self._known: dict[str, float] = {}
        """By task, the standing that was seen last."""
        self._speedups: dict[str, float] = {}
        """By task, the best's log speedup as it was shown last."""
        self.changed: dict[str, float] = {}
        """By task, when that was."""
        self.lines: deque[str] = deque(maxlen=FINDS)

    def look(self, search: Running) -> None:
        """It takes note of the tasks whose fastest kernel is another one than before."""
        is_first, self._looked = not self._looked, True
        for task, state in search.states.items():
            if state.fastest is None or self._known.get(str(task)) == state.fastest[0]:
                continue
            before = self._speedups.get(str(task), 0.0)
            self._known[str(task)] = state.fastest[0]
            self._speedups[str(task)] = log = state.strategy.best.log_speedup if state.strategy.best else 0.0
            if state.fastest[1] == state.baseline.id or is_first:  # what an earlier session found is no news
                continue
            self.changed[str(task)] = self._now()
            self.lines.appendleft(
                f"{duration(search.budget.spent['wall_s'])}  {_name(state, search)} {times(math.exp(log))} "
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
        """It draws the view anew, a few times a second at most."""
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
        """What is going on, what is left and what is new, as far as there is room; what matters most comes first."""
        news = self._news(search)
        first = self._first if is_first else ""
        self._told |= {str(state.task): _best(state) for state in news}
        bests = ", ".join(f"{_name(state, search)} {_best(state)}" for state in news[:NAMED])
        more = f" and {len(news) - NAMED} more" if len(news) > NAMED else ""
        failed = sum(bool(state.fault) for state in search.states.values())
        parts = (
            _left(search), f"{bests}{more}", first, "" if news else _waits(search), _count(search),
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
    return f"{len(_improved(search))} of {total} tasks improved" if total > 1 else ""


def _left(search: Running) -> str:
    """What is left of every limit."""
    written: dict[str, Callable[[float], str]] = {
        "wall_s": duration,
        "evaluations": lambda left: f"{left:.0f} evals",
        "calls": lambda left: f"{left:.0f} calls",
        "tokens": tokens,
        "cost_usd": lambda left: f"{left:.4g} USD",
    }
    budget = search.budget
    left = [
        written[kind](max(limit - budget.spent[kind], 0.0)) for kind, limit in budget.limits.items() if kind in written
    ]
    return f"{', '.join(left)} left" if left else ""


def _waits(search: Running) -> str:
    return f"waits for {search.waits}" if search.waits else ""


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


def _view(search: Running, first: str, gpus: GpuWatch, finds: Finds) -> View:
    """All of it as it is now."""
    jobs = search.pool.jobs() if search.pool else ()
    waiting = max(sum(state.in_flight for state in search.states.values()) - len(jobs), 0)
    failed = sum(bool(state.fault) for state in search.states.values())
    counts = (
        f"{_rate(search):.0f} candidates/min", f"{failed} failed" if failed else "", _count(search),
        f"{waiting} more requests under way" if waiting else "", first, _waits(search),
    )  # fmt: skip
    return View(
        phase=search.phase, share=search.budget.share(), spent=duration(search.budget.spent["wall_s"]),
        left=_left(search), counts=counts, models=_models(search), gpus=gpus.loads, jobs=[_job(job) for job in jobs],
        events=tuple(finds.lines), tasks=[_task_line(state, search, finds) for state in search.states.values()],
    )  # fmt: skip


def _job(job: Job) -> str:
    return f"{job.method:<8} {job.task} {job.kernel_id[:12]}  {time.monotonic() - job.began:.0f} s"


def _task_line(state: TaskState, search: Running, finds: Finds) -> TaskLine:
    counts = state.statuses
    best = state.strategy.best
    doubtful = "~" if state.led_by_baseline and best and best.log_speedup > 0 and not state.fault else ""
    correct, slower = counts[Status.CORRECT.value], counts[Status.SLOWER.value]
    return TaskLine(
        name=_name(state, search), best=doubtful + _best(state), against_library=state.knowledge.over_library,
        in_flight=state.in_flight, tried=state.candidates, correct=correct, slower=slower,
        failed=max(state.candidates - correct - slower, 0),
        not_new=counts[Status.DUPLICATE.value] + counts[NO_CHILD], changed=finds.changed.get(str(state.task), 0.0),
    )  # fmt: skip
