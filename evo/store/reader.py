"""Reading a run: its finished file itself, or a snapshot while a writer lives."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from evo.store import snapshots
from evo.store.errors import StoreError, one_line, store_error
from evo.store.schema import VERSION_TABLE
from evo.store.writer import FILE, lock_holder

OPEN_WAIT_S = 10.0
BATCH_ROWS = 10_000
CONFIG: Mapping[str, Any] = {
    "enable_external_access": False,
    "python_enable_replacements": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "lock_configuration": True,
    "memory_limit": "2GB",
    "max_temp_directory_size": "8GB",
}
"""The same for every reader: a process that opens a file twice must configure it alike."""

QUERIES = "SELECT, FROM, WITH, DESCRIBE, SUMMARIZE, SHOW and EXPLAIN"


@contextmanager
def open_reader(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """The run in `folder`, read-only and without access to anything else. Raises StoreError.

    While a writer lives this is a snapshot, seconds old at most; otherwise the file itself, with whatever a killed
    writer left in its log, which stays as it is.
    """
    connection = _open(Path(folder).absolute())
    try:
        if not connection.execute("FROM duckdb_tables() WHERE table_name = ?", [VERSION_TABLE]).fetchall():
            raise StoreError(f"{folder}: its {FILE} is no run's")
        yield connection
    except duckdb.Error as error:  # of a damaged file, for one
        raise store_error(f"{folder}: its database does not answer", error) from error
    finally:
        connection.close()


def query(folder: Path, sql: str, *, max_bytes: int = 2**30, timeout_s: float = 300.0) -> pa.Table:
    """The answer to one query of a user. Raises StoreError for anything but a query, and beyond the limits."""
    _check_query(sql)
    with open_reader(folder) as connection:
        watchdog = threading.Timer(timeout_s, connection.interrupt)
        watchdog.start()
        try:
            connection.execute("BEGIN TRANSACTION READ ONLY")
            return _bounded(connection.sql(sql).to_arrow_reader(BATCH_ROWS), max_bytes)
        except (duckdb.Error, pa.ArrowException, OSError) as error:  # OSError: pyarrow's, while it reads the answer
            raise _refusal(error, timeout_s) from error
        finally:
            watchdog.cancel()


def export_parquet(folder: Path, out: Path) -> list[Path]:
    """Write every table to `out`/<table>.parquet and return these files. Raises StoreError."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    with open_reader(folder) as connection:
        tables = connection.execute("SELECT table_name FROM duckdb_tables() WHERE NOT internal ORDER BY 1").fetchall()
        return [_export(connection, table, out) for (table,) in tables]


def _open(folder: Path) -> duckdb.DuckDBPyConnection:
    if not (folder / FILE).exists():
        raise StoreError(f"{folder}: no {FILE} there; is this a run's folder?")
    deadline_s = time.monotonic() + OPEN_WAIT_S
    while True:
        snapshot = snapshots.ask(folder)
        try:
            return duckdb.connect(str(snapshot or folder / FILE), read_only=True, config=dict(CONFIG))
        except duckdb.Error as error:
            # Between two of the writer's states: it is opening or closing, or a newer snapshot replaced this one.
            replaced = snapshot is not None and not snapshot.exists()
            holder = lock_holder(error)
            if not replaced and holder is None:
                raise StoreError(f"{snapshot or folder / FILE} cannot be read: {one_line(error)}") from error
            if time.monotonic() > deadline_s:
                raise StoreError(f"run {folder.name} is held by {holder}, which serves no readers") from error
        time.sleep(0.02)


def _check_query(sql: str) -> None:
    try:
        statements = duckdb.extract_statements(sql)
    except (UnicodeError, TypeError):  # how the binding says that the text has no UTF-8 form
        raise StoreError("the query is not valid Unicode") from None
    except duckdb.Error as error:
        raise StoreError(one_line(error)) from error
    if len(statements) != 1:
        raise StoreError(f"one query at a time, not {len(statements)}")
    kind = statements[0].type
    if kind is duckdb.StatementType.MULTI:
        raise StoreError("PIVOT needs its values here: PIVOT ... ON column IN ('a', 'b') USING ...")
    if kind not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
        raise StoreError(f"{kind.name} is no query; {QUERIES} are allowed")


def _refusal(error: Exception, timeout_s: float) -> StoreError:
    if "INTERRUPT Error" in str(error):
        return StoreError(f"the query did not end within {timeout_s:g} s; simplify it")
    if "read-only mode" in str(error):
        return StoreError("a query changes nothing here: no INSERT, UPDATE or DELETE, not even in WITH")
    return StoreError(one_line(error))


def _bounded(batches: pa.RecordBatchReader, max_bytes: int) -> pa.Table:
    with batches:
        kept, size = [], 0
        for batch in batches:
            kept.append(batch)
            size += batch.nbytes
            if size > max_bytes:
                raise StoreError(f"the result exceeds {max_bytes / 2**20:g} MiB; add LIMIT, or aggregate")
        return pa.Table.from_batches(kept, batches.schema)


def _export(connection: duckdb.DuckDBPyConnection, table: str, out: Path) -> Path:
    path = out / f"{table}.parquet"
    part = path.with_suffix(".part")
    with (
        connection.sql(f'FROM "{table}"').to_arrow_reader(BATCH_ROWS) as batches,
        pq.ParquetWriter(part, batches.schema, compression="zstd") as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)
    part.replace(path)
    return path
