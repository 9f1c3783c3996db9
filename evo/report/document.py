"""The content of a report, apart from its looks: sections of words, tables, figures and kernels.

Each table and figure has the query that its numbers come from. `evo.report.render` makes a file of HTML or of Markdown
of a document. All text is plain text here; the renderer escapes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from shlex import quote
from typing import Any

from evo.charts.drawing import Figure, Interactive
from evo.report.amounts import plain
from evo.version import engine_version
from fitness.words import interval, standing

KERNEL = "kernel-"
"""Prefix of the anchor of a kernel."""


@dataclass(frozen=True)
class Query:
    """A question to stores, as a user asks it."""

    where: str
    """The runs that it asks, in the words that `evo sql` takes."""
    sql: str
    rows: int = 0
    """Rows of its answer, where they are known."""
    timeout_s: int = 0
    """More time than users' queries have by themselves; 0: that is enough."""
    name: str = ""
    """The name of a worked query, which stands in place of its text."""

    @property
    def text(self) -> str:
        """The command for a shell."""
        rows = f" --rows {self.rows}" if self.rows > 10_000 else ""
        timeout = f" --timeout {self.timeout_s}" if self.timeout_s else ""
        if self.name:
            return f"evo sql{rows}{timeout} {quote(self.where)} --query {self.name}"
        return f"evo sql{rows}{timeout} {quote(self.where)} \"$(cat <<'SQL'\n{self.sql.strip()}\nSQL\n)\""


@dataclass(frozen=True)
class Script:
    """Python that works out what no query can, from rows of a query."""

    code: str

    @property
    def text(self) -> str:
        """The command for a shell, for a Python that has kernel-evo."""
        return f"python - <<'PY'\n{self.code.strip()}\nPY"


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    title: str
    names: tuple[str, ...]
    """Fields of a row that it shows: one, or the two ends of an interval."""
    show: Callable[..., str]
    """Makes text of these fields; a field that does not exist is None."""
    computed: bool = False
    """Whether its numbers are the program's, not the query's."""
    numeric: bool = True
    code: bool = False
    """Whether it is an id, or a text from outside, to be shown to the letter."""
    link: str = ""
    """Prefix of the anchor that a value of it leads to, where the document has that."""
    link_names: tuple[str, ...] = ()
    """Fields whose values follow that prefix, where they are others than it shows."""

    def value(self, row: Mapping[str, Any]) -> Any:
        """The value that it shows of a row, as plain data."""
        found = [row.get(name) for name in self.names]
        return found[0] if len(found) == 1 else found

    def leads_to(self, row: Mapping[str, Any]) -> str:
        """The anchor that it leads to; empty: to none."""
        if not self.link:
            return ""
        return self.link + "-".join(str(row.get(name)) for name in self.link_names or self.names)

    def text(self, row: Mapping[str, Any]) -> str:
        """The text that it shows of a row, for people."""
        return self.show(*(row.get(name) for name in self.names))


@dataclass(frozen=True)
class Table:
    """Rows with a caption, and where they come from."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    query: Query | None = None
    program: Script | None = None
    folded: bool = False
    """Whether it is shown only when asked for."""
    empty: str = "There is nothing to show."


@dataclass(frozen=True)
class Figures:
    """Figures that share series, and so a legend."""

    series: Mapping[str, int]
    """Names, each with its place among all series of the report, which decides its colour and dashes."""
    figures: Sequence[Figure]
    in_pairs: bool = False
    """Whether every two of them belong beside each other."""


@dataclass(frozen=True)
class Listing:
    """A file to be looked at when asked for, such as a kernel."""

    title: str
    text: str
    anchor: str = ""
    query: Query | None = None
    is_diff: bool = False
    """Whether lines that begin with + and - are what was added and taken away."""
    is_open: bool = False
    """Whether it is shown at once."""


@dataclass(frozen=True)
class Words:
    """A paragraph, or a list."""

    text: str = ""
    items: Sequence[str] = ()


@dataclass(frozen=True)
class Fold:
    """Blocks that are shown when asked for, such as all about one kernel."""

    title: str
    blocks: Sequence[Block]
    anchor: str = ""


@dataclass(frozen=True)
class TaskFinding:
    """The answer on one task: a line, and what is below it."""

    title: str
    figure: str
    """The speedup that is certain."""
    standing: str
    """Level of the verdict, or why there is none."""
    brief: str
    """Time before and after, or why there is none."""
    beside: str
    """The ratio to the library; empty: not timed."""
    is_sure: bool
    points: Sequence[tuple[float, float]]
    """Seconds and certain speedup of each leader."""
    parts: Sequence[tuple[str, str]]
    """Names and texts of what is below the line."""
    command: str
    """The command to go on with."""
    link: str = ""
    """Anchor of all about the best kernel."""


@dataclass(frozen=True)
class Findings:
    """Answers on tasks, a line each."""

    findings: Sequence[TaskFinding]
    is_open: bool
    """Whether they stand open."""


@dataclass(frozen=True)
class Links:
    """Addresses of pages of the same server, with what each is."""

    items: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Form:
    """Questions to a page of the server, with their answers of now."""

    action: str
    fields: Sequence[tuple[str, str, Sequence[str] | None]]
    """Name, value, and what there is to choose from; None: any text."""
    blank: str = "all"
    """The word for no choice."""


Block = Words | Table | Figures | Interactive | Listing | Fold | Findings | Links | Form


@dataclass(frozen=True)
class Section:
    """A part of a report under a heading of its own."""

    title: str
    blocks: Sequence[Block]
    anchor: str = ""
    inner: bool = False
    """Whether it is a part of the section before it."""


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    told: str
    """One sentence about it."""
    notices: Sequence[str]
    """Notices to read before any number."""
    sections: Sequence[Section]
    made: str = ""
    """By what, from what and when."""
    refresh_s: int = 0
    """Seconds after which a browser asks for it once more; 0: never."""


def made_of(where: object, now: float) -> str:
    """By what a report was made, of what and when; `now` is in seconds since 1970."""
    return f"Made by kernel-evo {engine_version()} of {where} at {datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:%M UTC}."


# --- columns ---------------------------------------------------------------------------------------------------------


def text(title: str, name: str, **more: Any) -> Column:
    """A column of words."""
    return Column(title, (name,), plain, numeric=False, **more)


def number(title: str, name: str, show: Callable[[Any], str], **more: Any) -> Column:
    """A column of numbers."""
    return Column(title, (name,), lambda value: "-" if value is None else show(value), **more)


def bounds(title: str, low: str, high: str, **more: Any) -> Column:
    """A column of intervals of ratios."""
    return Column(title, (low, high), interval, **more)


def level(title: str = "verdict") -> Column:
    """A column of verdicts' levels: what is not confirmed, or flagged, says so."""
    return Column(title, ("level", "flagged"), _standing, numeric=False)


def _standing(value: str | None, flagged: str | None) -> str:
    return value if value in ("nothing correct", "not begun") else standing(value, flagged)
