"""Pieces of C++ as text: edits of a file, indentation, loop headers and blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

INDENT = "    "
WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Edit:
    """Replace bytes [start, end) of the file by `text`."""

    start: int
    end: int
    text: str


def apply_edits(data: bytes, edits: Iterable[Edit]) -> bytes:
    """`data` with all edits made at once. They must not overlap."""
    parts, position = [], 0
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        assert edit.start >= position, "edits overlap"
        parts += [data[position : edit.start], edit.text.encode()]
        position = edit.end
    return b"".join((*parts, data[position:]))


def reindent(text: str, old: str, new: str) -> str:
    """Move every line but the first from indentation `old` to `new`."""
    first, *rest = text.split("\n")
    return "\n".join([first, *(new + line[len(old) :] if line.startswith(old) else line for line in rest)])


def header(type_: str, variable: str, start: str, bound: str, step: str = "1", *, relation: str = "<") -> str:
    """The text of a canonical loop's header."""
    update = f"{variable}++" if step == "1" else f"{variable} += {step}"
    return f"for ({type_} {variable} = {start}; {variable} {relation} {bound}; {update})"


def block(head: str, *lines: str, indent: str) -> str:
    """`head { lines }` over several lines; `lines` may themselves have several, written for column 0."""
    inner = indent + INDENT
    body = "".join(f"\n{inner}{reindent(line, '', inner)}" for line in lines)
    return f"{head} {{{body}\n{indent}}}"
