"""The language model that is a function: for tests, and for runs that are to cost nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from mutators.base import Call, CallStatus, Message, Request
from operators.identity import digest

Script = Callable[[Sequence[Message], int], str]
"""The answer to a conversation; also told how many calls were made before."""


class ScriptedLLM:
    """`mutators.base.Client` by a script. Tokens are words."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.calls: list[Call] = []

    async def complete(
        self, messages: Sequence[Message], *, request: Request, role: str, model: str = "", sample: int = 0
    ) -> Call:
        model = model or "scripted"
        key = digest("call", request.digest, sample, model, json.dumps([dict(m) for m in messages]), "")
        if known := next((call for call in self.calls if call.cache_key == key), None):
            return known
        answer = self.script(messages, len(self.calls))
        call = Call(
            request.id, role, model, tuple(messages), sample, key, CallStatus.ANSWERED, answer,
            tokens_in=sum(len(m["content"].split()) for m in messages), tokens_out=len(answer.split()), attempts=1,
        )  # fmt: skip
        self.calls.append(call)
        return call
