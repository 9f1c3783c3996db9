"""Searches in which models work with tools: individuals, charges, sessions, resume after a kill, and replay."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from evo.api import Run
from evo.individual import Individual
from evo.replay import replay
from evo.report.status import model_costs
from evo.store import query
from evo.strategies.population import AgentSession, AgentSessions, AgentSettings, Elite
from fitness.evaluation import Evaluation, Level, Status
from mutators.base import Request
from operators.definition.spec import Task
from operators.kernel import Kernel
from tests.evo import model_runs
from tests.mutators.llm_server import LlmServer, Reply

ROOT = Path(__file__).parents[2]
AGENTS: dict[str, Any] = {"strategy": "islands", "settings": {"agent": {"evaluations": 2, "calls": 8}}}


def rows(folder: Path, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = query(folder, sql).to_pylist()
    return found


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LlmServer]:
    """A run in three sessions, whose models work with tools, faults included."""
    folder = tmp_path_factory.mktemp("runs") / "worked"
    for number, evaluations in enumerate((70, 140, 280)):  # it takes some luck until all that can happen has happened
        place = folder / str(number)
        _, server = model_runs.run(
            place, stops=(15, 40), answer=model_runs.working, budget={"evaluations": evaluations}, **AGENTS
        )
        used = {row["tool"] for row in rows(place, "select distinct tool from tool_calls where request_id in "
                "(select request_id from asks where mutator = 'agent')")}  # fmt: skip
        threads = rows(place, "select * from asks where mutator = 'agent' and request_json like '%\"thread\"%'")
        if threads and {"build", "check", "judge", "submit", "no_tool"} <= used:
            return place, server
    raise AssertionError("no dialogue went on, or some tools were never used")


@pytest.mark.slow
def test_what_is_handed_in_is_an_individual_with_its_parents(worked: tuple[Path, LlmServer]) -> None:
    folder, _ = worked
    made = rows(folder, "select * from lineage where mutator = 'agent'")
    assert made and all(row["generation"] >= 1 and row["status"] for row in made)
    handed = rows(folder, "select request_id, kernel_id, change, bases from tool_calls where change is not null")
    proposals = {row["request_id"]: row for row in rows(folder, "select * from proposals where mutator = 'agent'")}
    for row in handed:
        told = proposals.get(row["request_id"])
        if told:  # else the run ended before
            assert (told["kernel_id"], told["description"]) == (row["kernel_id"], row["change"])
            assert told["parents"][: len(row["bases"])] == row["bases"]


@pytest.mark.slow
def test_judgements_are_charged_and_kept_beside_the_lineage(worked: tuple[Path, LlmServer]) -> None:
    folder, _ = worked
    judged = rows(folder, "select * from tool_calls where evaluations > 0")
    kept = rows(folder, "select * from evaluations where request_id like '%/%/%/%' or not is_verdict")
    assert judged and {row["evaluation_id"] for row in judged} <= {row["evaluation_id"] for row in kept}
    most = "select request_id, sum(evaluations) as n from tool_calls group by all having n > 2"
    assert rows(folder, most) == []
    told = rows(
        folder,
        "select count(*) as n from tells join asks using (request_id) where status not in"
        " ('invalid', 'unsupported', 'duplicate', 'no_child', 'unavailable') and mutator <> 'tune'",
    )
    limit = json.loads(rows(folder, "select config_json from runs")[0]["config_json"])["budget"]["evaluations"]
    assert told[0]["n"] + len(judged) <= limit


@pytest.mark.slow
def test_the_ledger_is_the_servers_with_tools_faults_and_sessions(worked: tuple[Path, LlmServer]) -> None:
    folder, server = worked
    spent = model_costs(Run(folder))
    assert spent and (spent.tokens_in, spent.tokens_out) == (server.tokens_in, server.tokens_out)
    answered = rows(folder, "select cache_key from llm_calls where status <> 'failed'")
    assert len({row["cache_key"] for row in answered}) == len(answered)
    assert len(rows(folder, "select distinct tool_key from tool_calls")) == len(
        rows(folder, "select * from tool_calls")
    )


@pytest.mark.slow
def test_it_replays(worked: tuple[Path, LlmServer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evo.workbench.bench.Workbench.use", lambda *_: pytest.fail("a tool was used"))
    done = replay(worked[0])
    assert done.equal, done.difference
    again = replay(Path(done.replay))
    assert again.equal, again.difference


@pytest.mark.slow
def test_a_dialogue_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    folder, paid = tmp_path / "run", []

    def script(request: Mapping[str, Any], number: int) -> Reply:
        reply = model_runs.working(request, number)
        if reply.status == 200:
            paid.append("tools" in request)
        return reply

    async def killed_and_resumed() -> None:
        async with LlmServer(script) as server:
            command = [sys.executable, "-m", "tests.evo.model_runs", str(folder), server.url, "50", json.dumps(AGENTS)]
            process = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
            while sum(paid) < 3:
                await asyncio.sleep(0.01)
                assert process.returncode is None
            process.send_signal(signal.SIGKILL)
            await process.wait()
            process = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
            assert await process.wait() == 0

    asyncio.run(killed_and_resumed())
    answered = rows(folder, "select cache_key, count(*) as n from llm_calls where status <> 'failed' group by all")
    assert all(row["n"] == 1 for row in answered)
    assert len(answered) <= len(paid) <= len(answered) + 3  # as many as were at the model at once were not heard
    numbers = rows(folder, "select request_id, list(number order by number) as n from tool_calls group by all")
    assert all(row["n"] == list(range(len(row["n"]))) for row in numbers)
    done = replay(folder)
    assert done.equal, done.difference


# --- sessions ---------------------------------------------------------------------------------------------------------

PARENT = Elite(Kernel("softmax", "cpu", "parent"), (), 0.5, 0.01)


def told(sessions: AgentSessions, number: int, log_speedup: float | None, **changes: Any) -> None:
    request = Request(Task("softmax", "fp32", "cpu"), number, "agent", (), 0, model="m")
    kernel = Kernel("softmax", "cpu", f"kernel {number}")
    found = Evaluation(
        kernel.id, "softmax/fp32/cpu", Level.FULL, Status.WRONG if log_speedup is None else Status.CORRECT,
        log_speedup=log_speedup, log_speedup_se=None if log_speedup is None else 0.01,
    )  # fmt: skip
    fields = {"kernel": kernel, "evaluation": found} | changes
    sessions.tell(Individual(request, **fields))


def goes_on(sessions: AgentSessions, number: int) -> AgentSession:
    session = sessions.next("m", PARENT)
    request = Request(Task("softmax", "fp32", "cpu"), number, "agent", (), 0, model="m", thread=session.thread)
    assert sessions.take(request, PARENT) == session.parent
    return session


def test_a_session_goes_on_from_its_best_kernel_until_it_brings_nothing() -> None:
    sessions = AgentSessions(AgentSettings())
    assert goes_on(sessions, 0).thread == ""
    told(sessions, 0, 0.9)
    second = goes_on(sessions, 1)
    assert (second.thread, second.parent.log_speedup) == ("softmax/fp32/cpu#0", 0.9)
    told(sessions, 1, None)
    third = goes_on(sessions, 2)
    assert third.parent.log_speedup == 0.9 and third.fruitless == 1
    told(sessions, 2, 0.8)
    assert goes_on(sessions, 3).thread == ""  # two in a row gained nothing


def test_a_model_that_is_away_says_nothing_and_one_without_tools_is_asked_no_more() -> None:
    sessions = AgentSessions(AgentSettings())
    goes_on(sessions, 0)
    told(sessions, 0, 0.9)
    session = goes_on(sessions, 1)
    told(sessions, 1, None, kernel=None, evaluation=None, unavailable=True, failure="away")
    assert goes_on(sessions, 2) == session and sessions.may_ask("m")
    failure = "nothing was handed in: m gave no answer: the model cannot call tools"
    told(sessions, 2, None, kernel=None, evaluation=None, failure=failure)
    assert not sessions.may_ask("m") and sessions.may_ask("other")


def test_a_session_ends_with_its_last_kernel() -> None:
    sessions = AgentSessions(AgentSettings(kernels=2))
    for number in range(2):
        goes_on(sessions, number)
        told(sessions, number, 1.0 + number)
    assert goes_on(sessions, 2).thread == ""
