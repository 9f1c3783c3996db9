"""The client of language models, against a real server on loopback that misbehaves by a script."""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from mutators.base import Call, CallStatus, Message, OutOfBudget, Request
from mutators.llm.calls import MemoryCalls
from mutators.llm.client import LLM
from mutators.llm.faults import translate
from mutators.llm.library import litellm_module
from mutators.llm.settings import LlmSettings
from mutators.llm.spending import Spending
from mutators.llm.usage import COUNTS, counted, plain
from mutators.llm.wire import MOST_BODY
from operators.definition.spec import Task
from operators.errors import UserError
from tests.mutators.llm_server import LlmServer, Reply, Script

MODEL = "openai/scripted"
_REQUEST = httpx.Request("POST", "http://127.0.0.1/")
SECRET = "sk-proj-0123456789abcdef"
ASKED: tuple[Message, ...] = ({"role": "system", "content": "Be terse."}, {"role": "user", "content": "Say a word."})


def request(number: int = 0) -> Request:
    return Request(Task("softmax", "fp32", "cpu"), number, "rewrite", (), 0)


def settings(server: LlmServer, **changes: Any) -> LlmSettings:
    fast: dict[str, Any] = {
        "models": (MODEL,), "api_base": server.url, "max_tokens": 100, "timeout_s": 60.0, "backoff_s": 0.005,
        "prices": {MODEL: {"input": 2.0, "output": 10.0}},
    }  # fmt: skip
    return LlmSettings(**(fast | changes))


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)


def heard() -> MemoryCalls:
    """Calls of which one was answered, so that later ones may fail."""
    calls = MemoryCalls()
    answered = Call("r", "rewrite", MODEL, (), 0, "earlier", CallStatus.ANSWERED, "yes")
    asyncio.run(calls.add(answered))
    calls.calls.clear()
    return calls


