"""Reading a run: its finished file itself, or a snapshot while a writer lives."""

from __future__ import annotations

import os
import resource
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import duckdb
import pyarrow as pa

from evo.store.errors import StoreError, interruptible, one_line, store_error
from evo.store.schema import check_format
from evo.store.several import Union, reached

Where = Path | Sequence[Path]
"""One run's folder, or those of several runs that are asked together."""
Connection = duckdb.DuckDBPyConnection
Params = Mapping[str, Any]
"""Values of `$name` in a query, by name."""
Result = TypeVar("Result")
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
"""Settings of every reader: a process that opens a file twice must configure it alike."""

QUERIES = "SELECT, FROM, WITH, DESCRIBE, SUMMARIZE, SHOW and EXPLAIN"
PROCESS_BYTES = 4 * 2**30
"""Memory that a user's query may allocate besides what there is: some functions of DuckDB heed no limit of its own."""
GRACE_S = 5.0
"""Seconds beyond its limit after which a query that DuckDB cannot interrupt ends the whole process."""
TIMED_OUT = 2
"""Exit code of that process."""


@dataclass(frozen=True)
class Limits:
    """The limits of one user's query that has the process to itself."""

    rows: int
    timeout_s: float
    bytes: int = 2**28
    """The largest answer, in bytes."""


class QueryResult(NamedTuple):
    """The answer to one query; it is `cut` if there were more rows than it may have."""

    table: pa.Table
    cut: bool


