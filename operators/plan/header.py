"""The header of a kernel file as a table: finding it, reading its TOML, and saying where in the file something stands.

What the keys mean is not known here; `operators.plan.reading` knows.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from operators.errors import PlanError, quote
from operators.expression import Expression, ExpressionError, parse

MAX_SOURCE_BYTES = 512 * 1024
MAX_HEADER_BYTES = 256 * 1024
MAX_LINES, MAX_LINE_CHARACTERS = 16384, 4096
"""The most lines of a header, and characters of one of them."""
MAX_DOTS = 16
"""In one line, outside of strings and comments: what a parser of TOML does about a dotted key grows with the square of
its parts, or with their cube."""
MAX_NESTING = 16
"""The deepest nesting of lists and tables."""

Path = tuple[str | int, ...]
"""Where a value stands: table, index for `[[...]]`, key."""

_OPENING = re.compile(r"\ufeff?\s*/\*!\s*evo(?=\s|\*/)")
_TABLE = re.compile(r"[ \t]*+(?P<array>\[)?\[(?P<path>[\w\s.\"'-]++)\]\]?[ \t]*+(?:#.*)?$", re.ASCII)
_KEY = re.compile(r"(?P<path>[\w\s.\"'-]++)=(?!=)", re.ASCII)
_PUNCTUATION = re.compile(
    r'''"""(?:[^"\\]|\\.|"(?!""))*+"{0,5}|\'\'\'(?:[^']|'(?!''))*+'{0,5}'''
    r"""|"(?:[^"\\\n]|\\.)*+"?|'[^'\n]*+'?|\#[^\n]*+|(?P<mark>[][{}.\n])""",
    re.DOTALL,
)
"""Strings and comments, whole or never closed, and outside of them what tables, keys and lists are made of."""
_TOML_PLACE = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")
_EXAMPLE = '/*! evo\n[[launch]]\nkernel = "..."\n*/'


@dataclass(frozen=True)
class Header:
    """The TOML between `/*! evo` and `*/`, read and not yet checked."""

    table: Mapping[str, Any]
    text: str
    """Preceded by as many line ends as the file has before it, so that its line numbers are the file's."""
    first_line: int
    file: str | None

    @cached_property
    def _places(self) -> list[tuple[int, Path]]:
        """Line and path of every table header and key, in order; a scan of lines, good enough to point at things."""
        places: list[tuple[int, Path]] = []
        table: Path = ()
        counts: dict[Path, int] = {}
        for number, line in enumerate(self.text.split("\n"), 1):
            if match := _TABLE.match(line):
                table = _parts(match["path"])
                if match["array"]:
                    counts[table] = counts.get(table, -1) + 1
                    table = (*table, counts[table])
                places.append((number, table))
            elif match := _KEY.match(line):
                places.append((number, (*table, *_parts(match["path"]))))
        return places

    def line(self, path: Path, text: str | None = None) -> int | None:
        """The file's line of the value at `path`, or of the nearest thing that holds it.

        `text` is an element of that value: its own line, if it stands there word for word.
        """
        if not path:
            return self.first_line
        start = next((n for size in range(len(path), 0, -1) for n, p in self._places if p[:size] == path[:size]), None)
        if start is None or text is None:
            return start
        following = bisect_right(self._places, start, key=lambda place: place[0])
        end = self._places[following][0] if following < len(self._places) else None
        for number, line in enumerate(self.text.split("\n")[start - 1 : end and end - 1], start):
            if text in line:
                return number
        return start

    def error(self, message: str, path: Path = (), text: str | None = None) -> PlanError:
        return PlanError(_printable(message), line=self.line(path, text), source=self.file)


