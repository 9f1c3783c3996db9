"""Searches with language models that cost nothing: scripted fitness with timings, and a server on loopback.

As a program, `python -m tests.evo.model_runs FOLDER URL EVALUATIONS [CHANGES]`, it is a search that can be killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from evo.config import RunConfig
from evo.individual import Individual
from evo.search.driver import Search
from evo.session import run_row
from evo.store import Store
from evo.strategies.base import Ancestors, Chooser, Rival, StrategyContext
from evo.strategies.population import Cell, Elite
from fitness.evaluation import CheckError, Evaluation, Level, Timing
from fitness.judging.base import Anchor, Checked, DeviceInfo, Fitness
from fitness.profiling.roofline import Peaks
from fitness.testing import Script as Verdict
from fitness.testing import ScriptedFitness, by_digest
from mutators.asking.mutators import REPAIRABLE
from mutators.base import Request
from operators.definition.spec import Task
from operators.kernel import Kernel
from tests.inline import InlinePool
from tests.mutators.llm_server import LlmServer, Reply, Script

MODEL = "openai/scripted"
patch.dict("evo.config.STRATEGIES", {"asking": f"{__name__}:Asking"}).start()  # for all that import this
DEVICE = DeviceInfo(
    "2 cores of an Example CPU (1024 KiB of L2 cache per core)",
    {"cpu_count": 2, "l2_bytes": 1 << 20},
    ("x86_64 with avx2, fma",),
    Peaks("Example CPU, 2 threads", 20.0, 15.0, {"fp32": 200.0, "fp64": 100.0}, 2.5),
)
"""The device that prompts tell of. Replies depend on prompts: with one that is measured, each process had its own."""
DRAW = os.environ.get("EVO_TEST_DRAW", "")
"""Another text has the scripted models say other things; no test may depend on it."""
FENCE = "```cpp\n"
"""Text that a kernel file in an answer begins with."""


class TimedFitness(ScriptedFitness):
    """A fitness stage that poses as one with a clock and a verifier: prompts have tables of times, messages and
    profiles."""

    def _verdict(self, kernel: Kernel, anchor: Anchor, level: Level, *, race: bool = False) -> Evaluation:
        found = super()._verdict(kernel, anchor, level, race=race)
        number = int(kernel.id[:4], 16)
        if found.correct:
            timings = tuple(Timing(f"n={n}", number / 7 + n, 1000.0, 0.1, 0.01, 20) for n in (9, 10))
            facts = {"vector_bits": 256, "packed": {"b": 2, "a": 0.5}, "names": ["expf"]}
            return replace(found, timings=timings, facts=facts)
        error = CheckError("n=9", "y", "nominal", number / 3, 5, 1)
        return replace(found, message=f"element {number} is wrong", errors=(error,))


class HalfChecked(TimedFitness):
    """A check before judging sees half of what is wrong: the rest is for repairs."""

    def spot_check(self, kernel: Kernel) -> Checked:
        return super().spot_check(kernel) if int(kernel.id[0], 16) % 2 else Checked()


class Asking(Chooser):
    """The strategy `asking`: nothing but language models, in turn for rewrites, crossovers and repairs of failures."""

    def __init__(self, context: StrategyContext, settings: Mapping[str, Any]) -> None:
        self.context = context
        self._elites: list[Elite] = []
        self._failed: list[tuple[str, str]] = []

    def choose(self, number: int) -> Request | None:
        if number == 0:
            return Ancestors(self.context).request(0)
        if not self._elites:
            return None
        rng, models = self.context.rng(number), self.context.models
        name, parents = self._wish(number, rng)
        return self.context.request(number, name, parents, rng, {}, model=models[(number + 1) % len(models)])

    def _wish(self, number: int, rng: Random) -> tuple[str, Sequence[str]]:
        if self._failed:
            return "repair", self._failed[0]
        if number % 3 == 0 and len(self._elites) > 1:
            return "crossover", [e.kernel.id for e in rng.sample(self._elites, 2)]
        return "rewrite", [rng.choice(self._elites).kernel.id]

    def take(self, request: Request) -> None:
        if request.mutator == "repair":
            self._failed.remove((request.parents[0], request.parents[1]))

    def tell(self, individual: Individual) -> str:
        kernel, evaluation = individual.kernel, individual.evaluation
        if kernel and evaluation and individual.fresh:
            if evaluation.log_speedup is not None:
                self._elites.append(Elite(kernel, evaluation.cell, evaluation.log_speedup, 0.01))
            elif evaluation.status in REPAIRABLE and individual.request.parents:
                self._failed.append((kernel.id, individual.request.parents[0]))
        return individual.status

    def rival(self, request: Request, cell: Cell) -> Rival:
        return Rival()

    @property
    def best(self) -> Elite | None:
        return max(self._elites, key=lambda e: e.log_speedup, default=None)


def source_in(prompt: str) -> str:
    """The first kernel file that a prompt shows."""
    return prompt.partition("```cpp untrusted\n")[2].partition("\n```")[0]


def chance_of(request: Mapping[str, Any]) -> int:
    """A number that the conversation and DRAW decide."""
    return zlib.crc32((DRAW + repr(request["messages"])).encode())


def another(words: str) -> str:
    """A line that makes a file another program to who reads it, and the same to a compiler."""
    return f'static_assert(true, "{words}");'


def script(request: Mapping[str, Any], number: int) -> Reply:
    """A child that is the given kernel with one more declaration; now and then an answer that cannot be used."""
    prompt = request["messages"][1]["content"]
    chance = chance_of(request) % 10
    if chance == 0:
        return Reply("I had rather not.")
    if chance == 1 and number % 2:
        return Reply(status=500, error="overloaded")
    source = source_in(prompt)
    if chance == 2:
        source = source.replace("[[launch]]", "[[launch")
    return Reply(f"CHANGE: declaration {chance}\n\n{FENCE}{source}\n{another(f'{chance} {len(prompt)}')}\n```")


def working(request: Mapping[str, Any], number: int) -> Reply:
    """The reply of a model that has tools: it builds, checks and judges a draft and hands it in, with faults now and
    then; without tools it answers as `script` does."""
    if "tools" not in request:
        return script(request, number)
    said = [m for m in request["messages"] if m["role"] == "assistant"]
    chance = chance_of(request) % 12
    if chance == 0 and number % 2:
        return Reply(status=500, error="overloaded")
    if (chance == 1 or number % 4 == 1) and len(said) % 4 != 3:
        return Reply("Let me think.", tools=(("build", "{"), ("no_tool", {}), ("check", {"kernel": 3})))
    heard = " ".join(str(m.get("content")) for m in request["messages"][-6:])
    drafts = re.findall(r"Draft ([0-9a-f]{12})", heard)
    source = source_in(next(m["content"] for m in request["messages"] if m["role"] == "user"))
    if not drafts or len(said) % 4 == 0:
        return Reply(None, tools=(("build", {"source": f"{source}// {len(said)} {chance}\n"}),), finish="tool_calls")
    if len(said) % 4 == 1:
        return Reply("A look.", tools=(("check", {"kernel": drafts[-1]}), ("lineage", {})), finish="tool_calls")
    if len(said) % 4 == 2:
        return Reply(None, tools=(("judge", {"kernel": drafts[-1]}),), finish="tool_calls")
    wish = {"kernel": drafts[-1], "change": f"comment {chance}"}
    return Reply(None, tools=(("submit", wish),), finish="tool_calls")


def config(url: str, **changes: Any) -> RunConfig:
    settings: dict[str, Any] = {
        "operators": ["softmax"], "budget": {"evaluations": 20}, "seed": 5, "strategy": "asking", "device": DEVICE,
        "llm": {"models": [MODEL], "api_base": url, "backoff_s": 0.01, "concurrency": 3},
    }  # fmt: skip
    return RunConfig(**(settings | changes)).resolved()


def stages(made: RunConfig, verdict: Verdict = by_digest) -> dict[Task, TimedFitness]:
    return {
        task: HalfChecked(task, Kernel(o.name, "cpu", o.ancestor("naive", "cpu").read_text()), verdict, operator=o)
        for o, task in made.tasks()
    }


async def session(
    folder: Path,
    made: RunConfig,
    *,
    stop_after: int | None = None,
    now: Callable[[], float] = time.time,
    wait_s: float = 0.0,
    fitness: Mapping[Task, Fitness] | None = None,
) -> str:
    """One session of a run, from its beginning or where it ended; `stop_after` tells it is interrupted."""

    def on_change(running: Search) -> None:
        told = sum(s.told for s in running.states.values())
        if stop_after is not None and told >= stop_after and not running.stopping:  # twice would give up paid answers
            running.stop()

    fresh = not (folder / "evo.duckdb").exists()
    with Store(folder, create=fresh) as store:
        if fresh:
            store.commit({"runs": [run_row(made, folder)]}).result()
        return await Search(
            made, store, InlinePool(dict(fitness or stages(made))), on_change=on_change, now=now, wait_s=wait_s
        ).run()


def run(
    folder: Path,
    *,
    stops: tuple[int, ...] = (),
    finish: bool = True,
    answer: Script = script,
    verdict: Verdict = by_digest,
    **changes: Any,
) -> tuple[str, LlmServer]:
    """A run in as many sessions as there are stops, and a last one; why it ended, and the server it asked."""

    async def everything() -> tuple[str, LlmServer]:
        async with LlmServer(answer) as server:
            made = config(server.url, **changes)
            for stop in stops:
                assert await session(folder, made, stop_after=stop, fitness=stages(made, verdict)) == "stopped"
            return await session(folder, made, fitness=stages(made, verdict)) if finish else "stopped", server

    return asyncio.run(everything())


if __name__ == "__main__":
    more = json.loads(sys.argv[4]) if len(sys.argv) > 4 else {}
    wanted = config(sys.argv[2], budget={"evaluations": int(sys.argv[3])}, **more)
    print(asyncio.run(session(Path(sys.argv[1]), wanted)))