def with_server(script: Script, work: Callable[[LlmServer], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with LlmServer(script) as server:
            await work(server)

    asyncio.run(run())


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """One call with time to spare: a process's first loads parts of litellm, which no test's timeout should meet."""

    async def work(server: LlmServer) -> None:
        call = await LLM(settings(server)).complete(ASKED, request=request(), role="rewrite")
        assert call.answer == "ok"

    with_server(lambda sent, number: Reply("ok"), work)


def test_an_answer_with_its_tokens_and_its_cost() -> None:
    async def work(server: LlmServer) -> None:
        llm = LLM(settings(server, temperature=0.5))
        call = await llm.complete(ASKED, request=request(), role="rewrite")
        assert call.status is CallStatus.ANSWERED
        assert (call.answer, call.error, call.attempts) == ("one two three", "", 1)
        assert (call.tokens_in, call.tokens_out) == (5, 3)
        assert call.cost_usd == pytest.approx((5 * 2 + 3 * 10) / 1e6)
        assert (call.request_id, call.role, call.model) == ("softmax/fp32/cpu#0", "rewrite", MODEL)
        assert 0 < call.latency_s < 60
        assert (llm.spending.tokens_in, llm.spending.tokens_out, llm.spending.cost_usd) == (5, 3, call.cost_usd)
        assert llm.spending.reserved_tokens == 0 and llm.spending.lost_tokens == 0
        (sent,) = server.requests
        assert sent["messages"] == [dict(m) for m in ASKED]
        assert (sent["model"], sent["temperature"], sent["max_tokens"]) == ("scripted", 0.5, 100)

    with_server(lambda sent, number: Reply("one two three"), work)


def test_the_same_call_is_never_paid_twice_and_another_sample_is_another_call() -> None:
    async def work(server: LlmServer) -> None:
        calls = MemoryCalls()
        llm = LLM(settings(server), calls=calls)
        first = await llm.complete(ASKED, request=request(), role="rewrite")
        again = await LLM(settings(server), calls=calls).complete(ASKED, request=request(), role="rewrite")
        assert again is first and len(server.requests) == 1
        second_sample = await llm.complete(ASKED, request=request(), role="rewrite", sample=1)
        other_request = await llm.complete(ASKED, request=request(1), role="rewrite")
        other_words = await llm.complete(ASKED[1:], request=request(), role="rewrite")
        warmer = LLM(settings(server, temperature=1.0), calls=calls)
        other_parameters = await warmer.complete(ASKED, request=request(), role="rewrite")
        other_model = await llm.complete(ASKED, request=request(), role="rewrite", model="openai/other")
        made = [first, second_sample, other_request, other_words, other_parameters, other_model]
        assert [call.answer for call in made] == [f"answer {n}" for n in range(6)]
        assert len({call.cache_key for call in made}) == 6
        assert calls.calls == made

    with_server(lambda sent, number: Reply(f"answer {number}"), work)


@pytest.mark.parametrize(
    "fault",
    [
        Reply(status=429, error="slow down"),
        Reply(status=500),
        Reply(status=502),
        Reply(status=503),
        Reply(status=408),
        Reply(text="x " * 200, cut=True),
        Reply(drop=True),
        Reply(body=b"<html>bad gateway</html>"),
        Reply(body=b"{}"),
        Reply(delay_s=9),
    ],
    ids=["429", "500", "502", "503", "408", "half", "dropped", "html", "empty", "timeout"],
)
def test_what_may_pass_is_tried_again(fault: Reply) -> None:
    async def work(server: LlmServer) -> None:
        llm = LLM(settings(server, timeout_s=2.0 if fault.delay_s else 60.0))
        call = await llm.complete(ASKED, request=request(), role="rewrite")
        assert (call.status, call.answer, call.attempts) == (CallStatus.ANSWERED, "at last", 3)
        assert call.error == ""
        assert llm.spending.attempts == 3 and llm.spending.reserved_tokens == 0
        answered_by_status = fault.status != 200
        assert (call.lost_tokens == 0) == answered_by_status
        assert llm.spending.lost_tokens == call.lost_tokens
        assert llm.spending.tokens == call.tokens_in + call.tokens_out + call.lost_tokens

    with_server(lambda sent, number: fault if number < 2 else Reply("at last"), work)


def test_after_the_last_attempt_the_call_says_why_and_is_no_answer() -> None:
    async def work(server: LlmServer) -> None:
        llm = LLM(settings(server, attempts=4, pause_s=0.01), calls=calls, say=lambda text: None)
        call = await llm.complete(ASKED, request=request(), role="rewrite")
        assert call.status is CallStatus.UNAVAILABLE and call.attempts == 4
        assert "overloaded" in call.error and "\n" not in call.error
        assert calls.calls == [call]
        await llm.complete(ASKED, request=request(), role="rewrite")
        assert len(server.requests) == 5

    calls = heard()

    with_server(lambda sent, number: Reply(status=503, error="overloaded"), work)


def test_retry_after_is_honoured_and_absurd_ones_end_the_call() -> None:
    async def work(server: LlmServer) -> None:
        llm = LLM(settings(server), say=lambda text: None)
        began = time.monotonic()
        call = await llm.complete(ASKED, request=request(), role="rewrite")
        assert call.status is CallStatus.ANSWERED and time.monotonic() - began >= 0.7
        call = await llm.complete(ASKED, request=request(1), role="rewrite")
        assert not call.status.heard and call.attempts == 1

    waits = ["0.7", None, "86400"]

    def script(sent: Mapping[str, Any], number: int) -> Reply:
        wait = waits[number]
        return Reply(status=429, headers={"retry-after": wait}) if wait else Reply("fine")

    with_server(script, work)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Reply(status=401, error=f"Incorrect API key provided: {SECRET}"), "Incorrect API key provided: "),
        (Reply(status=403, error="not your region"), "not your region"),
        (Reply(status=404, error="The model `scripted` does not exist"), "does not exist"),
        (Reply(status=402, error="pay first"), "pay first"),
        (Reply(status=429, error="insufficient_quota: you exceeded your quota"), "exceeded your quota"),
    ],
)
def test_what_no_call_can_cure_is_one_line_for_the_user_if_the_model_never_answered(fault: Reply, words: str) -> None:
    async def work(server: LlmServer) -> None:
        calls = MemoryCalls()
        llm = LLM(settings(server), calls=calls)
        with pytest.raises(UserError) as caught:
            await llm.complete(ASKED, request=request(), role="rewrite")
        text = str(caught.value)
        assert text.startswith(f"model {MODEL} has not answered yet and fails: ") and words in text and "\n" not in text
        assert SECRET not in text
        assert len(server.requests) == 1
        (call,) = calls.calls
        assert call.status is CallStatus.UNAVAILABLE and SECRET not in repr(call)
        assert llm.spending.tokens == 0

    with_server(lambda sent, number: fault, work)


