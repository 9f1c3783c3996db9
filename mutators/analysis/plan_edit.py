"""Edits of a kernel file's header as text, so that comments, order and layout stay as they are.

They are made by hand because tomlkit 0.15.2 writes some headers differently: tables of several kinds in turn
(`[[launch]] [[buffer]] [[launch]]`) come back sorted by kind, and a key that is added to `[tune]` comes below the
comment of the table that follows. A replay makes every child anew and compares its text, so the text of a child must
never change. An edit by tomlkit also took 1.2 ms where these take 0.03 ms.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mutators.analysis.source_text import Edit

HEADER = re.compile(r"/\*!\s*evo\b(.*?)\*/", re.DOTALL)
"""A kernel file's header; its first group is the TOML."""
_TUNE = re.compile(r"^[ \t]*\[[ \t]*tune[ \t]*\][^\n]*\n", re.MULTILINE)
_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)
_LAUNCH = re.compile(r"^[ \t]*\[\[[ \t]*launch[ \t]*\]\][^\n]*\n", re.MULTILINE)
_ELEMENT = re.compile(r'"[^"\n]*"|\d+')


def with_tunables(text: str, tune: Mapping[str, tuple[int, ...]]) -> str | None:
    """The file with tunables added to its `[tune]` table, which is made if there is none.

    None where the header holds tunables in another form than a `[tune]` table.
    """
    header = HEADER.search(text)
    if not tune or not header:
        return text if not tune else None
    lines = "".join(f"{name} = [{', '.join(map(str, values))}]\n" for name, values in tune.items())
    begin, end = header.span(1)
    table = _TUNE.search(text, begin, end)
    if table:
        following = _TABLE.search(text, table.end(), end)
        place = _after_content(text, table.end(), following.start() if following else end)
        before = "" if text[place - 1] == "\n" else "\n"
        return f"{text[:place]}{before}{lines}{text[place:]}"
    if re.search(r"^[ \t]*tune\b", text[begin:end], re.MULTILINE):
        return None
    following = _TABLE.search(text, begin, end)
    place = following.start() if following else end
    before = "" if text[place - 1] == "\n" else "\n"
    return f"{text[:place]}{before}[tune]\n{lines}\n{text[place:]}"


def _after_content(text: str, begin: int, end: int) -> int:
    """The end of the last line in [begin, end) that is neither blank nor a comment."""
    place = begin
    position = begin
    for line in text[begin:end].splitlines(keepends=True):
        position += len(line)
        if line.strip() and not line.lstrip().startswith("#"):
            place = position
    return place


def launch_list(text: str, launch: int, key: str, index: int, value: str) -> Edit | None:
    """The edit that sets one element of a launch's `grid`, `block` or `cluster`; None where it is written unusually."""
    header = HEADER.search(text)
    tables = list(_LAUNCH.finditer(text, *header.span(1))) if header else []
    if not header or launch >= len(tables):
        return None
    begin = tables[launch].end()
    following = _TABLE.search(text, begin, header.end(1))
    entry = re.compile(rf"^[ \t]*{key}[ \t]*=[ \t]*\[([^\]]*)\]", re.MULTILINE).search(
        text, begin, following.start() if following else header.end(1)
    )
    elements = list(_ELEMENT.finditer(text, *entry.span(1))) if entry else []
    if index >= len(elements):
        return None
    start, end = (len(text[:position].encode()) for position in elements[index].span())
    return Edit(start, end, f'"{value}"')
