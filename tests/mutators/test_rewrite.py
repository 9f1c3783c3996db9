"""The mutator `rewrite`, and the conversation that it shares with the other mutators that ask a model."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mutators.asking.mutators import Rewrite
from mutators.base import Call, CallStatus, OutOfBudget, Parent, Proposal, Request
from mutators.llm.client import LLM
from mutators.registry import mutator, propose
from mutators.testing import ScriptedLLM
from operators.definition.spec import Operator
from operators.errors import UserError
from operators.kernel import Kernel
from operators.plan.reading import parse_plan
from tests.mutators import prompt_cases as cases
from tests.mutators.llm_server import LlmServer, Reply
from tests.mutators.test_llm import settings

GOOD = """CHANGE: 32 phases

<<<<<<< SEARCH
    for (int phase = 0; phase < 64; phase++)
=======
    for (int phase = 0; phase < 32; phase++)
>>>>>>> REPLACE
"""
LOST = GOOD.replace("phase = 0; phase < 64", "face = 0; face < 64")
BROKEN = GOOD.replace("    for (int phase = 0; phase < 64; phase++)", "[[launch]]", 1)


def ask(*answers: str, **changes: Any) -> tuple[Proposal, ScriptedLLM]:
    request, parents, operator = cases.case("rewrite", "cpu")
    llm = ScriptedLLM(lambda messages, number: answers[number])
    return asyncio.run(Rewrite().propose(replace(request, **changes), parents, operator, llm)), llm


def test_an_answer_becomes_a_child() -> None:
    proposal, llm = ask(GOOD)
    _, (parent,), operator = cases.case("rewrite", "cpu")
    assert proposal.kernel
    assert proposal.kernel.source == parent.kernel.source.replace("phase < 64", "phase < 32")
    assert dict(proposal.kernel.values) == {"BLOCK": 128}
    assert (proposal.description, proposal.failure, proposal.model) == ("32 phases", "", "scripted")
    assert proposal.calls == tuple(llm.calls) and len(llm.calls) == 1
    assert [m["role"] for m in llm.calls[0].messages] == ["system", "user"]
    assert llm.calls[0].request_id == "axpb/fp32/cpu#7" and llm.calls[0].role == "rewrite"
    parse_plan(proposal.kernel.source, operator, "cpu")


def test_the_model_is_the_requests() -> None:
    proposal, _ = ask(GOOD, model="openai/other")
    assert proposal.model == "openai/other"


@pytest.mark.parametrize("bad", [LOST, BROKEN, "I cannot.", ""], ids=["lost", "broken plan", "prose", "empty"])
def test_an_answer_without_a_child_is_asked_for_once_more_with_the_reason(bad: str) -> None:
    proposal, llm = ask(bad, GOOD)
    assert proposal.kernel and proposal.description == "32 phases"
    assert len(proposal.calls) == 2
    first, second = llm.calls
    assert second.messages[:2] == first.messages
    assert second.messages[2] == {"role": "assistant", "content": bad}
    assert re.match("Your answer could not be used:\n\n````?untrusted\n", second.messages[3]["content"])


def test_after_two_answers_without_a_child_there_is_none() -> None:
    proposal, _ = ask("I cannot.", LOST)
    assert proposal.kernel is None and len(proposal.calls) == 2
    assert proposal.failure.startswith("edit 1: what it searches for does not stand in the file")


def test_a_plan_that_is_broken_twice_is_left_to_the_evaluator() -> None:
    proposal, _ = ask(BROKEN, BROKEN)
    assert proposal.kernel and "[[launch]]\n=" not in proposal.kernel.source
    assert dict(proposal.kernel.values) == {}
    assert proposal.failure == ""


def test_values_that_the_child_does_not_declare_are_dropped() -> None:
    proposal, _ = ask("<<<<<<< SEARCH\nBLOCK = [256, 128]\n=======\nBLOCK = [64, 32]\n>>>>>>> REPLACE")
    assert proposal.kernel and dict(proposal.kernel.values) == {}


def test_a_first_value_that_the_answer_changes_counts_and_not_the_parents_setting() -> None:
    proposal, _ = ask("<<<<<<< SEARCH\nBLOCK = [256, 128]\n=======\nBLOCK = [512, 256, 128]\n>>>>>>> REPLACE")
    assert proposal.kernel and dict(proposal.kernel.values) == {}
    proposal, _ = ask("<<<<<<< SEARCH\nBLOCK = [256, 128]\n=======\nBLOCK = [256, 512, 128]\n>>>>>>> REPLACE")
    assert proposal.kernel and dict(proposal.kernel.values) == {"BLOCK": 128}


class Failing:
    """A client whose call ends in a given way."""

    def __init__(self, end: Callable[[Call], Call]) -> None:
        self.end = end
        self.count = 0

    async def complete(self, messages: Any, *, request: Request, role: str, model: str = "", sample: int = 0) -> Call:
        self.count += 1
        return self.end(Call(request.id, role, "m", tuple(messages), sample, "key", CallStatus.FAILED))


@pytest.mark.parametrize(
    ("status", "answer", "failure", "calls"),
    [
        (CallStatus.FAILED, "", "m gave no answer: overloaded", 1),
        (CallStatus.REFUSED, "", "m gave no answer: overloaded", 1),
        (CallStatus.CUT, GOOD, "it was cut off at the limit of its length", 2),
    ],
)
def test_calls_without_a_whole_answer(status: CallStatus, answer: str, failure: str, calls: int) -> None:
    request, parents, operator = cases.case("rewrite", "cpu")
    client = Failing(lambda call: replace(call, status=status, answer=answer, error="" if answer else "overloaded"))
    proposal = asyncio.run(Rewrite().propose(request, parents, operator, client))
    assert proposal.kernel is None and proposal.failure.startswith(failure)
    assert len(proposal.calls) == calls
    assert client.count == calls * (2 if status is CallStatus.CUT else 1)  # asked with more room, it said the same


def test_without_budget_the_request_stays_open() -> None:
    def refuse(call: Call) -> Call:
        raise OutOfBudget("10 of 10 tokens are spent")

    request, parents, operator = cases.case("rewrite", "cpu")
    with pytest.raises(OutOfBudget, match="10 of 10 tokens are spent"):
        asyncio.run(Rewrite().propose(request, parents, operator, Failing(refuse)))


def test_without_a_parent_nothing_is_asked() -> None:
    request, _, operator = cases.case("rewrite", "cpu")
    llm = ScriptedLLM(lambda messages, number: GOOD)
    assert asyncio.run(Rewrite().propose(request, (), operator, llm)).failure == "rewrite needs a parent"
    assert llm.calls == []


def test_the_same_request_gives_the_same_child_and_is_not_paid_twice() -> None:
    request, parents, operator = cases.case("rewrite", "cpu")
    llm = ScriptedLLM(lambda messages, number: GOOD.replace("32", str(31 - number)))
    first, second = (asyncio.run(Rewrite().propose(request, parents, operator, llm)) for _ in range(2))
    assert first.kernel == second.kernel and len(llm.calls) == 1


def test_the_whole_way_through_a_server() -> None:
    async def work() -> None:
        request, parents, operator = cases.case("rewrite", "cpu")
        replies = [Reply(status=503), Reply(LOST), Reply(drop=True), Reply(GOOD)]
        async with LlmServer(lambda sent, number: replies[number]) as server:
            llm = LLM(settings(server))
            proposal = await propose(request, parents, operator, client=llm)
            assert proposal.kernel and proposal.description == "32 phases"
            assert [call.attempts for call in proposal.calls] == [2, 2]
            assert proposal.cost_usd == pytest.approx(llm.spending.cost_usd)
            assert sum(c.tokens_in + c.tokens_out for c in proposal.calls) == server.tokens_in + server.tokens_out

    asyncio.run(work())


# --- the way from a request to its mutator -----------------------------------------------------------------------


def test_plain_mutators_need_no_model() -> None:
    request, _, operator = cases.case("rewrite", "cpu")
    kernel = Kernel(operator.name, "cpu", operator.ancestor("naive", "cpu").read_text(encoding="utf-8"))
    request = replace(request, mutator="transform", params={})
    proposal = asyncio.run(propose(request, (Parent(kernel),), operator))
    assert proposal.kernel and proposal.calls == () and proposal.model is None and proposal.cost_usd == 0


def test_a_mutator_without_its_model_is_the_users_error() -> None:
    request, parents, operator = cases.case("rewrite", "cpu")
    with pytest.raises(UserError, match="the mutator rewrite asks a language model; name one"):
        asyncio.run(propose(request, parents, operator))


@pytest.mark.parametrize("name", ["rewrite", "crossover", "repair"])
def test_they_apply_to_every_kernel_of_their_operator(name: str, axpb: Operator) -> None:
    assert mutator(name).name == name
    assert mutator(name).applies(Kernel("axpb", "cpu", ""), axpb)
    assert not mutator(name).applies(Kernel("softmax", "cpu", ""), axpb)