def test_a_model_without_provider_is_one_line_for_the_user() -> None:
    async def work(server: LlmServer) -> None:
        llm = LLM(LlmSettings(models=("nonsense-7b",)), say=lambda text: None)
        with pytest.raises(UserError, match=r"model nonsense-7b .* litellm knows no such model; write provider/model"):
            await llm.complete(ASKED, request=request(), role="rewrite")

    with_server(lambda sent, number: Reply(), work)


def test_a_conversation_that_cannot_be_answered_fails_alone() -> None:
    async def work(server: LlmServer) -> None:
        llm = LLM(settings(server), calls=calls)
        call = await llm.complete(ASKED, request=request(), role="rewrite")
        assert (call.status, call.attempts) == (CallStatus.FAILED, 1)
        assert "maximum context length" in call.error
        assert (await llm.complete(ASKED, request=request(1), role="rewrite")).status is CallStatus.ANSWERED

    calls = heard()
    long = Reply(status=400, error="This model's maximum context length is 10 tokens")
    with_server(lambda sent, number: long if number == 0 else Reply("ok"), work)


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (Reply("half an", finish="length"), CallStatus.CUT),
        (Reply(None, finish="length"), CallStatus.CUT),
        (Reply("", finish="content_filter"), CallStatus.REFUSED),
        (
            Reply(status=400, error="invalid_request_error: content_policy_violation"),
            CallStatus.REFUSED,
        ),
    ],
)
def test_answers_that_are_none_are_told_apart(reply: Reply, status: CallStatus) -> None:
    async def work(server: LlmServer) -> None:
        call = await LLM(settings(server)).complete(ASKED, request=request(), role="rewrite")
        assert call.status is status and call.attempts == 1

    with_server(lambda sent, number: reply, work)


def test_a_server_that_counts_no_tokens_is_charged_by_the_upper_bound() -> None:
    async def work(server: LlmServer) -> None:
        llm = LLM(settings(server))
        call = await llm.complete(ASKED, request=request(), role="rewrite")
        assert call.tokens_in >= 5 and call.tokens_out >= 2
        assert llm.spending.tokens == call.tokens_in + call.tokens_out
        assert call.cost_usd > 0

    with_server(lambda sent, number: Reply("two words", usage=False), work)


def test_at_most_so_many_calls_are_in_flight() -> None:
    async def work(server: LlmServer) -> None:
        llm = LLM(settings(server, concurrency=3))
        await asyncio.gather(*(llm.complete(ASKED, request=request(n), role="rewrite") for n in range(12)))
        assert server.most_at_once == 3

    with_server(lambda sent, number: Reply("ok", delay_s=0.02), work)


# --- money -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [{"limit_tokens": 1000}, {"limit_usd": 0.0016}])
def test_a_budget_is_spent_to_its_end_and_exceeded_by_less_than_one_call_may_cost(limits: dict[str, float]) -> None:
    async def work(server: LlmServer) -> None:
        spending = Spending(**limits)
        llm = LLM(settings(server), spending=spending)

        async def one(number: int) -> Call | None:
            try:
                return await llm.complete(ASKED, request=request(number), role="rewrite")
            except OutOfBudget as error:
                assert "are spent" in str(error)
                return None

        made = await asyncio.gather(*(one(n) for n in range(100)))
        answered = [call for call in made if call]
        price = answered[0].tokens_in + answered[0].tokens_out, answered[0].cost_usd
        assert spending.tokens == sum(c.tokens_in + c.tokens_out for c in answered)
        # Half a price is left at most; the most that these calls may cost, which is thrice as much, was never left.
        spent = (spending.tokens, price[0], 1000) if "limit_tokens" in limits else (spending.dollars, price[1], 0.0016)
        assert spent[2] - 0.5 * spent[1] < spent[0] < spent[2] + 0.5 * spent[1]
        assert spending.refusal and spending.reserved_tokens == 0

    with_server(lambda sent, number: Reply("word " * 25), work)


