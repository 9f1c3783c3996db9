"""Longest answer: by the model's limit, more for one that was cut, never more than the user wants."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mutators.asking.dialogue import answers, ask_for_child
from mutators.base import CallStatus, Message, Parent, Proposal, Request
from mutators.llm.calls import FIRST, GROWTH, UNKNOWN, room_for
from mutators.llm.client import LLM
from mutators.llm.settings import LlmSettings
from operators.definition.spec import Operator, Task
from operators.kernel import Kernel
from tests.mutators.llm_server import LlmServer, Reply

MODEL = "openai/scripted"
ASKED: tuple[Message, ...] = ({"role": "user", "content": "w " * 3000},)
WHOLE = 'CHANGE: nothing much\n```cpp\n/*! evo\n[[launch]]\nkernel = "f"\nargs = []\n*/\nvoid f() {}\n```\n'


def room(listed: dict[str, Any] | None, cuts: int = 0, **changes: Any) -> int:
    return room_for(LlmSettings(models=(MODEL,), **changes), listed, ASKED, cuts=cuts)


def test_room_follows_the_models_limit() -> None:
    assert room({"max_output_tokens": 128_000, "max_input_tokens": 272_000}) == FIRST
    assert room({"max_output_tokens": 128_000, "max_input_tokens": 272_000}, cuts=1) == 128_000
    assert room({"max_output_tokens": 4096}) == room({"max_output_tokens": 4096}, cuts=1) == 4096
    assert room(None) == UNKNOWN and room(None, cuts=1) == GROWTH * UNKNOWN
    assert room({"max_output_tokens": 8192, "max_input_tokens": 8192}) == 8192 - 2000
    assert room({"max_output_tokens": 128_000}, cuts=3, max_tokens=500) == 500


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")


def asked(replies: list[Reply], **changes: Any) -> tuple[list[Any], list[Any]]:
    """The calls that a question takes, and what the server was sent."""
    sent: list[Any] = []

    def script(request: Any, number: int) -> Reply:
        sent.append(request)
        return replies[number]

    async def run() -> list[Any]:
        async with LlmServer(script) as server:
            llm = LLM(LlmSettings(models=(MODEL,), api_base=server.url, **changes))
            request = Request(Task("axpb", "fp32", "cpu"), 1, "rewrite", (), 0)
            first = await answers(ASKED, request, llm)
            again = await answers(ASKED, request, llm)
            assert [call.cache_key for call in again] == [call.cache_key for call in first], "nothing is paid twice"
            return first

    return asyncio.run(run()), sent


@pytest.mark.usefixtures("environment")
def test_a_cut_answer_is_asked_for_again_with_more_room() -> None:
    calls, sent = asked([Reply("half an", finish="length"), Reply("a whole one")])
    assert [request["max_tokens"] for request in sent] == [UNKNOWN, GROWTH * UNKNOWN]
    assert sent[0]["messages"] == sent[1]["messages"]
    assert [call.status for call in calls] == [CallStatus.CUT, CallStatus.ANSWERED]
    assert calls[-1].answer == "a whole one"


@pytest.mark.usefixtures("environment")
def test_where_there_is_no_more_room_nothing_is_asked_again() -> None:
    calls, sent = asked([Reply("half an", finish="length")], max_tokens=300)
    assert len(calls) == len(sent) == 1 and sent[0]["max_tokens"] == 300


@pytest.mark.usefixtures("environment")
def test_a_longer_answer_that_does_not_come_leaves_the_cut_one() -> None:
    calls, sent = asked([Reply("half an", finish="length"), *[Reply(status=400, error="context_length")] * 2])
    assert calls[-1].status is CallStatus.CUT and len(sent) >= 2


@pytest.mark.usefixtures("environment")
def test_a_child_comes_of_the_longer_answer(axpb: Operator) -> None:
    kernel = Kernel("axpb", "cpu", axpb.naive("cpu"))
    replies = [Reply("CHANGE: much\n```cpp\n/*! evo", finish="length"), Reply(WHOLE)]

    async def run() -> Proposal:
        async with LlmServer(lambda _, number: replies[number]) as server:
            llm = LLM(LlmSettings(models=(MODEL,), api_base=server.url))
            request = Request(Task("axpb", "fp32", "cpu"), 1, "rewrite", (kernel.id,), 0)
            return await ask_for_child(ASKED, request, Parent(kernel), axpb, llm)

    proposal = asyncio.run(run())
    assert proposal.kernel and proposal.description == "nothing much"
    assert [call.status for call in proposal.calls] == [CallStatus.CUT, CallStatus.ANSWERED]
    assert proposal.cost_usd == sum(call.cost_usd for call in proposal.calls)
