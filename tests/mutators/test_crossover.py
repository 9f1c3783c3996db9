"""The mutator `crossover`."""

from __future__ import annotations

import asyncio

from mutators.asking.mutators import Crossover
from mutators.base import Parent
from mutators.testing import ScriptedLLM
from tests.mutators import prompt_cases as cases

ANSWER = "CHANGE: default of B\n<<<<<<< SEARCH\nBLOCK = [256, 128]\n=======\nBLOCK = [128, 512]\n>>>>>>> REPLACE"


def test_the_child_is_the_first_parents_and_the_model_saw_both() -> None:
    request, (first, second), operator = cases.case("crossover", "cuda")
    llm = ScriptedLLM(lambda messages, number: ANSWER)
    proposal = asyncio.run(Crossover().propose(request, (first, second), operator, llm))
    assert proposal.kernel
    assert proposal.kernel.source == first.kernel.source.replace("BLOCK = [256, 128]", "BLOCK = [128, 512]")
    assert dict(proposal.kernel.values) == {}, "the answer says which is first"
    user = llm.calls[0].messages[1]["content"]
    assert first.kernel.source in user and second.kernel.source in user
    assert llm.calls[0].role == "crossover"


def test_it_takes_two_parents_that_differ() -> None:
    request, (first, second), operator = cases.case("crossover", "cpu")
    llm = ScriptedLLM(lambda messages, number: ANSWER)
    retuned = Parent(first.kernel.with_values({}))
    for parents in ((), (first,), (first, first), (first, retuned)):
        proposal = asyncio.run(Crossover().propose(request, parents, operator, llm))
        assert proposal.failure == "crossover needs two parents with different sources"
    assert llm.calls == []
    assert asyncio.run(Crossover().propose(request, (first, second), operator, llm)).kernel
