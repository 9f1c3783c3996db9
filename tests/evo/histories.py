"""Random histories of runs: sessions in this process and in actors, stops, kills, faults, and what must hold after all.

Models, evaluators and actors are scripted, and die or fail by chance; strategies, driver, store and the way in which a
population is rebuilt are the real ones. `python -m tests.bench.histories` runs as many as it is told.
"""

from __future__ import annotations

import asyncio
import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from evo.cluster.connection import TRIES, ActorGone, Cluster, Host
from evo.cluster.populations import RemotePopulations, RemoteStrategy
from evo.config import RunConfig
from evo.replay import replay
from evo.search.driver import Search
from evo.session import run_row
from evo.store import Store, query
from evo.strategies.base import Strategy
from evo.workers.jobs import Found, Job, Screen
from mutators.base import Call, CallStatus, Message, Request
from mutators.bench import Tool
from mutators.llm.calls import cache_key
from mutators.llm.client import LLM
from mutators.llm.settings import LlmSettings
from operators.definition.spec import Operator, Task
from tests.choosing import size
from tests.evo import model_runs
from tests.inline import InlinePool

STRATEGIES: Sequence[dict[str, Any]] = (
    {"strategy": "islands", "settings": {"port": 1, "bottleneck_axis": True}},
    {"strategy": "islands", "settings": {"islands": 3, "patience": 7, "migration_interval": 3}},
    {"strategy": "best_of_n", "settings": {"n": 12, "steps": 3, "repairs": 2}},
    {"strategy": "refine", "settings": {"n": 8, "width": 2, "turns": 3}},
    {"strategy": "astra", "settings": {"n": 4, "width": 2, "rounds": 2, "builds": 2}},
)
OPERATORS = ("softmax", "relu", "matrix_mul")
MOST_SESSIONS, EVALUATIONS, LONGEST_SESSION = 6, size(20, 10), 8


class Killed(BaseException):
    """The session's process is killed here."""


class Fault(Exception):
    """Something that no session can go on after."""


class Model(LLM):
    """A scripted model that is away now and then; its answers are stored, and asked for once."""

    def __init__(self, random: Random, settings: LlmSettings, **more: Any) -> None:
        super().__init__(settings, **more)
        self._random = random

    async def check(self, asked: int = 0) -> None:
        """There is no server that could be missing."""

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        request: Request,
        role: str,
        model: str = "",
        sample: int = 0,
        tools: Sequence[Tool] = (),
    ) -> Call:
        model = model or self.settings.models[0]
        key = cache_key(self.settings, messages, request=request, model=model, sample=sample, tools=tools)
        if stored := self.calls.find(key):
            return stored
        await asyncio.sleep(0)
        call = Call(request.id, role, model, tuple(messages), sample, key, CallStatus.UNAVAILABLE)
        if self._random.random() > 0.1:
            prompt = {"messages": [dict(message) for message in messages]}
            answer = model_runs.script(prompt, 0).text or "nothing"
            call = replace(call, status=CallStatus.ANSWERED, answer=answer, tokens_in=9, tokens_out=9)
        await self.calls.add(call)
        return call


class Cut:
    """A store from which one commit on, nothing is stored any more: its process is killed before that."""

    def __init__(self, store: Store, commits: float) -> None:
        self._store = store
        self._left = commits
        self.folder, self.rows = store.folder, store.rows

    def commit(self, rows: Any) -> Future[None]:
        """Store rows, or die."""
        self._left -= 1
        if self._left < 0:
            raise Killed
        return self._store.commit(rows)


