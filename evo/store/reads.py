"""The engine's own queries: the files in `reads/`, each one's queries by name.

A query stands below a line `-- [name]`; comments at its head are for its reader and no part of it. `-- using a, b`
among them names queries of the same file that it is asked after, as parts of its WITH. Values of `$name` are bound as a
rule; a query that is printed, for others to ask, is filled with them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from textwrap import indent
from typing import Any, Protocol

from evo.store.several import literal

FOLDER = Path(__file__).parent / "reads"
SECTION = re.compile(r"^-- \[(\w+)\]\n((?:--.*\n)*)", re.MULTILINE)
USING = re.compile(r"^-- using (.+)$", re.MULTILINE)


class Identifier(str):
    """The name of a column, which stands in a query as it is."""


Value = str | int | list[str]


@cache
def _file(name: str) -> dict[str, tuple[tuple[str, ...], str]]:
    """By name the queries of one file: the parts that each is asked after, and its text."""
    _, *parts = SECTION.split((FOLDER / f"{name}.sql").read_text(encoding="utf-8"))
    heads, texts = parts[1::3], parts[2::3]
    using = (tuple(re.findall(r"\w+", " ".join(USING.findall(head)))) for head in heads)
    return dict(zip(parts[::3], zip(using, map(str.strip, texts), strict=True), strict=True))


@cache
def own_query(name: str) -> str:
    """The text of `FILE.QUERY`. It raises KeyError."""
    file, _, query = name.partition(".")
    text = _file(file)[query][1]
    parts = [f"{part} as (\n{indent(_file(file)[part][1], '    ')}\n)" for part in dict.fromkeys(_needed(file, query))]
    if not parts:
        return text
    return "with\n" + ",\n".join(parts) + (f",\n{text[5:]}" if text.startswith("with\n") else f"\n{text}")


def _needed(file: str, query: str) -> Iterator[str]:
    for part in _file(file)[query][0]:
        yield from _needed(file, part)
        yield part


class Journal(Protocol):
    """It takes rows and acknowledges them, and answers the engine's own queries; any thread may call its methods."""

    folder: Path
    """The run's folder."""
    waits: Callable[[str, float], bool]
    """Whether batches go on to wait for a disk that has been full for so long, given a reason and seconds. The
    journal's owner sets it; at first nothing is waited for."""
    notes: list[str]
    """Sentences for the user on what was out of the ordinary when it was opened."""

    def commit(self, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Future[None]:
        """Append rows to several tables in one transaction; batches are committed in the order of the calls.

        The future is done after the commit, and fails, or the call does, with StoreError.
        """
        ...

    def rows(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
        """An Arrow table; it sees every batch committed before the call, blocks, and raises StoreError."""
        ...

    def outdate_snapshot(self) -> None:
        """Let every later reader see what was committed before this call."""
        ...

    def close(self) -> None:
        """Commit what waits and close; a second call does nothing."""
        ...


def rows_of(store: Journal, name: str, **values: Any) -> list[dict[str, Any]]:
    """The rows of a query, with these values bound. It raises StoreError."""
    rows: list[dict[str, Any]] = store.rows(own_query(name), values).to_pylist()
    return rows


def filled(name: str, **values: Value) -> str:
    """The text of a query with these values in it."""

    def written(found: re.Match[str]) -> str:
        value = values[found[1]]
        return f"({', '.join(map(literal, value))})" if isinstance(value, list) else _literal(value)

    return re.sub(r"\$(\w+)", written, own_query(name))


def _literal(value: str | int) -> str:
    return literal(value) if isinstance(value, str) and not isinstance(value, Identifier) else str(value)
