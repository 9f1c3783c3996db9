"""Calls of language models in a run's store: answers outlive the process that paid for them."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from evo import rows as records
from evo.rows import Journal, Row, moment
from evo.store.reads import rows_of
from mutators.base import Call, CallStatus
from mutators.llm.settings import is_outside
from mutators.llm.spending import Spending, Tally

SPOOL = "evo.answers"


class Spool:
    """Rows of `llm_calls` on their way into the store, in a file beside it: there before the store has taken them.

    A commit takes tens of milliseconds, more behind others; a line in a file is safe from the end of this process at
    once. It need not reach the disk: what a failing machine forgets, the store's own commit soon has. The file is
    there only while something is on its way.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / SPOOL
        self._order = threading.Lock()
        self._file: int | None = None
        self._waiting = 0

    def left(self) -> list[Row]:
        """The rows that an earlier process left there; a line that it could not finish is none."""
        rows = []
        with suppress(FileNotFoundError):
            for line in self._path.read_bytes().split(b"\n"):
                with suppress(ValueError):
                    rows.append(json.loads(line))
        return rows

    def keep(self, row: Mapping[str, Any], committed: Callable[[], Future[None]]) -> Future[None]:
        """Write the row down, then start its commit; forget it once that is done."""
        line = json.dumps({**row, "created_at": row["created_at"].timestamp()}).encode() + b"\n"
        with self._order:
            self._waiting += 1
            with suppress(OSError):  # a disk that is full: the store says so
                if self._file is None:
                    self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
                while line:
                    line = line[os.write(self._file, line) :]
        try:
            done = committed()
        except BaseException:
            self._forget()  # no store will ever take it
            raise
        done.add_done_callback(self._settled)
        return done

    def clear(self) -> None:
        """Forget everything."""
        self._path.unlink(missing_ok=True)

    def _settled(self, done: Future[None]) -> None:
        if done.exception() is None:  # else the row, and what comes after it, stays for the next session
            self._forget()

    def _forget(self) -> None:
        with self._order:
            self._waiting -= 1
            if self._waiting == 0 and self._file is not None:
                os.close(self._file)
                self._file = None
                self._path.unlink(missing_ok=True)


class StoredCalls:
    """`mutators.llm.calls.CallStore` over a run's store."""

    def __init__(self, store: Journal, *, now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._now = now
        self._spool = Spool(store.folder)
        self._take_over()
        self._answered = {row["cache_key"] for row in rows_of(store, "calls.answered")}
        """Cache keys, so that calls that are new ask the store nothing."""
        self._asked = {row["cache_key"] for row in rows_of(store, "calls.asked_outside")}
        """Cache keys of questions to models outside, which are asked once, in whichever session."""

    def find(self, cache_key: str) -> Call | None:
        """See `CallStore.find`."""
        if cache_key not in self._answered:
            return None
        return records.CALL.item(rows_of(self._store, "calls.answer", key=cache_key)[0])

    def heard(self) -> bool:
        """See `CallStore.heard`."""
        return bool(self._answered)

    async def announce(self, call: Call, most_in: int, most_tokens: int, most_usd: float) -> None:
        """See `CallStore.announce`. Of a question to a model outside the messages are kept, so that it can be asked."""
        outside = is_outside(call.model)
        if outside and call.cache_key in self._asked:
            return
        row = {
            "request_id": call.request_id, "role": call.role, "model": call.model, "cache_key": call.cache_key,
            "sample": call.sample, "most_in": most_in, "most_tokens": most_tokens, "most_usd": most_usd,
            "messages_json": records.messages_json(call.messages) if outside else None,
            "created_at": moment(self._now()),
        }  # fmt: skip
        if outside:
            self._asked.add(call.cache_key)
        await asyncio.wrap_future(self._store.commit({"llm_sent": [row]}))

    async def add(self, call: Call) -> None:
        """See `CallStore.add`. The row is safe before anything is waited for: cancelling or killing loses nothing."""
        row = records.call_row(call, call_id=uuid.uuid4().hex, at=self._now())
        committed = self._spool.keep(row, lambda: self._store.commit({"llm_calls": [row]}))
        if call.status.heard:
            self._answered.add(call.cache_key)
        await asyncio.wrap_future(committed)

    async def note(self, kind: str, detail: Mapping[str, Any]) -> None:
        """See `CallStore.note`."""
        await asyncio.wrap_future(self._store.commit(records.event_rows(kind, detail, at=self._now())))

    def _take_over(self) -> None:
        """Commit what an earlier session heard and could not commit any more."""
        if left := self._spool.left():
            stored = {row["call_id"] for row in rows_of(self._store, "calls.known")}
            rows = [row for row in left if row["call_id"] not in stored]
            self._store.commit({"llm_calls": rows}).result()
        self._spool.clear()


def interrupted_calls(store: Journal, *, at: float) -> list[Row]:
    """Rows of `llm_calls` for calls whose end no session saw: the most that they may have cost is lost."""
    rows = []
    for row in rows_of(store, "calls.interrupted"):
        call = Call(
            row["request_id"], row["role"], row["model"], (), row["sample"], row["cache_key"], CallStatus.FAILED,
            error="the process that waited for the answer ended", attempts=1, lost_tokens=row["tokens"],
            lost_usd=row["usd"],
        )  # fmt: skip
        rows += [records.call_row(call, call_id=uuid.uuid4().hex, at=at) for _ in range(row["open"])]
    return rows


def restore_spending(spending: Spending, store: Journal) -> None:
    """Add to a fresh `spending` all that earlier sessions spent."""
    (spent,) = rows_of(store, "calls.spent")
    for name, amount in spent.items():
        setattr(spending, name, amount)
    for row in rows_of(store, "calls.tallies"):
        model = row.pop("model")
        spending.tallies[model] = Tally(**row)
