"""Lessons of ideas: of one task while it is searched, and of runs that ended, for prompts of others."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path

from evo.lineage import Latest
from fitness.evaluation import Status
from mutators.briefing import Attempt, Ratio
from operators.definition.spec import Task
from operators.errors import UserError

KEPT = 64
"""Ideas of each kind that are remembered."""
LEAST_GAIN = 0.01
"""Least gain, as a log ratio, that is a lesson: it must be certain."""
EARLIER_HELPED, EARLIER_FAILED = 12, 6
"""Ideas that one earlier run hands on."""
DESCRIBED, SAID = 200, 300
"""Characters kept of an attempt's description and message."""


class Lessons:
    """Ideas that helped and that did not, each once."""

    def __init__(self) -> None:
        self._helped: dict[str, Attempt] = {}
        self._fruitless: Latest[str, Attempt] = Latest(KEPT)
        self._failed: Latest[str, Attempt] = Latest(KEPT)

    def learn(self, attempt: Attempt, *, by_model: bool) -> None:
        """Take note of what became of an idea; of ideas of no model only what helped is worth telling."""
        idea = _idea(attempt)
        gain = attempt.gain
        if gain and gain.low > LEAST_GAIN and attempt.status == Status.CORRECT:
            known = self._helped.get(idea)
            if known is None or known.gain is None or gain.log > known.gain.log:
                self._helped[idea] = attempt
            if len(self._helped) > 2 * KEPT:
                self._helped = {_idea(each): each for each in self.helped(KEPT)}
        elif by_model:
            tables = self._fruitless, self._failed
            table, other = tables if gain or attempt.status in _FRUITLESS else reversed(tables)
            other.pop(idea, None)
            table.put(idea, attempt)

    def helped(self, count: int) -> tuple[Attempt, ...]:
        """Return the ideas that helped most, the greatest gain first."""
        order = sorted(self._helped.values(), key=lambda a: (-(a.gain.log if a.gain else 0.0), a.description))
        return tuple(order[:count])

    def fruitless(self, count: int, but: Iterable[Attempt]) -> tuple[Attempt, ...]:
        """Return the latest ideas that made nothing faster, but for those in `but`; oldest first."""
        return _latest(self._fruitless, count, but)

    def failed(self, count: int, but: Iterable[Attempt]) -> tuple[Attempt, ...]:
        """The same of ideas that led to no kernel that is right."""
        return _latest(self._failed, count, but)


_FRUITLESS = (Status.SLOWER, Status.CORRECT, Status.DUPLICATE)


def _idea(attempt: Attempt) -> str:
    return " ".join(attempt.description.split()).lower()


def _latest(table: Latest[str, Attempt], count: int, but: Iterable[Attempt]) -> tuple[Attempt, ...]:
    known = {_idea(attempt) for attempt in but}
    found = [attempt for attempt in table.values() if _idea(attempt) not in known]
    return tuple(found[-count:])


def earlier(folder: Path, operators: Collection[str], *, target: str) -> tuple[Attempt, ...]:
    """Return what helped most, and what failed last, when a run asked models about kernels of these operators.

    Every idea says on which task, and on what device. It raises UserError for a folder that holds no run.
    """
    from evo.api import Run

    run = Run(folder)
    try:
        stored = run.row
        rows = run.rows("lessons.offspring") if stored else []
    except UserError as error:
        raise UserError(f"lessons: {error}") from None
    if not stored:
        raise UserError(f"lessons: {folder} holds no run")
    device = json.loads(stored["config_json"]).get("device")
    where = f" on {device['name'].partition(' (')[0]}" if device else ""
    known = Lessons()
    for row in rows:
        task = Task.parse(row["task"])
        if task.operator in operators and task.target == target:
            known.learn(_of(row, f"{task}{where}"), by_model=row["model"] is not None)
    return (*known.helped(EARLIER_HELPED), *known.failed(EARLIER_FAILED, ()))


def _of(row: dict[str, object], where: str) -> Attempt:
    gain, errors = row["gain"], (row["child_se"], row["parent_se"])
    ratio = None
    if isinstance(gain, float):
        ratio = Ratio(gain, sum(e**2 for e in errors if isinstance(e, float)) ** 0.5)
    message = "" if ratio else str(row["message"] or "")[:SAID]
    return Attempt(str(row["description"])[:DESCRIBED], str(row["status"]), ratio, message, where)
