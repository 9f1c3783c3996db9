"""Arrivals from outside while a session runs: answers to open questions, and guests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from evo import rows as records
from evo.inbox import Inbox
from evo.rows import Journal, Rows
from evo.search.history import History
from evo.search.schedule import Errand
from evo.search.task import TaskState
from mutators.asking.answers import Answer, Invitation, LineError, only_kernel, only_task, told
from mutators.base import Call, Kind, Request
from mutators.llm.outside import OutsideClient
from mutators.llm.settings import LlmSettings
from mutators.llm.spending import Spending
from mutators.llm.usage import counted_outside
from operators.definition.spec import Task
from operators.kernel import Kernel

NOT_TAKEN = "not_taken"
"""The event that says which line of the inbox could not be taken, and why."""


class _Answered(NamedTuple):
    call: Call
    most_tokens: int
    """Tokens that were written down for it when it was asked."""


class Arrivals:
    """It alone empties the run's inbox. Answers become calls of language models, and guests become asks.

    What is in a file is stored before the file is removed; a file that a session killed in between left there is taken
    again, and nothing of it counts twice.
    """

    def __init__(
        self,
        states: Mapping[Task, TaskState],
        store: Journal,
        history: History,
        *,
        client: OutsideClient | None,
        settings: LlmSettings | None,
        spending: Spending,
        commit: Callable[[Rows], Awaitable[None]],
        say: Callable[[str], None],
        now: Callable[[], float],
    ) -> None:
        """`client` waits for the answers; a run without language models has none."""
        self._states = states
        self._store = store
        self._history = history
        self._inbox = Inbox(store.folder)
        self._client = client
        self._settings = settings
        self._spending = spending
        self._commit = commit
        self._say = say
        self._now = now
        self._left: set[Path] = set()
        """Files that cannot be read, or not be removed: they stay, and nothing more is taken from them."""

    @property
    def there(self) -> bool:
        """Whether something is there to be taken."""
        return any(file not in self._left for file in self._inbox.files())

    async def take(self) -> list[Errand]:
        """Take all that was told since the last time; return what guests are to be worked on."""
        errands: list[Errand] = []
        for file in self._inbox.files():
            if file in self._left:
                continue
            try:
                lines = self._inbox.lines(file)
            except OSError as error:
                self._leave(file, "cannot be read", error)
                continue
            errands += await self._taken(file, lines)
            try:
                self._inbox.discard(file)
            except OSError as error:
                self._leave(file, "is taken, and cannot be removed", error)
        return errands

    def _leave(self, file: Path, problem: str, error: OSError) -> None:
        self._left.add(file)
        self._say(f"{file} {problem}: {error.strerror}")

    async def _taken(self, file: Path, lines: list[tuple[int, str]]) -> list[Errand]:
        calls: dict[str, _Answered] = {}
        errands: list[Errand] = []
        rows: Rows = {}
        for number, line in lines:
            try:
                item = told(line)
                if isinstance(item, Answer):
                    if item.custom_id in calls:
                        raise LineError(f"{item.custom_id}: it is answered by an earlier line")
                    if answered := self._answered(item):
                        calls[item.custom_id] = answered
                elif invited := self._invite(item):
                    errands.append(invited[0])
                    rows = records.join(rows, invited[1])
            except LineError as error:
                where = f"{file.name}:{number}"
                self._say(f"{where}: {error}")
                detail = {"where": where, "problem": str(error), "line": line[:200]}
                rows = records.join(rows, records.event_rows(NOT_TAKEN, detail, at=self._now()))
        await asyncio.gather(*map(self._tell, calls.values()))
        if rows:
            await self._commit(rows)
        return errands

    # --- answers ----------------------------------------------------------------------------------------------------

    def _answered(self, answer: Answer) -> _Answered | None:
        """The call that an answer ends; None where it is stored already. It raises LineError."""
        asked = self._store.rows(
            "select * from llm_sent where cache_key = ? and messages_json is not null order by rowid limit 1",
            [answer.custom_id],
        ).to_pylist()
        if not asked or self._client is None:
            raise LineError(f"{answer.custom_id[:80]}: the run has no such question")
        if stored := self._client.find(answer.custom_id):
            if stored.answer == answer.text:
                return None
            raise LineError(f"{answer.custom_id}: it is answered already, and the first answer counts")
        (row,) = asked[:1]
        messages = tuple(json.loads(row["messages_json"]))
        usage = counted_outside(answer.usage, answer.text, "".join(message["content"] for message in messages))
        call = Call(
            row["request_id"], row["role"], row["model"], messages, row["sample"], row["cache_key"], answer.status,
            answer.text, answer.error, usage.tokens_in, usage.tokens_out,
            self._cost_usd(answer, row["model"], usage.tokens_in, usage.tokens_out),
            latency_s=max(self._now() - row["created_at"].timestamp(), 0.0), attempts=1, usage_json=usage.said,
            usage_doubt=usage.doubt, author=answer.author,
        )  # fmt: skip
        return _Answered(call, row["most_tokens"])

    def _cost_usd(self, answer: Answer, model: str, tokens_in: int, tokens_out: int) -> float:
        """The cost that was told, else the one by the settings' price."""
        price = self._settings.prices.get(model) if self._settings else None
        if answer.cost_usd is not None or price is None:
            return answer.cost_usd or 0.0
        return price.cost_usd(tokens_in, tokens_out)

    async def _tell(self, answered: _Answered) -> None:
        assert self._client
        self._spending.charge(answered.call, answered.most_tokens)
        await self._client.tell(answered.call)

    # --- guests -----------------------------------------------------------------------------------------------------

    def _invite(self, guest: Invitation) -> tuple[Errand, Rows] | None:
        """The work for a guest, and the rows of its ask; None where it is there. It raises LineError."""
        state = self._states[only_task(guest.task, self._states)]
        parents = tuple(only_kernel(parent, state.generations, state.task) for parent in guest.parents)
        kernel = Kernel(state.operator.name, state.task.target, guest.source, guest.values)
        if kernel.id in state.guests:
            raise LineError(f"kernel {kernel.id[:12]} was a guest of {state.task} before")
        params: dict[str, Any] = {
            "source": guest.source, "values": dict(guest.values), "author": guest.author or "unknown",
            "note": guest.note,
        }  # fmt: skip
        number = -1 - len(state.guests)
        request = Request(state.task, number, Kind.GUEST.value, parents, 0, params, kind=Kind.GUEST)
        ((request, bound),), rows = self._history.invite([request])
        return Errand(state, request, bound), rows
