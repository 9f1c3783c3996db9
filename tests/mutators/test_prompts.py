"""Prompts: compared as a whole with golden files, and held against what the engine really does."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from fitness.cpu.gate import HEADERS
from fitness.evaluation import Evaluation, Level, Status
from mutators.base import Parent
from mutators.edit import child_source
from mutators.prompts import MAX_MESSAGE, complaint, conversation, fenced, shortened
from operators.catalog import load
from operators.plan import parse_plan
from tests.mutators import prompt_cases as cases


@pytest.mark.parametrize(("name", "target"), cases.CASES)
def test_golden_prompts(name: str, target: str) -> None:
    golden = (cases.FOLDER / f"{name}.{target}.md").read_text(encoding="utf-8")
    assert cases.rendered(name, target) == golden, "python -m tests.mutators.prompt_cases writes them anew"


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_the_example_of_a_header_is_one(target: str) -> None:
    (example,) = re.findall(r"```cpp\n(/\*! evo\nrequires.*?\n\*/)", cases.rendered("rewrite", target), re.DOTALL)
    plan = parse_plan(example, load("softmax"), target)
    assert plan.zero and plan.tune and plan.buffers and plan.launches


def test_the_headers_that_are_named_are_allowed_on_the_cpu() -> None:
    (line,) = re.findall(r"- Headers of .*", cases.rendered("rewrite", "cpu"))
    named = re.findall(r"<([\w./]+)>", line)
    assert len(named) >= 4 and set(named) <= HEADERS


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_hidden_shapes_stay_hidden(target: str) -> None:
    request, parents, operator = cases.case("rewrite", target)
    text = "".join(m["content"] for m in conversation("rewrite", request, parents, operator))
    assert all(workload.name in text for workload in operator.workloads)
    assert not any(re.search(rf"{re.escape(workload.name)}\b", text) for workload in operator.hidden)


@pytest.mark.parametrize("operator", ["softmax", "matrix_mul", "spmv_csr"])
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_every_argument_is_told_with_the_type_that_the_naive_kernel_gives_it(operator: str, target: str) -> None:
    loaded = load(operator)
    request, parents, _ = cases.case("rewrite", target)
    source = loaded.ancestor("naive", target).read_text(encoding="utf-8")
    kernel = replace(parents[0].kernel, operator=operator, source=source)
    system = conversation("rewrite", request, (Parent(kernel),), loaded)[0]["content"]
    for tensor in loaded.tensors:
        (declared,) = re.findall(rf"- `([^`]*\*) {tensor.name}`", system)
        assert f"{declared} {tensor.name}" in " ".join(source.split())


def test_nothing_in_a_kernel_can_close_its_fence_or_fill_a_template() -> None:
    request, (parent,), operator = cases.case("rewrite", "cpu")
    source = parent.kernel.source + "// ```\n// {{ operator.folder }} {% raw %}\n// ````\n"
    user = conversation("rewrite", request, (Parent(replace(parent.kernel, source=source)),), operator)[1]["content"]
    assert f"`````cpp\n{source}`````\n" in user


def test_long_messages_lose_their_middle() -> None:
    assert shortened("short") == "short"
    text = shortened("begin " + "x" * 100_000 + " end")
    assert len(text) < MAX_MESSAGE + 20 and text.startswith("begin x") and text.endswith("x end") and " [...] " in text
    request, (parent, _), operator = cases.case("repair", "cpu")
    verdict = Evaluation(parent.kernel.id, "axpb/fp32/cpu", Level.SCREEN, Status.COMPILE_ERROR, "error " * 10_000)
    user = conversation("repair", request, (Parent(parent.kernel, verdict),), operator)[1]["content"]
    assert len(user) < MAX_MESSAGE + 2000


def test_a_fence_holds_its_text() -> None:
    kernel = "/*! evo\n*/\nint x;\n"
    assert child_source("other", fenced(kernel, "cpp")) == kernel


def test_the_complaint_says_why() -> None:
    message = complaint("edit 1: nothing to search for")
    assert message["role"] == "user"
    assert message["content"].startswith("Your answer could not be used: edit 1: nothing to search for.\n")
