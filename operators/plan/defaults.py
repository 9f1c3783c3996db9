"""Writes chosen tunable values into a kernel file, as text, so that the rest stays as it stands."""

from __future__ import annotations

import re
from collections.abc import Mapping


def with_defaults(source: str, values: Mapping[str, int]) -> str:
    """The file with each of `values` moved to the front of its list in `[tune]`, where the default stands.

    So it is in the tables of dtypes, `[tune.DTYPE]`, that list the value.
    """
    end = source.find("*/")
    header, rest = source[:end], source[end:]
    for name, value in values.items():
        pattern = re.compile(rf"^([ \t]*{re.escape(name)}[ \t]*=[ \t]*\[)([^\]]*)\]", re.MULTILINE)
        entries = list(pattern.finditer(header))
        for entry in reversed(entries):
            listed = [text.strip() for text in entry[2].split(",") if text.strip()]
            others = [text for text in listed if not _is(text, value)]
            if entry is entries[0] or len(others) < len(listed):
                ordered = ", ".join([str(value), *others])
                header = f"{header[: entry.start()]}{entry[1]}{ordered}]{header[entry.end() :]}"
    return header + rest


def _is(text: str, value: int) -> bool:
    """Whether a text of the list is this value; a header that is broken has others than integers."""
    try:
        return int(text, 0) == value
    except ValueError:
        return False