@contextmanager
def open_reader(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """The run in `folder`, read-only and without access to anything else. It raises StoreError.

    While a writer lives this is a snapshot, seconds old at most; otherwise the file itself, with what a killed
    writer left in its log, which stays as it is.
    """
    with interruptible(), closing(reached(Path(folder).absolute(), _connect)) as connection:
        try:
            yield connection
        except duckdb.Error as error:  # of a damaged file, for one
            raise store_error(f"{folder}: its database does not answer", error) from error


@contextmanager
def open_readers(folders: Sequence[Path]) -> Iterator[Union]:
    """Several runs at once, as `open_reader` opens one: see `Union`. It raises StoreError."""
    with interruptible(), closing(Union([Path(folder).absolute() for folder in folders], CONFIG)) as union:
        try:
            yield union
        except duckdb.Error as error:
            raise store_error("a run's database does not answer", error) from error


def query(
    folder: Where, sql: str, *, params: Params | None = None, max_bytes: int = 2**30, timeout_s: float = 300.0
) -> pa.Table:
    """The whole answer to one query; of columns that share a name, the later ones get a number.

    `params` are bound to `$name` in it. It raises StoreError for anything but a query, and beyond the limits.
    """
    return _answer(folder, sql, params, Limits(sys.maxsize, timeout_s, max_bytes)).table


def ask(folder: Where, sql: str, limits: Limits, params: Params | None = None) -> QueryResult:
    """Answer a user's query with its first rows, within limits that hold for any query.

    It ends the process where DuckDB heeds no interrupt. It raises StoreError.
    """
    with _bounded_process(limits.timeout_s):
        return _answer(folder, sql, params, limits)


def answer(
    connection: duckdb.DuckDBPyConnection, sql: str, limits: Limits, params: Params | None = None
) -> QueryResult:
    """Answer a query to a run that is open, within limits. It raises StoreError."""
    bound = _check_query(connection, sql, params or {})

    def read() -> QueryResult:
        connection.execute("BEGIN TRANSACTION READ ONLY")
        try:
            return _bounded(connection.sql(sql, params=bound).to_arrow_reader(BATCH_ROWS), limits)
        finally:
            with suppress(duckdb.Error):  # what failed may have ended it
                connection.execute("ROLLBACK")

    try:
        found = _waited_for(connection, limits.timeout_s, read)
    except (duckdb.Error, pa.ArrowException, OSError, MemoryError) as error:  # OSError: pyarrow's, while it reads
        raise _refusal(error, limits.timeout_s) from error
    return QueryResult(found.table.rename_columns(_distinct(found.table.column_names)), found.cut)


@contextmanager
def opened(folder: Where) -> Iterator[Callable[[str], duckdb.DuckDBPyConnection]]:
    """One run or several, open: it gives the connection that a query can be put to. It raises StoreError."""
    if isinstance(folder, Path | str):
        with open_reader(Path(folder)) as connection:
            yield lambda sql: connection
    else:
        with open_readers(folder) as union:
            yield union.ready


def _answer(folder: Where, sql: str, params: Params | None, limits: Limits) -> QueryResult:
    with opened(folder) as ready:
        return answer(ready(sql), sql, limits, params)


def _connect(file: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(str(file), read_only=True, config=dict(CONFIG))
    try:
        check_format(connection, file)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_query(connection: duckdb.DuckDBPyConnection, sql: str, params: Params) -> dict[str, Any] | None:
    """The parameters as DuckDB wants them, None for none. It raises StoreError for anything but one query."""
    try:
        statements = connection.extract_statements(sql)  # duckdb.extract_statements starts a database of its own
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
    wanted = statements[0].named_parameters
    if missing := sorted(wanted - set(params)):
        name = missing[0]
        raise StoreError(
            f"the query wants a value for ${name}: say --param {name}=VALUE, in Python {{'{name}': VALUE}}"
        )
    if surplus := sorted(set(params) - wanted):
        raise StoreError(f"the query holds no ${surplus[0]} that a parameter could be bound to")
    return dict(params) or None


def _waited_for(connection: duckdb.DuckDBPyConnection, timeout_s: float, work: Callable[[], Result]) -> Result:
    """Return what the connection comes to in a thread of its own: a thread within DuckDB hears of no signal.

    After so long, or on Ctrl-C, it is interrupted, again and again: an interrupt between two steps is lost.
    """
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 (it is raised where the outcome is waited for)
            outcome.set_exception(error)

    worker = threading.Thread(target=run, name="evo-query", daemon=True)
    worker.start()
    try:
        wait([outcome], timeout_s)
    finally:
        while not outcome.done():
            connection.interrupt()
            wait([outcome], 0.1)
        worker.join()
    return outcome.result()


@contextmanager
def _bounded_process(timeout_s: float) -> Iterator[None]:
    """No more memory than PROCESS_BYTES from here on, and the end of the process GRACE_S after the time is up."""

    def end() -> None:
        print(f"evo: {_too_long(timeout_s)}", file=sys.stderr, flush=True)
        os._exit(TIMED_OUT)  # nothing gentler ends a thread that is deep in a library

    before = resource.getrlimit(resource.RLIMIT_DATA)
    most = min(filter(lambda limit: limit >= 0, (_data_bytes() + PROCESS_BYTES, *before)))
    resource.setrlimit(resource.RLIMIT_DATA, (most, before[1]))
    timer = threading.Timer(timeout_s + GRACE_S, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # no thread of ours is at work when the interpreter ends
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _data_bytes() -> int:
    """The bytes of this process that RLIMIT_DATA counts."""
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmData:"))


def _too_long(timeout_s: float) -> str:
    return f"the query did not end within {timeout_s:g} s; simplify it, or allow more time"


def _refusal(error: Exception, timeout_s: float) -> StoreError:
    if "INTERRUPT Error" in str(error):
        return StoreError(_too_long(timeout_s))
    if isinstance(error, MemoryError):
        return StoreError("the query needs more memory than a query may have; simplify it")
    if "read-only mode" in str(error):
        return StoreError("a query changes nothing here: no INSERT, UPDATE or DELETE, not even in WITH")
    return StoreError(one_line(error))


def _bounded(batches: pa.RecordBatchReader, limits: Limits) -> QueryResult:
    with batches:
        kept, rows, size = [], 0, 0
        for batch in batches:
            kept.append(batch[: limits.rows - rows])
            rows += batch.num_rows
            size += kept[-1].nbytes
            if size > limits.bytes:
                raise StoreError(f"the result exceeds {limits.bytes / 2**20:g} MiB; add LIMIT, or aggregate")
            if rows > limits.rows:
                break
        return QueryResult(pa.Table.from_batches(kept, batches.schema), rows > limits.rows)


def _distinct(names: Sequence[str]) -> list[str]:
    """The names, with `_1`, `_2`, ... behind those that were there before; no name that was unique changes."""
    taken, found = set(names), []
    for name in names:
        free, number = name, 0
        while free in found or (number and free in taken):
            number += 1
            free = f"{name}_{number}"
        found.append(free)
    return found
