"""Contents of a file of HTML, for checks of a report: its tables with their values, its queries and elements."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

EMPTY = ("meta", "line", "path", "rect", "img", "br", "link", "input", "wbr")


@dataclass
class Seen:
    """A table as it stands in a page, with the commands below it."""

    caption: str = ""
    columns: list[tuple[list[str], str]] = field(default_factory=list)
    """Fields that each shows, and where they come from."""
    rows: list[list[Any]] = field(default_factory=list)
    shown: list[list[str]] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)

    def values(self, origin: str) -> list[dict[str, Any]]:
        """Rows of the fields that come from there."""
        found: list[dict[str, Any]] = []
        for row in self.rows:
            values: dict[str, Any] = {}
            for (names, of), value in zip(self.columns, row, strict=True):
                if of == origin:
                    values |= zip(names, value if len(names) > 1 else [value], strict=True)
            found.append(values)
        return found

    def both(self) -> list[dict[str, Any]]:
        """Rows of all fields that anything is said to give."""
        return [row | more for row, more in zip(self.values("query"), self.values("program"), strict=True)]


class Page(HTMLParser):
    """A page, read."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[Seen] = []
        self.codes: list[str] = []
        """All that is shown to the letter."""
        self._path: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        assert not self._path, self._path

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.elements.append((tag, found))
        if tag in EMPTY:
            return
        self._path.append((tag, found))
        if tag == "div" and found.get("class") == "table":
            self.tables.append(Seen())
        elif tag == "th" and "data-names" in found:
            self.tables[-1].columns.append((str(found["data-names"]).split(), str(found["data-origin"])))
        elif tag == "tr" and self._inside("tbody"):
            self.tables[-1].rows.append([])
            self.tables[-1].shown.append([])
        elif tag in ("td", "th"):
            self.tables[-1].rows[-1].append(json.loads(str(found["data-value"])))
            self.tables[-1].shown[-1].append("")
        elif tag == "code":
            self.codes.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._path[-1][0] == tag, (tag, self._path)
        self._path.pop()

    def handle_data(self, data: str) -> None:
        if self._inside("code"):
            self.codes[-1] += data
        if self._inside("caption"):
            self.tables[-1].caption += data
        elif self._inside("tbody") and (self._inside("td") or self._inside("th")):
            self.tables[-1].shown[-1][-1] += data
        elif self._inside("code") and self._inside("div", "table") and self._inside("details", "query"):
            commands = self.tables[-1].commands
            if data.startswith(("evo sql", "python -")):
                commands.append(data)
            else:
                commands[-1] += data

    def _inside(self, tag: str, kind: str | None = None) -> bool:
        return any(name == tag and kind in (None, found.get("class")) for name, found in self._path)

    def all(self, tag: str) -> Iterator[dict[str, str | None]]:
        """Attributes of all elements of a kind."""
        return (found for name, found in self.elements if name == tag)
