"""How many rows were acknowledged, kept beside the database.

DuckDB 2.0 replays its write-ahead log up to the first record it cannot read and silently drops the rest. Rows are only
ever appended, so that counts tell exactly what is missing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path


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
        """It writes new counts over the old ones, which they cover: counts only grow. It raises OSError.

        What is written need not reach the disk to outlive this process.
        """
        os.pwrite(self._file, json.dumps(dict(counts)).encode(), 0)

    def missing(self, counts: Mapping[str, int]) -> dict[str, int]:
        """How many acknowledged rows the database, which holds `counts`, lacks, by table."""
        gaps = {table: rows - counts.get(table, 0) for table, rows in self.earlier.items()}
        return {table: rows for table, rows in gaps.items() if rows > 0}

    def close(self, *, remove: bool) -> None:
        """It closes the file; `remove` it where everything is in the database's own file."""
        os.close(self._file)
        if remove:
            self._path.unlink(missing_ok=True)


def _counts(path: Path) -> dict[str, int]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and all(isinstance(n, int) for n in found.values()) else {}
