"""Runs as databases attached to one connection: those that are asked together, exported or merged."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import duckdb

from evo.store.errors import StoreError, one_line
from evo.store.joined import MAIN, MERGED, Attached, identifier, literal
from evo.store.reaching import reached
from evo.store.schema import check_format


def attach(connection: duckdb.DuckDBPyConnection, database: str, folder: Path) -> list[Attached]:
    """Attach a run's folder, or a file with one or several runs, read-only as `database`. It raises StoreError."""

    def connect(file: Path) -> Path:
        connection.execute(f"ATTACH {literal(str(file))} AS {database} (READ_ONLY)")
        check_format(connection, file, database)
        return file

    reached(folder, connect)
    try:
        if not _has(connection, database, MERGED):
            name = folder.stem if folder.is_file() else folder.name
            return [_attached(connection, database, MAIN, name, folder)]
        held = connection.execute(f"SELECT run FROM {database}.{MAIN}.{MERGED} ORDER BY rowid").fetchall()
        return [_attached(connection, database, run, run, folder) for (run,) in held]
    except duckdb.Error as error:
        raise StoreError(f"{folder} cannot be read beside the others: {one_line(error)}") from error


def _has(connection: duckdb.DuckDBPyConnection, database: str, table: str) -> bool:
    """Asked of that database alone: DuckDB's list of tables goes through all that are attached."""
    try:
        connection.execute(f"FROM {database}.{MAIN}.{table} LIMIT 0")
    except duckdb.CatalogException:
        return False
    return True


def _attached(connection: duckdb.DuckDBPyConnection, database: str, schema: str, name: str, folder: Path) -> Attached:
    place = f"{database}.{identifier(schema)}"
    sql = f"SELECT arm, seed, config_json, run_id, epoch(created_at) FROM {place}.runs LIMIT 1"
    rows = connection.execute(sql).fetchall()
    arm, seed, config, run_id, began_s = rows[0] if rows else (None, None, "{}", None, None)
    if arm is None:
        with suppress(ValueError, AttributeError):
            arm = json.loads(config).get("strategy")
    return Attached(place, schema, name, arm, seed, folder, run_id, began_s)


def holds_several(file: Path) -> bool:
    """Whether a file that was handed on holds runs that were merged. It raises StoreError for what is no database."""
    try:
        with duckdb.connect(str(file), read_only=True) as connection:
            return bool(connection.execute("FROM duckdb_tables() WHERE table_name = ?", [MERGED]).fetchall())
    except duckdb.Error as error:
        raise StoreError(f"{file} cannot be read: {one_line(error)}") from error
