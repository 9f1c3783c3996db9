"""Answers from outside, in lines of JSON: in the form of OpenAI's batches or a simpler one, and guests."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mutators.base import CallStatus
from operators.definition.reading import first_problem
from operators.definition.spec import Task
from operators.errors import quote
from operators.identity import short
from operators.kernel import Kernel

MOST_LINE_BYTES = 4 << 20
MOST_TEXT = 1 << 20
"""Characters of an answer, and of a guest's file: far more than any kernel has."""
MOST_PROBLEM = 2_000
"""Characters of what is wrong with a line."""
MOST_NAME = 200
"""Characters of an author's name."""
NO_GUESTS = "a cell of a comparison takes answers alone: a kernel that no request asked for is no part of an arm"
WITHDRAWN = "it was withdrawn: the search asks about faster kernels by now; hand your kernel in without the question"
STATUSES = {"length": CallStatus.CUT, "content_filter": CallStatus.REFUSED}


class LineError(ValueError):
    """A line cannot be taken; the text, one line that a terminal can show, says what is wrong with it."""

    def __init__(self, problem: str) -> None:
        """`problem` may have words of the line itself."""
        line = " ".join(problem.split())[:MOST_PROBLEM]
        super().__init__("".join(each if each.isprintable() else "?" for each in line))


@dataclass(frozen=True)
class Answer:
    """An answer to an open question, as it was told."""

    custom_id: str
    """The question's cache key."""
    status: CallStatus
    text: str
    error: str = ""
    """Why there is no whole answer; empty when it is whole."""
    usage: Any = None
    cost_usd: float | None = None
    author: str = ""


@dataclass(frozen=True)
class Invitation:
    """A guest: a kernel that no request asked for."""

    source: str
    author: str = ""
    task: str = ""
    """`operator/dtype/target`, or its beginning."""
    parents: tuple[str, ...] = ()
    """Kernel ids or their beginnings, the principal one first."""
    values: Mapping[str, int] = field(default_factory=dict)
    note: str = ""

    def to_line(self) -> str:
        """Return its line; `parsed` is the inverse."""
        return json.dumps({**vars(self), "parents": list(self.parents), "values": dict(self.values)})


@dataclass(frozen=True)
class Taken:
    """The sign that a question is worked on, so that it is not withdrawn."""

    custom_id: str

    def to_line(self) -> str:
        """Return its line; `parsed` is the inverse."""
        return json.dumps({"taken": self.custom_id})


def parsed(line: str) -> Answer | Invitation | Taken:
    """Return what a line tells. It raises LineError."""
    if len(line) > MOST_LINE_BYTES:
        raise LineError(f"it has {len(line)} characters; at most {MOST_LINE_BYTES} are read")
    try:
        return _read(line)
    except RecursionError:  # wherever in there: what JSON's parser just takes may be too much for others
        raise LineError("it is nested too deeply") from None


def _read(line: str) -> Answer | Invitation | Taken:
    try:
        raw = json.loads(line)
    except ValueError as error:
        raise LineError(f"no JSON: {error}") from None
    if not isinstance(raw, dict):
        raise LineError(f"a JSON object was expected, not {type(raw).__name__}")
    try:
        if "custom_id" in raw:
            if "response" in raw or "error" in raw:
                return _batch(_Batch.model_validate(raw))
            return _simple(_Simple.model_validate(raw))
        if "source" in raw:
            return _invitation(_Guest.model_validate(raw))
        if "taken" in raw:
            return Taken(_Taken.model_validate(raw).taken)
    except ValidationError as error:
        raise LineError(first_problem(error)) from None
    raise LineError('neither an answer ("custom_id") nor a kernel ("source")')


def only_task(name: str, tasks: Collection[Task]) -> Task:
    """Return the one task of that operator, or whose name begins so. It raises LineError."""
    found = [task for task in tasks if task.operator == name] or [task for task in tasks if str(task).startswith(name)]
    if len(found) == 1:
        return found[0]
    problem = f"{len(found)} tasks are called {quote(name)}" if found else f"there is no task {quote(name)}"
    raise LineError(f"{problem}; this run has {', '.join(map(str, tasks))}")


def check_answer(key: str, *, asked: bool, withdrawn: bool, answered: bool) -> None:
    """Raise LineError for an answer that no question waits for, by what is known of the question."""
    if not asked:
        raise LineError(f"{key[:80]}: the run has no such question; give the id of one that is open")
    if withdrawn:
        raise LineError(f"{key}: {WITHDRAWN}")
    if answered:
        raise LineError(f"{key}: it is answered already, and the first answer counts")


def whole_guest(
    guest: Invitation, tasks: Collection[Task], ids: Callable[[Task, str], Iterable[str]], *, cell: bool
) -> tuple[Invitation, Kernel]:
    """Return the guest with its task and parents in full, and its kernel. It raises LineError for what a run lacks.

    `ids` gives those of a task's kernels, at least all that begin with a prefix; a `cell` of a comparison takes none.
    """
    if cell:
        raise LineError(NO_GUESTS)
    task = only_task(guest.task, tasks)
    parents = tuple(_only_kernel(parent, ids(task, parent), task) for parent in guest.parents)
    kernel = Kernel(task.operator, task.target, guest.source, guest.values)
    return replace(guest, task=str(task), parents=parents), kernel


