"""What the driver wants of the store that holds its run, wherever that store works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol


class Journal(Protocol):
    """Takes rows and acknowledges them; answers the engine's own queries. Methods may be called from any thread."""

    folder: Path
    """The run's folder on the driver's machine."""
    notes: list[str]
    """What was out of the ordinary when it was opened, each a sentence for the user."""

    def commit(self, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Future[None]:
        """Append rows to several tables in one transaction; batches are committed in the order of the calls.

        The future is done after the commit, and fails, or the call does, with StoreError.
        """
        ...

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """An Arrow table; sees every batch committed before the call. Blocks. Raises StoreError."""
        ...

    def close(self) -> None:
        """Commit what waits and close; a second call does nothing."""
        ...
