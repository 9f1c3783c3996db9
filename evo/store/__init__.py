"""A run's memory: one DuckDB file, written by one process, read by anyone.

Importing this imports duckdb and pyarrow: do it where it is needed.
"""

from evo.store.errors import StoreDiskError, StoreError
from evo.store.reader import Connection, Limits, QueryResult, answer, ask, open_reader, open_readers, opened, query
from evo.store.snapshots import has_writer
from evo.store.writer import Store

__all__ = [
    "Connection",
    "Limits",
    "QueryResult",
    "Store",
    "StoreDiskError",
    "StoreError",
    "answer",
    "ask",
    "has_writer",
    "open_reader",
    "open_readers",
    "opened",
    "query",
]
