"""A coding agent over MCP, with the official client: it reads, tries drafts out, hands kernels in, hears verdicts."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evo.config import RunConfig
from evo.inbox import Inbox
from evo.outside.questions import open_questions
from evo.replay import replay
from evo.session import run_row
from evo.store import Store, has_writer, query
from mutators.bench import Result
from operators.errors import UserError
from operators.kernel import Kernel
from tests.evo import outside_runs
from tests.evo.test_cli import evo

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from evo.outside.drafts import LOG, DraftWorkers, Sessions
from evo.outside.mcp_server import SHELF, Opened, make_server
from evo.outside.mcp_tools import OF_THE_BENCH, OWN, Studio, Studios, best_line, lost_draft

ROOT = Path(__file__).parents[2]
OPERATOR = ROOT / "tests" / "data" / "axpb"
HEADER = (OPERATOR / "naive.cpp").read_text().partition("void")[0]
LOOP = "{\n    for (int i = 0; i < n; i++) y[i] = store(load(alpha) * load(x[i]) + load(b[i]));\n}\n"
BETTER = f"{HEADER}void axpb(const T* x, const T* b, T* y, T alpha, int n) {LOOP}"
WRONG = BETTER.replace("+ load(b[i])", "- load(b[i])")
BROKEN = BETTER.replace("int i = 0", "int i == 0")


class Agent:
    """A scripted coding agent, which counts its calls."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.calls = 0

    async def __call__(self, name: str, **arguments: Any) -> tuple[str, bool]:
        """The answer of a tool, and whether it says that something is wrong."""
        self.calls += 1
        result = await self._client.call_tool(name, arguments)
        (content,) = result.content
        return str(getattr(content, "text", "")), bool(result.is_error)


def draft(text: str) -> str:
    found = re.search(r"Draft (\w+)", text)
    assert found, text
    return found[1]


@pytest.fixture
def run(waiting_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(waiting_folder, tmp_path / waiting_folder.name))


@pytest.mark.slow
def test_an_agent_hands_in_a_wrong_and_a_better_kernel(run: Path) -> None:
    async def play(agent: Agent) -> None:
        text, _ = await agent("status")
        assert "No search is under way" in text and "1 question waits for answers" in text
        text, _ = await agent("operator")
        assert "alpha * x" in text
        text, _ = await agent("docs")
        assert "[[launch]]" in text
        question, _ = await agent("next_question")
        key = question.partition("=== ")[2].split()[0]
        assert question.startswith("The best kernel of axpb/fp32/cpu is ") and "void axpb" in question

        text, failed = await agent("build", source=BROKEN)
        assert failed and "was not built" in text
        text, failed = await agent("build", source=WRONG)
        assert not failed
        wrong = draft(text)
        text, failed = await agent("submit", kernel=wrong, change="subtracts")
        assert not failed and "It is told" in text
        text, failed = await agent("verdict", of=wrong, wait_s=300)
        assert failed and "wrong" in text, text

        text, failed = await agent("build", source=BETTER)
        better = draft(text)
        text, failed = await agent("judge", kernel=better)
        assert not failed and "It is correct. Over the naive kernel: " in text
        text, failed = await agent("attempt", source=BETTER, change="one pass in order", question=key, wait_s=300)
        assert not failed and "is right" in text and "It is correct. Over the naive kernel: " in text, text
        assert agent.calls == 11
        assert await agent("verdict", of=better) == await agent("verdict", of=key), "an answer is found by its draft"
        text, failed = await agent("sql", query="select author, status, speedup from lineage where author is not null")
        assert not failed and text.count('"author": "scripted"') == 2

    async def connected() -> None:
        arguments = ["-m", "evo.cli", "mcp", str(run), "--author", "scripted", "--budget", "6evals"]
        server = StdioServerParameters(command=sys.executable, args=arguments, cwd=str(ROOT), env=dict(os.environ))
        async with Client(stdio_client(server)) as client:
            tools = (await client.list_tools()).tools
            assert {tool.name for tool in tools} == {*OWN, *OF_THE_BENCH, *SHELF}
            assert all(tool.description and tool.input_schema["type"] == "object" for tool in tools)
            await play(Agent(client))

    asyncio.run(connected())
    found = query(run, "select * from lineage where author = 'scripted' order by created_at").to_pylist()
    assert [(row["mutator"], row["status"]) for row in found] == [("guest", "wrong"), ("rewrite", "correct")]
    assert found[1]["speedup"] > 1 and found[1]["description"] == "one pass in order"
    done = replay(run)
    assert done.equal, done.difference


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[Studio]:
    """The studio of a run without a search."""
    folder, made = tmp_path / "run", outside_runs.config()
    outside_runs.session(folder, made)
    ((operator, task),) = made.tasks()
    workers, sessions = DraftWorkers(folder, made), Sessions(folder, None)
    yield Studio(folder, made, operator, task, pool=workers, sessions=sessions, author="ann")
    asyncio.run(workers.close())


