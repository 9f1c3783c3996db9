"""A run that is being looked at: its newest page, and when there has to be a newer one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from evo.folders import DATABASE
from evo.report.page_maker import Made, Wish
from evo.store import has_writer

SHARE = 0.2
"""Pages of a run that goes on take so much of one core at most: it is a search's machine."""
LEAST_PAUSE_S = 1.0
SNAPSHOT_S = 10.0
"""What was written so shortly before a page was begun may not be in it: readers share snapshots."""
HEALTH_S = 30.0
"""So often a run in which nothing happens is asked how it is."""


class Reads(Protocol):
    """Who reads the run; see `evo.report.page_maker.Maker`."""

    def ask(self, wish: Wish) -> Made:
        """What the run is now."""
        ...


@dataclass(frozen=True)
class Trace:
    """What tells from outside, at no cost to its writer, whether a run has changed."""

    files: tuple[tuple[int, int], ...]
    """Of the database and its log, when each was written last in nanoseconds since 1970, and its bytes."""
    is_running: bool

    @property
    def written_s(self) -> float:
        """When anything was last written, in seconds since 1970."""
        return max((written / 1e9 for written, _ in self.files), default=0.0)


@dataclass(frozen=True)
class Reading:
    """The last time that the run was read for a page, with or without success."""

    trace: Trace
    """As it was before that."""
    began_s: float
    """In seconds since 1970."""
    ended_s: float
    cpu_s: float = 0.0
    """Processor time that it took."""


def trace(folder: Path) -> Trace:
    """That of the run in `folder` now."""
    files = []
    for name in (DATABASE, f"{DATABASE}.wal"):
        try:
            found = (folder / name).stat()
        except OSError:
            continue
        files.append((found.st_mtime_ns, found.st_size))
    try:
        return Trace(tuple(files), has_writer(folder))
    except OSError:  # the folder is gone
        return Trace(tuple(files), False)


def due(now_s: float, found: Trace, last: Reading | None) -> bool:
    """Whether the run wants to be read for a new page; times in seconds since 1970.

    That is so where it changed, and of a run that goes on no more often than takes its share of the time.
    """
    if last is None:
        return True
    may_lack = found.is_running and found.written_s > last.began_s - SNAPSHOT_S
    if found == last.trace and not may_lack:
        return False
    pause_s = max(LEAST_PAUSE_S, last.cpu_s * (1 / SHARE - 1) if found.is_running else 0.0)
    return now_s - last.ended_s >= pause_s


class Watched:
    """A run, its newest page and its health. Any thread may ask; nothing is read while nobody does."""

    def __init__(self, folder: Path, reads: Reads, clock: Callable[[], float] = time.time) -> None:
        """`clock` tells seconds since 1970."""
        self.folder = folder
        self._reads, self._clock = reads, clock
        self._lock = threading.Lock()
        self._busy: threading.Thread | None = None
        self._last: Reading | None = None
        self._asked_s = 0.0
        self._health: Made = Made(None)
        self._page: Made = Made(None)
        self._page_s = 0.0

    @property
    def page(self) -> bytes:
        """The newest one; empty where none is ready yet."""
        return self._page.page

    def first(self) -> Made:
        """How the run is, before anything else is asked."""
        made = self._reads.ask("health")
        with self._lock:
            self._health, self._asked_s = made, self._clock()
        return made

    def look(self) -> dict[str, Any]:
        """How the run is and how old the newest page, for whoever shows it; this begins a newer one where it is due."""
        found, now_s = trace(self.folder), self._clock()
        with self._lock:
            if self._busy is None:
                if due(now_s, found, self._last):
                    self._begin("page", found, now_s)
                elif found.is_running and now_s - self._asked_s >= HEALTH_S:
                    self._begin("health", found, now_s)
            health = self._health.health
            return {
                "page": self._page.state or None,
                "age_s": max(now_s - self._page_s, 0.0) if self._page.page else None,
                "running": found.is_running, "making": self._busy is not None,
                "healthy": health is not None and health.is_healthy, "told": self._told(found),
            }  # fmt: skip

    def wait(self) -> None:
        """Wait for what is being read, if anything is."""
        if busy := self._busy:
            busy.join()

    def _told(self, found: Trace) -> str:
        health = self._health.health
        if health is None:
            return f"the run cannot be read: {self._health.error}" if self._health.error else "the run is being read"
        if health.state == "running" and not found.is_running:
            return "ended"  # how, the page that is being made will say
        words = f"{health.state} ({health.reason})" if health.reason else health.state
        return "; ".join([words, *(f"{each.cause}: {each.told}" for each in health.findings)])

    def _begin(self, wish: Wish, found: Trace, now_s: float) -> None:
        self._busy = threading.Thread(target=self._read, args=(wish, found, now_s), daemon=True)
        self._busy.start()

    def _read(self, wish: Wish, found: Trace, began_s: float) -> None:
        made = self._reads.ask(wish)
        with self._lock:
            self._busy, self._health, self._asked_s = None, made, self._clock()
            if wish == "page":
                self._last = Reading(found, began_s, self._asked_s, made.cpu_s)
                if made.page:
                    self._page, self._page_s = made, began_s
