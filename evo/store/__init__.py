"""A run's memory: one DuckDB file, written by one process, read by anyone.

Importing this imports duckdb and pyarrow: do it where it is needed.
"""

from evo.store.errors import StoreDiskError, StoreError
from evo.store.reader import Answer, Limits, ask, export_parquet, open_reader, open_readers, query
from evo.store.writer import Store

__all__ = [
    "Answer",
    "Limits",
    "Store",
    "StoreDiskError",
    "StoreError",
    "ask",
    "export_parquet",
    "open_reader",
    "open_readers",
    "query",
]
