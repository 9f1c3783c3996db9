"""An OpenAI-compatible server on loopback that answers by a script, faults included."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

JSON = {"content-type": "application/json"}
CLOSED_WITHIN_S = 5.0
"""Longest time in which a client must close its connection."""


@dataclass(frozen=True)
class Reply:
    """The server's reply to one request."""

    text: str | None = ""
    """The answer; None: no content, as when only reasoning came."""
    tools: tuple[tuple[str, Any], ...] = ()
    """Tools that it calls: name, and arguments, as JSON where they are no text."""
    message: Mapping[str, Any] | None = None
    """The whole message in place of one made of `text` and `tools`."""
    finish: str = "stop"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    error: str = "scripted fault"
    """The message of a status that is not 200."""
    delay_s: float = 0.0
    until: asyncio.Event | None = None
    """Answer once this is set."""
    body: bytes | None = None
    """Sent in place of the JSON that belongs here."""
    cut: bool = False
    """Close the connection in the middle of the body."""
    drop: bool = False
    """Close it before anything is sent."""
    usage: bool = True
    """Whether the answer tells its tokens."""
    usage_json: str = ""
    """Usage that it tells instead of them, be it JSON or nearly so."""

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        """The tools that it calls, their arguments as they are sent."""
        return tuple((name, given if isinstance(given, str) else json.dumps(given)) for name, given in self.tools)

    @property
    def written(self) -> str:
        """All that it says."""
        return " ".join((self.text or "", *(f"{name} {arguments}" for name, arguments in self.texts)))


Script = Callable[[Mapping[str, Any], int], Reply]
"""Reply to the request's JSON, given how many requests came before it."""


class LlmServer:
    """`async with LlmServer(script) as server:` serves `server.url` within the running event loop."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Mapping[str, Any]] = []
        self.headers: list[str] = []
        """Raw, one text a request."""
        self.tokens_in = 0
        self.tokens_out = 0
        """Tokens of the answers that were sent whole, by the usage that was told."""
        self.sent_at: dict[int, float] = {}
        """By number of the request, when its answer was sent whole; on the monotonic clock."""
        self.read_at: dict[int, float] = {}
        """The same, when the client closed the connection, having read all of it or being gone."""
        self.at_once = 0
        self.most_at_once = 0
        self._handlers: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> LlmServer:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._server.close()
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    def usage(self, request: Mapping[str, Any], text: str) -> tuple[int, int]:
        """Tokens in and out: words, which is as good a rule as any."""
        called = (json.dumps(m["tool_calls"]) for m in request["messages"] if m.get("tool_calls"))
        asked = [*(str(m.get("content") or "") for m in request["messages"]), *called]
        return sum(len(text.split()) for text in asked), len(text.split())

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._handlers.add(task)
        task.add_done_callback(self._handlers.discard)
        try:
            number = await self._counted(reader, writer)
            async with asyncio.timeout(CLOSED_WITHIN_S):
                await reader.read()  # the client was told that the connection closes: it does so once all is read
            self.read_at[number] = time.monotonic()
        except (ConnectionError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client gave up, or the test is over; asyncio's streams dislike handlers that end cancelled
        finally:
            writer.close()

    async def _counted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return await self._serve(reader, writer)
        finally:
            self.at_once -= 1

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        """The number of the request."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(int(h.split(":")[1]) for h in head.split("\r\n") if h.lower().startswith("content-length:"))
        request = json.loads(await reader.readexactly(length))
        number = len(self.requests)
        self.requests.append(request)
        self.headers.append(head)
        reply = self.script(request, number)
        await asyncio.sleep(reply.delay_s)
        if reply.until:
            await reply.until.wait()
        if reply.drop:
            raise ConnectionAbortedError
        body = reply.body if reply.body is not None else self._body(request, number, reply)
        lines = {**JSON, **reply.headers, "content-length": str(len(body)), "connection": "close"}
        told = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        writer.write(f"HTTP/1.1 {reply.status} Scripted\r\n{told}\r\n".encode())
        writer.write(body[: len(body) // 2] if reply.cut else body)
        await writer.drain()
        if reply.status == 200 and reply.body is None and not reply.cut and reply.usage and not reply.usage_json:
            tokens_in, tokens_out = self.usage(request, reply.written)
            self.tokens_in += tokens_in
            self.tokens_out += tokens_out
        if reply.cut:
            raise ConnectionAbortedError
        self.sent_at[number] = time.monotonic()
        return number

    def _body(self, request: Mapping[str, Any], number: int, reply: Reply) -> bytes:
        text = json.dumps(self._json(request, number, reply))
        if reply.usage_json:
            text = f'{text[:-1]}, "usage": {reply.usage_json}}}'
        return text.encode()

    def _json(self, request: Mapping[str, Any], number: int, reply: Reply) -> dict[str, Any]:
        if reply.status != 200:
            return {"error": {"message": reply.error, "type": "scripted", "code": None}}
        message: dict[str, Any] = {"role": "assistant", "content": reply.text}
        if reply.tools:
            message["tool_calls"] = [
                {"id": f"call-{number}-{place}", "type": "function", "function": {"name": name, "arguments": arguments}}
                for place, (name, arguments) in enumerate(reply.texts)
            ]
        if reply.message is not None:
            message = dict(reply.message)
        answer: dict[str, Any] = {
            "id": f"scripted-{number}", "object": "chat.completion", "created": 0, "model": request["model"],
            "choices": [{"index": 0, "finish_reason": reply.finish, "message": message}],
        }  # fmt: skip
        if reply.usage and not reply.usage_json:
            tokens_in, tokens_out = self.usage(request, reply.written)
            answer["usage"] = {
                "prompt_tokens": tokens_in,
                "completion_tokens": tokens_out,
                "total_tokens": tokens_in + tokens_out,
            }
        return answer