def used(studio: Studio | Studios, *uses: tuple[str, dict[str, Any]]) -> list[tuple[str, bool]]:
    """The answers to a client within this process."""

    async def everything() -> list[tuple[str, bool]]:
        async with Client(make_server(studio)) as client:
            agent = Agent(client)
            return [await agent(name, **arguments) for name, arguments in uses]

    return asyncio.run(everything())


@pytest.mark.slow
def test_what_an_agent_does_wrong_is_told_and_ends_nothing(studio: Studio) -> None:
    found = used(
        studio,
        ("nonsense", {}),
        ("build", {}),
        ("submit", {"kernel": "000000", "change": "x"}),
        ("answer", {"question": "000000", "text": "x"}),
        ("verdict", {"of": "000000", "wait_s": 0}),
        ("verdict", {"of": 7}),
        ("sql", {"query": "drop table asks"}),
        ("attempt", {"source": "int x;", "change": "x"}),
        ("next_question", {"skip": 99}),
    )
    texts = [text for text, _ in found]
    assert [failed for _, failed in found] == [True, True, True, True, False, True, True, True, False]
    assert "unknown tool `nonsense`" in texts[0]
    assert "no open questions have an id that begins with 000000" in texts[3]
    assert texts[4].startswith(
        "There is no verdict yet. Nothing whose id begins with 000000 was handed in: `submit` it"
    )
    assert "are allowed" in texts[6]
    assert texts[8].startswith("7 questions wait")


def test_a_query_may_begin_with_a_comment_and_what_candidates_wrote_is_fenced(studio: Studio) -> None:
    ((text, failed),) = used(studio, ("sql", {"query": "-- the file\nselect source from kernels limit 1"}))
    assert not failed and text.startswith("```json untrusted\n") and "void softmax" in text


@pytest.mark.slow
def test_a_draft_whose_header_is_broken_can_be_an_answer(studio: Studio, tmp_path: Path) -> None:
    key = open_questions(tmp_path / "run")[0].cache_key
    source = "/*\n[tune]\nBLOCK = [a, b]\n*/\nvoid softmax() {}\n"

    async def told() -> Result:
        built = await studio.use("build", {"source": source, "values": {"BLOCK": 1}})
        name = built.text.split()[1]
        return await studio.use("submit", {"kernel": name, "change": "nothing", "question": key})

    assert not asyncio.run(told()).failed


