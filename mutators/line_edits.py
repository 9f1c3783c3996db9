"""Answers as line patches: JSON that replaces, inserts and deletes numbered lines of the file that was shown.

The form is that of CuTeGen (arXiv:2604.01489), whose optimising and debugging prompts show numbered code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from mutators.edits import AnswerError, child_source

LINES = "lines"
"""The name of this form, among the params of requests."""


def numbered(source: str) -> str:
    """Return a file with the number of every line before it, from 1."""
    lines = source.rstrip("\n").split("\n")
    width = len(str(len(lines)))
    return "\n".join(f"{number:{width}d}| {line}".rstrip() for number, line in enumerate(lines, 1))


def line_edited(source: str, answer: str) -> str:
    """Return `source` after the line edits of an answer; one without any may hold a child in the usual forms.

    Numbers are those of the source as it stands, and all edits are made or none. It raises AnswerError.
    """
    found = _edits(answer)
    if found is None:
        return child_source(source, answer)
    lines = source.rstrip("\n").split("\n")
    edits = sorted(_ranges(found, len(lines)))
    for (_, end, number, _), (begin, _, other, _) in pairwise(edits):
        if begin < end:
            raise AnswerError(f"edits {min(number, other)} and {max(number, other)} want to change the same lines")
    for begin, end, _, put in reversed(edits):
        lines[begin:end] = put
    changed = "\n".join(lines) + "\n"
    if changed.split() == source.split():
        raise AnswerError("the file that results is the one you were given; change something")
    return changed


def _edits(answer: str) -> list[Any] | None:
    """The list `edits` of the last JSON object in an answer that has one; None where there is none."""
    decoder = json.JSONDecoder(strict=False)  # models write line breaks into strings as they are
    found, place = None, 0
    while (place := answer.find("{", place)) >= 0:
        try:
            value, place = decoder.raw_decode(answer, place)
        except (ValueError, RecursionError):
            place += 1
            continue
        if isinstance(value, dict) and isinstance(value.get("edits"), list):
            found = value["edits"]
    return found


def _ranges(edits: list[Any], length: int) -> Iterator[tuple[int, int, int, list[str]]]:
    """The first line and the end of what each edit takes out, from 0, its number, and the lines put there."""
    if not edits:
        raise AnswerError("the list `edits` is empty; change something")
    for number, edit in enumerate(edits, 1):
        where = f"edit {number}"
        if not isinstance(edit, Mapping) or edit.get("op") not in ("replace", "insert", "delete"):
            raise AnswerError(f'{where}: `op` must be "replace", "insert" or "delete"')
        text = edit.get("text", "")
        if not isinstance(text, str):
            raise AnswerError(f"{where}: `text` must be a string")
        if edit["op"] == "insert":
            begin = end = _line(edit, "after", 0, length, where)
        else:
            begin = _line(edit, "from", 1, length, where) - 1
            end = _line({"to": begin + 1, **edit}, "to", begin + 1, length, where)
        put = [] if edit["op"] == "delete" else text.removesuffix("\n").split("\n")
        yield begin, end, number, put


def _line(edit: Mapping[str, Any], key: str, least: int, most: int, where: str) -> int:
    value = edit.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise AnswerError(f"{where}: `{key}` must be the number of a line, {least} to {most}")
    return value
