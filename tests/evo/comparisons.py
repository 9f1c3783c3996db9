"""Comparisons that cost nothing: scripted verdicts and profiles, and a scripted model on loopback."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

from evo.compare.cells import cell_results
from evo.compare.config import Comparison
from evo.compare.judgement import judge
from evo.compare.running import ComparisonState, compare, prepare
from evo.config import RunConfig
from evo.session import LocalBackend
from evo.workers.worker import RunContext
from fitness.judging.base import Fitness
from fitness.testing import Script as Verdict
from fitness.testing import by_digest
from operators.catalog import load
from operators.definition.spec import Task
from operators.kernel import Kernel
from tests.evo.model_runs import DEVICE, FENCE, MODEL, TimedFitness, another, chance_of, source_in
from tests.inline import InlinePool
from tests.mutators.llm_server import LlmServer, Reply, Script


class Stages(dict[Task, Fitness]):
    """Scripted stages of whatever task is asked for."""

    def __init__(self, operators: Mapping[str, str], verdict: Verdict = by_digest) -> None:
        """`operators` are folders by name."""
        self.operators = operators
        self.verdict = verdict

    def __missing__(self, task: Task) -> Fitness:
        operator = load(self.operators[task.operator])
        baseline = Kernel(task.operator, task.target, operator.naive(task.target))
        self[task] = TimedFitness(task, baseline, self.verdict, operator=operator)
        return self[task]


class ScriptedPool(InlinePool):
    """One pool for all cells, each of which has stages of its own."""

    def __init__(self, verdict: Verdict = by_digest) -> None:
        super().__init__({})
        self.verdict = verdict
        self.views: list[RunContext] = []

    def for_run(self, context: RunContext) -> InlinePool:
        self.views.append(context)
        return InlinePool(Stages(dict(context.operators), self.verdict))


class ScriptedBackend(LocalBackend):
    """Scripted devices; it keeps the pools that were made."""

    def __init__(self, verdict: Verdict = by_digest) -> None:
        super().__init__()
        self.verdict = verdict
        self.pools: list[ScriptedPool] = []

    def pool(self, config: RunConfig, folder: Path) -> ScriptedPool:  # type: ignore[override]
        self.pools.append(ScriptedPool(self.verdict))
        return self.pools[-1]


def comparison(url: str = "", **changes: Any) -> Comparison:
    """Two tasks of four arms, by what a scripted model and the engine's own mutators make of them."""
    settings: dict[str, Any] = {
        "name": "test", "operators": ["softmax"], "seeds": [1], "budget": {"evaluations": 8}, "trials": 4,
        "arms": {
            "islands": {"tuning": "own"},
            "islands-models": {
                "strategy": "islands", "settings": {"without": ["transform", "tune", "recombine", "route"]},
            },
            "refine": {"settings": {"n": 2, "turns": 6}},
            "best_of_n+tune": {"strategy": "best_of_n", "tuning": "last"},
            "random+tune": {"strategy": "random", "tuning": "last", "models": []},
        },
    }  # fmt: skip
    if url:
        prices = {MODEL: {"input": 1.0, "output": 2.0}}
        settings["llm"] = {"models": [MODEL], "api_base": url, "backoff_s": 0.01, "prices": prices}
    return Comparison.model_validate(settings | changes)


def run(
    runs: Path,
    made: Comparison,
    *,
    stop_when: Callable[[ComparisonState], bool] = lambda _: False,
    backend: ScriptedBackend | None = None,
) -> tuple[Path, ComparisonState, ScriptedBackend]:
    """One session of a comparison. It stops as after Ctrl-C when `stop_when` says so."""
    with patch("evo.compare.running.measured_device", lambda *_, **_threads: DEVICE):
        folder, cells = prepare(made, runs)
    backend = backend or ScriptedBackend()
    stops: list[Callable[[], None]] = []

    def on_change(now: ComparisonState) -> None:
        if stops and stop_when(now):
            stops.pop()()

    with (
        patch("evo.compare.running.at_work", lambda *_: nullcontext(backend)),
        patch("evo.compare.running.on_ending", stops.append),
    ):
        return folder, compare(folder, made, cells, on_change), backend


def judge_on(backend: Any, folder: Path, say: Callable[[str], None]) -> bool:
    """Judge a comparison whose searches are over, on a backend that is there."""
    with patch("evo.compare.judgement.at_work", lambda *_: nullcontext(backend)):
        return judge(folder, cell_results(folder), say)


def answer(request: Mapping[str, Any], number: int) -> Reply:
    """An answer that depends on the conversation alone."""
    prompts = [m["content"] for m in request["messages"] if m["role"] == "user"]
    source = next(filter(None, map(source_in, reversed(prompts))))
    chance = chance_of(request)
    if chance % 9 == 0:
        return Reply("I had rather not.")
    tune = source.replace("[[launch]]", "[tune]\nWIDTH = [1, 2, 4, 8, 16]\n\n[[launch]]", 1)
    source = tune if "[tune]" not in source and chance % 2 else source
    return Reply(f"CHANGE: idea {chance}\n\n{FENCE}{source}\n{another(str(chance))}\n```")


@contextmanager
def serving(script: Script = answer) -> Iterator[LlmServer]:
    """A server in a thread of its own: a comparison has an event loop for itself."""
    ready, loop, server = threading.Event(), asyncio.new_event_loop(), LlmServer(script)

    async def serve() -> None:
        async with server:
            ready.set()
            await ended.wait()

    ended = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    ready.wait()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()