def test_arms_whose_calls_cost_more_spend_as_much() -> None:
    """A quarter of 50,000 tokens was spent where the most that the next call might cost was to fit."""

    async def work(server: LlmServer) -> None:
        for words in (200, 2_000):
            spending = Spending(limit_tokens=50_000)
            llm = LLM(settings(server, max_tokens=32_768), spending=spending)
            with pytest.raises(OutOfBudget):
                for number in range(1000):
                    asked = ({"role": "user", "content": "word " * words},)
                    await llm.complete(asked, request=request(number), role="rewrite")
            assert 0.95 < spending.tokens / 50_000 < 1.05

    with_server(lambda sent, number: Reply("word " * 1000), work)


def test_while_the_last_call_is_under_way_no_other_begins() -> None:
    async def work() -> None:
        spending = Spending(limit_tokens=1000)
        free = lambda tokens_in, tokens_out: 0.0  # noqa: E731
        for _ in range(9):
            async with spending.reserve("m", 100, 700, free) as room:
                room.settle(50, 50, 0.0)
        async with spending.reserve("m", 100, 700, free) as last:
            other = asyncio.ensure_future(spending.reserve("m", 100, 700, free).__aenter__())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not other.done()
            last.settle(100, 700, 0.0)  # more than ever before
        with pytest.raises(OutOfBudget, match="1700 of 1000 tokens are spent"):
            await other

    asyncio.run(work())


def test_calls_are_a_limit_and_a_failed_one_is_none() -> None:
    async def work(server: LlmServer) -> None:
        spending = Spending(limit_calls=4)
        llm = LLM(settings(server), spending=spending)

        async def one(number: int) -> Call | None:
            try:
                return await llm.complete(ASKED, request=request(number), role="rewrite")
            except OutOfBudget as error:
                assert str(error) == "4 of 4 calls of language models are made"
                return None

        made = [await one(0), *await asyncio.gather(*(one(n) for n in range(1, 12)))]
        heard = [call.status for call in made if call]
        assert heard.count(CallStatus.ANSWERED) == 4 == spending.calls
        assert heard.count(CallStatus.FAILED) == 2
        assert spending.reserved_calls == 0

    with_server(lambda sent, number: Reply(status=400, error="no") if number in (1, 3) else Reply("word"), work)


def test_a_call_whose_retry_no_longer_fits_is_kept_with_what_it_lost() -> None:
    async def work(server: LlmServer) -> None:
        calls = MemoryCalls()
        llm = LLM(settings(server), spending=Spending(limit_tokens=250), calls=calls)
        with pytest.raises(OutOfBudget):
            await llm.complete(ASKED, request=request(), role="rewrite")
        (call,) = calls.calls
        assert call.status is CallStatus.FAILED
        assert call.lost_tokens == llm.spending.lost_tokens > 100

    with_server(lambda sent, number: Reply(drop=True), work)


def test_a_cancelled_call_is_lost_and_not_forgotten() -> None:
    async def work(server: LlmServer) -> None:
        llm = LLM(settings(server))
        task = asyncio.ensure_future(llm.complete(ASKED, request=request(), role="rewrite"))
        while not server.requests:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert llm.spending.reserved_tokens == 0 and llm.spending.lost_tokens > 100

    with_server(lambda sent, number: Reply(delay_s=5), work)


def test_a_call_that_is_cancelled_between_two_attempts_is_kept_with_what_it_lost() -> None:
    async def work(server: LlmServer) -> None:
        calls = MemoryCalls()
        llm = LLM(settings(server, backoff_s=60.0), calls=calls)
        task = asyncio.ensure_future(llm.complete(ASKED, request=request(), role="rewrite"))
        while not llm.spending.lost_tokens:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (call,) = calls.calls
        assert (call.status, call.attempts) == (CallStatus.FAILED, 1)
        assert call.lost_tokens == llm.spending.lost_tokens

    with_server(lambda sent, number: Reply(drop=True), work)


def test_a_model_without_a_price_is_said_once() -> None:
    async def work(server: LlmServer) -> None:
        said: list[str] = []
        llm = LLM(settings(server, prices={}), say=said.append)
        for number in range(3):
            assert (await llm.complete(ASKED, request=request(number), role="rewrite")).cost_usd == 0
        assert len(said) == 1 and MODEL in said[0] and "counts as 0" in said[0]

    with_server(lambda sent, number: Reply("ok"), work)


def test_a_known_model_has_litellms_price() -> None:
    async def work(server: LlmServer) -> None:
        said: list[str] = []
        llm = LLM(settings(server, models=("openai/gpt-4o",), prices={}), say=said.append)
        call = await llm.complete(ASKED, request=request(), role="rewrite")
        assert call.cost_usd == pytest.approx(5 * 2.5e-6 + 2 * 10e-6)
        assert said == []

    with_server(lambda sent, number: Reply("two words"), work)


