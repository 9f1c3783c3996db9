"""Calls of language models in a run's store: answers that outlive the process that paid for them."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable

from evo import records
from evo.journal import Journal
from mutators.base import Call, CallStatus
from mutators.ledger import Ledger
from mutators.llm import LLM, LlmSettings


class StoredCalls:
    """`mutators.llm.CallStore` over a run's store."""

    def __init__(self, store: Journal, *, now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._now = now
        found = store.rows("select cache_key from llm_calls where status <> 'failed'")
        self._answered = set(found.column("cache_key").to_pylist())
        """Cache keys, so that calls that are new ask the store nothing."""

    def find(self, cache_key: str) -> Call | None:
        """See `CallStore.find`."""
        if cache_key not in self._answered:
            return None
        rows = self._store.rows(
            "select * from llm_calls where cache_key = ? and status <> 'failed' order by rowid limit 1", [cache_key]
        )
        return records.call_from(rows.to_pylist()[0])

    async def announce(self, call: Call, most_tokens: int, most_usd: float) -> None:
        """See `CallStore.announce`."""
        row = {
            "request_id": call.request_id, "role": call.role, "model": call.model, "cache_key": call.cache_key,
            "sample": call.sample, "most_tokens": most_tokens, "most_usd": most_usd,
            "created_at": records.moment(self._now()),
        }  # fmt: skip
        await asyncio.wrap_future(self._store.commit({"llm_sent": [row]}))

    async def add(self, call: Call) -> None:
        """See `CallStore.add`. The rows are on their way before anything is waited for: cancelling loses nothing."""
        row = records.call_row(call, call_id=uuid.uuid4().hex, at=self._now())
        committed = self._store.commit({"llm_calls": [row]})
        if call.status is not CallStatus.FAILED:
            self._answered.add(call.cache_key)
        await asyncio.wrap_future(committed)


def interrupted_calls(store: Journal, *, at: float) -> list[records.Row]:
    """Rows of `llm_calls` for calls whose end nobody saw: the most that they may have cost is lost."""
    sent = store.rows(
        """
        select s.cache_key, any_value(s.request_id) as request_id, any_value(s.role) as role,
               any_value(s.model) as model, any_value(s.sample) as sample,
               max(s.most_tokens) as tokens, max(s.most_usd) as usd,
               count(*) - (select count(*) from llm_calls c where c.cache_key = s.cache_key) as open
        from llm_sent s group by s.cache_key having open > 0 order by s.cache_key
        """
    ).to_pylist()
    rows = []
    for row in sent:
        call = Call(
            row["request_id"], row["role"], row["model"], (), row["sample"], row["cache_key"], CallStatus.FAILED,
            error="the process that waited for the answer ended", attempts=1, lost_tokens=row["tokens"],
            lost_usd=row["usd"],
        )  # fmt: skip
        rows += [records.call_row(call, call_id=uuid.uuid4().hex, at=at) for _ in range(row["open"])]
    return rows


def restore_spending(ledger: Ledger, store: Journal) -> None:
    """Charge a fresh ledger with all that earlier sessions spent."""
    columns = ("tokens_in", "tokens_out", "cost_usd", "lost_tokens", "lost_usd", "attempts")
    sums = ", ".join(f"coalesce(sum({name}), 0) as {name}" for name in columns)
    (row,) = store.rows(f"select {sums} from llm_calls").to_pylist()
    for name in columns:
        whole = not name.endswith("usd")
        setattr(ledger, name, int(row[name]) if whole else row[name])


def open_client(settings: LlmSettings, store: Journal, ledger: Ledger) -> LLM:
    """The client of a run's language models, which knows the answers of earlier sessions."""
    return LLM(settings, ledger=ledger, calls=StoredCalls(store))
