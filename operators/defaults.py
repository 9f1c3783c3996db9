"""Writes chosen tunable values into a kernel file, as text, so that the rest stays as it stands."""

from __future__ import annotations

import re
from collections.abc import Mapping


def with_defaults(source: str, values: Mapping[str, int]) -> str:
    """The file with each of `values` moved to the front of its list in `[tune]`, where the default stands."""
    end = source.find("*/")
    header, rest = source[:end], source[end:]
    for name, value in values.items():
        entry = re.search(rf"^([ \t]*{re.escape(name)}[ \t]*=[ \t]*\[)([^\]]*)\]", header, re.MULTILINE)
        if not entry:
            continue
        listed = [text.strip() for text in entry[2].split(",") if text.strip()]
        ordered = [str(value)] + [text for text in listed if not _is(text, value)]
        header = f"{header[: entry.start()]}{entry[1]}{', '.join(ordered)}]{header[entry.end() :]}"
    return header + rest


def _is(text: str, value: int) -> bool:
    """Whether a text of the list is this value; a header that is broken has others than integers."""
    try:
        return int(text, 0) == value
    except ValueError:
        return False
