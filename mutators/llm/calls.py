"""Calls of language models as they are sent and stored.

A key finds an answer again instead of paying twice. The room for an answer is as long as the model can write, thoughts
included, and at first no longer than usual: what is reserved of a budget grows with it, so that answers get more room
only when they were cut off for want of it. A mark has providers keep the beginning that the prompts of a task share:
most do so by themselves, some only on request.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from mutators.base import Call, CallStatus, Message, Request
from mutators.bench import Tool
from mutators.llm.settings import LlmSettings
from mutators.llm.tools import content_of
from operators.identity import digest

FIRST = 32_768
"""Tokens of a first answer of a model that can write more: a model that reasons takes most of it for that."""
UNKNOWN = 8_192
"""The same of a model whose limit is not known, such as one on a server of one's own."""
GROWTH = 4
"""An answer that was cut gets so many times the room."""
LEAST = 1_024
BYTES_PER_TOKEN = 3
"""The assumed bytes of a prompt per token."""
ON_REQUEST = frozenset(("anthropic",))
"""Providers, as litellm calls them, that keep a prompt's beginning up to a mark, and nothing without one."""


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

    async def announce(self, call: Call, most_in: int, most_tokens: int, most_usd: float) -> None:
        """Note that a call is about to be made, and the most an attempt may cost; `add` follows, or a crash.

        `most_in` are those of the tokens that the question may have.
        """
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

    async def announce(self, call: Call, most_in: int, most_tokens: int, most_usd: float) -> None:
        pass

    async def add(self, call: Call) -> None:
        self.calls.append(call)
        if call.status.heard:
            self._answered[call.cache_key] = call

    def heard(self) -> bool:
        return bool(self._answered)

    async def note(self, kind: str, detail: Mapping[str, Any]) -> None:
        self.notes.append((kind, detail))


def room_for(settings: LlmSettings, listed: Mapping[str, Any] | None, messages: Sequence[Message], *, cuts: int) -> int:
    """Return the tokens that an answer may have after so many that were cut off.

    `listed` is what litellm knows of the model. Its limit holds, and what its context leaves beside the question; a
    limit of the user's own holds strictly.
    """
    if settings.max_tokens is not None:
        return settings.max_tokens
    known = listed or {}
    limit = known.get("max_output_tokens")
    first = min(FIRST, limit) if limit else UNKNOWN
    wanted = first * GROWTH**cuts
    if limit:
        wanted = min(wanted, limit)
    if context := known.get("max_input_tokens"):
        asked = sum(len(content_of(message).encode(errors="replace")) for message in messages) // BYTES_PER_TOKEN
        wanted = min(wanted, max(context - asked, LEAST))
    return int(wanted)


def cut_before(find: Callable[[int], Call | None], sample: int) -> list[Call]:
    """Return the answers to the same question, the latest first, that were cut off one after the other until now.

    `find` has the stored call of a sample number.
    """
    found: list[Call] = []
    while sample > 0 and (call := find(sample - 1)) and call.status is CallStatus.CUT:
        found.append(call)
        sample -= 1
    return found


def marked(messages: Sequence[Mapping[str, Any]], provider: str) -> list[dict[str, Any]]:
    """Return messages as they are sent: with the mark behind the system message, the same in all prompts of a task."""
    sent = [dict(message) for message in messages]
    if provider in ON_REQUEST and sent and sent[0]["role"] == "system" and isinstance(sent[0]["content"], str):
        block = {"type": "text", "text": sent[0]["content"], "cache_control": {"type": "ephemeral"}}
        sent[0]["content"] = [block]
    return sent
