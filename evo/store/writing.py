"""New files that are there as a whole or not at all, and never instead of others."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from evo.store.errors import StoreError, store_error
from evo.store.writer import CONFIG, STORAGE_VERSION


@contextmanager
def new_database(out: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to a database that will be the file `out`, which must not exist. It raises StoreError."""
    if out.exists():
        raise StoreError(f"{out}: exists already; name another file")
    part = out.with_name(f"{out.name}.{uuid.uuid4().hex}.part")
    try:
        config = {**CONFIG, "storage_compatibility_version": STORAGE_VERSION}
        with duckdb.connect(str(part), config=config) as connection:
            yield connection
            connection.execute("CHECKPOINT")
        _place(part, out)
    except duckdb.Error as error:
        raise store_error(f"{out} cannot be written", error) from error
    except FileExistsError:
        raise StoreError(f"{out}: exists already; name another file") from None
    except OSError as error:
        raise StoreError(f"{out}: cannot be written: {error.strerror}") from None
    finally:
        for file in (part, part.with_name(f"{part.name}.wal")):
            file.unlink(missing_ok=True)


def _place(part: Path, out: Path) -> None:
    """Give a finished file its name. It raises FileExistsError."""
    try:
        out.hardlink_to(part)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if out.exists():
            raise FileExistsError(out) from None
        part.rename(out)
