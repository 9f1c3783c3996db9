"""A document as Markdown, for a pull request: the same tables, and each query once, at the first table that needs it.

Figures, files and tables that the HTML folds are left to that: whoever hosts pull requests limits their length.

Whatever candidates, models and people wrote is text and nothing else: what Markdown or HTML could obey is an entity.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from evo.report.document import Block, Column, Document, Figures, Program, Query, Section, Table, Words
from evo.report.output import printable

OBEYED = re.compile(
    r"[&<>\"`*{}\[\]#!|~^$@\\]"
    r"|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])"  # within a word it is only that
    r"|:(?=/)|(?<=www)\."  # links that nobody wrote as such
    r"|^[-+=](?=\s)|^\d+[.)](?=\s)"  # lists and headings
)
LONGEST = 300
"""Characters of a cell."""


def markdown(document: Document) -> str:
    """The whole file."""
    parts = [f"# {escaped(document.title)}", escaped(document.told)]
    if document.notices:
        parts.append("\n".join(f"> - {escaped(notice)}" for notice in document.notices))
    told: set[str] = set()
    for section in document.sections:
        parts += _section(section, told)
    return "\n\n".join([*parts, f"<sub>{escaped(document.made)}</sub>"]) + "\n"


def escaped(text: str) -> str:
    """The text as one line that nothing can be but text; words and figures stay as they are."""
    flat = " ".join(printable(text).split())
    return OBEYED.sub(lambda found: "".join(f"&#{ord(character)};" for character in found[0]), flat)


def _section(section: Section, told: set[str]) -> Iterator[str]:
    """Its parts; `told` are the commands that were printed already, and those that now are."""
    parts = [part for block in section.blocks for part in _block(block, told)]
    if parts or not section.inner:
        yield f"{'###' if section.inner else '##'} {escaped(section.title)}"
        yield from parts


def _block(block: Block, told: set[str]) -> Iterator[str]:
    match block:
        case Words():
            if block.text:
                yield escaped(block.text)
            if block.items:
                yield "\n".join(f"- {escaped(item)}" for item in block.items)
        case Table() if not block.folded:
            yield from _table(block, told)
        case Figures():
            yield f"*{escaped('; '.join(figure.title for figure in block.figures))}: in the HTML file.*"


def _table(table: Table, told: set[str]) -> Iterator[str]:
    if not table.rows:
        yield f"**{escaped(table.caption)}.** {escaped(table.empty)}"
    else:
        yield f"**{escaped(table.caption)}**"
        lines = [
            _line([escaped(column.title) for column in table.columns]),
            _line(["---:" if column.numeric else "---" for column in table.columns]),
            *(_line([_cell(column, column.text(row)) for column in table.columns]) for row in table.rows),
        ]
        yield "\n".join(lines)
    for it, label in ((table.query, "Query of this table"), (table.program, "How the rest is worked out")):
        if it and it.text not in told:
            told.add(it.text)
            yield _folded(it, label)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(column: Column, text: str) -> str:
    short = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
    return f"<code>{escaped(short)}</code>" if column.code and short else escaped(short)


def _folded(it: Query | Program, label: str) -> str:
    text = printable(it.text)
    fence = "`" * max(3, 1 + max((len(found[0]) for found in re.finditer("`+", text)), default=0))
    return f"<details><summary>{label}</summary>\n\n{fence}sh\n{text}\n{fence}\n\n</details>"