# --- everything at once ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_hundred_requests_through_every_fault_are_accounted_for_to_the_token() -> None:
    """Server and client count apart from each other; nothing is lost, doubled or unexplained."""
    faults = [
        Reply(status=429, headers={"retry-after": "0.02"}), Reply(status=500), Reply(status=503), Reply(drop=True),
        Reply("w " * 500, cut=True), Reply(body=b"<html>"), Reply("late", delay_s=600), Reply("half", finish="length"),
        Reply("", finish="content_filter"), Reply(status=400, error="too long: context_length_exceeded"),
    ]  # fmt: skip
    dice = Random(5)
    said: list[tuple[Mapping[str, Any], Reply]] = []

    def script(sent: Mapping[str, Any], number: int) -> Reply:
        reply = dice.choice(faults) if dice.random() < 0.5 else Reply("word " * dice.randint(1, 80))
        said.append((sent, reply))
        return reply

    async def work(server: LlmServer) -> None:
        await asyncio.to_thread(litellm_module)
        calls = MemoryCalls()
        # Long enough for an answer on a busy machine: one that comes too late for us was still sent whole.
        llm = LLM(settings(server, attempts=10, concurrency=24, timeout_s=10.0), calls=calls)
        questions: list[tuple[Message, ...]] = [({"role": "user", "content": f"q{n} " * (n + 1)},) for n in range(100)]
        made = await asyncio.gather(
            *(llm.complete(asked, request=request(n), role="rewrite") for n, asked in enumerate(questions))
        )
        spending = llm.spending
        assert len(made) == len(calls.calls) == 100
        assert {call.request_id for call in made} == {request(n).id for n in range(100)}
        assert spending.attempts == sum(call.attempts for call in made) == len(server.requests)
        # To the token: what the server sent whole is what `Spending` and the calls hold.
        assert server.tokens_in == spending.tokens_in == sum(call.tokens_in for call in made)
        assert server.tokens_out == spending.tokens_out == sum(call.tokens_out for call in made)
        assert spending.cost_usd == pytest.approx((server.tokens_in * 2 + server.tokens_out * 10) / 1e6)
        assert sum(call.cost_usd for call in made) == pytest.approx(spending.cost_usd)
        assert spending.lost_tokens == sum(call.lost_tokens for call in made) > 0
        assert spending.reserved_tokens == 0 and spending.reserved_usd == 0
        # Each kind of end as often as the script made it.
        ends = Counter(call.status for call in made)
        told = Counter(reply.finish for _, reply in said if reply.status == 200 and _arrives(reply))
        too_long = sum(reply.status == 400 for _, reply in said)
        assert ends == {
            CallStatus.ANSWERED: told["stop"], CallStatus.CUT: told["length"],
            CallStatus.REFUSED: told["content_filter"], CallStatus.FAILED: too_long,
        }  # fmt: skip
        assert min(ends.values()) > 0
        # A second time around, every answer is at hand and only the failed ones are asked again.
        before = len(server.requests)
        again = await asyncio.gather(
            *(
                llm.complete(asked, request=request(n), role="rewrite")
                for n, asked in enumerate(questions)
                if made[n].status is not CallStatus.FAILED
            )
        )
        assert len(server.requests) == before
        assert again == [call for call in made if call.status is not CallStatus.FAILED]

    with_server(script, work)


def _arrives(reply: Reply) -> bool:
    return not (reply.cut or reply.drop or reply.body or reply.delay_s)


# --- errors and settings -----------------------------------------------------------------------------------------


