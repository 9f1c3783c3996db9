"""What is refused in a kernel file's text before a compiler sees it. A tripwire, never proof."""

from __future__ import annotations

import re

_INCLUDE = re.compile(
    r"(?:(?:#|%:|\?\?=)\s*+(?:(?:include_next|include|import|embed)\b|(?=/\*))|__has_(?:include|embed)\w*\s*+\(?)"
    r"\s*+([^\n]*)"
)
"""Directives that open files, those with a comment inside (nobody writes them but to hide), and probes for files."""
_HEADER_NAME = re.compile(r"""<[\w+.-]+(?:/[\w+.-]+)*>|"[\w+.-]+(?:/[\w+.-]+)*\"""")


def foreign_include(source: str, file: str, instead: str) -> str | None:
    """What is wrong with the first #include that names anything but a header below the compiler's include folders.

    `file` and `instead` (what would be right) are for the message. Not covered: headers that include by macro.
    """
    spliced = re.sub(r"(?:\\|\?\?/)[ \t]*\r?\n", "", source)
    for match in _INCLUDE.finditer(spliced):
        name = _HEADER_NAME.match(match[1])
        if name is None or "/../" in f"/{name[0][1:-1]}/":
            return f"{file}: `#include {match[1].strip()[:60]}`: write the name of {instead}"
    return None
