"""The loop between a run's store and its sinks, in a process beside the search's: `evo track`.

A search begins it and closes its standard input at the end; nothing else passes between them. Each sink has a thread
and a file in the run's folder, which says how far it has come: a sink that is down is offered the rest later.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from evo.folders import began
from evo.store import StoreError, has_writer
from evo.track.news import look
from evo.track.sinks import TRACKERS, NewsSink, Unreached
from fitness.install import evo_command
from fitness.sandbox.native import publish

LINGER_S = 5.0
"""Seconds that a search waits at its end for those who follow it."""
DRAIN_S = 60.0
"""Seconds after a session's end in which sinks may take the rest, where a search began it."""
MOST_WAIT_S = 60.0
"""Seconds between two tries to reach a sink, at most; they double from one on."""
NICENESS = 10
BESIDE = "--beside-search"
"""Option by which such a process knows that a search began it."""
Say = Callable[[str], None]


def follow(folder: Path, sink: NewsSink, over: threading.Event, say: Say) -> bool:
    """Give a sink what is new until the session is over and it has the rest; whether it has it.

    An outage is said once, when it begins. After the session's end one that was down before is tried once.
    """
    place = folder / f"track-{sink.name}.json"
    kept = _read(place)
    wait_s, is_down = 1.0, False
    while True:
        has_ended = over.is_set()
        try:
            news, seen = look(folder, kept["seen"], has_ended=has_ended)
            sink.take(news, kept["memory"])
        except (Unreached, StoreError) as error:
            _write(place, kept)  # the memory of what was done before the fault
            if is_down and has_ended:
                return False
            if not is_down and (isinstance(error, Unreached) or has_ended):  # a store may be about to be made
                state = "" if has_ended else "the run goes on"
                told = ", and ".join(filter(None, (state, _later(folder, sink))))
                say("; ".join(filter(None, (f"{sink.name} is not reached: {error}", told))))
                is_down = True
            _pause(over, wait_s)
            wait_s = min(2 * wait_s, MOST_WAIT_S)
            continue
        kept["seen"] = seen
        _write(place, kept)
        wait_s, is_down = 1.0, False
        if news.is_over:
            return True
        if news.is_all:
            over.wait(sink.period_s)


def _later(folder: Path, sink: NewsSink) -> str:
    """Words on how a tracker gets what it misses."""
    return f"what it misses is kept: {evo_command('track', folder)} --to {sink.name}" if sink.name in TRACKERS else ""


def _pause(over: threading.Event, seconds: float) -> None:
    """Wait so long; before the end no longer than until that."""
    if over.is_set():
        time.sleep(seconds)
    else:
        over.wait(seconds)


def _read(place: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        found = json.loads(place.read_text(encoding="utf-8"))
        if isinstance(found, dict) and found.keys() == {"seen", "memory"}:
            return found
    return {"seen": {}, "memory": {}}


def _write(place: Path, kept: dict[str, Any]) -> None:
    with suppress(OSError):  # without room on the disk the same is sent once more
        publish(place, json.dumps(kept).encode())


def track(
    folder: Path,
    sinks: Sequence[NewsSink],
    *,
    beside: bool,
    say: Say,
    most_s: float | None = None,
) -> list[str]:
    """Follow a run until its session is over; the names of sinks that do not have everything.

    One that hangs or is slow is left after `most_s` then, if that is a limit. `beside`: the search closes this
    process's standard input when it is over; else it is when no process writes the run.
    """
    over = threading.Event()
    threading.Thread(target=_until_over, args=(folder, over, beside), name="evo-track-end", daemon=True).start()
    while not began(folder):
        if over.wait(0.2) and not began(folder):
            return []
    done: dict[str, bool] = {}

    def serve(sink: NewsSink) -> None:
        done[sink.name] = follow(folder, sink, over, say)

    threads = [threading.Thread(target=serve, args=(sink,), name=sink.name, daemon=True) for sink in sinks]
    for thread in threads:
        thread.start()
    over.wait()
    last_s = None if most_s is None else time.monotonic() + most_s
    for thread in threads:
        thread.join(None if last_s is None else max(last_s - time.monotonic(), 0.0))
    for late in (sink for sink in sinks if sink.name not in done):
        say("; ".join(filter(None, (f"{late.name} has not taken everything", _later(folder, late)))))
    return [sink.name for sink in sinks if not done.get(sink.name)]


def _until_over(folder: Path, over: threading.Event, beside: bool) -> None:
    if beside:
        while sys.stdin.buffer.read(1 << 10):
            pass
    else:
        while folder.is_dir() and has_writer(folder):
            time.sleep(0.5)
    over.set()


@contextmanager
def followed(folder: Path, words: Sequence[str], say: Say, linger_s: float = LINGER_S) -> Iterator[None]:
    """Have `evo track` with these words follow the search that is made meanwhile; none for no words."""
    if not words:
        yield
        return
    command = [sys.executable, "-m", "evo.cli", "track", str(folder), *words, BESIDE]
    # A session of its own: Ctrl-C ends the search, and then it.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield
    finally:
        if process.stdin:
            process.stdin.close()
        try:
            process.wait(linger_s)
        except subprocess.TimeoutExpired:
            say(f"trackers have not taken everything yet: process {process.pid} goes on for {DRAIN_S:.0f} s at most")
            process.returncode = 0  # it is left to itself, and says itself what is missing


def lower_priority() -> None:
    """This process yields to searches: their kernels are timed."""
    with suppress(OSError):
        os.nice(NICENESS)