class Actors:
    """The part of `evo.cluster.connection.Cluster` that populations need: actors in this process, which die by chance.

    They never do so often in a row that the driver gives up.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._deaths: Counter[tuple[Any, ...]] = Counter()
        """Deaths of each population since it was asked something and answered."""

    def start(self, _: object, make: Callable[..., Any], *arguments: Any) -> Any:
        """Start an actor."""
        host: list[Host] = [Host(make, *arguments)]

        def dies(chance: float) -> bool:
            dies = self._random.random() < chance and self._deaths[arguments] < TRIES - 1
            if dies and host:
                host.clear()
                self._deaths[arguments] += 1
            return dies

        def remote(method: str, *rest: Any) -> Callable[[], Any]:
            dies(0.04)
            answers = [each.call(method, *pickle.loads(pickle.dumps(rest))) for each in host]
            if dies(0.02):  # its answer is lost with it
                answers = []
            elif answers and method != "learn":
                self._deaths[arguments] = 0
            return lambda: answers

        return SimpleNamespace(call=SimpleNamespace(remote=remote))

    def get(self, answers: Callable[[], Any]) -> Any:
        """The answer of an actor."""
        found = answers()
        if not found:
            raise ActorGone("scripted")
        return found[0]

    def answer(self, answers: Callable[[], Any]) -> Any:
        """The value of its answer."""
        return Cluster.answer(cast(Cluster, self), answers)

    def stop(self, actor: Any) -> None:
        """Nothing is left of it."""

    def maker(self, made: RunConfig, store: Any) -> Callable[[Operator, Task], Strategy]:
        """See `evo.session.Backend.maker`."""
        populations: dict[str, RemotePopulations] = {}

        def make(operator: Operator, task: Task) -> Strategy:
            if operator.name not in populations:
                cluster: Any = self
                populations[operator.name] = RemotePopulations(cluster, made, operator, store)
            return RemoteStrategy(populations[operator.name], task)

        return make


class Failing(InlinePool):
    """Evaluators that meet a fault once, after so many screenings."""

    fault_after = float("inf")

    async def run(self, job: Job[Found]) -> Found:
        """See `InlinePool.run`."""
        self.fault_after -= isinstance(job, Screen)
        if isinstance(job, Screen) and self.fault_after < 0:
            raise Fault
        return await super().run(job)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a history."""

    sessions: tuple[str, ...]
    """Progress of each session, and its end."""
    told: int


def history(seed: int, folder: Path) -> Outcome:
    """One random run in a new folder. It raises AssertionError where something is lost, told twice, or not the same."""
    random = Random(seed)
    operators = random.sample(OPERATORS, random.randint(1, 2))
    dtypes = random.choice([["fp32"], ["fp32", "fp64"]])
    llm = {"models": [model_runs.MODEL], "api_base": "http://127.0.0.1:9/v1", "concurrency": random.choice([1, 4])}
    made = RunConfig(
        operators=operators,
        dtypes=dtypes,
        seed=seed,
        llm=llm,  # type: ignore[arg-type]
        budget={"evaluations": EVALUATIONS},
        profile="filtered",
        **random.choice(STRATEGIES),
    ).resolved()
    sessions: list[str] = []
    before: list[Any] = []
    for last in (*[False] * random.randint(1, MOST_SESSIONS), True):
        sessions.append(_session(random, made, folder, len(before), last=last))
        now = query(folder, "from tells order by seq").to_pylist()
        assert now[: len(before)] == before, "what was told stays told"
        before = now
    assert not sessions[-1].endswith(("killed", "fault", "stopped")), sessions
    _sound(folder)
    done = replay(folder)
    assert done.equal, (sessions, done.difference)
    return Outcome(tuple(sessions), len(before))


def _session(random: Random, made: RunConfig, folder: Path, before: int, *, last: bool) -> str:
    """One session; the last one ends by itself, but its actors die like those of others."""
    way = "done" if last else random.choice(["stop", "kill", "kill", "fault"])
    far, moment = random.random() < 0.5, random.randint(0, LONGEST_SESSION)
    fresh = not (folder / "evo.duckdb").exists()
    said = "actors" if far else "here"
    with Store(folder, create=fresh) as real:
        if fresh:
            real.commit({"runs": [run_row(made, folder)]}).result()
        store: Any = Cut(real, 3 * moment if way == "kill" else float("inf"))
        pool = Failing(dict(model_runs.stages(made)), slots=random.randint(1, 3))
        pool.fault_after = moment if way == "fault" else float("inf")

        def on_change(running: Search) -> None:
            told = sum(state.told for state in running.states.values())
            if way == "stop" and told >= before + moment and not running.stopping:
                running.stop()

        async def session() -> str:
            make = Actors(random).maker(made, store) if far else made.make_strategy
            with patch("evo.search.models.LLM", partial(Model, random)):
                search = Search(made, store, pool, make_strategy=make, on_change=on_change)
            return await search.run()

        with suppress(Killed, Fault):
            return f"{said}: {asyncio.run(session())}"
    return f"{said}: {'killed' if way == 'kill' else 'fault'}"


def _sound(folder: Path) -> None:
    """Requests are numbered without a gap, each is told once at most, and no kernel is judged twice."""
    asks = query(folder, "select task, number from asks where wanted <> 0 order by task, number").to_pylist()
    for task in {row["task"] for row in asks}:
        numbers = [row["number"] for row in asks if row["task"] == task]
        assert numbers == list(range(len(numbers))), task
    twice = """
        select request_id from tells group by all having count(*) > 1
        union all select request_id from proposals group by all having count(*) > 1
        union all select kernel_id from evaluations where request_id is not null and status <> 'duplicate'
            group by task, kernel_id, level having count(*) > 1
        union all select cache_key from llm_calls where status = 'answered' group by all having count(*) > 1
        union all select request_id from tells anti join asks using (request_id)
    """
    assert not query(folder, twice).to_pylist()
