"""Which file a reader of a run opens: the run's own, or a living writer's snapshot."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import duckdb

from evo.store import snapshots
from evo.store.errors import StoreError, one_line
from evo.store.writer import FILE, lock_holder

OPEN_WAIT_S = 10.0
Opened = TypeVar("Opened")


def reached(folder: Path, connect: Callable[[Path], Opened]) -> Opened:
    """What `connect` makes of the file that shows the run in `folder` now. It raises StoreError and duckdb.Error.

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
                raise StoreError(f"{file} cannot be read: {one_line(error)}") from error
            if time.monotonic() > deadline_s:
                raise StoreError(f"run {folder.name} is held by {holder}, which serves no readers") from error
        time.sleep(0.02)
