"""The language models of a search: their client, the questions under way, and what comes from outside.

Answers outlive the process that paid for them: its calls are stored.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from evo import rows as records
from evo.inbox import Inbox
from evo.rows import Row, Rows, moment
from evo.search.history import History
from evo.search.task import Outstanding
from evo.store.reads import Journal, rows_of
from mutators.asking.answers import (
    WITHDRAWN,
    Answer,
    Invitation,
    LineError,
    Taken,
    check_answer,
    check_guest,
    parsed,
    whole_guest,
)
from mutators.asking.manual import first_question
from mutators.base import Call, CallStatus, Kind, Request
from mutators.llm.client import LLM
from mutators.llm.outside import Clients, OutsideClient, Tasks
from mutators.llm.settings import LlmSettings, is_outside
from mutators.llm.spending import Spending, Tally
from mutators.llm.usage import counted_outside
from operators.definition.spec import Task


def open_client(settings: LlmSettings, history: History, spending: Spending, say: Callable[[str], None]) -> Clients:
    """The client of a run's language models, which knows the answers of earlier sessions; `say` is for the user."""
    calls = StoredCalls(history.store)
    return Clients(LLM(settings, spending=spending, calls=calls, say=say), OutsideClient(settings, calls))


class Models:
    """Knows which of the running requests are at a model, so that a search can wait for what is paid, and no more."""

    def __init__(
        self,
        settings: LlmSettings | None,
        history: History,
        spending: Spending,
        *,
        say: Callable[[str], None],
    ) -> None:
        self.client = open_client(settings, history, spending, say) if settings else None
        self.arrivals = Arrivals(history, self.client.outside if self.client else None, settings, spending, say)
        self._history = history
        self._spending = spending
        self._quiet_since: float | None = None
        self.thinking: Tasks = set()
        """Those that wait for a model."""
        self.late = False
        """Whether there is no time left for what models may still answer."""

    async def restore(self) -> None:
        """Take note of what earlier sessions spent, also on calls whose end none of them saw."""
        if lost := interrupted_calls(self._history.store, at=self._history.now()):
            await self._history.commit({"llm_calls": lost})
        restore_spending(self._spending, self._history.store)
        if self.client:
            self.client.outside.taken |= {row["cache_key"] for row in rows_of(self._history.store, "calls.taken")}

    async def check(self) -> None:
        """See `LLM.check`: it raises UserError where no model can be asked at all."""
        if self.client:
            limited = min(self._spending.limit_tokens, self._spending.limit_usd) < math.inf
            tasks = [(state.operator, state.task) for state in self._history.states.values()] if limited else []
            await self.client.library.check(max((first_question(*each) for each in tasks), default=0))

    @property
    def paid(self) -> Tasks:
        """Those whose answer is under way; others wait for their turn, or for an answer from outside."""
        return self.thinking & self.client.library.under_way() if self.client else set()

    @property
    def held(self) -> Tasks:
        """Those whose model is put aside, so that nothing of theirs is under way."""
        return self.client.library.held() if self.client else set()

    @property
    def outside(self) -> Tasks:
        """Those that wait for an answer from outside, which may never come."""
        return self.thinking & self.client.outside.waiting if self.client else set()

    async def withdraw(self, outdated: Tasks) -> None:
        """End the questions of these tasks that are not taken, unless more is told than was read: an answer perhaps."""
        if self.client is None or self.arrivals.there:
            return
        for task in outdated & self.outside:
            await self.client.outside.withdraw(task, WITHDRAWN)

    @property
    def idle(self) -> Tasks:
        """Those of which nothing is under way, so that no work on them has to be waited for."""
        return self.held | self.outside

    def quiet_s(self, running: Tasks, now: float) -> float | None:
        """For how long nothing has run but questions to models outside; None while anything else runs."""
        if running - self.outside:
            self._quiet_since = None
            return None
        self._quiet_since = now if self._quiet_since is None else self._quiet_since
        return now - self._quiet_since

    def stop_asking(self) -> None:
        """Let no further question be sent; answers under way are worth keeping."""
        self.late = True
        if self.client:
            self.client.library.finish()

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Count the current task among those that wait for a model."""
        task = asyncio.current_task()
        assert task
        self.thinking.add(task)
        try:
            yield
        finally:
            self.thinking.discard(task)

    async def until_answered(self, limit_s: float, now: Callable[[], float]) -> AsyncIterator[int]:
        """Wait for answers that are paid, `limit_s` at most; tell how many are missing, every second at least."""
        end = now() + limit_s
        while (paid := self.paid) and (left := end - now()) > 0:
            yield len(paid)
            await asyncio.wait(paid, timeout=min(left, 1.0), return_when=asyncio.FIRST_COMPLETED)


NOT_TAKEN = "not_taken"
"""The event that says which line of the inbox could not be taken, and why."""
TAKEN = "question_taken"
"""The event that says which question is worked on."""


class _Answered(NamedTuple):
    call: Call
    most_in: int
    """Largest number of tokens of its question, as written down when it was asked."""
    most_tokens: int
    """The same of question and answer together."""


class Arrivals:
    """It alone empties the run's inbox. Answers become calls of language models, and guests become asks.

    What is in a file is stored before the file is removed; a file that a session killed in between left there is taken
    again, and nothing of it counts twice.
    """

    def __init__(
        self,
        history: History,
        client: OutsideClient | None,
        settings: LlmSettings | None,
        spending: Spending,
        say: Callable[[str], None],
    ) -> None:
        """`client` waits for the answers; a run without language models has none."""
        self._history = history
        self._inbox = Inbox(history.store.folder)
        self._client = client
        self._settings = settings
        self._spending = spending
        self._say = say
        self._left: set[Path] = set()
        """Files that cannot be read, or not be removed: they stay, and nothing more is taken from them."""

    @property
    def there(self) -> bool:
        """Whether something is there to be taken."""
        return any(file not in self._left for file in self._inbox.files())

    async def take(self) -> list[Outstanding]:
        """Take all that was told since the last time; return what guests are to be worked on."""
        guests: list[Outstanding] = []
        for file in self._inbox.files():
            if file in self._left:
                continue
            try:
                lines = self._inbox.lines(file)
            except OSError as error:
                self._leave(file, "cannot be read", error)
                continue
            guests += await self._taken(file, lines)
            self._history.store.outdate_snapshot()  # else what was answered would look open once its file is gone
            try:
                self._inbox.discard(file)
            except OSError as error:
                self._leave(file, "is taken, and cannot be removed", error)
        return guests

    def _leave(self, file: Path, problem: str, error: OSError) -> None:
        self._left.add(file)
        self._say(f"{file} {problem}: {error.strerror}")

    async def _taken(self, file: Path, lines: list[tuple[int, str]]) -> list[Outstanding]:
        calls: dict[str, _Answered] = {}
        guests: list[Outstanding] = []
        rows: Rows = {}
        for number, line in lines:
            try:
                item = parsed(line)
                if isinstance(item, Answer):
                    if answered := self._answered(item, calls):
                        calls[item.custom_id] = answered
                elif isinstance(item, Taken):
                    rows = records.join(rows, self._take(item))
                else:
                    invited, asked = self._invite(item)
                    guests.append(invited)
                    rows = records.join(rows, asked)
            except LineError as error:
                where = f"{file.name}:{number}"
                self._say(f"{where}: {error}")
                detail = {"where": where, "problem": str(error), "line": line[:200]}
                rows = records.join(rows, records.event_rows(NOT_TAKEN, detail, at=self._history.now()))
        await asyncio.gather(*map(self._tell, calls.values()))
        if rows:
            await self._history.commit(rows)
        return guests

    # --- answers ----------------------------------------------------------------------------------------------------

    def _answered(self, answer: Answer, earlier: Collection[str]) -> _Answered | None:
        """The call that an answer ends; None where it is stored already. It raises LineError.

        `earlier` lines of the same file have answered these questions.
        """
        store, key = self._history.store, answer.custom_id
        asked = rows_of(store, "calls.question", key=key) if self._client else []
        stored = self._client.find(key) if self._client else None
        if stored and stored.answer == answer.text:
            return None
        withdrawn = bool(rows_of(store, "calls.withdrawn", key=key))
        check_answer(key, asked=bool(asked), withdrawn=withdrawn, answered=stored is not None or key in earlier)
        (row,) = asked
        messages = tuple(json.loads(row["messages_json"]))
        usage = counted_outside(answer.usage, answer.text, "".join(message["content"] for message in messages))
        call = Call(
            row["request_id"], row["role"], row["model"], messages, row["sample"], row["cache_key"], answer.status,
            answer.text, answer.error, usage.tokens_in, usage.tokens_out,
            self._cost_usd(answer, row["model"], usage.tokens_in, usage.tokens_out),
            latency_s=max(self._history.now() - row["created_at"].timestamp(), 0.0), attempts=1, usage_json=usage.said,
            usage_doubt=usage.doubt, author=answer.author,
        )  # fmt: skip
        return _Answered(call, row["most_in"], row["most_tokens"])

    def _take(self, taken: Taken) -> Rows:
        """The rows of a question that is worked on from now on."""
        if self._client is None or taken.custom_id in self._client.taken:
            return {}
        self._client.taken.add(taken.custom_id)
        return records.event_rows(TAKEN, {"question": taken.custom_id}, at=self._history.now())

    def _cost_usd(self, answer: Answer, model: str, tokens_in: int, tokens_out: int) -> float:
        """The cost that was told, else the one by the settings' price."""
        price = self._settings.prices.get(model) if self._settings else None
        if answer.cost_usd is not None or price is None:
            return answer.cost_usd or 0.0
        return price.cost_usd(tokens_in, tokens_out)

    async def _tell(self, answered: _Answered) -> None:
        assert self._client
        self._spending.charge(*answered)
        await self._client.tell(answered.call)

    # --- guests -----------------------------------------------------------------------------------------------------

    def _invite(self, guest: Invitation) -> tuple[Outstanding, Rows]:
        """The work for a guest, and the rows of its ask. It raises LineError."""
        states = self._history.states
        guest, kernel = whole_guest(guest, states, lambda task, _: states[task].generations, cell=self._spending.cell)
        state = states[Task.parse(guest.task)]
        if kernel.id in state.guests:
            judged = kernel.id in state.verdicts
            check_guest(kernel, guest.task, waits=not judged, judged=judged)
        params: dict[str, Any] = {
            "source": guest.source, "values": dict(guest.values), "author": guest.author or "unknown",
            "note": guest.note,
        }  # fmt: skip
        number = -1 - state.invited
        request = Request(state.task, number, Kind.GUEST.value, guest.parents, 0, params, kind=Kind.GUEST)
        (invited,), rows = self._history.invite([request])
        return invited, rows


# --- stored calls -----------------------------------------------------------------------------------------------------


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

    def __init__(self, store: Journal) -> None:
        self._store = store
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
            "created_at": moment(time.time()),
        }  # fmt: skip
        if outside:
            self._asked.add(call.cache_key)
        await asyncio.wrap_future(self._store.commit({"llm_sent": [row]}))

    async def add(self, call: Call) -> None:
        """See `CallStore.add`. The row is safe before anything is waited for: cancelling or killing loses nothing."""
        row = records.call_row(call, call_id=uuid.uuid4().hex, at=time.time())
        committed = self._spool.keep(row, lambda: self._store.commit({"llm_calls": [row]}))
        if call.status.heard:
            self._answered.add(call.cache_key)
        await asyncio.wrap_future(committed)

    async def note(self, kind: str, detail: Mapping[str, Any]) -> None:
        """See `CallStore.note`."""
        await asyncio.wrap_future(self._store.commit(records.event_rows(kind, detail, at=time.time())))

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
