"""The language model that is a function: for tests, and for runs that are to cost nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from mutators.base import Call, CallStatus, Message, Request, ToolCall
from mutators.bench import Tool
from mutators.llm.tools import content_of
from operators.identity import digest

Script = Callable[[Sequence[Message], int], str | tuple[ToolCall, ...]]
"""The answer to a conversation, words or calls of tools; also told how many calls were made before."""


class ScriptedLLM:
    """`mutators.base.Client` by a script. Tokens are words."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.calls: list[Call] = []

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
        model = model or "scripted"
        key = digest("call", request.digest, sample, model, json.dumps([dict(m) for m in messages]), "")
        if known := next((call for call in self.calls if call.cache_key == key), None):
            return known
        said = self.script(messages, len(self.calls))
        answer, calls = (said, ()) if isinstance(said, str) else ("", said)
        call = Call(
            request.id, role, model, tuple(messages), sample, key, CallStatus.ANSWERED, answer,
            tokens_in=sum(len(content_of(m).split()) for m in messages),
            tokens_out=len(answer.split()) + sum(len(c.arguments.split()) for c in calls), attempts=1, tool_calls=calls,
        )  # fmt: skip
        self.calls.append(call)
        return call