def read_header(source: str, file: str | None = None) -> Header:
    """Find and read the header of a kernel file. Raises PlanError."""
    if not isinstance(source, str):
        raise PlanError(f"a kernel file is text, not {type(source).__name__}", source=file)
    try:
        size_bytes = len(source.encode())
    except UnicodeEncodeError as error:
        line = source.count("\n", 0, error.start) + 1
        raise PlanError("half a surrogate pair; the file must be valid Unicode", line=line, source=file) from None
    if size_bytes > MAX_SOURCE_BYTES:
        raise PlanError(f"the file has {size_bytes} bytes; at most {MAX_SOURCE_BYTES} are allowed", source=file)
    opening = _OPENING.match(source)
    if not opening:
        raise _no_header(source, file)
    first_line = source.count("\n", 0, opening.end()) + 1
    end = source.find("*/", opening.end())
    if end < 0:
        raise PlanError("the header `/*! evo` has no end; close it with `*/`", line=first_line, source=file)
    if end - opening.end() > MAX_HEADER_BYTES:
        raise PlanError(f"the header is longer than {MAX_HEADER_BYTES} bytes", line=first_line, source=file)
    text = "\n" * (first_line - 1) + source[opening.end() : end].replace("\r\n", "\n")
    if problem := _too_much(text):
        raise PlanError(problem[1], line=problem[0], source=file)
    return Header(_toml(text, file), text, first_line, file)


def _too_much(text: str) -> tuple[int, str] | None:
    """Line and words of what would keep a parser busy for long, found in one pass; None where nothing would."""
    lines = text.split("\n")
    if len(lines) > MAX_LINES:
        return MAX_LINES + 1, f"the header ends behind line {MAX_LINES}, the last one that is allowed"
    for number, content in enumerate(lines, 1):
        if len(content) > MAX_LINE_CHARACTERS:
            found = f"a line of {len(content)} characters"
            return number, f"{found}; at most {MAX_LINE_CHARACTERS} are allowed in the header"
    line, dots, depth = 1, 0, 0
    for match in _PUNCTUATION.finditer(text):
        mark = match["mark"]
        if mark in ("\n", None):
            line += match[0].count("\n")
            dots = 0 if mark else dots
            continue
        dots += mark == "."
        depth += (mark in "[{") - (mark in "]}")
        if dots > MAX_DOTS:
            return line, f"more than {MAX_DOTS} dots outside of strings; keys here have one part, or two"
        if depth > MAX_NESTING:
            return line, f"more than {MAX_NESTING} brackets are open"
    return None


def _no_header(source: str, file: str | None) -> PlanError:
    found = re.search(r"/\*!?\s*evo\b", source)
    line = source.count("\n", 0, found.start()) + 1 if found else 1
    if found and source[found.start() + 2] != "!":
        message = "the header must open with `/*! evo`, with an exclamation mark"
    elif found:
        message = "the header `/*! evo ... */` must be the first thing in the file; move it to the top"
    else:
        message = f"there is no header; a kernel file starts with `{' '.join(_EXAMPLE.split())}`"
    return PlanError(message, line=line, source=file)


def _toml(text: str, file: str | None) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise PlanError("the header is not valid TOML: nested too deeply", source=file) from None
    except ValueError as error:  # TOMLDecodeError, and what `int` and `datetime` say of impossible literals
        place = _TOML_PLACE.search(str(error))
        reason = _TOML_PLACE.sub("", str(error)).split("\n")[0]
        line = int(place[1]) if place and place[1] else text.count("\n") + 1
        content = text.split("\n")[line - 1].strip()[:80]
        hint = ""
        if reason == "Invalid value" and content:
            hint = "; expressions and names stand in double quotes, truth values are true and false"
        elif not place or not place[1] or not content or reason.startswith(("Unterminated", "Unclosed")):
            hint = "; is a string or list not closed, or does a `*/` inside it end the comment?"
        shown = f" in `{content}`" if content else ""
        raise PlanError(_printable(f"not valid TOML: {reason}{shown}{hint}"), line=line, source=file) from None


def _printable(message: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in message)


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in path.split("."))


