"""Questions of all cells of a comparison for minds outside, who are not to know which arm asks.

Each question has an id of its own, also where two arms ask in the same words, and is to be answered in a context of its
own. The order is shuffled, and neither id nor order says more than that two questions are of the same cell.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from evo.compare.cells import CONFIG, Standing, begun, folder_of, standing
from evo.compare.config import Cell
from evo.inbox import Inbox
from evo.outside.questions import Desk, Question, Told, open_questions
from mutators.llm.settings import is_outside
from operators.errors import UserError
from operators.identity import digest

PART = 12
"""Digits of a question's id that say which cell it is of."""


def comparison_in(runs: Path, name: str) -> Path | None:
    """The folder of a comparison that is called so, by its path or its name; None where none is."""
    places = (Path(name), runs / name, folder_of(runs, name))
    return next((place for place in places if (place / CONFIG).exists()), None)


def comparison_questions(folder: Path) -> list[Question]:
    """Return the open questions of all cells, in an order that tells nothing. It raises UserError."""
    found = [
        replace(question, cache_key=f"{part}{question.cache_key}", role="question", request_id=cell_task(cell))
        for part, cell in _asking(folder).items()
        for question in open_questions(folder / cell.name)
    ]
    return sorted(found, key=lambda question: digest("order", question.cache_key))


def cell_task(cell: Cell) -> str:
    """`operator/dtype/target`."""
    return f"{cell.operator}/{cell.dtype}/{cell.target}"


class ComparisonDesk:
    """Looks at answers before they go to the inboxes of the cells that asked; see `evo.outside.questions.Desk`."""

    def __init__(self, folder: Path, author: str = "") -> None:
        """It reads the cells in `folder` as they stand."""
        self._folder = folder
        self._author = author
        self._cells = _asking(folder)
        self._desks: dict[str, Desk] = {}
        self._lines: dict[str, list[str]] = {}

    def look_at(self, lines: Iterable[tuple[str, str]]) -> Told:
        """Sort lines, each with the place where it stands; kernels that no request asked for are no part of an arm."""
        found = Told()
        for where, line in lines:
            part, own = _routed(line)
            if part not in self._cells:
                found.problems.append(f"{where}: the comparison has no such question; it takes answers alone")
                continue
            desk = self._desks.get(part) or Desk(self._folder / self._cells[part].name, self._author)
            self._desks[part] = desk
            told = desk.look_at([(where, own)])
            self._lines.setdefault(part, []).extend(told.lines)
            found.lines += told.lines
            found.answers += told.answers
            found.problems += told.problems
        return found

    def put(self) -> None:
        """Put what may be told into the inboxes."""
        for part, lines in self._lines.items():
            if lines:
                Inbox(self._folder / self._cells[part].name).put(lines)
        self._lines = {}

    def key(self, prefix: str) -> str:
        """Return the one open question whose id begins so. It raises UserError."""
        found = [q.cache_key for q in comparison_questions(self._folder) if q.cache_key.startswith(prefix)]
        if len(found) != 1:
            raise UserError(f"--to {prefix}: {len(found) or 'no'} questions have such an id; see evo ask --text")
        return found[0]


def _asking(folder: Path) -> dict[str, Cell]:
    """Cells that ask a model outside and were begun, by the part of their questions' ids that says so."""
    found = {}
    for cell in begun(folder)[1]:
        outside = cell.config.llm and any(map(is_outside, cell.config.llm.models))
        if outside and standing(folder / cell.name)[0] not in (Standing.NEW, Standing.DONE):
            found[digest("cell", cell.config.to_json())[:PART]] = cell
    return found


def _routed(line: str) -> tuple[str, str]:
    """The cell's part of the id of an answer, and the answer as the cell knows it."""
    try:
        answer = json.loads(line)
        key = answer["custom_id"]
        return key[:PART], json.dumps({**answer, "custom_id": key[PART:]})
    except (ValueError, TypeError, KeyError):
        return "", line
