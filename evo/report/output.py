"""The border to terminals and to other programs: all that the command line says passes here.

Kernels, models' answers, compilers' messages and users' data hold any character. A terminal obeys some of them.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, TextIO, cast

OBEYED = re.compile(
    # C0 but tab and newline, DEL, C1; line and paragraph separators; what turns the direction of writing; no characters
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """The text with an escape such as `\\x1b` for each character that a terminal would obey; idempotent."""
    return OBEYED.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def as_json(value: Any, *, indent: int | None = 2) -> str:
    """Valid JSON of any value that a query or a report holds.

    NaN and infinities are null, decimals numbers, times ISO 8601, intervals their months, days and nanoseconds, bytes
    hexadecimal digits.
    """
    return json.dumps(plain(value), indent=indent, allow_nan=False)


def plain(value: Any) -> Any:
    """The value as types that JSON has; see `as_json`."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case bytes():
            return value.hex()
        case datetime() | date() | time():
            return value.isoformat()
        case None | bool() | int() | str():
            return value
    return str(value)


class Safe:
    """A text stream that passes on what is safe to show, and is the other one in all else."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write the text as `printable` makes it, and return the length of the text as it was given."""
        self.stream.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write every line as `write` does."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def raw(stream: TextIO) -> TextIO:
    """The stream as it was before `safe_streams`, for code that writes control sequences of its own."""
    return stream.stream if isinstance(stream, Safe) else stream


@contextmanager
def safe_streams() -> Iterator[None]:
    """Let nothing out on stdout and stderr but what is safe to show."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, Safe(raw(stream))) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
