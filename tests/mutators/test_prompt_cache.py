"""Prompts that a provider keeps only when it is asked to: what is sent, and what its usage comes to."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from mutators.base import Call, CallStatus, Message, Request
from mutators.llm.calls import marked
from mutators.llm.client import LLM
from mutators.llm.settings import LlmSettings
from operators.definition.spec import Task
from tests.mutators.llm_server import LlmServer, Reply

ASKED: tuple[Message, ...] = ({"role": "system", "content": "Be terse."}, {"role": "user", "content": "Say a word."})
CLAUDE = "anthropic/claude-sonnet-4-5"
USAGE = {"input_tokens": 4, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 3, "output_tokens": 2}
ANSWER = {
    "id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "a word"}], "usage": USAGE,
}  # fmt: skip


def test_only_who_must_be_asked_is_asked() -> None:
    assert marked(ASKED, "openai") == list(ASKED) == marked(ASKED, "")
    system, user = marked(ASKED, "anthropic")
    assert system["content"] == [{"type": "text", "text": "Be terse.", "cache_control": {"type": "ephemeral"}}]
    assert user == ASKED[1] and ASKED[0]["content"] == "Be terse."
    assert marked(ASKED[1:], "anthropic") == [ASKED[1]]


def test_the_mark_reaches_the_provider_and_not_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    sent: list[Any] = []

    def script(request: Any, _: int) -> Reply:
        sent.append(request)
        return Reply(body=json.dumps(ANSWER).encode())

    async def run() -> Call:
        async with LlmServer(script) as server:
            llm = LLM(LlmSettings(models=(CLAUDE,), api_base=server.url.removesuffix("/v1")))
            return await llm.complete(
                ASKED, request=Request(Task("axpb", "fp32", "cpu"), 1, "rewrite", (), 0), role="r"
            )

    call = asyncio.run(run())
    assert call.status is CallStatus.ANSWERED and call.answer == "a word"
    assert sent[0]["system"] == [{"type": "text", "text": "Be terse.", "cache_control": {"type": "ephemeral"}}]
    assert call.messages == ASKED
    assert (call.tokens_in, call.tokens_out) == (7, 2), "what was kept is counted, too"
    assert 0 < call.cost_usd < 1e-4
