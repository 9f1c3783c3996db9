"""A search that goes on when its terminal is closed: the same command in a session of its own, which writes a log."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evo.folders import DATABASE, began
from evo.store import has_writer
from fitness.install import evo_command
from operators.errors import UserError
from operators.files import writing

OPTION = "--detach"
LOG = "run.log"
"""File in the run's folder with the words that such a search would have said on a terminal."""
LOOK_EVERY_S = 0.2
_BEGUN = re.compile(r"^run (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Detached:
    """A search that was begun so."""

    folder: Path
    process: int

    @property
    def log(self) -> Path:
        """The file with what it says."""
        return self.folder / LOG


def detach(words: Sequence[str], runs: Path, resumed: Path | None = None) -> Detached:
    """Begin the command of these words, but for OPTION, on its own, and return once its search has begun.

    A new run tells its folder; `resumed` is that of one that is there. It raises UserError with what the command said
    if it ends before that.
    """
    command = [sys.executable, "-m", "evo.cli", *(word for word in words if word != OPTION)]
    with writing(runs):
        runs.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".detached-", suffix=".log", dir=runs)
    log = Path(name)
    with os.fdopen(handle, "wb") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    while True:
        has_ended = process.poll() is not None
        found = _BEGUN.search(said := log.read_text(errors="replace"))
        folder = resumed or (Path(found[1]) if found else None)
        if folder and (folder / DATABASE).exists() and (has_writer(folder) if resumed else began(folder)):
            break
        if folder and has_ended and process.returncode == 0:  # it had little to do
            break
        if has_ended:
            log.unlink()
            said = _BEGUN.sub("", said)
            raise UserError(" ".join(said.split()).removeprefix("evo: ") or f"it ended with {process.returncode}")
        time.sleep(LOOK_EVERY_S)
    # Whoever lives longer than the search, as a server does, takes note of its end.
    threading.Thread(target=process.wait, daemon=True).start()
    begun = Detached(folder, process.pid)
    log.replace(begun.log)
    return begun


def how_to_follow(begun: Detached) -> str:
    """The commands to follow it, a line each."""
    folder = begun.folder
    return "\n".join((
        f"run {folder} goes on without this terminal (process {begun.process}, log {begun.log})",
        f"look at it:  {evo_command('attach', folder)}   (Ctrl-C ends the look, not the run)",
        f"ask for it:  {evo_command('status', folder)}",
        f"stop it:     kill {begun.process}   (in good order; then: {evo_command('resume', folder)})",
    ))  # fmt: skip