def test_every_exception_of_litellm_has_a_meaning() -> None:
    kinds = {}
    for kind in litellm_module().exceptions.LITELLM_EXCEPTION_TYPES:
        wanted = inspect.signature(kind.__init__).parameters
        given: dict[str, Any] = {"message": "m", "model": "x", "llm_provider": "p", "status_code": 500}
        given |= {
            "body": None,
            "request_data": {},
            "raw_response": "",
            "schema": "",
            "response": httpx.Response(403, request=_REQUEST),
            "request": _REQUEST,
        }
        required = [n for n, p in wanted.items() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
        arguments = {name: given[name] for name in required if name != "self"}
        kinds[kind.__name__] = translate(kind(**arguments)).kind
    assert len(kinds) >= 15
    transient = {name for name, kind in kinds.items() if kind == "transient"}
    assert transient >= {
        "Timeout", "RateLimitError", "InternalServerError", "ServiceUnavailableError", "APIConnectionError",
        "BadGatewayError",
    }  # fmt: skip
    setup = {name for name, kind in kinds.items() if kind == "setup"}
    assert setup >= {"AuthenticationError", "NotFoundError", "PermissionDeniedError"}
    assert kinds["ContextWindowExceededError"] == kinds["BadRequestError"] == "call"
    assert kinds["ContentPolicyViolationError"] == "refused"


def test_no_key_of_the_environment_reaches_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_API_KEY", "acme-1234-5678")
    text = translate(RuntimeError(f"header acme-1234-5678\nand Bearer abcdefgh, sk-live-99887766 {SECRET}")).text
    assert text == "header *** and Bearer ***, sk-*** ***"


@pytest.mark.parametrize(
    "wrong",
    [
        {"models": ()}, {"models": ("",)}, {"concurrency": 0}, {"timeout_s": 0}, {"max_tokens": 0}, {"api_key": "x"},
        {"api_base": "localhost:8000"}, {"api_base": "http://me:secret@host/v1"}, {"api_base": "http://host/v1?key=1"},
        {"prices": {"m": {"input": -1, "output": 1}}}, {"temperature": 3},
    ],
)  # fmt: skip
def test_bad_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        LlmSettings(**({"models": ("m",)} | wrong))


def test_a_server_of_ones_own_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")

    async def work(server: LlmServer) -> None:
        assert (await LLM(settings(server)).complete(ASKED, request=request(), role="rewrite")).answer == "ok"
        assert "authorization: bearer none" in server.headers[0].lower()

    with_server(lambda sent, number: Reply("ok"), work)


# --- models that are gone, answers that are too long, usage that cannot be -----------------------------------------


GONE = [
    Reply(status=401, error="Incorrect API key"), Reply(status=402, error="pay first"), Reply(status=403),
    Reply(status=404), Reply(status=429, error="insufficient_quota"), Reply(status=500), Reply(drop=True),
]  # fmt: skip


@pytest.mark.parametrize("fault", GONE, ids=["401", "402", "403", "404", "quota", "500", "dropped"])
def test_a_model_that_is_gone_is_put_aside_and_tried_with_one_call_at_a_time(fault: Reply) -> None:
    gone = True

    def script(sent: Mapping[str, Any], number: int) -> Reply:
        return fault if gone and sent["model"] == "scripted" else Reply("here")

    async def work(server: LlmServer) -> None:
        nonlocal gone
        said: list[str] = []
        made = settings(server, models=(MODEL, "openai/other"), attempts=2, pause_s=0.02)
        llm = LLM(made, calls=calls, say=said.append)
        first = await llm.complete(ASKED, request=request(), role="rewrite", model=MODEL)
        assert first.status is CallStatus.UNAVAILABLE and first.error
        assert len(said) == 1 and MODEL in said[0] and "tried again" in said[0]
        before = len(server.requests)
        waiting = [
            asyncio.ensure_future(llm.complete(ASKED, request=request(n), role="rewrite", model=MODEL))
            for n in range(1, 6)
        ]
        for _ in range(3):  # every trial ends one call, and says nothing of the others
            await asyncio.wait([task for task in waiting if not task.done()], return_when=asyncio.FIRST_COMPLETED)
        ended = [task.result() for task in waiting if task.done()]
        assert {call.status for call in ended} == {CallStatus.UNAVAILABLE} and {c.attempts for c in ended} == {1}
        assert len(server.requests) - before <= len(ended) + 1
        other = await llm.complete(ASKED, request=request(9), role="rewrite", model="openai/other")
        assert other.status is CallStatus.ANSWERED
        gone = False
        left = await asyncio.gather(*(task for task in waiting if not task.done()))
        assert all(call.status is CallStatus.ANSWERED for call in left[1:])
        assert len(said) == 3 - (not left) and not llm.held()
        assert [kind for kind, _ in calls.notes] == ["model_out", "model_back"]

    calls = heard()
    with_server(script, lambda server: asyncio.wait_for(work(server), 600))


def test_who_waits_for_a_model_can_be_cancelled_and_leaves_the_trial_to_others() -> None:
    gone = True

    async def work(server: LlmServer) -> None:
        nonlocal gone
        llm = LLM(settings(server, pause_s=0.2), calls=calls, say=lambda text: None)
        await llm.complete(ASKED, request=request(), role="rewrite")
        waiting = [asyncio.ensure_future(llm.complete(ASKED, request=request(n), role="rewrite")) for n in (1, 2)]
        while llm.held() != set(waiting):
            await asyncio.sleep(0)
        gone = False
        waiting[0].cancel()
        assert (await waiting[1]).status is CallStatus.ANSWERED
        assert waiting[0].cancelled() and not llm.held()
        assert len(server.requests) == 2 and llm.spending.lost_tokens == 0

    calls = heard()
    with_server(lambda sent, number: Reply(status=401) if gone else Reply("ok"), work)


def test_one_failing_call_among_answers_puts_no_model_aside() -> None:
    async def work(server: LlmServer) -> None:
        llm = LLM(settings(server, attempts=2, backoff_s=0.05), calls=calls)
        unlucky = asyncio.ensure_future(llm.complete(ASKED, request=request(), role="rewrite"))
        while not server.requests:
            await asyncio.sleep(0)
        assert (await llm.complete(ASKED, request=request(1), role="rewrite")).status is CallStatus.ANSWERED
        assert (await unlucky).status is CallStatus.FAILED
        assert not calls.notes

    calls = heard()
    with_server(lambda sent, number: Reply("ok") if number == 1 else Reply(status=500), work)


def test_an_answer_of_ten_megabytes_is_cut_paid_and_said() -> None:
    async def work(server: LlmServer) -> None:
        llm = LLM(settings(server, max_tokens=100))
        call = await llm.complete(ASKED, request=request(), role="rewrite")
        assert call.status is CallStatus.CUT
        assert len(call.answer) == 1600 and call.answer == ("prose " * 300)[:1600]
        assert "10000000 characters" in call.error
        assert call.tokens_out == 100 and llm.spending.tokens == call.tokens_in + 100
        assert json.loads(call.usage_json)["completion_tokens"] == len(prose.split())

    prose = ("prose " * 1_700_000)[:10_000_000]
    with_server(lambda sent, number: Reply(prose), work)


def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    async def work(server: LlmServer) -> None:
        llm = LLM(settings(server), calls=calls)
        call = await llm.complete(ASKED, request=request(), role="rewrite")
        assert (call.status, call.attempts) == (CallStatus.FAILED, 1)
        assert "more than" in call.error
        assert llm.spending.lost_tokens == call.lost_tokens > 0
        assert (await llm.complete(ASKED, request=request(1), role="rewrite")).status is CallStatus.ANSWERED

    calls = heard()
    with_server(lambda sent, n: Reply(body=b"x" * (MOST_BODY + 1)) if n == 0 else Reply("ok"), work)


USAGES = [
    '{"prompt_tokens": -5, "completion_tokens": -70000, "total_tokens": -70005}', '{"prompt_tokens": 1e20}',
    '{"prompt_tokens": NaN, "completion_tokens": Infinity}', '{"prompt_tokens": "many", "completion_tokens": "3"}',
    '{"prompt_tokens": null, "completion_tokens": null}', "null", "{}", '"x"', "[1, 2]", "7", "-1e308",
    '{"prompt_tokens": true, "completion_tokens": false}', '{"prompt_tokens": 5.5, "completion_tokens": 3}',
    '{"prompt_tokens": {"a": 1}, "completion_tokens": [3]}', '{"prompt_tokens": 0, "completion_tokens": 2}',
    '{"prompt_tokens": 100000000000000000000000, "completion_tokens": 3}',
    '{"prompt_tokens": 5, "completion_tokens": -3, "completion_tokens_details": {"reasoning_tokens": "a"}}',
    '{"prompt_tokens": 5, "completion_tokens": 1e9, "prompt_tokens_details": "x", "cost": NaN}',
]  # fmt: skip


@pytest.mark.parametrize("usage", USAGES)
def test_usage_that_cannot_be_is_charged_by_bounds_and_recorded(usage: str) -> None:
    """The answer is kept whatever stands beside it, and usage below zero does not lower the bill."""

    async def work(server: LlmServer) -> None:
        llm = LLM(settings(server, models=("openai/gpt-4o",), prices={}))
        call = await llm.complete(ASKED, request=request(), role="rewrite")
        assert (call.status, call.answer, call.attempts) == (CallStatus.ANSWERED, "two words", 1)
        assert 5 <= call.tokens_in <= 2 * 30 and 2 <= call.tokens_out <= 100
        assert 0 < call.cost_usd < 0.01
        assert llm.spending.tokens == call.tokens_in + call.tokens_out and llm.spending.dollars == call.cost_usd
        assert call.usage_doubt
        if usage != "null":
            json.loads(call.usage_json, parse_constant=pytest.fail)

    with_server(lambda sent, number: Reply("two words", usage_json=usage), work)


@pytest.mark.slow
def test_no_provider_makes_a_budget_endless() -> None:
    async def work(server: LlmServer) -> None:
        llm = LLM(settings(server), spending=Spending(limit_tokens=5000))
        with pytest.raises(OutOfBudget):
            for number in range(10_000):
                await llm.complete(ASKED, request=request(number), role="rewrite")
        assert len(server.requests) < 200 and llm.spending.tokens < 5200

    with_server(lambda sent, n: Reply("two words", usage_json=USAGES[n % len(USAGES)]), work)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(COUNTS), inner),
    max_leaves=8,
)


