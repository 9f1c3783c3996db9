"""What can be asked of a run: its tables and views with their columns, as `schema.sql` and `views.sql` make them.

Nothing of this is written down twice: names and types are those of a database that is made for the purpose, what
relations are for is their comments, and what columns mean stands in `columns.toml`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb

from evo.store.schema import VERSION_TABLE, make

MEANINGS = Path(__file__).with_name("columns.toml")
OF_ALL = "all"
COLUMNS = """
    SELECT
        c.table_name AS relation, v.view_name IS NOT NULL AS is_view, coalesce(t.comment, v.comment, '') AS about,
        c.column_name AS name, c.data_type AS type, NOT c.is_nullable AND v.view_name IS NULL AS required,
        coalesce(c.comment, '') AS meaning
    FROM duckdb_columns() AS c
    LEFT JOIN duckdb_tables() AS t ON t.table_name = c.table_name
    LEFT JOIN duckdb_views() AS v ON v.view_name = c.table_name AND NOT v.internal
    WHERE NOT c.internal AND c.table_name <> ?
    ORDER BY is_view, relation, c.column_index
"""


@dataclass(frozen=True)
class Column:
    """One column."""

    name: str
    type: str
    required: bool
    """Whether it always has a value, as its table declares it."""
    meaning: str


@dataclass(frozen=True)
class Relation:
    """A table or a view."""

    name: str
    is_view: bool
    about: str
    columns: tuple[Column, ...]


def relations() -> list[Relation]:
    """Every table, then every view, in the order of their names."""
    meanings = column_meanings()
    with duckdb.connect(":memory:") as connection:
        make(connection)
        rows = connection.execute(COLUMNS, [VERSION_TABLE]).fetchall()
    found: dict[tuple[str, bool, str], list[Column]] = {}
    for relation, is_view, about, name, kind, required, said in rows:
        meaning = said or meanings.get(relation, {}).get(name) or meanings[OF_ALL].get(name, "")
        column = Column(name, kind.replace("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ"), required, meaning)
        found.setdefault((relation, is_view, about), []).append(column)
    return [Relation(name, view, about, tuple(columns)) for (name, view, about), columns in found.items()]


def column_meanings() -> Mapping[str, Mapping[str, str]]:
    """What columns mean: of all relations by name, and by relation where it is something else there."""
    return tomllib.loads(MEANINGS.read_text(encoding="utf-8"))
