"""Files that hold what runs hold: exports of one run, merges of several."""

from __future__ import annotations

import platform
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from evo.store.errors import StoreError, interruptible, store_error
from evo.store.reader import BATCH_ROWS, open_reader
from evo.store.reads import own_query
from evo.store.schema import VERSION_TABLE, make, note_format, relations, tables
from evo.store.several import MAIN, MERGED, Attached, attach, identifier, join_runs, literal
from evo.store.writer import CONFIG, STORAGE_VERSION, place_new
from evo.version import engine_version

CHANGED_ROWS = 200
"""Rows whose texts are in memory at a time, prompts among them."""


@contextmanager
def new_database(out: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to a database that will be the file `out`, which must not exist. It raises StoreError."""
    if out.exists():
        raise StoreError(f"{out}: exists already; name another file")
    part = out.with_name(f"{out.name}.{uuid.uuid4().hex}.part")
    try:
        config = {**CONFIG, "storage_compatibility_version": STORAGE_VERSION}
        with interruptible(), duckdb.connect(str(part), config=config) as connection:
            yield connection
            connection.execute("CHECKPOINT")
        place_new(part, out)
    except duckdb.Error as error:
        raise store_error(f"{out} cannot be written", error) from error
    except FileExistsError:
        raise StoreError(f"{out}: exists already; name another file") from None
    except OSError as error:
        raise StoreError(f"{out}: cannot be written: {error.strerror}") from None
    finally:
        for file in (part, part.with_name(f"{part.name}.wal")):
            file.unlink(missing_ok=True)


def export_duckdb(folder: Path, out: Path) -> Path:
    """Write the run into the new file `out`: its tables with their rows, the views, and what columns mean.

    It raises StoreError.
    """
    with new_database(out) as connection:
        make(connection)
        (run,) = attach(connection, "source", folder)
        _take(connection, run)
        connection.execute("DETACH source")
        for relation in relations():
            for column in relation.columns:
                place = f"{MAIN}.{relation.name}.{identifier(column.name)}"
                connection.execute(f"COMMENT ON COLUMN {place} IS {literal(column.meaning)}")
    return out


def export_parquet(folder: Path, out: Path) -> list[Path]:
    """Write every table and view to `out`/NAME.parquet, in a folder that is new or empty, and return these files.

    It raises StoreError.
    """
    with _parquet_folder(out), open_reader(folder) as connection:
        names = connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE NOT internal AND table_name <> $version"
            " UNION ALL SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY 1",
            {"version": VERSION_TABLE},
        ).fetchall()
        for (name,) in names:
            _write(connection, f"FROM {identifier(name)}", out / f"{name}.parquet")
    return sorted(out.glob("*.parquet"))


def export_reads(folder: Path, out: Path, names: Sequence[str], change: Callable[[str], str]) -> dict[str, int]:
    """Write the answers to queries of the engine's own to `out`/QUERY.parquet, their texts changed, and return how many
    rows each has.

    It raises StoreError.
    """
    with _parquet_folder(out), open_reader(folder) as connection:
        parts = {name.partition(".")[2]: own_query(name) for name in names}
        return {part: _write(connection, sql, out / f"{part}.parquet", change) for part, sql in parts.items()}


@contextmanager
def _parquet_folder(out: Path) -> Iterator[None]:
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise StoreError(f"{out}: is not empty; name a new folder")
        yield
    except OSError as error:
        raise StoreError(f"{out}: cannot be written: {error.strerror}") from None


def _write(
    connection: duckdb.DuckDBPyConnection, sql: str, path: Path, change: Callable[[str], str] | None = None
) -> int:
    part, count = path.with_suffix(".part"), 0
    with (
        connection.sql(sql).to_arrow_reader(CHANGED_ROWS if change else BATCH_ROWS) as batches,
        pq.ParquetWriter(part, batches.schema, compression="zstd") as writer,
    ):
        for batch in batches:
            writer.write_batch(_changed(batch, change) if change else batch)
            count += batch.num_rows
    part.replace(path)
    return count


def _changed(batch: pa.RecordBatch, change: Callable[[str], str]) -> pa.RecordBatch:
    """A batch whose texts are changed, those in lists and structures too."""
    columns = [pa.array(_changed_value(column.to_pylist(), change), column.type) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _changed_value(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case list():
            return [_changed_value(item, change) for item in value]
        case dict():
            return {key: _changed_value(item, change) for key, item in value.items()}
    return value


PROVENANCE = f"""
    CREATE TABLE {MAIN}.{MERGED} (
        run            VARCHAR NOT NULL,
        run_id         VARCHAR NOT NULL,
        arm            VARCHAR,
        seed           BIGINT,
        began_at       TIMESTAMPTZ NOT NULL,
        engine_version VARCHAR NOT NULL,
        host_json      VARCHAR NOT NULL,
        origin         VARCHAR NOT NULL,
        merged_on      VARCHAR NOT NULL,
        merged_by      VARCHAR NOT NULL,
        merged_at      TIMESTAMPTZ NOT NULL
    );
    COMMENT ON TABLE {MAIN}.{MERGED} IS '{{about}}';
"""
ABOUT = (
    "The runs in this file. run: its schema, and what the column run of other relations says. run_id, began_at,"
    " engine_version, host_json: as the run itself has them. origin: the folder or file that it was read from, on the"
    " machine merged_on, by the kernel-evo merged_by."
)


def merge(sources: Sequence[Path], out: Path) -> list[Attached]:
    """Write the runs of `sources`, folders or files that hold some, into the new file `out`, and return them.

    It raises StoreError for what cannot be merged: what is no run, one that has not begun, and one that is there twice.
    """
    with new_database(out) as connection:
        ((own,),) = connection.execute("SELECT current_database()").fetchall()
        held = [run for place, source in enumerate(sources) for run in attach(connection, f"s{place}", source)]
        runs = _named_apart(_distinct(held))
        connection.execute(PROVENANCE.format(about=ABOUT))
        for run in runs:
            connection.execute(f"CREATE SCHEMA {identifier(run.run)}; USE {identifier(own)}.{identifier(run.run)}")
            make(connection)
            _take(connection, run)
        connection.execute(f"USE {identifier(own)}.{MAIN}")
        _note_origins(connection, runs)
        join_runs(connection, own)
        for place in range(len(sources)):
            connection.execute(f"DETACH s{place}")
    return runs


def _distinct(runs: Sequence[Attached]) -> Sequence[Attached]:
    """The same runs. It raises StoreError where one has not begun, or is there twice."""
    seen: dict[tuple[object, ...], Attached] = {}
    for run in runs:
        if run.run_id is None:
            raise StoreError(f"{run.origin}: the run was stopped before it began, and holds nothing to merge")
        key = (run.run_id, run.began_s, run.seed)
        if key in seen:
            raise StoreError(f"{seen[key].origin} and {run.origin} are the same run, {run.run_id}: name one of them")
        seen[key] = run
    return runs


def _named_apart(runs: Sequence[Attached]) -> list[Attached]:
    """Every run gets a name of its own; those whose folders are called the same have a number behind it."""
    taken = {MAIN, "information_schema", "pg_catalog", "temp"}
    named = []
    for run in runs:
        name, number = run.run, 1
        while name.lower() in taken:
            number += 1
            name = f"{run.run}-{number}"
        taken.add(name.lower())
        named.append(replace(run, run=name))
    return named


def _take(connection: duckdb.DuckDBPyConnection, run: Attached) -> None:
    """Copy a run's rows, in their order, into the tables of the current schema."""
    for name, table in tables(connection).items():
        columns = ", ".join(map(identifier, table.schema.names))
        connection.execute(f"INSERT INTO {name} ({columns}) SELECT {columns} FROM {run.place}.{name}")


def _note_origins(connection: duckdb.DuckDBPyConnection, runs: Iterable[Attached]) -> None:
    now = datetime.now(UTC)
    for run in runs:
        connection.execute(
            f"INSERT INTO {MERGED} SELECT $run, run_id, $arm, $seed, created_at, engine_version, host_json, $origin,"
            f" $on, $by, $now FROM {run.place}.runs LIMIT 1",
            {
                "run": run.run, "arm": run.arm, "seed": run.seed, "origin": str(run.origin.absolute()),
                "on": platform.node(), "by": engine_version(), "now": now,
            },
        )  # fmt: skip
    note_format(connection)
