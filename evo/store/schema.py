"""The tables and views: created by `schema.sql` and `views.sql`, then read back from the database's own catalogue."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from evo.store.errors import StoreError
from operators.errors import unknown

FOLDER = Path(__file__).parent
FORMAT = 31
"""The number of the only format that is written and read; what changes tables, views or their meaning raises it."""
VERSION_TABLE = "schema_version"


@dataclass(frozen=True)
class StoredTable:
    """One table as its database declares it."""

    name: str
    schema: pa.Schema
    """Columns in order; those that must have a value are not nullable."""
    computed: frozenset[str]
    """Names of columns that the database makes of the others: a row that was read has them, none is stored."""

    def batch(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """The rows as Arrow, ready to append. Absent columns become NULL; times are aware datetimes or epoch seconds.

        It raises StoreError for what the table would not take.
        """
        known = set(self.schema.names)
        for column in {name for row in rows for name in row} - known - self.computed:
            raise StoreError(f"table {self.name}: {unknown('column', column, known)}")
        return pa.table([self._column(field, rows) for field in self.schema], schema=self.schema)

    def _column(self, field: pa.Field, rows: Sequence[Mapping[str, Any]]) -> pa.Array:
        values = [row.get(field.name) for row in rows]
        if not field.nullable and None in values:
            row = rows[values.index(None)]
            raise StoreError(f"table {self.name}: a row lacks {field.name}, which must have a value: {str(row)[:200]}")
        if pa.types.is_timestamp(field.type):
            values = [round(v * 1e6) if isinstance(v, int | float) else v for v in values]
        if pa.types.is_integer(field.type) and any(isinstance(v, float) for v in values):
            raise StoreError(f"table {self.name}: {field.name} takes whole numbers, not a float")
        try:
            return pa.array(values, field.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise StoreError(f"table {self.name}: {field.name} ({field.type}): {error}") from error


def tables(connection: duckdb.DuckDBPyConnection) -> dict[str, StoredTable]:
    """Every table that rows can be appended to, by name."""
    columns = connection.execute(
        "SELECT table_name, list({name: column_name, nullable: is_nullable, computed: is_generated}"
        " ORDER BY column_index)"
        " FROM duckdb_columns() JOIN duckdb_tables() USING (database_name, schema_name, table_name)"
        " WHERE database_name = current_database() AND schema_name = current_schema()"
        " GROUP BY table_name ORDER BY table_name"
    ).fetchall()
    found = {}
    for name, declared in columns:
        if name != VERSION_TABLE:
            types = connection.sql(f'FROM "{name}" LIMIT 0').to_arrow_table().schema
            fields = [types.field(c["name"]).with_nullable(c["nullable"]) for c in declared if not c["computed"]]
            computed = frozenset(c["name"] for c in declared if c["computed"])
            found[name] = StoredTable(name, pa.schema(fields), computed)
    return found


def row_counts(connection: duckdb.DuckDBPyConnection, names: Iterable[str]) -> dict[str, int]:
    """The number of rows of each of these tables."""
    counts = " UNION ALL ".join(f"SELECT '{name}', count(*) FROM \"{name}\"" for name in names)
    return dict(connection.execute(counts).fetchall()) if counts else {}


def make(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the tables and views of a run in the current schema of a new database. It raises duckdb.Error.

    A CHECKPOINT follows, because the replay of DDL in a log has had bugs.
    """
    connection.execute("BEGIN")
    for name in ("schema.sql", "views.sql"):
        connection.execute((FOLDER / name).read_text(encoding="utf-8"))
    note_format(connection)
    connection.execute("COMMIT")
    connection.execute("CHECKPOINT")


def note_format(connection: duckdb.DuckDBPyConnection) -> None:
    """Write the number of the format into the current schema. It raises duckdb.Error."""
    connection.execute(f"CREATE TABLE {VERSION_TABLE} AS SELECT {FORMAT} AS version")


def check_format(connection: duckdb.DuckDBPyConnection, file: Path, database: str = "") -> None:
    """Raise StoreError unless a database, the connection's own or an attached one, is a run's of this format."""
    table = f"{database}.{VERSION_TABLE}" if database else VERSION_TABLE
    try:  # the list of all tables and views takes ten times as long
        ((found,),) = connection.execute(f"SELECT max(version) FROM {table}").fetchall()
    except duckdb.CatalogException:
        found = None
    if found is None:
        raise StoreError(f"{file} is no run's database")
    if found != FORMAT:
        raise StoreError(
            f"{file} has format {found}, and this kernel-evo reads and writes format {FORMAT} alone: "
            "use the version that wrote it"
        )


def concatenated(batches: Iterable[Mapping[str, pa.Table]]) -> dict[str, pa.Table]:
    """Several batches as one, rows in the order given."""
    parts: dict[str, list[pa.Table]] = {}
    for batch in batches:
        for name, rows in batch.items():
            parts.setdefault(name, []).append(rows)
    return {name: pa.concat_tables(tables) for name, tables in parts.items()}


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
class DescribedColumn:
    """One column."""

    name: str
    type: str
    required: bool
    """Whether it always has a value, as its table declares it."""
    meaning: str


@dataclass(frozen=True)
class DescribedRelation:
    """A table or a view."""

    name: str
    is_view: bool
    about: str
    columns: tuple[DescribedColumn, ...]


def relations() -> list[DescribedRelation]:
    """Every table, then every view, in the order of their names."""
    meanings = column_meanings()
    with duckdb.connect(":memory:") as connection:
        make(connection)
        rows = connection.execute(COLUMNS, [VERSION_TABLE]).fetchall()
    found: dict[tuple[str, bool, str], list[DescribedColumn]] = {}
    for relation, is_view, about, name, kind, required, said in rows:
        meaning = said or meanings.get(relation, {}).get(name) or meanings[OF_ALL].get(name, "")
        column = DescribedColumn(name, kind.replace("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ"), required, meaning)
        found.setdefault((relation, is_view, about), []).append(column)
    return [DescribedRelation(name, view, about, tuple(columns)) for (name, view, about), columns in found.items()]


def column_meanings() -> Mapping[str, Mapping[str, str]]:
    """The meanings of columns: of all relations by name, and by relation where it is something else there."""
    return tomllib.loads(MEANINGS.read_text(encoding="utf-8"))
