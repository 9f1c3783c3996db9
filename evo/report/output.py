"""The border to terminals and to other programs: all that the command line says passes here.

Kernels, models' answers, compilers' messages and users' data hold any character. A terminal obeys some of them.
"""

from __future__ import annotations

import getpass
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
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


SECRET_NAME = r"(?i)KEY|TOKEN|SECRET|PASSW|CREDENTIAL|_PAT$|_DSN$|_AUTH"
LEAST_SECRET = 8
"""Letters from which the value of such a variable is no ordinary word."""
SECRETS = (
    r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    r"\b(?:sk|pk|rk|xai|gsk|r8|nvapi|pplx|csk|fw|tgp|dop)[-_][\w-]{16,}",
    r"\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}",
    r"\bhf_\w{16,}|\bnpm_\w{20,}|\bpypi-[\w-]{16,}",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"\bAIza[\w-]{30,}|\bya29\.[\w-]{20,}",
    r"\bxox[abeprs]-[\w-]{10,}",
    r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{4,}",
    r"(?i)(?<=bearer )[\w.~+/=-]{12,}",
    r"(?i)(?<=://)[^\s/:@\"']+:[^\s/@\"']+(?=@)",
)
"""Shapes of secrets wherever they stand."""
NAMED_SECRET = (
    r"(?i)(\b[\w-]*(?:api[_-]?key|access[_-]?key|secret|passw(?:or)?d|auth[_-]?token|access[_-]?token)[\w-]*"
    r"\\?[\"']?\s*[:=]\s*\\?[\"']?)([\w.~+/=-]{8,})"
)
"""A name, and what it is set to."""
MAIL = r"(?i)\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[a-z]{2,}\b"
HOME = r"(?<![\w.])(/home|/Users|/var/home|/export/home|/data/home)/[^/\s\"'`:;,)\\]+"
WINDOWS_HOME = r"\b([A-Za-z]:\\+Users)\\+[^\\\s\"'`:;,)]+"
LEAST_NAME = 4
"""Letters from which the name of a user or a machine is no ordinary word."""


def login() -> str:
    """The name of who runs this."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"user {os.getuid()}"


class Scrubber:
    """It takes secrets, folders of this machine, and names of its people out of texts."""

    def __init__(
        self, folders: Iterable[Path] = (), names: Iterable[str] = (), variables: Mapping[str, str] | None = None
    ) -> None:
        """`variables` are those of an environment, this one by default: values of those named like secrets are some."""
        told = os.environ if variables is None else variables
        secrets = {value for name, value in told.items() if re.search(SECRET_NAME, name) and len(value) >= LEAST_SECRET}
        places = {str(each) for folder in folders for each in (folder.absolute(), folder.resolve())}
        self._exact = [(secret, "[secret]") for secret in sorted(secrets, key=len, reverse=True)]
        self._exact += [(place, "[folder]") for place in sorted(places, key=len, reverse=True) if len(place) > 1]
        known = sorted({re.escape(name) for name in names if len(name) >= LEAST_NAME}, key=len, reverse=True)
        self._names = re.compile(rf"(?<![\w])(?:{'|'.join(known)})(?![\w])") if known else None

    def __call__(self, text: str) -> str:
        """The text without them; what stood there is told by a word in brackets."""
        text = re.sub(MAIL, "[address]", self.secrets(text))
        text = re.sub(HOME, r"\1/user", text)
        text = re.sub(WINDOWS_HOME, r"\1\\user", text)
        return self._names.sub("[name]", text) if self._names else text

    def secrets(self, text: str) -> str:
        """The text without secrets and the folders that were named."""
        for said, instead in self._exact:
            text = text.replace(said, instead)
            text = text.replace(json.dumps(said)[1:-1], instead)  # in a column of JSON
        for pattern in SECRETS:
            text = re.sub(pattern, "[secret]", text)
        return re.sub(NAMED_SECRET, r"\1[secret]", text)
