"""Begin, standstill and end of searches with language models: nothing hangs, and nothing that is paid is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from evo.replay import replay
from evo.search.driver import Search
from evo.search.watchdog import RESTARTS_AFTER, Watchdog
from evo.session import run_row
from evo.store import Store, query
from evo.workers.jobs import Build, Found, Job, Propose, Screen, TakeProfile
from evo.workers.pool import RunningJob, WorkerLost
from tests.choosing import some_slow
from tests.evo import model_runs
from tests.inline import InlinePool
from tests.mutators.llm_server import LlmServer, Reply


def rows(folder: Path, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = query(folder, sql).to_pylist()
    return found


async def session(
    folder: Path,
    url: str,
    pool: type[InlinePool],
    when: Any = lambda _: None,
    said: list[str] | None = None,
    **changes: Any,
) -> str:
    """A search by islands on a pool of this kind; `when` is called whenever something changed."""
    said = [] if said is None else said
    made = model_runs.config(url, **({"strategy": "islands"} | changes))
    with Store(folder, create=not (folder / "evo.duckdb").exists()) as store:
        store.commit({"runs": [run_row(made, folder)]}).result()
        search = Search(made, store, pool(dict(model_runs.stages(made))), on_change=when, say=said.append)
        return await search.run()


def searched(folder: Path, script: Any = model_runs.script, **options: Any) -> tuple[str, LlmServer]:
    async def everything() -> tuple[str, LlmServer]:
        async with LlmServer(script) as server:
            return await session(folder, server.url, options.pop("pool", InlinePool), **options), server

    return asyncio.run(everything())


class Late(InlinePool):
    """Profiles never come to an end by themselves."""

    async def run(self, job: Job[Found]) -> Found:
        return await (asyncio.Future() if isinstance(job, TakeProfile) else super().run(job))


@pytest.mark.slow
def test_models_are_asked_first_of_all_once_the_naive_kernel_is_judged(tmp_path: Path) -> None:
    searched(tmp_path, budget={"evaluations": 8})
    (first,) = rows(tmp_path, "select min(seq) as seq from asks where mutator = 'rewrite'")
    (naive,) = rows(tmp_path, "select t.seq from tells t join asks a using (request_id) where a.mutator = 'ancestor'")
    assert first["seq"] == naive["seq"] + 1
    asked = rows(tmp_path, "select messages_json from llm_calls where request_id like '%#1'")
    assert asked and "It has not been timed yet." not in asked[0]["messages_json"]
    done = replay(tmp_path)
    assert done.equal, done.difference


@pytest.mark.slow
def test_nobody_waits_for_a_profile_and_the_end_gives_it_up(tmp_path: Path) -> None:
    reason, _ = searched(tmp_path, pool=Late)
    assert reason == "evaluations 20 of 20"
    assert rows(tmp_path, "select count(*) as n from llm_calls")[0]["n"] > 3
    assert rows(tmp_path, "select * from profiles") == []


@pytest.mark.slow
def test_a_profile_serves_the_questions_after_it_and_a_replay_knows_which(tmp_path: Path) -> None:
    """It goes on until a question was asked with a profile, and one without."""
    shown, seen = "What a profiler says", set[bool]()

    def script(request: Mapping[str, Any], number: int) -> Reply:
        seen.add(shown in repr(request["messages"]))
        return model_runs.script(request, number)

    def when(search: Search) -> None:
        if len(seen) == 2 and not search.stopping:
            search.stop()

    settings = {"without": ["crossover", "repair"]}  # which show other kernels' profiles too
    searched(tmp_path, script, when=when, budget={"evaluations": 2000}, settings=settings)
    profiles = {row["kernel_id"]: row["seq"] for row in rows(tmp_path, "select kernel_id, seq from profiles")}
    calls = rows(
        tmp_path,
        "select a.seq, p.parent_id, c.messages_json from llm_calls c join asks a using (request_id)"
        " join parents p on p.request_id = a.request_id and p.position = 0",
    )
    assert {shown in call["messages_json"] for call in calls} == {True, False}
    for call in calls:
        assert (shown in call["messages_json"]) == (profiles.get(call["parent_id"], 1e9) < call["seq"])
    done = replay(tmp_path)
    assert done.equal, done.difference


def test_a_stop_gives_up_a_job_whose_worker_ends_with_it(tmp_path: Path) -> None:
    """Ctrl-C in a terminal reaches workers too."""
    running: list[Search] = []

    class Interrupted(InlinePool):
        async def run(self, job: Job[Found]) -> Found:
            if not running or not isinstance(job, Propose):
                return await super().run(job)
            running[0].stop()
            raise WorkerLost(f"an evaluation worker ended during {job}")

    reason, _ = searched(tmp_path, pool=Interrupted, when=lambda search: running.append(search))
    assert reason == "stopped"
    assert rows(tmp_path, "select kind from events order by created_at")[-1]["kind"] == "stopped"


@pytest.mark.parametrize("again", some_slow([False, True], 1))
def test_a_stop_waits_for_answers_that_are_paid_unless_it_is_said_twice(tmp_path: Path, again: bool) -> None:
    said: list[str] = []

    async def everything() -> None:
        release = asyncio.Event()
        async with LlmServer(lambda request, number: Reply("I know nothing.", until=release)) as server:

            def when(search: Search) -> None:
                if server.requests and not search.stopping:
                    search.stop()
                elif search.phase.startswith("waiting for"):
                    search.stop() if again else release.set()

            assert await session(tmp_path, server.url, InlinePool, when, said) == "stopped"

    asyncio.run(everything())
    (found,) = rows(
        tmp_path,
        "select count(*) filter (where status = 'answered') as answered, sum(lost_tokens) as lost from llm_calls",
    )
    assert (found["answered"] > 0, found["lost"] > 0) == (not again, again)
    assert any("answers that are paid are there" in line for line in said)
    assert rows(tmp_path, "select kind from events order by created_at")[-1]["kind"] == "stopped"


class Stuck(InlinePool):
    """The second kernel is judged for ever, until its worker is replaced."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.judged = 0
        self.waiting: asyncio.Future[Any] | None = None

    async def run(self, job: Job[Found]) -> Found:
        self.judged += isinstance(job, Screen)
        if isinstance(job, Screen) and self.judged == 2:
            self.job = RunningJob(job, 0.0)
            self.waiting = asyncio.get_running_loop().create_future()
            return await self.waiting
        return await super().run(job)

    def jobs(self) -> tuple[RunningJob, ...]:
        return (self.job,) if self.waiting and not self.waiting.done() else ()

    def restart(self, older_than_s: float) -> tuple[RunningJob, ...]:
        stuck = self.jobs()
        if self.waiting and stuck:
            self.waiting.set_exception(WorkerLost("it took too long"))
        return stuck