@given(_JSON | st.dictionaries(st.sampled_from([*COUNTS, "total_tokens"]), _JSON), st.text(), st.integers(1, 10**6))
def test_whatever_is_said_counts_within_bounds(said: Any, text: str, most: int) -> None:
    usage = counted(said, text, most_in=most, most_out=most)
    assert 1 <= usage.tokens_in <= most and 0 <= usage.tokens_out <= most
    assert usage.tokens_out or not text
    json.loads(usage.said or "0", parse_constant=pytest.fail)
    if not usage.doubt:
        assert (usage.tokens_in, usage.tokens_out) == tuple(said[name] for name in COUNTS)
    assert plain(plain(said)) == plain(said) or said != said or usage.doubt


@pytest.mark.slow
def test_a_call_that_is_too_large_alone_fails_alone() -> None:
    async def work(server: LlmServer) -> None:
        llm = LLM(settings(server), spending=Spending(limit_tokens=2000))
        for number in range(3):
            assert (await llm.complete(ASKED, request=request(number), role="rewrite")).status is CallStatus.ANSWERED
        large = ({"role": "user", "content": "prose " * 30_000},)
        call = await llm.complete(large, request=request(3), role="rewrite")
        assert (call.status, call.attempts) == (CallStatus.FAILED, 0)
        assert "too large for the budget" in call.error and llm.spending.refusal == ""
        assert (await llm.complete(ASKED, request=request(4), role="rewrite")).status is CallStatus.ANSWERED
        with pytest.raises(OutOfBudget):  # and the budget ends all the same
            for number in range(5, 1000):
                await llm.complete(ASKED, request=request(number), role="rewrite")
        assert llm.spending.refusal and len(server.requests) < 100

    with_server(lambda sent, number: Reply("word " * 20), work)


def test_what_is_lost_is_shown_with_what_it_likely_cost() -> None:
    async def work(server: LlmServer) -> None:
        llm = LLM(settings(server, attempts=1), calls=calls)
        for number in range(4):
            await llm.complete(ASKED, request=request(number), role="rewrite")
        await llm.complete(ASKED, request=request(4), role="rewrite")
        spending = llm.spending
        assert spending.likely_lost_tokens == 5 + 20
        assert spending.lost_tokens > 100 == settings(server).max_tokens

    calls = heard()
    with_server(lambda sent, number: Reply("word " * 20) if number < 4 else Reply(drop=True), work)


def test_seeds_differ_by_question_and_are_the_same_for_the_same_one() -> None:
    async def work(server: LlmServer) -> None:
        for _ in range(2):
            llm = LLM(settings(server, seeds=True, temperature=0.0))
            for number in range(3):
                await llm.complete(ASKED, request=request(number), role="rewrite")
        await LLM(settings(server)).complete(ASKED, request=request(0), role="rewrite")
        sent = [each.get("seed") for each in server.requests]
        assert sent[:3] == sent[3:6] and len({*sent[:3]}) == 3 and sent[6] is None

    with_server(lambda sent, number: Reply("yes"), work)
