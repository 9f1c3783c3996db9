"""The other side of the inboxes of runs and comparisons: which questions are open, and what may be told.

A comparison asks minds outside who are not to know which arm asks. So each of its questions has an id of its own, also
where two arms ask in the same words, and is to be answered in a context of its own. The order is shuffled, and neither
id nor order says more than that two questions are of the same cell.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evo.api import Run
from evo.compare.cells import CONFIG, CellState, folder_of, standing, stored
from evo.compare.config import Cell
from evo.config import RunConfig
from evo.inbox import Inbox
from evo.rows import request_from
from mutators.asking.answers import (
    Answer,
    Invitation,
    LineError,
    Taken,
    check_answer,
    check_guest,
    only_task,
    parsed,
    whole_guest,
)
from mutators.base import Message
from mutators.llm.settings import OUTSIDE, is_outside
from operators.definition.spec import Task
from operators.errors import UserError
from operators.identity import digest
from operators.kernel import Kernel

URL = "/v1/chat/completions"
PART = 12
"""Digits of a question's id that say which cell it is of."""


@dataclass(frozen=True)
class OpenQuestion:
    """A question that waits for an answer from outside."""

    cache_key: str
    request_id: str
    role: str
    model: str
    messages: tuple[Message, ...]
    is_taken: bool = False
    """Whether an agent or a person works on it."""

    def to_batch(self, parameters: dict[str, Any], model: str = "") -> dict[str, Any]:
        """Return it as a request of OpenAI's batches, to `model` or the one that its own model's name names."""
        named = model or self.model.partition("/")[2] or OUTSIDE
        body = {"model": named, "messages": [dict(message) for message in self.messages]} | parameters
        if "max_tokens" in body:
            body["max_completion_tokens"] = body.pop("max_tokens")  # as the interface calls it by now
        return {"custom_id": self.cache_key, "method": "POST", "url": URL, "body": body}

    def to_text(self) -> str:
        """Return it as a person reads it."""
        head = f"=== {self.cache_key} ({self.role} for {self.request_id})"
        return "\n\n".join([head, *(f"--- {message['role']}\n{message['content']}" for message in self.messages)])


def open_questions(folder: Path) -> list[OpenQuestion]:
    """Return the open questions of the run in `folder`: tasks in turn, the oldest first."""
    told = _told_in(folder)  # first: what is taken out of the inbox is stored by then
    answered = {item.custom_id for item in told if isinstance(item, Answer)}
    taken = {item.custom_id for item in told if isinstance(item, Taken)}
    return [
        OpenQuestion(
            row["cache_key"], row["request_id"], row["role"], row["model"], tuple(json.loads(row["messages_json"])),
            row["is_taken"] or row["cache_key"] in taken,
        )
        for row in Run(folder).rows("outside.questions")
        if row["cache_key"] not in answered
    ]  # fmt: skip


def take(folder: Path, questions: Iterable[OpenQuestion]) -> None:
    """Tell a run that these questions are worked on, so that it withdraws none of them. It raises UserError."""
    if lines := [Taken(question.cache_key).to_line() for question in questions if not question.is_taken]:
        Inbox(folder).put(lines)


def config_of(folder: Path) -> RunConfig:
    """Return the configuration that is stored with a run. It raises UserError."""
    row = Run(folder).row
    if not row:
        raise UserError(f"{folder}: the run was stopped before it began; start a new one")
    return RunConfig.from_json(row["config_json"])


def waiting_guests(folder: Path, tasks: Sequence[Task]) -> set[str]:
    """Return the ids of the guests of a run, with these tasks, that wait for their verdicts."""
    return _waiting(_told_in(folder), Run(folder), tasks)


def _waiting(told: Iterable[Answer | Invitation | Taken], run: Run, tasks: Sequence[Task]) -> set[str]:
    """The guests among what was told, and those that were asked for since."""
    found = [(request.task, request.params) for request in map(request_from, run.rows("outside.guests"))]
    for item in told:
        if isinstance(item, Invitation):
            with suppress(LineError):
                found.append((only_task(item.task, tasks), vars(item)))
    return {Kernel(task.operator, task.target, each["source"], each["values"]).id for task, each in found}


def nobody_asks(folder: Path) -> str:
    """Return why a run has no question to the outside; empty where one of its models is outside."""
    llm = config_of(folder).llm
    if llm and any(map(is_outside, llm.models)):
        return ""
    asked = f"asks {', '.join(llm.models)} itself" if llm else "asks no language model"
    return f"run {folder.name} {asked}; questions for outside come of a run with --llm {OUTSIDE}"


@dataclass
class CheckedLines:
    """The lines that may be told among some, and the faults of the others."""

    lines: list[str] = field(default_factory=list)
    answers: int = 0
    guests: int = 0
    problems: list[str] = field(default_factory=list)


