"""The process that reads a run for `evo ui`, one question after the other: its report as a live page, or its health.

It is a process of its own so that whoever serves the page answers at once, ends at once, and has no library's threads
to wait for; and it yields the processors to the search.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

from evo.report.health import Health, health
from evo.workers.local import fresh_environment, fresh_python
from operators.errors import UserError

ENTRY = "from evo.report.page_maker import main; main()"
NICENESS = 10
Wish = Literal["page", "health"]


@dataclass(frozen=True)
class Made:
    """What was read of a run."""

    health: Health | None
    """None where it cannot be read."""
    state: str = ""
    """The name of the state that the page shows; empty where none was wanted, or made."""
    page: bytes = b""
    cpu_s: float = 0.0
    """Processor time that it took."""
    error: str = ""
    """Why there is none, in a line."""


class Maker:
    """The process, started when it is first asked and again when it was lost. It ends with us, however we end."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the run's."""
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._asking = threading.Lock()

    def ask(self, wish: Wish) -> Made:
        """What it answers; any thread may ask, one at a time is answered."""
        with self._asking:
            try:
                connection = self._connection or self._start()
                connection.send(wish)
                made: Made = connection.recv()
                return made
            except (EOFError, OSError):
                self._connection = None
                code = self._process.wait() if self._process else None
                return Made(None, error=f"the process that reads the run ended with exit code {code}")

    def close(self) -> None:
        """It ends the process at once."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def _start(self) -> Connection:
        own, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                fresh_python(ENTRY, str(theirs.fileno()), str(self._folder)),
                pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, stdout=2,
                start_new_session=True,  # Ctrl-C is for us alone
                env=fresh_environment(os.environ),
            )  # fmt: skip
        self._connection = own
        return own


def main() -> None:
    """Answer until nobody asks any more."""
    os.nice(NICENESS)
    folder = Path(sys.argv[2])
    with Connection(int(sys.argv[1])) as connection, suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            connection.send(made(folder, connection.recv()))


def made(folder: Path, wish: Wish) -> Made:
    """What the run in `folder` is now."""
    from evo.report.run import report_page

    try:
        found = health(folder)
        if wish == "health":
            return Made(found)
        state, before_s = str(time.time_ns()), time.process_time()
        page = report_page(folder, live=state).encode("utf-8", errors="backslashreplace")
        return Made(found, state, page, time.process_time() - before_s)
    except (UserError, OSError) as error:
        return Made(None, error=str(error))