def test_a_search_in_which_nothing_moves_says_so_and_restarts_what_is_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evo.search.watchdog.WATCH_EVERY_S", 0.01)
    reason, _ = searched(tmp_path, pool=Stuck, llm=None, stall_s=0.2)
    assert reason == "evaluations 20 of 20"
    events = rows(tmp_path, "select kind, detail_json from events order by created_at")
    assert {"stalled", "restart", "worker_lost"} <= {e["kind"] for e in events}
    assert any("screen of softmax/fp32/cpu of kernel" in e["detail_json"] for e in events if e["kind"] == "restart")
    assert not rows(tmp_path, "select request_id from asks except select request_id from tells")


class Forgetful(InlinePool):
    """A pool that never answers one build and does not say so."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.built = 0

    async def run(self, job: Job[Found]) -> Found:
        self.built += isinstance(job, Build)
        if isinstance(job, Build) and self.built == 3:
            await asyncio.Future()
        return await super().run(job)


@pytest.mark.slow
def test_a_request_that_nobody_is_at_is_carried_out_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evo.search.watchdog.WATCH_EVERY_S", 0.01)
    reason, _ = searched(tmp_path, pool=Forgetful, llm=None, stall_s=0.2)
    assert reason == "evaluations 20 of 20"
    assert not rows(tmp_path, "select request_id from asks except select request_id from tells")
    assert replay(tmp_path).equal


def test_the_watchdog_barks_once_then_bites_until_something_moves() -> None:
    clock = [0.0]
    dog = Watchdog(10.0, lambda: clock[0])
    heard = []
    for clock[0] in range(75):
        heard.append(dog.check())
    assert [(at, alarm) for at, alarm in enumerate(heard) if alarm] == [
        (10, "stalled"), (10 * RESTARTS_AFTER, "restart"), (20 * RESTARTS_AFTER, "restart"),
    ]  # fmt: skip
    dog.moved()
    assert dog.check() == ""
    clock[0] += 10
    assert dog.check() == "stalled"