class InboxCheck:
    """Looks at lines before they go to a run's inbox, so that their author hears at once what is wrong."""

    def __init__(self, folder: Path, author: str = "") -> None:
        """It reads the run in `folder` as it stands; guests that name no author are of `author`."""
        self._author = author
        config = config_of(folder)
        self._tasks = [task for _, task in config.tasks()]
        self._cell = config.cell is not None
        told = _told_in(folder)  # first: what is taken out of the inbox is stored by then
        self._run = Run(folder)
        self._asked: set[str] = {row["cache_key"] for row in self._run.rows("calls.asked_outside")}
        self._answered = {item.custom_id: False for item in told if isinstance(item, Answer)}
        """By question, whether it was withdrawn instead."""
        self._answered |= {row["cache_key"]: row["is_withdrawn"] for row in self._run.rows("outside.answered")}
        self._waiting = _waiting(told, self._run, self._tasks)

    def look_at(self, lines: Iterable[tuple[str, str]]) -> CheckedLines:
        """Sort lines, each with the place where it stands."""
        found = CheckedLines()
        for where, line in lines:
            try:
                item = parsed(line)
                if isinstance(item, Answer):
                    self._check(item)
                    found.answers += 1
                elif not isinstance(item, Taken):
                    line = self._filled(item).to_line()
                    found.guests += 1
            except LineError as error:
                found.problems.append(f"{where}: {error}")
            else:
                found.lines.append(line)
        return found

    def _check(self, answer: Answer) -> None:
        """Raise LineError for an answer that no question waits for."""
        key = answer.custom_id
        withdrawn = self._answered.get(key, False)
        check_answer(key, asked=key in self._asked, withdrawn=withdrawn, answered=key in self._answered)
        self._answered[key] = False

    def _filled(self, guest: Invitation) -> Invitation:
        """The guest with its task, parents and author. It raises LineError for what the run does not have."""
        guest, kernel = whole_guest(guest, self._tasks, self._born, cell=self._cell)
        judged = bool(self._run.rows("kernels.judged", task=guest.task, prefix=kernel.id))
        check_guest(kernel, guest.task, waits=kernel.id in self._waiting, judged=judged)
        return replace(guest, author=guest.author or self._author)

    def _born(self, task: Task, prefix: str) -> list[str]:
        rows = self._run.rows("kernels.born_like", task=str(task), prefix=prefix)
        return [row["kernel_id"] for row in rows]

    def key(self, prefix: str) -> str:
        """Return the one question whose id begins so. It raises UserError."""
        return _only_key(prefix, self._asked)


def _only_key(prefix: str, keys: Iterable[str]) -> str:
    found = [key for key in keys if key.startswith(prefix)]
    if len(found) != 1:
        raise UserError(f"--to {prefix}: {len(found) or 'no'} questions have such an id; see evo ask --text")
    return found[0]


def _told_in(folder: Path) -> list[Answer | Invitation | Taken]:
    """All that lies in a run's inbox and can be read."""
    inbox, found = Inbox(folder), []
    for file in inbox.files():
        with suppress(OSError):  # it was taken just now, or cannot be
            for _, line in inbox.lines(file):
                with suppress(LineError):
                    found.append(parsed(line))
    return found


def comparison_in(runs: Path, name: str) -> Path | None:
    """The folder of a comparison that is called so, by its path or its name; None where none is."""
    places = (Path(name), runs / name, folder_of(runs, name))
    return next((place for place in places if (place / CONFIG).exists()), None)


def comparison_questions(folder: Path) -> list[OpenQuestion]:
    """Return the open questions of all cells, in an order that tells nothing. It raises UserError."""
    found = [
        replace(question, cache_key=f"{part}{question.cache_key}", role="question", request_id=cell.task)
        for part, cell in _asking(folder).items()
        for question in open_questions(folder / cell.name)
    ]
    return sorted(found, key=lambda question: digest("order", question.cache_key))


class ComparisonInboxCheck:
    """Looks at answers before they go to the inboxes of the cells that asked; see `InboxCheck`."""

    def __init__(self, folder: Path, author: str = "") -> None:
        """It reads the cells in `folder` as they stand."""
        self._folder = folder
        self._author = author
        self._cells = _asking(folder)
        self._checks: dict[str, InboxCheck] = {}
        self._lines: dict[str, list[str]] = {}

    def look_at(self, lines: Iterable[tuple[str, str]]) -> CheckedLines:
        """Sort lines, each with the place where it stands; kernels that no request asked for are no part of an arm."""
        found = CheckedLines()
        for where, line in lines:
            part, own = _routed(line)
            if part not in self._cells:
                found.problems.append(f"{where}: the comparison has no such question; it takes answers alone")
                continue
            check = self._checks.get(part) or InboxCheck(self._folder / self._cells[part].name, self._author)
            self._checks[part] = check
            told = check.look_at([(where, own)])
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
        return _only_key(prefix, (question.cache_key for question in comparison_questions(self._folder)))


def _asking(folder: Path) -> dict[str, Cell]:
    """Cells that ask a model outside and were begun, by the part of their questions' ids that says so."""
    found = {}
    for cell in stored(folder).cells():
        outside = cell.config.llm and any(map(is_outside, cell.config.llm.models))
        if outside and standing(folder / cell.name)[0] not in (CellState.NEW, CellState.DONE):
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