class HeaderTable:
    """One table of the header, read key by key. Every complaint tells the line, the table and the key."""

    def __init__(self, header: Header, table: Any, path: Path, label: str) -> None:
        self.header = header
        self.path = path
        self.label = label
        """Name of the table in messages; empty for the top level."""
        if not isinstance(table, dict):
            raise self.error(f"must be a table, not {show(table)}")
        self.table: dict[str, Any] = table

    @property
    def line(self) -> int | None:
        return self.header.line(self.path)

    def error(self, message: str, key: str | None = None, *, text: str | None = None) -> PlanError:
        """A PlanError about the table, one of its keys, or the element `text` of that key's value."""
        if key:
            message = f"`{key}`{': ' if message.startswith('`') else ' '}{message}"
        if self.label:
            message = f"{self.label}{': ' if key or message.startswith('`') else ' '}{message}"
        return self.header.error(message, (*self.path, key) if key else self.path, text)

    def only(self, keys: Collection[str], elsewhere: Mapping[str, str] | None = None) -> None:
        """Reject every key that is not among `keys`; `elsewhere` says of some why they are not."""
        for key in self.table:
            if key in keys:
                continue
            if elsewhere and key in elsewhere:
                raise self.error(elsewhere[key], key)
            near = get_close_matches(key, keys, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"allowed are {', '.join(keys)}"
            raise self.error(f"is not a key that exists here; {hint}", key[:60])

    def string(self, key: str, example: str, *, default: str | None = None) -> str:
        """A text. Without a default the key is required."""
        value = self.table.get(key, default)
        if value is None:
            raise self.error(f'is missing; write {key} = "{example}"', key)
        if not isinstance(value, str):
            raise self.error(f'must be a string such as "{example}", not {show(value)}', key)
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """The truth value of a key. It raises PlanError where something else is written."""
        value = self.table.get(key, default)
        if not isinstance(value, bool):
            raise self.error(f"must be true or false, not {show(value)}", key)
        return value

    def choice(self, key: str, choices: Iterable[str], *, prefix: str) -> str:
        """One of `choices`, the first of them by default; `prefix` may stand before it."""
        choices = tuple(choices)
        value = self.string(key, choices[0], default=choices[0]).removeprefix(prefix)
        if value not in choices:
            raise self.error(f"{show(value)} does not exist; allowed are {', '.join(choices)}", key)
        return value

    def items(self, key: str, smallest: int, largest: int, example: str) -> list[Any]:
        """A list of bounded length; empty when absent and `smallest` is 0."""
        value = self.table.get(key, [] if smallest == 0 else None)
        if value is None:
            raise self.error(f"is missing; write {key} = {example}", key)
        if not isinstance(value, list):
            raise self.error(f"must be a list such as {example}, not {show(value)}", key)
        if not smallest <= len(value) <= largest:
            wanted = (
                f"{smallest} to {largest} elements"
                if smallest < largest
                else f"{largest} element{'s' * (largest != 1)}"
            )
            raise self.error(f"must have {wanted}, not {len(value)}; for example {example}", key)
        return value

    def expression(
        self,
        value: Any,
        key: str,
        names: Collection[str],
        *,
        objects: Collection[str] = (),
        hint: Callable[[str], str | None],
    ) -> Expression:
        """`value` as an expression over `names`; `hint` may say of a name that is not among them why it is not."""
        try:
            return parse(value, names, objects=objects)
        except ExpressionError as error:
            if not isinstance(value, str):
                raise self.error(str(error), key) from None
            for name in re.findall(r"[A-Za-z_]\w*", value):
                if name not in names and name not in objects and (reason := hint(name)):
                    raise self.error(f"{quote(value)}: {reason}", key, text=value) from None
            raise self.error(str(error), key, text=value) from None


def show(value: Any) -> str:
    """A value of the header in a message, cut to a readable length."""
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
