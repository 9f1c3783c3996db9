"""What the driver wants of the store that holds its run. To import this loads no database."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol


class Journal(Protocol):
    """It takes rows and acknowledges them, and answers the engine's own queries; any thread may call its methods."""

    folder: Path
    """The run's folder."""
    waits: Callable[[str, float], bool]
    """Of a reason and of seconds: whether batches go on to wait for a disk that has been full for so long. The owner of
    the journal sets it; at first nothing is waited for."""
    notes: list[str]
    """What was out of the ordinary when it was opened, each a sentence for the user."""

    def commit(self, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Future[None]:
        """It appends rows to several tables in one transaction; batches are committed in the order of the calls.

        The future is done after the commit, and fails, or the call does, with StoreError.
        """
        ...

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """An Arrow table; it sees every batch committed before the call, blocks, and raises StoreError."""
        ...

    def close(self) -> None:
        """It commits what waits and closes; a second call does nothing."""
        ...