def check_guest(kernel: Kernel, task: str, *, waits: bool, judged: bool) -> None:
    """Raise LineError for a kernel that waits for its verdict, and for one that has it."""
    named = f"kernel {short(kernel.id)}"
    if waits:
        raise LineError(f"{named} is handed in already, and waits for its verdict: do not hand it in again")
    if judged:
        named = f"{named} has its verdict at {task}"
        raise LineError(f"{named}: the same file with the same values is not measured again; change one of them")


def _only_kernel(prefix: str, ids: Iterable[str], task: Task) -> str:
    found = [name for name in ids if name.startswith(prefix)]
    if len(found) != 1:
        raise LineError(f"parent {quote(prefix)}: {len(found) or 'no'} kernels of {task} have such an id")
    return found[0]


class _Lenient(BaseModel):
    """Model of an answer that leaves unknown fields aside, as every service adds some; known ones must be of their
    type."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class _Simple(_Lenient):
    custom_id: str = Field(min_length=1)
    content: str | None = None
    refused: str | None = None
    finish_reason: str | None = None
    usage: Any = None
    cost_usd: float | None = Field(None, ge=0, lt=1e9, allow_inf_nan=False)
    author: str = ""


class _Message(_Lenient):
    content: str | list[dict[str, Any]] | None = None
    refusal: str | None = None


class _Choice(_Lenient):
    message: _Message
    finish_reason: str | None = None


class _Body(_Lenient):
    choices: list[_Choice] = Field(min_length=1)
    model: str = ""
    usage: Any = None


class _Response(_Lenient):
    status_code: int = 200
    body: dict[str, Any] | None = None


class _Batch(_Lenient):
    custom_id: str = Field(min_length=1)
    response: _Response | None = None
    error: Any = None
    cost_usd: float | None = Field(None, ge=0, lt=1e9, allow_inf_nan=False)
    author: str = ""


class _Guest(_Lenient):
    source: str = Field(min_length=1)
    author: str = ""
    task: str = ""
    parents: list[str] = []
    values: dict[str, int] = {}
    note: str = ""


class _Taken(_Lenient):
    taken: str = Field(min_length=1)


def _simple(line: _Simple) -> Answer:
    if (line.content is None) == (line.refused is None):
        raise LineError(f'{line.custom_id}: either "content" or "refused" was expected')
    return _answer(line, line.content, line.refused, line.finish_reason, line.usage, line.author)


def _batch(line: _Batch) -> Answer:
    if line.error:
        _failed(line, line.error)
    if line.response is None or line.response.body is None:
        _failed(line, "it has no response")
    if line.response.status_code != 200:
        _failed(line, line.response.body.get("error") or f"status {line.response.status_code}")
    body = _Body.model_validate(line.response.body)
    choice = body.choices[0]
    said = choice.message
    content = said.content if said.content is None or isinstance(said.content, str) else _joined(said.content)
    refused = said.refusal if content is None else None
    if content is None and refused is None:
        refused = "the message has no content"
    return _answer(line, content, refused, choice.finish_reason, body.usage, line.author or body.model)


def _failed(line: _Batch, reason: Any) -> NoReturn:
    if isinstance(reason, Mapping):
        reason = reason.get("message") or reason
    raise LineError(f"{line.custom_id}: its provider gave no answer, so the question stays open: {_short(str(reason))}")


def _answer(
    line: _Simple | _Batch, content: str | None, refused: str | None, finish: str | None, usage: Any, author: str
) -> Answer:
    text, error = _sound(content or ""), ""
    status = STATUSES.get(finish or "", CallStatus.ANSWERED)
    if len(text) > MOST_TEXT:
        text, status, error = text[:MOST_TEXT], CallStatus.CUT, f"of {len(text)} characters the first are kept"
    if refused is not None:
        status, error = CallStatus.REFUSED, f"it was refused: {_short(_sound(refused)) or 'nothing was said of why'}"
    return Answer(line.custom_id, status, text, error, usage, line.cost_usd, _name(author))


def _invitation(line: _Guest) -> Invitation:
    if len(line.source) > MOST_TEXT:
        raise LineError(f"the kernel file has {len(line.source)} characters; at most {MOST_TEXT} are taken")
    if any(abs(value) >= 2**63 for value in line.values.values()):
        raise LineError("values of tunables are integers of 64 bits")
    values = {_sound(name): value for name, value in line.values.items()}
    parents = tuple(dict.fromkeys(map(_sound, line.parents)))
    note = _short(_sound(line.note))
    return Invitation(_sound(line.source), _name(line.author), _sound(line.task), parents, values, note)


def _joined(parts: Iterable[Mapping[str, Any]]) -> str:
    return "".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def _name(text: str) -> str:
    return " ".join(_sound(text).split())[:MOST_NAME]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 300 else f"{line[:300]}..."


def _sound(text: str) -> str:
    """The text without halves of surrogate pairs, which have no place in UTF-8."""
    return text.encode(errors="replace").decode()
