"""A document as one file of HTML: without a network, and readable without a script.

Whatever candidates, models and people wrote is text and nothing else: the template escapes it, characters that turn the
direction of writing are shown as escapes, and the page's own policy lets no script run but the one that it was made
with.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from evo.report.charts import colour, dashes, svg
from evo.report.document import Block, Column, Document, Figures, Fold, Listing
from evo.report.output import as_json, printable

FOLDER = Path(__file__).parent / "assets"
NAME = "page.html.j2"


def html(document: Document, *, live: str | None = None) -> str:
    """The whole file, or (`live`, the name of this state) the same page for `evo ui`, which then asks for newer ones.

    It raises UserError where the library that draws is not installed.
    """
    is_live = live is not None
    return _environment().get_template(NAME).render(
        document=document, script=Markup(_script(live=is_live)), style=Markup(_asset("page.css")),
        policy=policy(live=is_live), anchors=_anchors(document), live=live,
    )  # fmt: skip


def policy(*, live: bool) -> str:
    """What a browser lets the page do: run its own script, and where it is live ask the server that it came from."""
    digest = base64.b64encode(hashlib.sha256(_script(live=live).encode()).digest()).decode()
    asks = "connect-src 'self'; " if live else ""
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; {asks}base-uri 'none'; "
        "form-action 'none'"
    )


@cache
def _script(*, live: bool) -> str:
    """That of a live page first looks at what the other one will change."""
    return (_asset("live.js") if live else "") + _asset("page.js")


def kind(block: Block) -> str:
    """What kind of block it is."""
    return type(block).__name__.lower()


def value(column: Column, row: Mapping[str, Any]) -> str:
    """What a cell holds, to the last digit, for sorting and for checks."""
    return as_json(column.value(row), indent=None)


def drawn(block: Figures) -> list[tuple[str, str, Markup]]:
    """Title, words and drawing of each figure."""
    return [(each.title, each.told, Markup(svg(each.spec, each.told))) for each in block.figures]


def _anchors(document: Document) -> frozenset[str]:
    """Where links may lead."""
    blocks = [block for section in document.sections for block in section.blocks]
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
    """What the template makes of a value before it escapes text: nothing turns the direction of writing."""
    return printable(value) if type(value) is str else value


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=_shown,
    )  # fmt: skip
    made.filters |= {"kind": kind, "drawn": drawn, "changed": changed}
    made.globals |= {"value": value, "colour": colour, "dashes": dashes}
    return made


@cache
def _asset(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")
