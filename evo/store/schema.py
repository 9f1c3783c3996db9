"""The tables: created by the numbered files in `migrations/`, then read back from the database's own catalogue."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import duckdb
import pyarrow as pa

from evo.store.errors import StoreError
from evo.store.placing import place
from operators.errors import unknown

MIGRATIONS = Path(__file__).parent / "migrations"
"""`0001_what.sql`, `0002_what.sql`, ...: each is run once, in order, and never edited after a release."""

PREPARATIONS: Mapping[int, Callable[[duckdb.DuckDBPyConnection], None]] = {4: place}
"""By the number of a migration, what is run just before it: what SQL alone would take too long for."""

VERSION_TABLE = "schema_version"


@dataclass(frozen=True)
class Table:
    """One table as its database declares it."""

    name: str
    schema: pa.Schema
    """Columns in order; those that must have a value are not nullable."""

    def batch(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """The rows as Arrow, ready to append. Absent columns become NULL; times are aware datetimes or epoch seconds.

        It raises StoreError for what the table would not take.
        """
        known = set(self.schema.names)
        for column in {name for row in rows for name in row} - known:
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


def tables(connection: duckdb.DuckDBPyConnection) -> dict[str, Table]:
    """Every table that rows can be appended to, by name."""
    columns = connection.execute(
        "SELECT table_name, list({name: column_name, nullable: is_nullable} ORDER BY column_index)"
        " FROM duckdb_columns() JOIN duckdb_tables() USING (database_name, schema_name, table_name)"
        " WHERE database_name = current_database() AND schema_name = current_schema()"
        " GROUP BY table_name ORDER BY table_name"
    ).fetchall()
    found = {}
    for name, declared in columns:
        if name != VERSION_TABLE:
            types = connection.sql(f'FROM "{name}" LIMIT 0').to_arrow_table().schema
            fields = [types.field(c["name"]).with_nullable(c["nullable"]) for c in declared]
            found[name] = Table(name, pa.schema(fields))
    return found


def row_counts(connection: duckdb.DuckDBPyConnection, names: Iterable[str]) -> dict[str, int]:
    """How many rows each of these tables has."""
    counts = " UNION ALL ".join(f"SELECT '{name}', count(*) FROM \"{name}\"" for name in names)
    return dict(connection.execute(counts).fetchall()) if counts else {}


def newest_version() -> int:
    """The number of the newest migration that this version knows."""
    return len(_migrations())


def version_in(connection: duckdb.DuckDBPyConnection, database: str = "") -> int | None:
    """The number of the last migration of a database, the connection's own or an attached one; None: it is no run's."""
    table = f"{database}.{VERSION_TABLE}" if database else VERSION_TABLE
    try:  # the list of all tables and views takes ten times as long
        ((version,),) = connection.execute(f"SELECT max(version) FROM {table}").fetchall()
    except duckdb.CatalogException:
        return None
    return cast("int | None", version)


def migrate(connection: duckdb.DuckDBPyConnection) -> None:
    """It brings the database to the newest schema; all pending migrations are one transaction.

    It raises StoreError and duckdb.Error. A CHECKPOINT follows, because the replay of DDL in a log has had bugs.
    """
    pending = _migrations()
    connection.execute("BEGIN")
    try:
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {VERSION_TABLE} (version INTEGER NOT NULL, applied_at TIMESTAMPTZ NOT NULL)"
        )
        (version,) = connection.execute(f"SELECT coalesce(max(version), 0) FROM {VERSION_TABLE}").fetchall()[0]
        if version == 0 and (foreign := tables(connection)):
            raise StoreError(f"the database is no run's: it holds {', '.join(foreign)[:100]} and no schema version")
        if version > len(pending):
            raise StoreError(
                f"the run was written by a newer kernel-evo (schema {version}; this one knows {len(pending)}): upgrade"
            )
        for number, sql in enumerate(pending[version:], version + 1):
            if number in PREPARATIONS:
                PREPARATIONS[number](connection)
            connection.execute(sql)
            connection.execute(f"INSERT INTO {VERSION_TABLE} VALUES (?, now())", [number])
    except (duckdb.Error, StoreError):
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
    if version < len(pending):
        connection.execute("CHECKPOINT")


def concatenated(batches: Iterable[Mapping[str, pa.Table]]) -> dict[str, pa.Table]:
    """Several batches as one, rows in the order given."""
    parts: dict[str, list[pa.Table]] = {}
    for batch in batches:
        for name, rows in batch.items():
            parts.setdefault(name, []).append(rows)
    return {name: pa.concat_tables(tables) for name, tables in parts.items()}


def _migrations() -> list[str]:
    files = sorted(MIGRATIONS.glob("*.sql"))
    numbers = [int(match[0]) if (match := re.match(r"\d{4}(?=_)", file.name)) else None for file in files]
    if numbers != list(range(1, len(files) + 1)):
        raise AssertionError(f"{MIGRATIONS}: migrations must be numbered 0001_, 0002_, ...: {[f.name for f in files]}")
    return [file.read_text(encoding="utf-8") for file in files]