INITIALIZE = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_server_while_its_client_says_nothing(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "evo.cli", "mcp", "--runs", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        assert server.stdin and server.stdout and server.stderr
        server.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
        server.stdin.flush()
        assert "kernel-evo" in json.loads(server.stdout.readline())["result"]["serverInfo"]["name"]
        server.send_signal(number)
        try:
            assert server.wait(30) == 0 and server.stderr.read() == b""
        finally:
            server.kill()


@pytest.mark.slow
def test_the_search_ends_with_a_server_that_is_killed(run: Path) -> None:
    begin = (
        "import sys, time; from pathlib import Path; from evo.outside.drafts import Sessions\n"
        "Sessions(Path(sys.argv[1]), ['--budget', '6evals', '--wait', '600']).ensure()\ntime.sleep(600)"
    )
    Inbox(run).put(["{}"])  # no answer: the session waits for one
    with subprocess.Popen([sys.executable, "-c", begin, str(run)]) as server:
        try:
            wait_until(lambda: has_writer(run))
        finally:
            server.kill()
    wait_until(lambda: not has_writer(run))


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_session_that_takes_nothing_is_not_begun_again_and_again(tmp_path: Path) -> None:
    sessions, inbox = Sessions(tmp_path, ["--no-such-option"]), Inbox(tmp_path)

    def begun() -> int:
        sessions.ensure()
        while sessions.under_way:
            time.sleep(0.05)
        return (tmp_path / LOG).read_text().count("No such option")

    inbox.put(["{}"])
    assert (begun(), begun()) == (1, 1)
    assert "No such option" in (tmp_path / LOG).read_text() and sessions.last_words()
    inbox.put(["{}"])
    assert begun() == 2


@pytest.mark.slow
def test_an_answer_that_is_no_child_is_told_at_once_and_leaves_the_question_open(
    studio: Studio, tmp_path: Path
) -> None:
    key = open_questions(tmp_path / "run")[0].cache_key
    edits = "<<<<<<< SEARCH\nno such line\n=======\nanother\n>>>>>>> REPLACE\n"
    found = used(
        studio,
        ("answer", {"question": key[:12], "text": edits}),
        ("answer", {"question": key[:12], "text": "I do not know."}),
        ("verdict", {"of": key, "wait_s": 0}),
    )
    assert [failed for _, failed in found] == [True, True, False]
    assert "edit 1: what it searches for does not stand in the file" in found[0][0]
    assert "neither an edit" in found[1][0] and "waits for an answer" in found[2][0]
    assert len(open_questions(tmp_path / "run")) == 7 and not Inbox(tmp_path / "run").files()


@pytest.mark.slow
def test_a_question_that_was_taken_is_read_again_by_its_id(studio: Studio) -> None:
    (first, _), (second, _) = used(studio, *[("next_question", {})] * 2)
    key = first.partition("=== ")[2].split()[0]
    found = used(studio, ("next_question", {"question": key[:12]}), ("next_question", {"question": "0" * 12}))
    assert found[0] == (first, False) and second != first
    assert found[1][1] and "no open questions have an id that begins with 000000000000; open are " in found[1][0]
    ((none, _),) = used(studio, ("next_question", {"skip": 9}))
    assert key[:12] in none and "can be read again" in none


@pytest.mark.slow
def test_a_kernel_that_waits_for_its_verdict_is_queued_and_not_handed_in_twice(studio: Studio, tmp_path: Path) -> None:
    line = json.dumps({"source": "/*! evo\n*/\nvoid softmax() {}\n", "task": "softmax"})
    kernel = Kernel("softmax", "cpu", json.loads(line)["source"])
    outside_runs.tell(tmp_path / "run", line)
    assert "is handed in already, and waits" in outside_runs.tell(tmp_path / "run", line).problems[0]
    ((text, failed),) = used(studio, ("verdict", {"of": kernel.id[:12], "wait_s": 0}))
    assert not failed and text.startswith("There is no verdict yet. It is queued until the search goes on")


@pytest.mark.slow
def test_a_call_that_waits_hands_in_again_what_a_busy_machine_lost(
    studio: Studio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any) -> None:
        raise UserError("there is no compiler")

    tries: list[int] = []

    def lost(_: Studio, kernel_id: str) -> Result:
        inbox = Inbox(tmp_path / "run").files()
        tries.append(len(inbox))
        for file in inbox:
            file.unlink()
        return lost_draft(kernel_id, "the machine was too busy to time it")

    monkeypatch.setattr(DraftWorkers, "run", fails)
    monkeypatch.setattr(Studio, "_judged", lost)
    monkeypatch.setattr("evo.outside.mcp_tools.LOOK_EVERY_S", 0.01)
    made = Kernel("softmax", "cpu", "/*! evo\n*/\nvoid softmax() {}\n")
    *_, (text, failed) = used(
        studio,
        ("build", {"source": made.source}),
        ("submit", {"kernel": made.id, "change": "nothing"}),
        ("verdict", {"of": made.id[:12], "wait_s": 60}),
    )
    assert tries == [1, 1, 1], "each time it was in the inbox once"
    assert failed and "hand it in again" in text and "too busy" in text


@pytest.mark.slow
def test_an_answer_that_the_search_has_not_read_yet_is_queued(studio: Studio, tmp_path: Path) -> None:
    asked = open_questions(tmp_path / "run")[0].cache_key
    ((text, _),) = used(studio, ("verdict", {"of": asked[:12], "wait_s": 0}))
    assert "The question waits for an answer" in text
    Inbox(tmp_path / "run").put([json.dumps({"custom_id": asked, "content": "It is fine.", "author": "ann"})])
    ((text, _),) = used(studio, ("verdict", {"of": asked[:12], "wait_s": 0}))
    assert "It is queued" in text and "do not hand it in again" in text


@pytest.mark.slow
def test_a_run_that_is_opened_again_has_its_drafts_still(
    studio: Studio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any) -> None:
        raise UserError("there is no compiler")

    monkeypatch.setattr(DraftWorkers, "run", fails)
    opened = Opened("ann", None)
    made = Kernel("softmax", "cpu", "/*! evo\n*/\nvoid softmax() {}\n")
    ((text, _),) = used(opened.open(tmp_path / "run", ""), ("build", {"source": made.source}))
    assert "there is no compiler" in text
    found = used(opened.open(tmp_path / "run", "softmax"), ("submit", {"kernel": made.id, "change": "nothing"}))
    assert found[0][0].startswith("It is told.")
    asyncio.run(opened.close())


def test_only_the_lower_end_of_a_gain_is_certain() -> None:
    row = {"task": "t", "kernel_id": "k" * 20, "level": "confirmed", "flagged": None}
    doubtful = best_line(row | {"speedup": 1.05, "speedup_low": 0.69, "speedup_high": 1.58})
    assert "1.05x (95 %: 0.690 to 1.58) naive: no gain is certain, confirmed" in doubtful
    assert "certainly 1.90x" in best_line(row | {"speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1})


@pytest.mark.slow
def test_an_answer_that_cannot_be_used_is_asked_for_again(studio: Studio, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first = open_questions(folder)[0]
    line = json.dumps({"custom_id": first.cache_key, "content": "I do not know."})
    assert not outside_runs.tell(folder, line).problems
    ((text, failed),) = used(studio, ("answer", {"question": first.cache_key[:12], "text": "Or do I?"}))
    assert failed and "no open questions" in text
    outside_runs.session(folder, outside_runs.config())
    ((text, failed),) = used(studio, ("verdict", {"of": first.cache_key, "wait_s": 0}))
    assert failed and text.startswith("Your answer to question ") and "could not be used" in text and "\n\n=== " in text


@pytest.mark.slow
def test_a_run_of_several_tasks_is_served_one_task_at_a_time(tmp_path: Path) -> None:
    folder, made = tmp_path / "run", outside_runs.config(operators=["softmax", "relu"], llm={"concurrency": 8})
    outside_runs.session(folder, made)
    workers, sessions = DraftWorkers(folder, made), Sessions(folder, None)
    studios = Studios(
        [Studio(folder, made, o, task, pool=workers, sessions=sessions, author="ann") for o, task in made.tasks()]
    )
    asked = {question.request_id.partition("/")[0] for question in open_questions(folder)}
    found = used(
        studios,
        ("status", {}),
        ("operator", {"task": "relu"}),
        ("operator", {}),
        ("operator", {"task": "conv"}),
        *[("next_question", {})] * 2,
        ("next_question", {"task": "softmax"}),
    )
    texts = [text for text, _ in found]
    assert [failed for _, failed in found] == [False, False, False, True, False, False, False]
    assert all(f"The best kernel of {task} is" in texts[0] for task in ("softmax/fp32/cpu", "relu/fp32/cpu"))
    assert texts[1] == texts[2] and texts[1].startswith("Task relu/fp32/cpu.")
    assert "there is no task" in texts[3]
    assert asked == {"softmax", "relu"} and len({*texts[4:]}) == 3  # no question is handed out twice
    assert all("=== " in text for text in texts[4:]) and texts[6].startswith("Task softmax/fp32/cpu.")
    assert all("task" in tool.parameters["properties"] for tool in studios.tools)
    asyncio.run(workers.close())


def test_a_run_has_only_the_tasks_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = RunConfig(operators=["softmax", "relu"]).resolved()
    with Store(tmp_path / "run", create=True) as store:
        store.commit({"runs": [run_row(made, tmp_path / "run")]}).result()
    code, _, said = evo(monkeypatch, capsys, "mcp", str(tmp_path / "run"), "--task", "conv")
    assert code == 2 and "task conv: there is no task" in said and "relu/fp32/cpu" in said


def test_an_agent_reads_the_machine_and_what_is_left(studio: Studio) -> None:
    (status, _), (machine, _) = used(studio, ("status", {}), ("machine", {}))
    assert "Used of the budget: " in status and "of 20 evals" in status
    assert "cpu_count" in machine
