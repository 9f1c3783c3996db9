"""A document as one file of HTML: without a network, and readable without a script.

All that candidates, models and people wrote is text and nothing else: the template escapes it, characters that turn the
direction of writing are shown as escapes, and the page's own policy lets no script run but the one that it was made
with.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import jinja2
from markupsafe import Markup

from evo.charts.drawing import Interactive, colour, dashes, style, vega
from evo.report.document import (
    KERNEL,
    Block,
    Column,
    Document,
    Figures,
    Fold,
    Listing,
    Query,
    Script,
    Section,
    Table,
    Words,
)
from evo.report.output import as_json, printable

FOLDER = Path(__file__).parent / "assets"
NAME = "page.html.j2"


def html(document: Document, *, live: str | None = None, site: Sequence[tuple[str, str]] = ()) -> str:
    """The whole file, or (`live`, the name of this state) the same page for `evo ui`, which then asks for newer ones.

    `site` are addresses and titles of the server's pages, which kernels then have too. It raises UserError where the
    library that draws is not installed.
    """
    is_live = live is not None
    drawn = is_live or any(isinstance(block, Interactive) for block in _blocks(document))
    return _environment().get_template(NAME).render(
        document=document, script=Markup(_script(live=is_live)),
        style=Markup(style() + style("picture.css") + _asset("page.css")), vega=vega()[0] if drawn else "",
        policy=policy(live=is_live, drawn=drawn, served=bool(site)), anchors=_anchors(document), live=live, site=site,
    )  # fmt: skip


def policy(*, live: bool, drawn: bool = True, served: bool = False) -> str:
    """The page's content security policy: it may run its own script, where pictures are `drawn` the one that draws
    them, where it is served send its search box to the server that it came from, and where it is live ask that."""
    digest = base64.b64encode(hashlib.sha256(_script(live=live).encode()).digest()).decode()
    draws = f" 'sha256-{vega()[1]}'" if drawn else ""
    asks = "connect-src 'self'; " if live else ""
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'{draws}; {asks}base-uri 'none'; "
        f"form-action '{'self' if served else 'none'}'"
    )


def kernel_address(column: Column, row: Mapping[str, Any]) -> str:
    """The address of the kernel that a cell names, on a server; empty where it names none."""
    if column.link != KERNEL or not (kernel := row.get((column.link_names or column.names)[-1])):
        return ""
    return f"/kernel/{quote(kernel)}?{urlencode({'task': row['task']})}"


@cache
def _script(*, live: bool) -> str:
    """The page's script; a live page's begins with the part that looks for changes."""
    return (_asset("live.js") if live else "") + style("picture.js") + _asset("page.js")


def kind(block: Block) -> str:
    """The kind of a block."""
    return type(block).__name__.lower()


def value(column: Column, row: Mapping[str, Any]) -> str:
    """The value of a cell, to the last digit, for sorting and for checks."""
    return as_json(column.value(row), indent=None)


def drawn(block: Figures) -> list[tuple[str, str, Markup]]:
    """Title, words and drawing of each figure."""
    return [(each.title, each.told, Markup(each.svg)) for each in block.figures]


def _blocks(document: Document) -> list[Block]:
    """The blocks of its sections."""
    return [block for section in document.sections for block in section.blocks]


SPARK_WIDTH, SPARK_HEIGHT = 96, 22
"""Size of a sparkline, in pixels."""


def sparkline(points: Sequence[tuple[float, float]]) -> Markup:
    """Steps of a speedup over time, drawn small, as SVG; nothing where it never changed."""
    if len(points) < 2:
        return Markup()
    first, last = points[0][0], points[-1][0]
    logs = [math.log(speedup) for _, speedup in points]
    low, high = min(logs), max(logs)
    at = [2 + (SPARK_WIDTH - 12) * (seconds - first) / ((last - first) or 1.0) for seconds, _ in points]
    up = [SPARK_HEIGHT - 3 - (SPARK_HEIGHT - 6) * (log - low) / ((high - low) or 1.0) for log in logs]
    steps = "".join(f"H{x:.1f}V{y:.1f}" for x, y in zip(at[1:], up[1:], strict=True))
    path = f"M{at[0]:.1f},{up[0]:.1f}{steps}H{SPARK_WIDTH - 2}"
    return Markup(
        f'<svg width="{SPARK_WIDTH}" height="{SPARK_HEIGHT}" viewBox="0 0 {SPARK_WIDTH} {SPARK_HEIGHT}" '
        f'aria-hidden="true"><path d="{path}" fill="none" stroke="{colour(0)}" stroke-width="1.5"/></svg>'
    )


def _anchors(document: Document) -> frozenset[str]:
    """Where links may lead."""
    blocks = _blocks(document)
    sections = (section.anchor for section in document.sections if section.anchor)
    return frozenset([*_anchors_in(blocks), *sections])


def _anchors_in(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, Listing | Fold) and block.anchor:
            yield block.anchor
        if isinstance(block, Fold):
            yield from _anchors_in(block.blocks)


def changed(text: str) -> list[tuple[str, str]]:
    """The lines of a diff, each with the element that marks what it is: `ins`, `del` or none."""
    marks = {"+": "ins", "-": "del"}
    return [(marks.get(line[:1], ""), line) for line in text.split("\n")]


def _shown(value: Any) -> Any:
    """A value as the template shows it before it escapes text: nothing turns the direction of writing."""
    return printable(value) if type(value) is str else value


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=_shown,
    )  # fmt: skip
    made.filters |= {"kind": kind, "drawn": drawn, "changed": changed, "sparkline": sparkline}
    made.globals |= {"value": value, "colour": colour, "dashes": dashes, "markup": Markup}
    made.globals |= {"kernel_address": kernel_address}
    return made


@cache
def _asset(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


ACTIVE = re.compile(
    r"[&<>\"`*{}\[\]#!|~^$@\\]"
    r"|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])"  # within a word it is only that
    r"|:(?=/)|(?<=www)\."  # links that were not written as such
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
    return ACTIVE.sub(lambda found: "".join(f"&#{ord(character)};" for character in found[0]), flat)


def _section(section: Section, told: set[str]) -> Iterator[str]:
    """The parts of a section; `told` are the commands that were printed already, and those that now are."""
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
        case Interactive():
            yield f"*{escaped(block.title)}: in the HTML file.* {escaped(block.said)}"
        case Figures():
            yield f"*{escaped('; '.join(figure.title for figure in block.figures))}: in the HTML file.*"


def _table(table: Table, told: set[str]) -> Iterator[str]:
    if not table.rows:
        yield f"**{escaped(table.caption)}.** {escaped(table.empty)}"
    else:
        yield f"**{escaped(table.caption)}**"
        yield markdown_table(table.columns, table.rows)
    for it, label in ((table.query, "Query of this table"), (table.program, "How the rest is worked out")):
        if it and it.text not in told:
            told.add(it.text)
            yield _folded(it, label)


def markdown_table(columns: Sequence[Column], rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows under the titles of their columns."""
    lines = [
        _line([escaped(column.title) for column in columns]),
        _line(["---:" if column.numeric else "---" for column in columns]),
        *(_line([_cell(column, column.text(row)) for column in columns]) for row in rows),
    ]
    return "\n".join(lines)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(column: Column, text: str) -> str:
    short = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
    return f"<code>{escaped(short)}</code>" if column.code and short else escaped(short)


def _folded(it: Query | Script, label: str) -> str:
    text = printable(it.text)
    fence = "`" * max(3, 1 + max((len(found[0]) for found in re.finditer("`+", text)), default=0))
    return f"<details><summary>{label}</summary>\n\n{fence}sh\n{text}\n{fence}\n\n</details>"
