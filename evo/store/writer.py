"""The one writer of a run's database."""

from __future__ import annotations

import itertools
import json
import os
import queue
import re
import shutil
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import duckdb
import pyarrow as pa

from evo.store import snapshots
from evo.store.errors import StoreDiskError, StoreError, one_line, store_error
from evo.store.schema import check_format, concatenated, make, row_counts, tables
from operators.errors import disk_error, unknown


class AcknowledgedRows:
    """The counts of one run's rows, by table; `earlier` are those that its last writer left, if it was killed."""

    earlier: dict[str, int]

    def __init__(self, path: Path) -> None:
        self._path = path
        self.earlier = _counts(path)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)

    def start(self, counts: Mapping[str, int]) -> None:
        """The counts of a new writer replace the earlier ones."""
        os.truncate(self._file, 0)
        self.record(counts)

    def record(self, counts: Mapping[str, int]) -> None:
        """Write new counts over the old ones, which they cover: counts only grow. It raises OSError.

        What is written need not reach the disk to outlive this process.
        """
        os.pwrite(self._file, json.dumps(dict(counts)).encode(), 0)

    def missing(self, counts: Mapping[str, int]) -> dict[str, int]:
        """The number of acknowledged rows that the database, which holds `counts`, lacks, by table."""
        gaps = {table: rows - counts.get(table, 0) for table, rows in self.earlier.items()}
        return {table: rows for table, rows in gaps.items() if rows > 0}

    def close(self, *, remove: bool) -> None:
        """Close the file; `remove` it where everything is in the database's own file."""
        os.close(self._file)
        if remove:
            self._path.unlink(missing_ok=True)


def _counts(path: Path) -> dict[str, int]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and all(isinstance(n, int) for n in found.values()) else {}


