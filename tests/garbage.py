"""Python's garbage collection, paused where much is made that stays."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage_collected() -> Iterator[None]:
    """Collections of garbage wait until the end: to look through a hundred thousand new objects finds none."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
