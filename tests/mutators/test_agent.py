"""The mutator `agent`: dialogues with tools, against scripted models with every fault that models have."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from evo.rows import CALL
from fitness.evaluation import Evaluation, Level, Status
from mutators.asking.agent import CALL_TOOLS, HANDED_IN, NOT_KEPT, STAGNATING
from mutators.base import CANNOT_CALL_TOOLS, Call, CallStatus, Earlier, Message, Proposal, ToolCall, cannot_call_tools
from mutators.bench import Result, Tool
from mutators.llm.calls import MemoryCalls
from mutators.llm.client import LLM
from mutators.llm.tools import MOST_THOUGHTS
from mutators.registry import asks_model, needs_bench, propose
from mutators.testing import ScriptedLLM
from operators.kernel import Kernel
from tests.mutators import prompt_cases as cases
from tests.mutators.llm_server import LlmServer, Reply
from tests.mutators.test_llm import settings
from tests.mutators.test_rewrite import GOOD

REQUEST, PARENTS, OPERATOR = cases.case("rewrite", "cpu")
REQUEST = replace(REQUEST, mutator="agent", role="")
TOOLS = tuple(Tool(name, f"does {name}", {"type": "object"}) for name in ("build", "check", "judge", "submit"))


class Desk:
    """A bench whose drafts are numbered, and as fast as `speeds` say."""

    tools = TOOLS

    def __init__(self, *speeds: float) -> None:
        self.speeds = list(speeds)
        self.used: list[tuple[str, Any]] = []

    def kernel(self, number: int) -> Kernel:
        return Kernel("axpb", "cpu", f"{PARENTS[0].kernel.source}// {number}\n")

    async def use(self, tool: str, arguments: str | Mapping[str, Any]) -> Result:
        self.used.append((tool, arguments))
        try:
            given = json.loads(arguments) if isinstance(arguments, str) else dict(arguments)
        except ValueError:
            return Result("the arguments are not valid JSON", failed=True)
        if tool not in {each.name for each in TOOLS}:
            return Result(f"unknown tool {tool}", failed=True)
        kernel = self.kernel(given.get("number", 0))
        about = Result(f"{tool} is done", kernel=kernel, bases=("a base",), seconds=0.5)
        if tool == "judge":
            speed = self.speeds.pop(0)
            found = Evaluation(
                kernel.id, "axpb/fp32/cpu", Level.SCREEN, Status.CORRECT, log_speedup=speed, log_speedup_se=0.01,
                log_ratio=speed,
            )  # fmt: skip
            return replace(about, evaluation=found, evaluations=1)
        return replace(about, change=given.get("change", "")) if tool == "submit" else about

    async def check(self, kernel: Kernel) -> Result:
        self.used.append(("check", kernel.id))
        return Result("right", kernel=kernel, bases=("a base",))


def calls(*wishes: tuple[str, Any]) -> tuple[ToolCall, ...]:
    texts = ((name, given if isinstance(given, str) else json.dumps(given)) for name, given in wishes)
    return tuple(ToolCall(f"id{place}", *text) for place, text in enumerate(texts))


BUILD, CHECK, JUDGE = (calls((name, {"number": 1})) for name in ("build", "check", "judge"))
SUBMIT = calls(("submit", {"number": 1, "change": "one comment"}))


def ask(
    *answers: str | tuple[ToolCall, ...], desk: Desk | None = None, earlier: tuple[Earlier, ...] = (), **params: Any
) -> tuple[Proposal, ScriptedLLM, Desk]:
    desk = desk or Desk()
    llm = ScriptedLLM(lambda _, number: answers[min(number, len(answers) - 1)])
    request = replace(REQUEST, params=params, thread=earlier[0].request.id if earlier else "")
    made = propose(request, PARENTS, OPERATOR, client=llm, bench=desk, earlier=earlier)
    return asyncio.run(made), llm, desk


# --- a dialogue -------------------------------------------------------------------------------------------------------


def test_a_dialogue_ends_with_the_kernel_that_is_handed_in() -> None:
    proposal, llm, desk = ask(BUILD, CHECK + calls(("judge", {"number": 1})), SUBMIT, desk=Desk(0.5))
    assert proposal.kernel == desk.kernel(1) and proposal.description == "one comment"
    assert proposal.bases == ("a base",) and proposal.evaluator_s == 2.0 and len(proposal.calls) == 3
    assert [tool for tool, _ in desk.used] == ["build", "check", "judge", "submit"]
    last = llm.calls[-1].messages
    assert [m["role"] for m in last] == ["system", "user", "assistant", "tool", "assistant", "tool", "tool"]
    assert "How you work" in last[0]["content"] and "SEARCH" not in last[0]["content"].partition("How you work")[2]
    assert last[3]["tool_call_id"] == last[2]["tool_calls"][0]["id"] and "15 answers left" in last[3]["content"]
    assert "13" not in last[5]["content"] and "2 judgements" in last[6]["content"]  # said once, with the last result


def test_what_a_model_asks_for_after_it_handed_in_is_not_done() -> None:
    _, _, desk = ask(SUBMIT + BUILD)
    assert [tool for tool, _ in desk.used] == ["submit"]


def test_the_same_dialogue_is_not_paid_twice() -> None:
    desk, answers = Desk(), (BUILD, SUBMIT)
    llm = ScriptedLLM(lambda _, number: answers[number])
    first, second = (
        asyncio.run(propose(REQUEST, PARENTS, OPERATOR, client=llm, bench=desk)) for _ in range(2)
    )  # fmt: skip
    assert first.kernel == second.kernel and len(llm.calls) == 2


def test_a_dialogue_goes_on_with_what_became_of_its_kernel() -> None:
    before, llm, _ = ask(BUILD, BUILD + SUBMIT)
    verdict = Evaluation("k", "axpb/fp32/cpu", Level.SCREEN, Status.WRONG, "element 3 is wrong")
    said = (*llm.calls[-1].messages, llm.calls[-1].message)
    told = Earlier(replace(REQUEST, number=3), before.kernel, verdict, messages=said)
    after, second, _ = ask(BUILD, SUBMIT, earlier=(told,), stagnant=1)
    messages = second.calls[0].messages
    assert messages[: len(said)] == said and after.kernel
    assert [m["content"] for m in messages[len(said) : -1]] == [NOT_KEPT, HANDED_IN]
    assert "element 3 is wrong" in messages[-1]["content"] and "Step back" in messages[-1]["content"]


# --- limits -----------------------------------------------------------------------------------------------------------


def test_endless_calls_end_at_the_limit_and_hand_in_the_best_draft() -> None:
    judging = [calls(("judge", {"number": n})) for n in (1, 2, 3)]
    proposal, llm, desk = ask(*judging, BUILD, desk=Desk(0.2, 0.9, 0.4), calls=6)
    assert len(llm.calls) == 6 and proposal.kernel == desk.kernel(2)
    assert proposal.description == "a draft of a dialogue that was not ended: it reached its 6 answers"
    assert "your next answer is the last one" in llm.calls[-1].messages[-1]["content"]


def test_a_draft_that_only_passed_its_check_is_better_than_nothing() -> None:
    assert ask(CHECK, BUILD, calls=3)[0].kernel
    nothing = ask(BUILD, calls=3)[0]
    assert nothing.kernel is None and nothing.failure == "nothing was handed in: it reached its 3 answers"


def test_tokens_are_a_limit_and_dollars() -> None:
    by_tokens, llm, _ = ask(BUILD, tokens=1)
    assert len(llm.calls) == 1 and "of 1 tokens" in by_tokens.failure
    dear = ScriptedLLM(lambda *_: BUILD)
    complete = dear.complete

    async def paid(*arguments: Any, **options: Any) -> Call:
        return replace(await complete(*arguments, **options), cost_usd=0.4)

    dear.complete = paid  # type: ignore[method-assign]
    request = replace(REQUEST, params={"usd": 1.0})
    proposal = asyncio.run(propose(request, PARENTS, OPERATOR, client=dear, bench=Desk()))
    assert len(proposal.calls) == 3 and "1.2 of 1 dollars" in proposal.failure


def test_who_stagnates_is_told_to_step_back() -> None:
    _, llm, _ = ask(*[JUDGE] * 4, SUBMIT, desk=Desk(-0.1, -0.2, -0.3, 0.5))
    said = [m["content"] for m in llm.calls[-1].messages if m["role"] == "tool"]
    assert ["Step back" in text for text in said] == [False, False, True, False] and STAGNATING == 3


# --- faults -----------------------------------------------------------------------------------------------------------


def test_wrong_arguments_and_unknown_tools_are_told_and_survived() -> None:
    odd = calls(("build", "{"), ("compile", {}), ("build", "[1]"))[:2]
    proposal, llm, _ = ask(odd, SUBMIT)
    assert proposal.kernel
    echoed, *results = llm.calls[1].messages[2:]
    assert [call["function"]["arguments"] for call in echoed["tool_calls"]] == ["{}", "{}"]  # providers parse them
    assert "not valid JSON" in results[0]["content"] and "unknown tool compile" in results[1]["content"]


def test_words_without_a_tool_are_answered_once_and_then_end_the_dialogue() -> None:
    proposal, llm, _ = ask("I would rather talk.", "Really.")
    assert len(llm.calls) == 2 and cannot_call_tools(proposal.failure)
    assert llm.calls[1].messages[-1] == {"role": "user", "content": CALL_TOOLS}
    assert ask("I would rather talk.", SUBMIT)[0].kernel
    assert not cannot_call_tools(ask(BUILD, calls=2)[0].failure)


def test_a_kernel_in_words_is_handed_in_after_a_look() -> None:
    proposal, _, desk = ask(GOOD)
    assert proposal.kernel and "phase < 32" in proposal.kernel.source and proposal.description == "32 phases"
    assert desk.used == [("check", proposal.kernel.id)]


@pytest.mark.parametrize("status", [CallStatus.FAILED, CallStatus.REFUSED, CallStatus.UNAVAILABLE])
def test_where_the_provider_fails_in_the_middle_the_best_draft_is_handed_in(status: CallStatus) -> None:
    llm = ScriptedLLM(lambda _, number: CHECK if number == 0 else BUILD)
    complete = llm.complete

    async def failing(*arguments: Any, **options: Any) -> Call:
        call = await complete(*arguments, **options)
        return call if len(llm.calls) < 2 else replace(call, status=status, tool_calls=(), error="overloaded")

    llm.complete = failing  # type: ignore[method-assign]
    desk = Desk()
    proposal = asyncio.run(propose(REQUEST, PARENTS, OPERATOR, client=llm, bench=desk))
    assert proposal.kernel == desk.kernel(1) and "overloaded" in proposal.description


def test_a_cut_answer_is_asked_for_again_and_its_calls_are_not_done() -> None:
    class Cut(ScriptedLLM):
        async def complete(self, *arguments: Any, **options: Any) -> Call:
            call = await super().complete(*arguments, **options)
            return replace(call, status=CallStatus.CUT) if len(self.calls) <= 2 else call

    llm, desk = Cut(lambda _, number: BUILD if number < 2 else SUBMIT), Desk()
    proposal = asyncio.run(propose(REQUEST, PARENTS, OPERATOR, client=llm, bench=desk))
    assert proposal.kernel and [tool for tool, _ in desk.used] == ["submit"]
    assert [call.sample for call in llm.calls] == [0, 1, 0]
    assert "cut off" in llm.calls[2].messages[-1]["content"]


def test_without_parent_or_bench_nothing_is_asked() -> None:
    llm = ScriptedLLM(lambda *_: SUBMIT)
    assert "parent" in asyncio.run(propose(REQUEST, (), OPERATOR, client=llm, bench=Desk())).failure
    assert "workbench" in asyncio.run(propose(REQUEST, PARENTS, OPERATOR, client=llm)).failure
    assert llm.calls == [] and needs_bench("agent") and asks_model(REQUEST)


# --- through a server -------------------------------------------------------------------------------------------------


def served(*replies: Reply, **changes: Any) -> tuple[Proposal, LLM, LlmServer]:
    async def work() -> tuple[Proposal, LLM, LlmServer]:
        async with LlmServer(lambda _, number: replies[min(number, len(replies) - 1)]) as server:
            llm = LLM(settings(server, **changes), calls=MemoryCalls())
            return await propose(REQUEST, PARENTS, OPERATOR, client=llm, bench=Desk()), llm, server

    return asyncio.run(work())


SUBMITS = Reply(None, tools=(("submit", {"number": 1, "change": "one"}),), finish="tool_calls")


def test_tools_reach_the_provider_and_the_ledger_is_the_servers() -> None:
    first = Reply("I look.", tools=(("build", {"number": 1}), ("check", {"number": 1})), finish="tool_calls")
    proposal, llm, server = served(Reply(status=503), first, Reply(drop=True), SUBMITS)
    assert proposal.kernel and [call.attempts for call in proposal.calls] == [2, 2]
    sent = server.requests[-1]
    assert [tool["function"]["name"] for tool in sent["tools"]] == [tool.name for tool in TOOLS]
    assert [m["role"] for m in sent["messages"]] == ["system", "user", "assistant", "tool", "tool"]
    assert [m.get("tool_call_id") for m in sent["messages"][3:]] == ["call-1-0", "call-1-1"]
    assert sum(c.tokens_in + c.tokens_out for c in proposal.calls) == server.tokens_in + server.tokens_out
    assert llm.spending.tokens - llm.spending.lost_tokens == server.tokens_in + server.tokens_out


def thinking(**thoughts: Any) -> Reply:
    function = {"name": "build", "arguments": json.dumps({"number": 1})}
    called = [{"id": "call-1", "type": "function", "function": function}]
    message = {"role": "assistant", "content": None, "tool_calls": called, **thoughts}
    return Reply(None, message=message, finish="tool_calls")


SIGNED = [
    {"type": "thinking", "thinking": "tiles, then", "signature": "c2ln"},
    {"type": "redacted_thinking", "data": "x"},
]


@pytest.mark.parametrize(
    ("thoughts", "kept"),
    [
        ({"reasoning_content": "it waits for memory"}, {"reasoning_content": "it waits for memory"}),
        ({"reasoning": "it waits for memory"}, {"reasoning_content": "it waits for memory"}),
        ({"thinking_blocks": SIGNED, "reasoning_content": "tiles, then"}, {"thinking_blocks": SIGNED}),
        ({"reasoning_content": ""}, {}),
        ({"reasoning_content": 3}, {}),
        ({"thinking_blocks": "no list"}, {}),
        ({"thinking_blocks": [None, {"type": 3}], "reasoning_content": "tiles"}, {"reasoning_content": "tiles"}),
        ({"reasoning_content": "x" * (MOST_THOUGHTS + 1)}, {}),
    ],
)
def test_a_model_goes_on_from_what_it_thought(thoughts: dict[str, Any], kept: dict[str, Any]) -> None:
    proposal, _, server = served(thinking(**thoughts), SUBMITS)
    assert proposal.kernel
    first, last = proposal.calls
    sent = last.messages[2]
    assert {name: sent[name] for name in sent if name not in ("role", "content", "tool_calls")} == kept
    assert first.thoughts == kept and CALL.item(CALL.row(first)) == first  # also after the process that paid for it
    over_the_wire = server.requests[-1]["messages"][2]
    assert over_the_wire.get("reasoning_content") == kept.get("reasoning_content")


def test_thoughts_behind_a_last_word_are_not_kept() -> None:
    proposal, _, _ = served(Reply(None, message={"role": "assistant", "content": "no", "reasoning_content": "hm"}))
    assert all(not call.thoughts and set(call.message) == {"role", "content"} for call in proposal.calls)


ODD_CALLS: list[Any] = [
    "submit", {}, [None], [1, "x"], [{"function": None}], [{"function": {"name": 3, "arguments": "{}"}}], [{}],
    [{"id": "a", "type": "function", "function": {"arguments": "{}"}}],
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD_CALLS, ids=repr)
def test_calls_that_are_none_are_no_calls(odd: Any) -> None:
    message = {"role": "assistant", "content": "Well.", "tool_calls": odd}
    proposal, _, server = served(Reply(message=message), SUBMITS)
    assert proposal.kernel and len(proposal.calls) == 2 and proposal.calls[0].tool_calls == ()
    assert server.requests[1]["messages"][-1]["content"] == CALL_TOOLS


def test_calls_are_put_right_that_lack_ids_or_have_the_same_and_objects_for_arguments() -> None:
    def wish(own: Any, arguments: Any) -> dict[str, Any]:
        return {"id": own, "type": "function", "function": {"name": "build", "arguments": arguments}}

    odd = [wish("same", '{"number": 1}'), wish("same", '{"number": 2}'), wish(None, {"number": 3}), wish(7, None)]
    proposal, _, server = served(Reply(message={"role": "assistant", "content": None, "tool_calls": odd}), SUBMITS)
    made = proposal.calls[0].tool_calls
    assert len({call.id for call in made}) == 4 and [call.arguments for call in made][:3] == [
        '{"number": 1}', '{"number": 2}', '{"number": 3}',
    ]  # fmt: skip
    assert [m["tool_call_id"] for m in server.requests[1]["messages"][3:]] == [call.id for call in made]


def test_arguments_without_end_are_cut() -> None:
    endless = {"role": "assistant", "content": None, "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "build", "arguments": json.dumps({"x": "y" * 3_000_000})}}
    ]}  # fmt: skip
    proposal, _, _ = served(Reply(message=endless), Reply(message=endless), SUBMITS)
    assert proposal.kernel and proposal.calls[0].status is CallStatus.CUT
    assert all(len(call.tool_calls[0].arguments) < 1_000_000 for call in proposal.calls[:1])


def test_a_model_that_cannot_call_tools_is_not_asked() -> None:
    proposal, llm, server = served(SUBMITS, tools={"openai/scripted": False})
    assert server.requests == [] and proposal.calls[0].error == CANNOT_CALL_TOOLS
    assert proposal.kernel is None and cannot_call_tools(proposal.failure) and llm.spending.tokens == 0


def test_messages_of_a_conversation_survive_json() -> None:
    _, llm, _ = ask(BUILD, SUBMIT)
    messages: tuple[Message, ...] = llm.calls[-1].messages
    assert json.loads(json.dumps(messages)) == [dict(message) for message in messages]
