"""Drafts that are looked at before one of them is the child: the conversation, with a bench that is scripted."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from mutators.asking.dialogue import TRIES_WITH_CHECKS
from mutators.base import CallStatus, Proposal
from mutators.bench import Result, Tool
from mutators.registry import needs_bench, propose, uses_bench
from mutators.testing import ScriptedLLM
from operators.kernel import Kernel
from tests.mutators import prompt_cases as cases
from tests.mutators.test_rewrite import BROKEN, GOOD, LOST

FAULT = "Draft 12345 fails on a few small shapes: wrong.\n```untrusted\n`y` is wrong\n```"
MEND = """CHANGE:

<<<<<<< SEARCH
    for (int phase = 0; phase < 32; phase++)
=======
    for (int phase = 0; phase < 31; phase++)
>>>>>>> REPLACE
"""


class ScriptedBench:
    """Finds so many drafts at fault."""

    tools: Sequence[Tool] = ()

    def __init__(self, faults: int) -> None:
        self.faults = faults
        self.checked: list[Kernel] = []

    async def use(self, tool: str, arguments: str | Mapping[str, Any]) -> Result:
        assert tool == "build" and isinstance(arguments, Mapping), "nobody calls other tools here"
        return await self.check(Kernel("axpb", "cpu", arguments["source"], arguments["values"]))

    async def check(self, kernel: Kernel) -> Result:
        self.checked.append(kernel)
        failed = len(self.checked) <= self.faults
        return Result(FAULT if failed else "right", failed, kernel, seconds=0.25)


def ask(
    faults: int, *answers: str, name: str = "rewrite", **params: Any
) -> tuple[Proposal, ScriptedLLM, ScriptedBench]:
    request, parents, operator = cases.case(name, "cpu")
    request = replace(request, params={**request.params, **params})
    llm, bench = ScriptedLLM(lambda _, number: answers[number]), ScriptedBench(faults)
    return asyncio.run(propose(request, parents, operator, client=llm, bench=bench)), llm, bench


def test_a_draft_that_is_right_is_the_child() -> None:
    proposal, llm, bench = ask(0, GOOD)
    assert proposal.kernel and bench.checked == [proposal.kernel] and len(llm.calls) == 1
    assert proposal.evaluator_s == 0.25


def test_a_fault_goes_back_and_edits_are_of_the_latest_draft() -> None:
    proposal, llm, bench = ask(1, GOOD, MEND)
    assert proposal.kernel and "phase < 31" in proposal.kernel.source and bench.checked[1] == proposal.kernel
    first, second = llm.calls
    assert (first.role, second.role) == ("rewrite", "mend")
    assert second.messages[:2] == first.messages and second.messages[2] == {"role": "assistant", "content": GOOD}
    assert second.messages[3]["content"].startswith(FAULT) and "latest draft" in second.messages[3]["content"]
    assert proposal.description == "32 phases"  # it was said once, of the whole change
    assert proposal.evaluator_s == 0.5 and proposal.calls == tuple(llm.calls)


def test_a_draft_that_is_at_fault_to_the_end_is_the_evaluators_to_reject() -> None:
    answers = [GOOD, *(MEND.replace("< 31", f"< {n - 1}").replace("< 32", f"< {n}") for n in range(32, 24, -1))]
    proposal, llm, bench = ask(9, *answers)
    assert proposal.kernel and "phase < 29" in proposal.kernel.source and not proposal.failure
    assert len(llm.calls) == TRIES_WITH_CHECKS == 1 + len(bench.checked)  # no answer would follow a last look


def test_a_request_may_want_drafts_compiled_alone_and_say_how_many_there_may_be() -> None:
    proposal, llm, bench = ask(9, GOOD, MEND, drafts="build", tries=2)
    assert proposal.kernel and "phase < 31" in proposal.kernel.source
    assert len(llm.calls) == 2 and [kernel.values for kernel in bench.checked] == [proposal.kernel.values]
    proposal, llm, bench = ask(9, "I cannot.", tries=1)
    assert proposal.failure and len(llm.calls) == 1 and not bench.checked


def test_answers_that_cannot_be_used_are_told_apart_from_drafts_at_fault() -> None:
    proposal, llm, bench = ask(1, "I cannot.", GOOD, LOST, MEND)
    assert proposal.kernel and "phase < 31" in proposal.kernel.source
    assert [call.role for call in llm.calls] == ["rewrite", "rewrite", "mend", "mend"]
    last = llm.calls[-1].messages[-1]["content"]
    assert (
        re.match("Your answer could not be used:\n\n````?untrusted\nedit 1: what it", last) and "latest draft" in last
    )
    assert len(bench.checked) == 1


def test_a_plan_that_is_broken_is_not_built() -> None:
    proposal, _, bench = ask(0, BROKEN, GOOD)
    assert proposal.kernel and bench.checked == [proposal.kernel]


def test_where_the_model_falls_silent_the_latest_draft_is_the_child() -> None:
    request, parents, operator = cases.case("rewrite", "cpu")
    llm, bench = ScriptedLLM(lambda *_: GOOD), ScriptedBench(1)
    complete = llm.complete

    async def silent(*arguments: Any, **options: Any) -> Any:
        call = await complete(*arguments, **options)
        return call if len(llm.calls) == 1 else replace(call, status=CallStatus.FAILED, answer="", error="overloaded")

    llm.complete = silent  # type: ignore[method-assign]
    proposal = asyncio.run(propose(request, parents, operator, client=llm, bench=bench))
    assert proposal.kernel == bench.checked[0] and not proposal.failure and len(proposal.calls) == 2


@pytest.mark.parametrize("name", ["rewrite", "crossover", "repair", "refine"])
def test_all_who_make_children_look_at_them(name: str) -> None:
    assert uses_bench(name) and not needs_bench(name)
