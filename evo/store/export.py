"""A run for other tools: Parquet files, or one DuckDB file that opens without this package."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from evo.store.attaching import attach
from evo.store.dictionary import relations
from evo.store.errors import StoreError
from evo.store.joined import MAIN, identifier, literal
from evo.store.reader import BATCH_ROWS, open_reader
from evo.store.schema import VERSION_TABLE, make, tables
from evo.store.writing import new_database


def export_duckdb(folder: Path, out: Path) -> Path:
    """It writes the run into the new file `out`: its tables with their rows, the views, and what columns mean.

    It raises StoreError.
    """
    with new_database(out) as connection:
        make(connection)
        (run,) = attach(connection, "source", folder)
        for name in tables(connection):
            connection.execute(f"INSERT INTO {name} BY NAME SELECT * FROM {run.place}.{name}")
        connection.execute("DETACH source")
        for relation in relations():
            for column in relation.columns:
                place = f"{MAIN}.{relation.name}.{identifier(column.name)}"
                connection.execute(f"COMMENT ON COLUMN {place} IS {literal(column.meaning)}")
    return out


def export_parquet(folder: Path, out: Path) -> list[Path]:
    """It writes every table and view to `out`/NAME.parquet, in a folder that is new or empty, and returns these files.

    It raises StoreError.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise StoreError(f"{out}: is not empty; name a new folder")
        with open_reader(folder) as connection:
            names = connection.execute(
                "SELECT table_name FROM duckdb_tables() WHERE NOT internal AND table_name <> $version"
                " UNION ALL SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY 1",
                {"version": VERSION_TABLE},
            ).fetchall()
            return [_write(connection, name, out) for (name,) in names]
    except OSError as error:
        raise StoreError(f"{out}: cannot be written: {error.strerror}") from None


def _write(connection: duckdb.DuckDBPyConnection, name: str, out: Path) -> Path:
    path = out / f"{name}.parquet"
    part = path.with_suffix(".part")
    with (
        connection.sql(f"FROM {identifier(name)}").to_arrow_reader(BATCH_ROWS) as batches,
        pq.ParquetWriter(part, batches.schema, compression="zstd") as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)
    part.replace(path)
    return path
