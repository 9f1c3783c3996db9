"""Several runs as one database: attached, joined, and reached while other processes write to them."""

from __future__ import annotations

import json
import re
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from evo.store import snapshots
from evo.store.errors import StoreError, interruptible, one_line
from evo.store.schema import VERSION_TABLE, check_format
from evo.store.writer import FILE, lock_holder
from fitness.words import counted

LABELS = ("run", "arm", "seed")
"""Columns that every relation has first."""
MERGED = "merged_runs"
"""The table that makes a file one that holds several runs, each in a schema of its own."""
MAIN = "main"


@dataclass(frozen=True)
class Attached:
    """One run on a connection."""

    place: str
    """Prefix of its relations' names in SQL, but for the dot."""
    schema: str
    run: str
    arm: str | None
    seed: int | None
    origin: Path
    """Its folder, or the file that holds it."""
    run_id: str | None = None
    """None where it was stopped before it began."""
    began_s: float | None = None
    """By `time.time`."""

    def columns(self) -> str:
        """The first columns of every relation, as SQL."""
        seed = "NULL" if self.seed is None else str(int(self.seed))
        return f"{literal(self.run)}::VARCHAR AS run, {literal(self.arm)}::VARCHAR AS arm, {seed}::BIGINT AS seed"


def literal(value: str | None) -> str:
    """A literal of SQL; any name of a folder is no more than that."""
    return "NULL" if value is None else "'" + value.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """A name in SQL, whatever letters it has."""
    return '"' + name.replace('"', '""') + '"'


def labelled(connection: duckdb.DuckDBPyConnection, database: str, name: str, runs: Sequence[Attached]) -> list[str]:
    """By run, the query for a relation's rows with the labels before them; the first run's is in `database`."""
    own = connection.execute(
        "SELECT list(column_name) FROM duckdb_columns() WHERE database_name = ? AND schema_name = ? AND table_name = ?",
        [database, runs[0].schema, name],
    ).fetchall()[0][0]
    hidden = [label for label in LABELS if label in own]
    star = f"* EXCLUDE ({', '.join(hidden)})" if hidden else "*"
    return [f"SELECT {run.columns()}, {star} FROM {run.place}.{name}" for run in runs]


def join_runs(connection: duckdb.DuckDBPyConnection, own: str) -> None:
    """Make the relations of the main schema: views over those of all runs."""
    rows = connection.execute(f"SELECT run, arm, seed, origin FROM {MERGED} ORDER BY rowid").fetchall()
    runs = [Attached(identifier(run), run, run, arm, seed, Path(origin)) for run, arm, seed, origin in rows]
    for name in _relations(connection, own, runs[0].schema):
        parts = labelled(connection, own, name, runs)
        connection.execute(f"CREATE OR REPLACE VIEW {MAIN}.{name} AS {' UNION ALL BY NAME '.join(parts)}")


def _relations(connection: duckdb.DuckDBPyConnection, database: str, schema: str) -> dict[str, bool]:
    """Names of what can be asked of a run, and whether each is a view."""
    sql = """
        SELECT table_name AS name, false FROM duckdb_tables() WHERE database_name = $database AND schema_name = $schema
        UNION ALL
        SELECT view_name, true FROM duckdb_views()
        WHERE database_name = $database AND schema_name = $schema AND NOT internal
        ORDER BY name
    """
    found = connection.execute(sql, {"database": database, "schema": schema}).fetchall()
    return {name: is_view for name, is_view in found if name != VERSION_TABLE}


OPEN_WAIT_S = 10.0
Opened = TypeVar("Opened")
MARK, MARK_AT = b"DUCK", 8
"""Bytes that every file of DuckDB has, and where."""
HEADERS_BYTES = 3 * 4096
"""Bytes of a file of DuckDB before its blocks."""


def _unreadable(file: Path, error: duckdb.Error) -> StoreError:
    with suppress(OSError), file.open("rb") as opened:
        head = opened.read(MARK_AT + len(MARK))
        if not head.endswith(MARK) and file.name != FILE:
            return StoreError(f"{file}: it is no run and no database; name a run, or a file of evo export or evo merge")
    return StoreError(f"{file} cannot be read: {one_line(error)}")


def reached(folder: Path, connect: Callable[[Path], Opened]) -> Opened:
    """The connection that `connect` opens to the file that shows the run in `folder` now. It raises StoreError and
    duckdb.Error.

    A file that was handed on (`evo export`, `evo merge`) is a folder of its own.
    """
    own = folder if folder.is_file() else folder / FILE
    if not own.exists():
        raise StoreError(f"{folder}: no {FILE} there; is this a run's folder?")
    deadline_s = time.monotonic() + OPEN_WAIT_S
    while True:
        file = own if own == folder else snapshots.ask(folder) or own
        try:
            return connect(file)
        except duckdb.Error as error:
            # Between two of the writer's states: it is opening or closing, or a newer snapshot replaced this one.
            replaced = file != own and not file.exists()
            holder = lock_holder(error)
            if not replaced and holder is None:
                raise _unreadable(file, error) from error
            if time.monotonic() > deadline_s:
                raise StoreError(f"run {folder.name} is held by {holder}, which serves no readers") from error
        time.sleep(0.02)


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


