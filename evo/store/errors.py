"""The store's errors, and DuckDB's errors as one line."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from operators.errors import DISK_FAULTS, DiskError, UserError
from operators.files import SHORTAGES


class StoreError(UserError):
    """The run's database cannot be opened, cannot take these rows or cannot answer this query."""


class StoreDiskError(StoreError, DiskError):
    """The disk does not take the run's database; what was acknowledged is in it."""


def store_error(what: str, error: duckdb.Error) -> StoreError:
    """DuckDB's complaint as ours, with its cause; one of the disk if that is to blame."""
    reason = next((text for text in _REASONS if f": {text}" in str(error)), "")
    failure = StoreDiskError(f"{what}: {reason}") if reason else StoreError(f"{what}: {one_line(error)}")
    failure.__cause__ = error
    return failure


_REASONS = tuple(os.strerror(fault) for fault in {*DISK_FAULTS, *SHORTAGES, errno.ENOENT})
"""Endings of DuckDB's messages that blame the disk, or what opens its files; it has no codes for them. A removed folder
is one of these."""


INTERRUPTED = "Query interrupted"
"""Words of the RuntimeError that DuckDB raises in place of what a signal's handler raised within a query."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Have Ctrl-C within a query raise KeyboardInterrupt, as it does everywhere else."""
    try:
        yield
    except RuntimeError as error:
        if str(error) != INTERRUPTED:
            raise
        raise KeyboardInterrupt from None


def one_line(error: Exception) -> str:
    """DuckDB's message without its kind, its excerpt of the query and its pointers; its hints are kept."""
    head = str(error).partition("\n\n")[0].partition("See also")[0]
    kind, colon, text = head.partition(" Error: ")
    return " ".join((text if colon and "\n" not in kind else head).split())
