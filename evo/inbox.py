"""What is told from outside, on its way to the driver: files in a folder of the run, which the driver alone empties."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

FOLDER = "inbox"


class Inbox:
    """The folder `inbox` of a run. Files are there as a whole or not at all, and are read in the order of their names.

    Any process may put files there, with a search running or not; only the writer of the run's store reads and removes
    them, once all that they told is stored.
    """

    def __init__(self, run: Path) -> None:
        """`run` is the run's folder; its inbox need not exist."""
        self._folder = run / FOLDER

    def put(self, lines: Sequence[str]) -> Path:
        """Leave lines of JSON there; return their file, which is gone when the driver has taken them."""
        self._folder.mkdir(exist_ok=True)
        name = f"{time.time_ns()}-{uuid.uuid4().hex[:8]}.jsonl"
        part = self._folder / f".{name}"
        with part.open("w", encoding="utf-8", errors="replace") as file:
            file.writelines(f"{line}\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
        return part.rename(self._folder / name)

    def files(self) -> list[Path]:
        """Return what lies there, the oldest first."""
        try:
            with os.scandir(self._folder) as entries:
                names = [entry.name for entry in entries if not entry.name.startswith(".")]
        except FileNotFoundError:
            return []
        return [self._folder / name for name in sorted(names) if name.endswith(".jsonl")]

    @staticmethod
    def lines(file: Path) -> list[tuple[int, str]]:
        """Return the lines of a file with their numbers, from 1, but for empty ones."""
        texts = file.read_bytes().decode(errors="replace").split("\n")
        return [(number, text) for number, text in enumerate(texts, 1) if text.strip()]

    @staticmethod
    def discard(file: Path) -> None:
        """Remove a file whose lines are stored."""
        with suppress(FileNotFoundError):
            file.unlink()
