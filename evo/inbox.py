"""The inbox of a run: files with what is told from outside, which the driver alone empties."""

from __future__ import annotations

import errno
import os
import stat
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from operators.errors import UserError

FOLDER = "inbox"
MOST_FILE_BYTES = 1 << 30


class Inbox:
    """The folder `inbox` of a run. Files are there as a whole or not at all, and are read in the order of their names.

    Any process may put files there, with a search running or not; only the writer of the run's store reads and removes
    them, once all that they told is stored.
    """

    def __init__(self, run: Path) -> None:
        """`run` is the run's folder; its inbox need not exist."""
        self._folder = run / FOLDER

    def put(self, lines: Sequence[str]) -> Path:
        """Leave lines of JSON there; return their file, which is gone when the driver has taken them.

        It raises UserError where the folder takes no file.
        """
        name = f"{time.time_ns()}-{uuid.uuid4().hex[:8]}.jsonl"
        part = self._folder / f".{name}"
        try:
            self._folder.mkdir(exist_ok=True)
            with part.open("w", encoding="utf-8", errors="replace") as file:
                file.writelines(f"{line}\n" for line in lines)
                file.flush()
                os.fsync(file.fileno())
            return part.rename(self._folder / name)
        except OSError as error:
            raise UserError(f"{self._folder}: nothing can be told there: {error.strerror}") from None

    def files(self) -> list[Path]:
        """Return what lies there, the oldest first. What is no file, such as a pipe, might never end to be read; a link
        would have the run take, and quote, what lies elsewhere."""
        try:
            with os.scandir(self._folder) as entries:
                there = [e for e in entries if e.name.endswith(".jsonl") and e.is_file(follow_symlinks=False)]
        except OSError:  # no such folder, as long as nothing was told, or none that can be read
            return []
        return [self._folder / name for name in sorted(entry.name for entry in there) if not name.startswith(".")]

    @staticmethod
    def lines(file: Path) -> list[tuple[int, str]]:
        """Return the lines of a file with their numbers, from 1, but for empty ones. It raises OSError."""
        # It may be another one than was listed, or grow.
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise OSError(errno.EINVAL, "it is no file")
            data = opened.read(MOST_FILE_BYTES + 1)
        if len(data) > MOST_FILE_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {MOST_FILE_BYTES} bytes")
        texts = data.decode(errors="replace").split("\n")
        return [(number, text) for number, text in enumerate(texts, 1) if text.strip()]

    @staticmethod
    def discard(file: Path) -> None:
        """Remove a file whose lines are stored. It raises OSError where that is not possible."""
        with suppress(FileNotFoundError):
            file.unlink()