FILE = "evo.duckdb"
LOG = f"{FILE}.wal"
ROW_COUNTS = "evo.rows"
LOG_BYTES = 16 << 20
"""Size of a log, in bytes, from which on it is merged into its database."""
LOOK_FOR_ROOM_S = 2.0
"""Seconds between two tries to write a batch that the disk did not take."""
LOCK_WAIT_S = 5.0
"""Time to wait for the process that holds the file: a reader of a finished run is done soon."""
SNAPSHOT_AGE_S = 2.0
"""A reader is content with a snapshot as old as this, or older where making one takes long; see SNAPSHOT_TOOK_S."""
SNAPSHOT_TOOK_S = 0.1
"""The writer waits while a snapshot is made. From so long on they are made the more rarely, so that readers, however
many, cost the writer a twentieth of its time at most."""
SNAPSHOT_ROOM = 3
"""A reader's snapshot wants so many times the run's size free: what CHECKPOINT adds, the copy, and some to go on."""
CONFIG: Mapping[str, Any] = {
    "threads": 1,
    "memory_limit": "2GB",
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
STORAGE_VERSION = "v1.5.0"
"""Files stay readable for DuckDB tools from this version on."""


class _Batch(NamedTuple):
    tables: dict[str, pa.Table]
    done: Future[None]


class _Snapshot(NamedTuple):
    path: Path
    commits: int
    made_s: float
    took_s: float

    def is_young(self, now_s: float) -> bool:
        return now_s - self.made_s <= SNAPSHOT_AGE_S * max(1.0, self.took_s / SNAPSHOT_TOOK_S)


class Store:
    """A run's database, open for writing; methods may be called from any thread.

    All of DuckDB's work happens in one thread that the store owns. An acknowledged batch survives `kill -9`. A disk
    that damages the log costs batches since the last checkpoint, and `notes` says how many rows are missing.
    """

    notes: list[str]
    """Sentences for the user on what was out of the ordinary when the file was opened."""

    def __init__(self, folder: Path, *, create: bool) -> None:
        """Open `folder`/evo.duckdb. `create`: make folder and file where they are missing.

        Raises StoreError if there is no such run, another process has it open, or the file is damaged.
        """
        self.folder = Path(folder).absolute()
        self.notes = []
        self.waits: Callable[[str, float], bool] = lambda reason, waited_s: False
        self._waiting: queue.SimpleQueue[_Batch] = queue.SimpleQueue()
        self._held: list[_Batch] = []
        """Batches that the disk did not take; they are tried again, before any other."""
        self._doubt: Sequence[_Batch] = ()
        """Batches that were being committed when DuckDB gave the database up; opened again it tells whether they are in
        it."""
        self._given_up = False
        self._full_since: float | None = None
        self._again: threading.Timer | None = None
        """Timer of the next try."""
        self._order = threading.Lock()
        self._closed = False
        self._commits = 0
        self._snapshot: _Snapshot | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evo-store")
        try:
            self._connection = self._thread.submit(self._open, create).result()
        except BaseException:
            self._thread.shutdown()
            raise
        try:
            self._server: snapshots.SnapshotServer | None = snapshots.SnapshotServer(self.folder, self._snapshot_path)
        except OSError as error:
            self._server = None
            self.notes.append(
                f"other processes cannot read the run before it ends: no socket in {self.folder}: {error}"
            )

    def commit(self, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Future[None]:
        """Append rows to several tables in one transaction; the future is done after the commit.

        Batches are committed in the order of the calls; those that wait are committed together, and a batch that
        fails does not fail the others. For a full disk they wait as long as `waits` says. The future cannot be
        cancelled. It raises StoreError at once for unknown tables and columns, absent values that must be there and
        values of the wrong type.
        """
        for name in rows:
            if name not in self._tables:
                raise StoreError(unknown("table", name, self._tables))
        batch = _Batch({name: self._tables[name].batch(some) for name, some in rows.items() if some}, Future())
        batch.done.set_running_or_notify_cancel()
        with self._order:
            self._refuse_if_closed()
            self._waiting.put(batch)
            self._thread.submit(self._flush)
        return batch.done

    def rows(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> pa.Table:
        """The answer to one of the engine's own queries, its parameters in order or by name.

        It sees every batch committed before the call, and blocks. It raises StoreError.
        """

        def run() -> pa.Table:
            self._flush()
            bound = dict(parameters) if isinstance(parameters, Mapping) else list(parameters)
            return self._connection.sql(sql, params=bound).to_arrow_table()

        with self._order:
            self._refuse_if_closed()
            answer = self._thread.submit(run)
        try:
            return answer.result()
        except duckdb.Error as error:
            raise StoreError(one_line(error)) from error

    def outdate_snapshot(self) -> None:
        """Let every later reader see what was committed before this call."""

        def forget() -> None:
            self._snapshot = None

        with self._order:
            self._refuse_if_closed()
            self._thread.submit(forget)

    def close(self) -> None:
        """Commit what waits, merge the log and close; a second call does nothing. It raises StoreError."""
        with self._order:
            if self._closed:
                return
            self._closed = True
        if self._server:
            self._server.close()
        try:
            self._thread.submit(self._finish).result()
        finally:
            self._thread.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StoreError(f"run {self.folder.name}: its store is closed")

    # --- Everything below runs in the store's thread, but for _snapshot_path. ---

    def _open(self, create: bool) -> duckdb.DuckDBPyConnection:
        try:
            return self._opened(create)
        except (duckdb.OperationalError, duckdb.FatalException) as error:
            raise store_error(f"{self.folder / FILE} cannot be opened", error) from error
        except OSError as error:
            raise disk_error(error, self.folder) or StoreError(f"{self.folder}: {error}") from error

    def _opened(self, create: bool) -> duckdb.DuckDBPyConnection:
        path = self.folder / FILE
        if not path.exists():
            if not create:
                raise StoreError(f"{self.folder}: no {FILE} there; is this a run's folder?")
            self.folder.mkdir(parents=True, exist_ok=True)
            _create(path)
        connection = self._connect(path)
        try:
            check_format(connection, path)
            acknowledged = AcknowledgedRows(self.folder / ROW_COUNTS)
            found = row_counts(connection, tables(connection)) if acknowledged.earlier else {}
            self._note_missing(acknowledged.missing(found))
            connection.execute("SET TimeZone = 'UTC'")
            self._tables = tables(connection)
            self._counts = row_counts(connection, self._tables)
        except BaseException:
            connection.close()
            raise
        acknowledged.start(self._counts)
        self._acknowledged = acknowledged
        snapshots.clear(self.folder / snapshots.FOLDER)
        return connection

    def _connect(self, path: Path) -> duckdb.DuckDBPyConnection:
        """Open the file; a write-ahead log that cannot be replayed is set aside and noted."""
        try:
            return _connect_locked(path)
        except duckdb.Error as error:
            reason = one_line(error)
            log = path.with_name(LOG)
            if "replaying WAL" not in str(error) or not log.exists():
                raise store_error(f"{path} cannot be opened", error) from error
        aside = _free_name(log)
        log.rename(aside)
        self.notes.append(f"{LOG} could not be replayed ({reason}) and is kept as {aside.name}")
        try:
            return _connect_to_prefix(path, aside, reason)
        except duckdb.Error as error:
            aside.replace(log)
            raise store_error(f"{path} cannot be opened, not even without its log", error) from error

    def _note_missing(self, rows: Mapping[str, int]) -> None:
        if not rows:
            return
        log = self.folder / LOG
        if log.exists() and not self.notes:  # DuckDB took a part of it, and removes it with the next checkpoint
            aside = shutil.copyfile(log, _free_name(log))
            self.notes.append(f"{LOG} was replayed in part, and is kept as {aside.name}")
        missing = ", ".join(f"{count} {table}" for table, count in rows.items())
        self.notes.append(f"the end of the run as it was written is missing: {missing}")

    def _flush(self) -> None:
        """Commit all batches that wait, in one transaction if it can be done."""
        if self._given_up:
            with suppress(duckdb.Error, StoreError):  # or the next batch says why not
                self._open_again()
        batches, self._held = self._held, []
        with suppress(queue.Empty):
            while True:
                batches.append(self._waiting.get_nowait())
        try:
            self._write(batches)
        except BaseException as error:
            for batch in batches:  # or they would be waited for in vain
                if not batch.done.done():
                    batch.done.set_exception(error)
            raise

    def _write(self, batches: Sequence[_Batch]) -> None:
        if len(batches) > 1 and self._append(batches) is None:
            _succeed(batches)
            return
        for place, batch in enumerate(batches):
            error = None if batch.done.done() else self._append([batch])
            if error is None:
                _succeed([batch])
            elif isinstance(error, StoreDiskError) and self._goes_on_waiting(error):
                self._held = [*batches[place:]]
                return
            else:
                batch.done.set_exception(error)

    def _goes_on_waiting(self, error: StoreDiskError) -> bool:
        """Whether to wait for room on the disk; then what waits is tried again before long."""
        now_s = time.monotonic()
        self._full_since = now_s if self._full_since is None else self._full_since
        if self._closed or not self._there or not self.waits(str(error), now_s - self._full_since):
            return False
        if self._again is None:
            self._again = threading.Timer(LOOK_FOR_ROOM_S, self._try_again)
            self._again.daemon = True
            self._again.start()
        return True

    @property
    def _there(self) -> bool:
        """Whether the file still has its name: what is written to one that was removed is lost."""
        return (self.folder / FILE).exists()

    def _try_again(self) -> None:
        self._again = None
        with self._order, suppress(RuntimeError):  # it was closed just now
            self._thread.submit(self._flush)

    def _append(self, batches: Sequence[_Batch]) -> StoreError | None:
        """Commit them in one transaction; the error, if the database did not take them."""
        try:
            if self._given_up:
                self._open_again()
                batches = [batch for batch in batches if not batch.done.done()]
            rows = concatenated(b.tables for b in batches)
            self._connection.execute("BEGIN")
            for name, batch in rows.items():
                _insert(self._connection, name, batch)
            self._connection.execute("COMMIT")
            if not self._there:
                return StoreDiskError(f"{self.folder / FILE}: was removed while it was written")
        except BaseException as error:
            with suppress(duckdb.Error):
                self._connection.execute("ROLLBACK")
            if isinstance(error, duckdb.FatalException) and not self._given_up:
                self._given_up, self._doubt = True, tuple(batches)
            if isinstance(error, duckdb.Error):
                return store_error(f"run {self.folder.name}: rows could not be written", error)
            raise
        self._full_since = None
        self._count(batches)
        with suppress(OSError):  # the rows are committed; counts that are too low only miss what a disk loses later
            self._acknowledged.record(self._counts)
        self._merge_log()
        return None

    def _merge_log(self) -> None:
        """Merge a log that has grown, where the disk has room for that; DuckDB itself would try it in any case."""
        log = self.folder / LOG
        if log.exists() and log.stat().st_size >= LOG_BYTES and self._free_bytes >= self._wanted_bytes:
            with suppress(duckdb.Error):  # all that is committed stays so
                self._checkpoint()

    def _checkpoint(self) -> None:
        """Merge the log into the database. It raises duckdb.Error."""
        try:
            self._connection.execute("CHECKPOINT")
        except duckdb.FatalException:
            self._given_up = True
            raise

    def _count(self, batches: Sequence[_Batch]) -> None:
        """Take note of what is committed."""
        for batch in batches:
            for name, rows in batch.tables.items():
                self._counts[name] += rows.num_rows
        self._commits += len(batches)

    def _open_again(self) -> None:
        """Open a database that DuckDB has given up, as it does where a CHECKPOINT finds no room; nothing in it is lost.

        It raises duckdb.Error, and StoreError.
        """
        with suppress(duckdb.Error):
            self._connection.close()
        self._connection = _connect_locked(self.folder / FILE)
        self._connection.execute("SET TimeZone = 'UTC'")
        found = row_counts(self._connection, self._tables)
        expected = Counter(self._counts)
        for batch in self._doubt:
            expected.update({name: rows.num_rows for name, rows in batch.tables.items()})
        if self._doubt and found == dict(expected):
            self._count(self._doubt)
            _succeed(self._doubt)
        self._given_up, self._doubt = False, ()

    def _finish(self) -> None:
        self._flush()
        complete = False
        try:
            self._connection.execute("CHECKPOINT")
            complete = True
        except duckdb.Error as error:
            raise store_error(
                f"run {self.folder.name}: its log could not be merged into its database", error
            ) from error
        finally:
            self._connection.close()
            self._acknowledged.close(remove=complete)
            snapshots.clear(self.folder / snapshots.FOLDER)

    def _snapshot_path(self) -> str:
        """For the server's thread: a snapshot that is young, or one with nothing committed since."""
        return str(self._thread.submit(self._fresh_snapshot).result().relative_to(self.folder))

    def _fresh_snapshot(self) -> Path:
        last, began_s = self._snapshot, time.monotonic()
        # One that was made before the first commit, which says what the run is, serves no reader for long.
        is_young = last is not None and last.commits > 0 and last.is_young(began_s)
        if last and last.path.exists() and (last.commits == self._commits or is_young):
            return last.path
        self._flush()
        self._refuse_without_room()
        self._checkpoint()
        path = snapshots.copy(self.folder / FILE, self.folder / snapshots.FOLDER)
        now_s = time.monotonic()
        self._snapshot = _Snapshot(path, self._commits, now_s, now_s - began_s)
        return path

    def _refuse_without_room(self) -> None:
        """Raise StoreError where a reader's snapshot might take the room that the run itself needs.

        A CHECKPOINT that finds none makes DuckDB give up the database: no reader may end a search.
        """
        wanted, free = self._wanted_bytes, self._free_bytes
        if self._held and self._full_since is not None:
            waited_s = time.monotonic() - self._full_since
            raise StoreError(f"the run has waited for room on its disk for {waited_s:.0f} s: make room")
        if free < wanted:
            raise StoreError(
                f"the disk has {free >> 20} MiB left and a snapshot might take {-(-wanted >> 20)}: make room"
            )

    @property
    def _wanted_bytes(self) -> int:
        """The room that it takes to merge the log, and to copy what comes of it."""
        files = [self.folder / name for name in (FILE, LOG)]
        return SNAPSHOT_ROOM * sum(file.stat().st_size for file in files if file.exists())

    @property
    def _free_bytes(self) -> int:
        return shutil.disk_usage(self.folder).free


def _succeed(batches: Sequence[_Batch]) -> None:
    for batch in batches:
        if not batch.done.done():
            batch.done.set_result(None)


def _insert(connection: duckdb.DuckDBPyConnection, table: str, batch: pa.Table) -> None:
    # DuckDB finds the parameter by its name; registering it as a view first costs half as much again.
    connection.execute(f'INSERT INTO "{table}" SELECT * FROM batch')


def _free_name(log: Path) -> Path:
    names = (log.with_name(f"{log.name}.damaged-{n}") for n in itertools.count(1))
    return next(name for name in names if not name.exists())


def _create(path: Path) -> None:
    """A new database with its tables, there as a whole or not at all; one that someone else just made is left alone."""
    part = path.with_name(f"{FILE}.{uuid.uuid4().hex}.new")
    try:
        connection = duckdb.connect(str(part), config={**CONFIG, "storage_compatibility_version": STORAGE_VERSION})
        try:
            make(connection)
        finally:
            connection.close()
        with suppress(FileExistsError):
            place_new(part, path)
    finally:
        for file in (part, part.with_name(f"{part.name}.wal")):
            file.unlink(missing_ok=True)


def place_new(part: Path, out: Path) -> None:
    """Give a finished file its name. It raises FileExistsError."""
    try:
        out.hardlink_to(part)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if out.exists():
            raise FileExistsError(out) from None
        part.rename(out)


def _connect_locked(path: Path) -> duckdb.DuckDBPyConnection:
    """Open for writing. Raises StoreError if the file is still in use after LOCK_WAIT_S."""
    # A configuration of its own keeps DuckDB from sharing the database with a second store of this process.
    config = {**CONFIG, "checkpoint_threshold": "1TB", "custom_user_agent": f"kernel-evo-{uuid.uuid4().hex}"}
    deadline_s = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            return duckdb.connect(str(path), config=config)
        except duckdb.Error as error:
            holder = lock_holder(error)
            if holder is None:
                raise
            run, written = path.parent.name, snapshots.has_writer(path.parent)
            if written:
                raise StoreError(f"run {run} is being written by {holder}; stop it, or wait for its end") from error
            if time.monotonic() > deadline_s:
                raise StoreError(f"run {run} is held open by {holder}; close it there") from error
        time.sleep(0.05)


def _connect_to_prefix(path: Path, damaged_log: Path, reason: str) -> duckdb.DuckDBPyConnection:
    """Open with what stands in the log before the place that DuckDB complained of, or else without any."""
    if place := re.search(r"entry at byte position (\d+)", reason):
        log = path.with_name(LOG)
        log.write_bytes(damaged_log.read_bytes()[: int(place[1])])
        try:
            return _connect_locked(path)
        except duckdb.Error:
            log.unlink(missing_ok=True)
    return _connect_locked(path)


def lock_holder(error: duckdb.Error) -> str | None:
    """The process that holds the file, in words, if that is why it could not be opened."""
    if isinstance(error, duckdb.ConnectionException) and "different configuration" in str(error):
        return "this process"
    if isinstance(error, duckdb.IOException) and "Could not set lock" in str(error):
        match = re.search(r"PID (\d+)", str(error))
        return f"process {match[1]}" if match else "another process"
    return None
