"""Stored calls of language models, and the key under which an answer is found again instead of paid twice."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from mutators.base import Call, Message, Request
from mutators.bench import Tool
from mutators.llm.settings import LlmSettings
from operators.identity import digest


def cache_key(
    settings: LlmSettings,
    messages: Sequence[Message],
    *,
    request: Request,
    model: str,
    sample: int,
    tools: Sequence[Tool] = (),
) -> str:
    """The digest that makes two calls the same one. Of tools the names count, not the words that describe them."""
    named = {"tools": [tool.name for tool in tools]} if tools else {}
    parameters = json.dumps(settings.parameters | named, sort_keys=True)
    return digest("call", request.digest, sample, model, json.dumps([dict(m) for m in messages]), parameters)


class CallStore(Protocol):
    """Where calls are kept; the only place they are written."""

    def find(self, cache_key: str) -> Call | None:
        """The answer that was stored under this key, if any; calls that failed are no answers."""
        ...

    async def announce(self, call: Call, most_tokens: int, most_usd: float) -> None:
        """Note that a call is about to be made, and the most an attempt may cost; `add` follows, or a crash."""
        ...

    async def add(self, call: Call) -> None:
        """Keep a call, failed ones too; it is safe once this returns."""
        ...

    def heard(self) -> bool:
        """Whether any model has ever answered a call that is kept here."""
        ...

    async def note(self, kind: str, detail: Mapping[str, Any]) -> None:
        """Keep what else happened, `model_out` and `model_back`."""
        ...


class MemoryCalls:
    """Calls of one process, in the order in which they ended."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.notes: list[tuple[str, Mapping[str, Any]]] = []
        self._answered: dict[str, Call] = {}

    def find(self, cache_key: str) -> Call | None:
        return self._answered.get(cache_key)

    async def announce(self, call: Call, most_tokens: int, most_usd: float) -> None:
        pass

    async def add(self, call: Call) -> None:
        self.calls.append(call)
        if call.status.heard:
            self._answered[call.cache_key] = call

    def heard(self) -> bool:
        return bool(self._answered)

    async def note(self, kind: str, detail: Mapping[str, Any]) -> None:
        self.notes.append((kind, detail))
