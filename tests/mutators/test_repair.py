"""The mutator `repair`."""

from __future__ import annotations

import asyncio

import pytest

from fitness.evaluation import Evaluation, Level, Status
from mutators.asking.mutators import REPAIRABLE, Repair
from mutators.base import Parent
from mutators.testing import ScriptedLLM
from tests.mutators import prompt_cases as cases

ANSWER = """CHANGE: index without offset
<<<<<<< SEARCH
        for (int i = phase; i < n; i += 64) y[i + 1] = store(load(alpha) * load(x[i]) + load(b[i]));
=======
        for (int i = phase; i < n; i += 64) y[i] = store(load(alpha) * load(x[i]) + load(b[i]));
>>>>>>> REPLACE"""


def test_the_model_sees_the_failure_and_what_was_changed() -> None:
    request, (failed, before), operator = cases.case("repair", "cpu")
    llm = ScriptedLLM(lambda messages, number: ANSWER)
    proposal = asyncio.run(Repair().propose(request, (failed, before), operator, llm))
    assert proposal.kernel and proposal.kernel.source == before.kernel.source
    assert proposal.description == "index without offset"
    user = llm.calls[0].messages[1]["content"]
    assert "Verdict: wrong." in user and "1 of 40000 elements is wrong" in user
    assert "+        for (int i = phase; i < n; i += 64) y[i + 1] = " in user


def test_without_the_kernel_before_there_is_no_diff() -> None:
    request, (failed, _), operator = cases.case("repair", "cpu")
    llm = ScriptedLLM(lambda messages, number: ANSWER)
    assert asyncio.run(Repair().propose(request, (failed,), operator, llm)).kernel
    assert "```diff untrusted" not in llm.calls[0].messages[1]["content"]


@pytest.mark.parametrize("status", list(Status))
def test_only_what_failed_is_repaired(status: Status) -> None:
    request, (failed, _), operator = cases.case("repair", "cpu")
    llm = ScriptedLLM(lambda messages, number: ANSWER)
    fields = {
        Status.CORRECT: {"log_speedup": 0.1, "log_speedup_se": 0.1},
        Status.DUPLICATE: {"duplicate_of": "k", "inherited": Status.WRONG},
    }.get(status, {})
    verdict = Evaluation(failed.kernel.id, "axpb/fp32/cpu", Level.SCREEN, status, **fields)  # type: ignore[arg-type]
    proposal = asyncio.run(Repair().propose(request, (Parent(failed.kernel, verdict),), operator, llm))
    repairable = status in REPAIRABLE or status is Status.DUPLICATE
    assert (proposal.kernel is not None) == repairable == bool(llm.calls)
    if not repairable:
        assert proposal.failure == f"repair needs a kernel that failed, and was given one that is {status.value}"


def test_without_a_verdict_nothing_is_asked() -> None:
    request, (failed, _), operator = cases.case("repair", "cpu")
    llm = ScriptedLLM(lambda messages, number: ANSWER)
    for parents in ((), (Parent(failed.kernel),)):
        proposal = asyncio.run(Repair().propose(request, parents, operator, llm))
        assert proposal.failure == "repair needs a kernel that failed, and was given none with a verdict"
    assert llm.calls == []
