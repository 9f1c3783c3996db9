"""Worked queries that have a name: the files in `queries/`, for one run or for several.

The first line of a file says in a comment what it answers, `-- param NAME = DEFAULT: meaning` what it takes. A file is
the query to one run as it stands; comments such as `/*run,*/` are what it needs in addition where several are asked,
whose relations have the column `run`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evo.store.errors import StoreError
from operators.errors import unknown

FOLDER = Path(__file__).parent / "queries"
PARAMETER = re.compile(r"-- param (\w+) =(.*?): (.+)")
OF_SEVERAL = re.compile(r"/\*((?:\w+\.)?run\b[^*]*)\*/")
SEVERAL_ONLY = "-- several runs\n"


@dataclass(frozen=True)
class Parameter:
    """Parameter of a named query."""

    name: str
    default: str
    meaning: str


@dataclass(frozen=True)
class NamedQuery:
    """A worked query."""

    name: str
    answers: str
    """The question that it answers, in a sentence."""
    parameters: tuple[Parameter, ...]
    sql: str
    """The query to one run."""

    @property
    def needs_several(self) -> bool:
        """Whether it compares runs."""
        return SEVERAL_ONLY in self.sql

    def text(self, *, several: bool) -> str:
        """The query to one run or to several. It raises StoreError where it compares runs and there is only one."""
        if self.needs_several and not several:
            raise StoreError(f"query {self.name} compares runs: name several by a pattern, such as 'runs/compare-x/*'")
        sql = "\n".join(line for line in self.sql.splitlines() if not line.startswith("--"))
        return OF_SEVERAL.sub(r"\1", sql) if several else sql

    @property
    def shown(self) -> str:
        """The file as readers want it: what it answers, what its columns are, and the query to one run."""
        lines = [line for line in self.sql.splitlines(keepends=True) if line != SEVERAL_ONLY]
        return re.sub(rf"{OF_SEVERAL.pattern} ?", "", "".join(lines)).rstrip()

    def bound(self, given: Mapping[str, str]) -> dict[str, str]:
        """A value for every parameter. It raises StoreError for one that there is not."""
        values = {parameter.name: parameter.default for parameter in self.parameters}
        for name in given:
            if name not in values:
                raise StoreError(f"query {self.name}: {unknown('parameter', name, values)}")
        return {**values, **given}


def named_queries() -> dict[str, NamedQuery]:
    """All worked queries, by name."""
    return {path.stem: _read(path) for path in sorted(FOLDER.glob("*.sql"))}


def named_query(name: str) -> NamedQuery:
    """The query of this name. It raises StoreError."""
    known = named_queries()
    if name not in known:
        raise StoreError(unknown("query", name, known))
    return known[name]


def _read(path: Path) -> NamedQuery:
    text = path.read_text(encoding="utf-8")
    found = [Parameter(name, default.strip(), meaning) for name, default, meaning in PARAMETER.findall(text)]
    return NamedQuery(path.stem, text.partition("\n")[0].removeprefix("--").strip(), tuple(found), text)
