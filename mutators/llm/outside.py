"""Models whose answers come from outside: people, agents and batch services answer when they like."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mutators.base import CANNOT_CALL_TOOLS, Call, CallStatus, Client, Message, Request
from mutators.bench import Tool
from mutators.llm.calls import CallStore, cache_key
from mutators.llm.client import LLM
from mutators.llm.settings import LlmSettings, is_outside
from mutators.llm.usage import most_asked

Tasks = set[asyncio.Task[Any]]


class OutsideClient:
    """`mutators.base.Client` that asks no provider: it keeps a question, and waits until the answer is told.

    Nothing is reserved of a budget for a question that may never be answered; what its answer cost is charged when it
    is told. Lives in one event loop.
    """

    def __init__(self, settings: LlmSettings, calls: CallStore) -> None:
        self._settings = settings
        self._calls = calls
        self._answers: dict[str, asyncio.Future[Call]] = {}
        """By cache key, of the questions that are waited for."""
        self.taken: set[str] = set()
        """Cache keys of questions that are worked on."""
        self._tasks: dict[asyncio.Task[Any], tuple[Call, asyncio.Future[Call]]] = {}
        """Question that each of the waiting tasks asks, and the future that it waits for."""

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        request: Request,
        role: str,
        model: str = "",
        sample: int = 0,
        tools: Sequence[Tool] = (),
    ) -> Call:
        """Answer a conversation as `Client.complete` says, as soon as its answer is told; see `tell`."""
        model = model or self._settings.models[0]
        key = cache_key(self._settings, messages, request=request, model=model, sample=sample, tools=tools)
        if stored := self._calls.find(key) or self._cut(messages, request, model, sample):
            return stored
        call = Call(request.id, role, model, tuple(messages), sample, key, CallStatus.FAILED)
        if tools:
            call = replace(call, error=CANNOT_CALL_TOOLS)
            await self._calls.add(call)
            return call
        most = most_asked(messages)
        answer = self._answers[key] = asyncio.get_running_loop().create_future()
        try:
            await self._calls.announce(call, most, most + (self._settings.max_tokens or 0), 0.0)
            return await self._awaited(call, answer)
        finally:
            self._answers.pop(key, None)

    def find(self, cache_key: str) -> Call | None:
        """The answer that was told to this question, if any was."""
        return self._calls.find(cache_key)

    async def tell(self, call: Call) -> None:
        """Store an answer, then give it to the task that waits for it."""
        await self._calls.add(call)
        answer = self._answers.pop(call.cache_key, None)
        if answer and not answer.done():
            answer.set_result(call)

    @property
    def waiting(self) -> Tasks:
        """Tasks that wait for answers not told yet."""
        return {task for task, (_, answer) in self._tasks.items() if not answer.done()}

    async def withdraw(self, task: asyncio.Task[Any], why: str) -> None:
        """End the question of a waiting task, unless it is taken."""
        call, _ = self._tasks[task]
        if call.cache_key not in self.taken:
            await self.tell(replace(call, status=CallStatus.WITHDRAWN, error=why))

    def _cut(self, messages: Sequence[Message], request: Request, model: str, sample: int) -> Call | None:
        """The answer to the sample before, if it was cut off at a limit that is set, and would be again."""
        if not sample or self._settings.max_tokens is None:
            return None
        found = self._calls.find(cache_key(self._settings, messages, request=request, model=model, sample=sample - 1))
        return found if found and found.status is CallStatus.CUT else None

    async def _awaited(self, call: Call, answer: asyncio.Future[Call]) -> Call:
        task = asyncio.current_task()
        assert task
        self._tasks[task] = call, answer
        try:
            return await answer
        finally:
            del self._tasks[task]


class Clients:
    """`mutators.base.Client` of a run: models that litellm asks, and those whose answers come from outside."""

    def __init__(self, library: LLM, outside: OutsideClient) -> None:
        self.library = library
        self.outside = outside

    async def complete(
        self, messages: Sequence[Message], *, request: Request, role: str, model: str = "", **options: Any
    ) -> Call:
        """Answer a conversation as `Client.complete` says."""
        client: Client = self.outside if is_outside(model or self.library.settings.models[0]) else self.library
        return await client.complete(messages, request=request, role=role, model=model, **options)