def unreadable(folders: Sequence[Path]) -> dict[Path, StoreError]:
    """The folders or files whose runs cannot be read, with the reasons. Damage within a block is not looked for."""
    found = {}
    with interruptible(), duckdb.connect(":memory:") as connection:
        for place, folder in enumerate(folders):
            database = f"r{place}"
            try:
                attach(connection, database, folder)
                _check_size(connection, database)
            except StoreError as error:
                found[folder] = error
            connection.execute(f"DETACH DATABASE IF EXISTS {database}")
    return found


def _check_size(connection: duckdb.DuckDBPyConnection, database: str) -> None:
    """Raise StoreError where the file was cut off: it opens even so if the catalogue is in what is left.

    Blocks that are free may lie beyond the end of a file that is whole.
    """
    sql = """
        SELECT path, used_blocks * block_size FROM pragma_database_size() JOIN duckdb_databases() USING (database_name)
        WHERE database_name = ?
    """
    ((path, used_bytes),) = connection.execute(sql, [database]).fetchall()
    if Path(path).stat().st_size < HEADERS_BYTES + used_bytes:
        raise StoreError(f"{path} cannot be read: the end of the file is missing")


def holds_several(file: Path) -> bool:
    """Whether a file that was handed on holds runs that were merged. It raises StoreError for what is no database."""
    try:
        with duckdb.connect(str(file), read_only=True) as connection:
            return bool(connection.execute("FROM duckdb_tables() WHERE table_name = ?", [MERGED]).fetchall())
    except duckdb.Error as error:
        raise _unreadable(file, error) from error


LISTING = re.compile(r"\b(show|describe|summarize|duckdb_\w+|information_schema)\b", re.IGNORECASE)
"""Statements that may ask for relations without naming them."""
SPARE_FILES = 256
"""Files that a process has open besides databases, at most."""
LAST_SETTINGS = {"enable_external_access": False, "lock_configuration": True}
"""Settings that a connection is told once it has attached the runs."""


class Union:
    """Runs that were opened together, read-only, without access to anything else.

    A relation is there once it was defined: tables are read where they are, views are worked out run by run, so that a
    question about thousands of runs is no plan of thousands of views. Of a run that is a cell of a comparison `arm` is
    its arm, of any other its strategy.
    """

    def __init__(self, folders: Sequence[Path], config: Mapping[str, Any]) -> None:
        """`config` is that of a reader. It raises StoreError."""
        first = {name: value for name, value in config.items() if name not in LAST_SETTINGS}
        self.connection = duckdb.connect(":memory:", config=first)
        self._defined: set[str] = set()
        try:
            _allow_files(len(folders))
            attached = (attach(self.connection, f"r{place}", folder) for place, folder in enumerate(folders))
            self._runs = [run for held in attached for run in held]
            self._name_apart()
            self._name_origins()
            for name, value in LAST_SETTINGS.items():
                self.connection.execute(f"SET {name} = {str(value).lower()}")
            self.relations = _relations(self.connection, "r0", self._runs[0].schema)
        except BaseException:
            self.connection.close()
            raise

    def close(self) -> None:
        """Let the runs go."""
        self.connection.close()

    def ready(self, sql: str) -> duckdb.DuckDBPyConnection:
        """The connection, on which all relations are there that the query may name."""
        self.define(sql)
        return self.connection

    def define(self, sql: str) -> None:
        """Make sure that all relations are there which a query may name."""
        words = set(re.findall(r"\w+", sql.lower()))
        everything = bool(LISTING.search(sql)) and not self._defined
        for name, is_view in self.relations.items():
            if name in words and name not in self._defined:
                self._defined.add(name)
                self._define(name, self._runs, is_view=is_view)
            elif everything and name not in words:  # what no query can read need not be whole
                self._define(name, self._runs[:1], is_view=False)

    def _name_apart(self) -> None:
        """Runs whose folders are called the same are told apart by their whole path."""
        names = [run.run for run in self._runs]
        self._runs = [
            replace(run, run=str(run.origin) if run.schema == MAIN else f"{run.origin}:{run.run}")
            if names.count(run.run) > 1
            else run
            for run in self._runs
        ]

    def _name_origins(self) -> None:
        """Where runs are from that were merged is known of them alone."""
        merged = dict.fromkeys(run.place.partition(".")[0] for run in self._runs if run.schema != MAIN)
        if merged:
            parts = " UNION ALL BY NAME ".join(f"FROM {database}.{MAIN}.{MERGED}" for database in merged)
            self.connection.execute(f"CREATE VIEW {MERGED} AS {parts}")

    def _define(self, name: str, runs: Sequence[Attached], *, is_view: bool) -> None:
        parts = labelled(self.connection, "r0", name, runs)
        if not is_view:
            self.connection.execute(f"CREATE VIEW {name} AS {' UNION ALL BY NAME '.join(parts)}")
            return
        for number, part in enumerate(parts):
            self.connection.execute(
                f"INSERT INTO {name} BY NAME {part}" if number else f"CREATE TABLE {name} AS {part}"
            )


def _allow_files(count: int) -> None:
    """Let the process open a file for each run, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        if allowed < wanted:
            need = counted(count, "run needs", "runs need")
            raise StoreError(f"{need} {wanted} open files, and {allowed} are allowed: raise `ulimit -n`")
