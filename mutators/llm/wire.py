"""Responses of a provider, before any library reads them: bounded in size, with sound numbers."""

from __future__ import annotations

import json
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mutators.llm.tools import tidied, without_odd_thoughts
from mutators.llm.usage import plain

if TYPE_CHECKING:
    import httpx  # half a second, and litellm brings it along when it is needed

MOST_BODY = 16 * 2**20
"""Bytes of an answer as it is sent; one that is longer is not read to its end."""
MOST_ERROR_BODY = 64 * 2**10
"""The same for what comes with a status that is no success; the rest is left out."""


class BodyTooLong(Exception):
    """The answer has more than MOST_BODY bytes."""


@dataclass
class Arrival:
    """Facts seen of one answer; filled in by `Wire` while the context variable ARRIVAL holds it."""

    most_characters: int
    """Most characters of an answer; longer ones are cut."""
    characters: int = 0
    """Characters that it had."""
    usage: Any = None
    """The provider's text, of any kind."""
    read: bool = False
    """Whether the answer came this way at all and was understood."""


ARRIVAL: ContextVar[Arrival | None] = ContextVar("arrival", default=None)


class Wire:
    """A transport of httpx that looks at the answers of OpenAI-compatible servers on their way to the library.

    Other answers, and requests made without an ARRIVAL, pass as they are.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return the answer, read to its end. It raises BodyTooLong."""
        from httpx import Response

        response = await self._inner.handle_async_request(request)
        arrival = ARRIVAL.get()
        if arrival is None:
            return response
        body = await _body(response)
        if response.status_code == 200:
            body = _tidied(body, arrival)
        # The body is decoded and may be shorter now: what described it as it was sent no longer holds.
        headers = [
            (name, value)
            for name, value in response.headers.multi_items()
            if name.lower() not in ("content-encoding", "content-length", "transfer-encoding")
        ]
        return Response(response.status_code, headers=headers, content=body, request=request)

    async def aclose(self) -> None:
        """Close the transport's connections."""
        await self._inner.aclose()


async def _body(response: httpx.Response) -> bytes:
    """The whole body of a successful answer, the beginning of another one. It raises BodyTooLong."""
    most = MOST_BODY if response.status_code == 200 else MOST_ERROR_BODY
    parts, size = [], 0
    try:
        async for part in response.aiter_bytes():
            parts.append(part)
            size += len(part)
            if size > most and response.status_code == 200:
                raise BodyTooLong(f"the answer has more than {most} bytes")
            if size > most:
                break
    finally:
        await response.aclose()
    return b"".join(parts)[:most]


def _tidied(body: bytes, arrival: Arrival) -> bytes:
    """The same answer with texts of bounded length and a usage that can be read."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return body
    if not isinstance(answer, dict) or not isinstance(answer.get("choices"), list):
        return body
    arrival.usage, arrival.read = answer.get("usage"), True
    try:
        sound = plain(arrival.usage)
    except RecursionError:
        sound, arrival.usage = None, "nested too deeply"
    changed = sound is not arrival.usage
    answer["usage"] = sound
    for choice in answer["choices"]:
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(message, dict):
            continue
        text = message.get("content")
        if isinstance(text, str) and len(text) > arrival.most_characters:
            arrival.characters = max(arrival.characters, len(text))
            message["content"] = text[: arrival.most_characters]
            changed = True
        changed |= without_odd_thoughts(message)
        calls, characters = tidied(message.get("tool_calls"), arrival.most_characters)
        if calls is not message.get("tool_calls"):
            message["tool_calls"], changed = calls, True
        if characters > arrival.most_characters:
            arrival.characters = max(arrival.characters, characters)
    return json.dumps(answer).encode() if changed else body
