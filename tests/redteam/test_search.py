"""A search whose language model proposes nothing but canaries goes on to its end, and judges honest kernels as ever."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evo.config import RunConfig
from evo.search.driver import Search
from evo.session import run_row
from evo.store import Store, query
from fitness.judging import pipeline
from operators.definition.spec import Task
from tests.evo.model_runs import FENCE, config
from tests.inline import InlinePool
from tests.mutators.llm_server import LlmServer, Reply
from tests.redteam.arena import AXPB, TIMING_BUDGET_S, Arena, Entrant, Outcome, Secret, canaries, short_timings

TASK = Task("axpb", "fp32", "cpu")
KINDS = ("escape", "compile", "bombs", "caching", "library")
"""Escapes at load, tables and assembly, and what keeps its judges busy."""
EVERY, PARTS = 8, 16
"""Number of canaries from one honest kernel to the next, and of searches that share all of them out: each takes a small
part of the time that a test may, also on a busy machine."""


@pytest.fixture
def arena(tmp_path: Path) -> Iterator[Arena]:
    (tmp_path / "build").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for place, name, value in short_timings():
            patch.setattr(place, name, value)
        patch.setattr(pipeline, "FULL", replace(pipeline.FULL, budget_s=TIMING_BUDGET_S))
        with Arena(tmp_path / "build", Secret.planted(tmp_path, "what nobody may read")) as made:
            yield made


def chosen(part: int) -> list[Entrant]:
    """The canaries for axpb of one search; neighbours, which are alike, go to different ones."""
    found = [c for c in canaries() if c.kind in KINDS and c.about["operator"] == "axpb" and c.runs_here]
    return [c for c in found if c.expected is not Outcome.OPEN and "finding" not in c.about][part::PARTS]


def honest(number: int) -> str:
    """A right kernel, another one for every number."""
    header = '/*! evo\n[[launch]]\nkernel = "axpb"\nargs = ["x", "b", "y", "alpha", "n"]\n*/\n'
    loop = "    for (int i = 0; i < n; i++) y[i] = factors[0] * x[i] + b[i];"
    loop = f"    const float factors[] = {{alpha, {number}}};\n{loop}"
    keep = f"    if (n == -{number + 2}) y[0] = factors[1];"
    return f'{header}extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {{\n{loop}\n{keep}\n}}\n'


async def searched(folder: Path, made: RunConfig, pool: InlinePool) -> str:
    with Store(folder, create=True) as store:
        store.commit({"runs": [run_row(made, folder)]}).result()
        return await Search(made, store, pool).run()


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_a_search_survives_every_canary(part: int, arena: Arena, tmp_path: Path) -> None:
    sources: list[tuple[str, str]] = []
    proposed = chosen(part)
    for number, canary in enumerate(proposed):
        if number % EVERY == 0:
            sources.append((f"honest {number}", honest(number)))
        sources.append((canary.name, canary.kernel(arena.secret).source))
    sources.append(("honest at the end", honest(len(proposed))))
    asked = iter(sources)

    def answer(request: Mapping[str, Any], number: int) -> Reply:
        name, source = next(asked)
        return Reply(f"CHANGE: {name}\n\n{FENCE}{source}\n```")

    async def everything() -> str:
        async with LlmServer(answer) as server:
            llm = {"models": ["openai/scripted"], "api_base": server.url, "backoff_s": 0.01, "concurrency": 1}
            budget = {"calls": len(sources)}  # most canaries are refused before they are an evaluation
            made = config(server.url, operators=[str(AXPB)], llm=llm, budget=budget)
            return await searched(tmp_path / "run", made, InlinePool({TASK: arena.stage("axpb")}))

    assert f"{len(sources)} of {len(sources)} calls" in asyncio.run(everything())
    rows = query(
        tmp_path / "run",
        "select p.description, e.status, e.message from evaluations e join proposals p using (kernel_id)",
    ).to_pylist()
    assert arena.secret.text not in repr(rows)
    statuses = {row["description"]: row["status"] for row in rows}
    expected = {name for name, _ in sources if name.startswith("honest")}
    assert {name for name in expected if statuses.get(name) == "correct"} == expected, rows
    for canary in proposed:
        status = statuses.get(canary.name, "invalid")  # what no mutator takes for a kernel is not judged
        refused = status in ("invalid", "compile_error", "unsupported")
        proof = canary.about.get("proof") == "correct" and status == "correct"
        assert refused or proof or (canary.expected is Outcome.CAUGHT and status != "correct"), (canary.name, status)
