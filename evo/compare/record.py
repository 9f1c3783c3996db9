"""The record of a comparison: what was begun and done in its folder, line by line, so that nothing changes in silence.

Each line holds the digest of the one before it, of the registration, and of what was done: a cell's content, or the
judgement's. `faults` holds the folder against it. Who rewrites the whole record is not found out, unless the digest of
its last line, which reports show, was made known before.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evo.api import Run
from evo.compare.cells import Begun
from evo.folders import DATABASE
from operators.errors import UserError
from operators.identity import digest, short

FILE = "record.jsonl"
FOLDER = "judgement"
STORE = "store"
"""The judgement's store, beside the cells' folders, and no cell: patterns over a comparison's runs do not match it."""
BEGUN, DONE = "begun", "done"
"""Kinds of lines."""
JUDGEMENT = "judgement"
"""The name of the judgement in lines, where others have a cell's."""


class Seals:
    """The record in a comparison's folder, for the process that works on it. It raises UserError where it is broken."""

    def __init__(self, folder: Path, registration: str) -> None:
        self._path = folder / FILE
        self._registration = registration
        self._lines = lines(folder)

    @property
    def head(self) -> str:
        """The digest of its last line; empty: there is none."""
        return head(self._lines[-1:])

    def begun(self, name: str, *, is_new: bool) -> None:
        """Write down that a cell or the judgement was begun; `is_new`: just now, rather than taken up again."""
        if is_new or not self._last(name, BEGUN):
            self._add(name, BEGUN, "")

    def done(self, name: str, content: str) -> None:
        """Write down what there was at its end; once, as long as that does not change."""
        last = self._last(name, DONE)
        if not last or last["content"] != content:
            self._add(name, DONE, content)

    def is_done(self, name: str) -> bool:
        """Whether its end was written down."""
        return bool(self._last(name, DONE))

    def _last(self, name: str, kind: str) -> Mapping[str, Any] | None:
        found = [line for line in self._lines if line["name"] == name and line["kind"] == kind]
        return found[-1] if found else None

    def _add(self, name: str, kind: str, content: str) -> None:
        line = {
            "at": round(time.time(), 3), "kind": kind, "name": name, "content": content,
            "registration": self._registration, "before": self.head,
        }  # fmt: skip
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self._lines.append(line)


def lines(folder: Path) -> list[dict[str, Any]]:
    """The lines of the record in a comparison's folder, empty where there is none. It raises UserError."""
    try:
        return [json.loads(line) for line in (folder / FILE).read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise UserError(f"{folder / FILE} cannot be used: {error}") from None


def head(known: Sequence[Mapping[str, Any]]) -> str:
    """The digest of the last of these lines; empty: there is none."""
    return digest("line", json.dumps(known[-1], sort_keys=True)) if known else ""


def content(run: Run) -> str:
    """The digest of what a run holds: settings, questions and answers, verdicts, what was told of them."""
    return str(run.rows("cells.content")[0]["content"])


def changed(folder: Path, begun: Begun) -> str:
    """The change of a registration after cells were begun, in words; empty: there was none."""
    others = [line for line in lines(folder) if line["registration"] != begun.digest]
    if not others:
        return ""
    names = {line["name"] for line in others}
    return (
        f"the registration was changed: {len(names)} of its cells are of {short(others[0]['registration'])}, "
        f"comparison.json is {short(begun.digest)}"
    )


def faults(folder: Path, begun: Begun) -> list[str]:
    """Differences between a comparison's folder and its record, in words; none where all is as it was written down."""
    return [*_faults(folder, begun)]


def _faults(folder: Path, begun: Begun) -> Iterator[str]:
    known = lines(folder)
    if any(
        line["before"] != head(before) for before, line in zip([[], *([each] for each in known)], known, strict=False)
    ):
        yield f"{FILE} was changed: its lines do not follow from each other"
    if told := changed(folder, begun):
        yield told
    of: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in known:
        of[line["name"]].append(line)
    for cell in begun.cells():
        yield from _of_one(f"cell {cell.name}", folder / cell.name, of[cell.name], begun.digest)
    yield from _of_one("the judgement", folder / FOLDER / STORE, of[JUDGEMENT], begun.digest)


def _of_one(what: str, place: Path, own: Sequence[Mapping[str, Any]], registration: str) -> Iterator[str]:
    """The faults of one cell, or of the judgement, whose lines are `own`."""
    times, ended = sum(line["kind"] == BEGUN for line in own), [line for line in own if line["kind"] == DONE]
    if times > 1:
        yield f"{what} was begun {times} times: what it had found before was removed"
    if not (place / DATABASE).exists():
        if own:
            yield f"{what} was begun, and is gone"
        return
    with Run(place) as run:
        cell, judged = run.config.get("cell") or {}, run.rows("cells.judged")[0]["n"]
        now = content(run)
    if judged and not own:
        yield f"{what} is not in {FILE}: it was not begun here"
    if cell and cell["registration"] != registration:
        yield f"{what} was begun under another registration, {short(cell['registration'])}"
    if ended and now != ended[-1]["content"]:
        yield f"{what} was changed after its end"
