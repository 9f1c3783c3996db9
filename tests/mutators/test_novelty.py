"""Answers that say again what was tried: they are data before anything is built."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitness.sandbox.source import without_comments
from mutators.asking.novelty import text_digest
from mutators.base import Proposal
from mutators.briefing import Attempt, Briefing, Ratio
from mutators.registry import propose
from mutators.testing import ScriptedLLM
from operators.kernel import Kernel
from tests.mutators import prompt_cases as cases
from tests.mutators.test_checking import ScriptedBench
from tests.mutators.test_rewrite import GOOD

OTHER = GOOD.replace("32 phases", "16 phases").replace("32", "16")
HEADER = '/*! evo\n[tune]\nA = [1, 2]\n[[launch]]\nkernel = "f"\n*/\n'
CODE = "#define F (x)\nvoid f(int x) { int s = x+ ++x; call(\"a  b\", 'c'); }\n"


def kernel(code: str = CODE, header: str = HEADER, **values: int) -> Kernel:
    return Kernel("axpb", "cpu", header + code, values)


def ask(*answers: str, bench: bool = True, **known: Any) -> tuple[Proposal, ScriptedLLM, int]:
    """The result of these answers, and the number of drafts that were built."""
    request, parents, operator = cases.case("rewrite", "cpu")
    llm, there = ScriptedLLM(lambda _, number: answers[number]), ScriptedBench(0)
    told = (replace(parents[0], briefing=Briefing(**known)), *parents[1:])
    proposal = asyncio.run(propose(request, told, operator, client=llm, bench=there if bench else None))
    return proposal, llm, len(there.checked)


def program_of(answer: str) -> str:
    child = ask(answer)[0].kernel
    assert child
    return text_digest(child)


@pytest.mark.parametrize("bench", [True, False])
def test_a_program_that_was_tried_is_asked_for_again_and_never_built(bench: bool) -> None:
    tried = {program_of(GOOD): "slower"}
    known: dict[str, Any] = {"verdict_on": lambda text: tried.get(text, "")}
    proposal, llm, built = ask(GOOD, OTHER, bench=bench, **known)
    assert proposal.kernel and "16" in proposal.kernel.source and built == bench
    assert "tried on the task before, and was slower" in llm.calls[1].messages[-1]["content"]
    stubborn, llm, built = ask(*[GOOD] * 4, bench=bench, **known)
    assert stubborn.kernel is None and "was slower" in stubborn.failure and not built and stubborn.calls


def test_an_idea_that_was_tried_on_the_kernel_is_told_once() -> None:
    tried = (Attempt("Phases: 32!", "slower", Ratio(-0.1, 0.01)),)
    proposal, llm, built = ask(GOOD, OTHER, tried=tried)
    assert proposal.kernel and "16" in proposal.kernel.source and built == 1
    assert "was slower, 0.905 (0.887 to 0.923) times as fast" in llm.calls[1].messages[-1]["content"]
    insisting, _, built = ask(GOOD, GOOD, tried=tried)
    assert insisting.kernel and built == 1  # it may be another program: it is judged, and nothing paid is lost


@pytest.mark.parametrize("status", ["compile_error", "wrong", "no_child"])
def test_an_idea_that_led_to_no_kernel_that_is_right_may_be_tried_again(status: str) -> None:
    _, llm, _ = ask(GOOD, tried=(Attempt("32 phases", status),))
    assert len(llm.calls) == 1


def test_comments_and_white_space_are_no_other_program() -> None:
    same = text_digest(kernel())
    assert same
    for code in (
        f"// a remark\n{CODE}", CODE.replace(";", " ; /* one\n more */"), CODE.replace("{", "\n{\n"),
        CODE.replace("\n", "\r\n"), CODE.replace("void", "vo\\\nid"), CODE.replace("F (x)", "F   (x) // why"),
    ):  # fmt: skip
        assert text_digest(kernel(code)) == same, code
    assert text_digest(kernel(header=HEADER.replace("A = [1, 2]", "A = [1, 2] # why"))) == same
    for other in (
        kernel(CODE.replace("x+ ++x", "x++ +x")), kernel(CODE.replace("a  b", "a b")), kernel(A=2),
        kernel(CODE.replace("F (x)", "F(x)")), kernel(header=HEADER.replace("[1, 2]", "[2, 1]")),
        kernel(CODE.replace("#define F (x)\n", "#define F (x) ")), Kernel("axpb", "cuda", HEADER + CODE),
    ):  # fmt: skip
        assert text_digest(other) != same, other.source
    assert text_digest(Kernel("axpb", "cpu", "no header")) == ""


TOKENS = st.lists(st.sampled_from(["int", "x", "+", "++", "(", "1.", "e5", '"a  // b"', "'\\''", "*"]), min_size=1)
BETWEEN = st.sampled_from([" ", "\n", "\t\r\n", "/* * */", "// y\n", " \\\n "])


@given(TOKENS, TOKENS, st.data())
def test_what_stands_between_tokens_never_counts_and_tokens_always_do(
    one: list[str], other: list[str], data: st.DataObject
) -> None:
    def written(tokens: list[str]) -> str:
        return without_comments("".join(part for token in tokens for part in (token, data.draw(BETWEEN))))

    assert (written(one) == written(other)) == (one == other)
