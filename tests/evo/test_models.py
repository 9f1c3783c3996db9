"""Runs that ask language models: what they may spend, what outlives them, what is said when no model answers."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from evo.api import Run
from evo.replay import replay
from evo.report.status import model_costs
from evo.report.terminal import costs_line
from evo.search.driver import Search
from evo.search.models import SPOOL, StoredCalls, restore_spending
from evo.session import run_row
from evo.store import Store, query
from fitness.testing import ScriptedFitness
from mutators.base import Call, CallStatus, Message, Request
from mutators.llm.client import LLM
from mutators.llm.settings import LlmSettings
from mutators.llm.spending import Spending
from operators.definition.spec import Task
from operators.errors import UserError
from operators.kernel import Kernel
from tests.choosing import some_slow
from tests.evo import model_runs
from tests.evo.test_cli import evo
from tests.inline import InlinePool
from tests.mutators.llm_server import LlmServer, Reply, Script

ROOT = Path(__file__).parents[2]
HANGS_S = 600.0
"""Longest search; one that takes longer waits for what never comes."""
OPERATOR = str(ROOT / "tests" / "data" / "axpb")


def rows(folder: Path, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = query(folder, sql).to_pylist()
    return found


def llm(**changes: Any) -> dict[str, Any]:
    """Settings for a server whose address comes later."""
    return {"models": [model_runs.MODEL], "max_tokens": 1000, "backoff_s": 0.01} | changes


@pytest.mark.slow
def test_every_call_is_kept_and_the_ledger_is_what_is_spent(tmp_path: Path) -> None:
    roles: set[str] = set()
    for seed in range(10):  # what comes of an answer depends on what was told before it, and repairs need a failure
        folder = tmp_path / f"{seed}"
        reason, server = model_runs.run(folder, seed=seed, check=seed % 2 == 0)  # what is mended needs no repair
        assert reason == "evaluations 20 of 20"
        spent = model_costs(Run(folder))
        assert spent
        assert (spent.tokens_in, spent.tokens_out) == (server.tokens_in, server.tokens_out)
        roles |= {row["role"] for row in rows(folder, "select distinct role from llm_calls")}
        if roles == {"rewrite", "crossover", "repair", "mend"}:
            return
    raise AssertionError(f"only these roles had calls: {roles}")


@pytest.mark.slow
def test_an_answered_call_survives_kill_9_and_is_not_paid_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    paid: list[str] = []

    def script(request: Mapping[str, Any], number: int) -> Reply:
        reply = model_runs.script(request, number)
        if reply.status == 200:
            paid.append(reply.text or "")
        return reply

    async def killed_and_resumed() -> None:
        async with LlmServer(script) as server:
            command = [sys.executable, "-m", "tests.evo.model_runs", str(folder), server.url, "12"]
            process = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
            while len(paid) < 7:
                await asyncio.sleep(0.01)
                assert process.returncode is None
            process.send_signal(signal.SIGKILL)
            await process.wait()
            process = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
            assert await process.wait() == 0

    asyncio.run(killed_and_resumed())
    answered = rows(folder, "select cache_key, count(*) as n from llm_calls where status <> 'failed' group by all")
    assert all(row["n"] == 1 for row in answered)
    # Three calls at once: no more than those can be answered without a reader, and they are counted.
    assert len(answered) <= len(paid) <= len(answered) + 3
    spent = model_costs(Run(folder))
    assert spent and bool(spent.lost_tokens) == bool(
        rows(folder, "select * from llm_calls where error like 'the process%'")
    )
    sent, ended = ("select cache_key, count(*) from " + table + " group by all" for table in ("llm_sent", "llm_calls"))
    assert not rows(folder, f"{sent} except {ended}")
    done = replay(folder)
    assert done.equal, done.difference


def test_the_price_of_calls_is_the_same_after_a_resume(tmp_path: Path) -> None:
    """The rest of a budget decides alike on the last call, whether a search was interrupted or not."""
    live, again = Spending(), Spending()

    async def work() -> None:
        replies = [Reply("word " * 30), Reply(status=500), Reply("word " * 50), Reply("word", usage=False)]
        async with LlmServer(lambda sent, number: replies[number]) as server:
            made = model_runs.config(server.url).llm
            assert made
            with Store(tmp_path / "run", create=True) as store:
                llm = LLM(made, spending=live, calls=StoredCalls(store))
                for number in range(3):
                    asked: tuple[Message, ...] = ({"role": "user", "content": "w " * (100 + 300 * number)},)
                    request = Request(Task("softmax", "fp32", "cpu"), number, "rewrite", (), 0)
                    assert (await llm.complete(asked, request=request, role="rewrite")).status is CallStatus.ANSWERED
                restore_spending(again, store)

    asyncio.run(work())
    assert live.calls == again.calls == 3 and live.tallies[model_runs.MODEL].known == 2
    assert again.tallies == live.tallies and again.tokens == live.tokens


@pytest.mark.slow
def test_a_budget_of_tokens_ends_the_run_and_a_larger_one_takes_up_what_was_open(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ask = {"evaluations": 20, "tokens": 30_000}

    async def everything() -> tuple[str, str, int]:
        async with LlmServer(model_runs.script) as server:
            made = model_runs.config(server.url, budget=ask)
            assert made.llm
            made = made.model_copy(update={"llm": made.llm.model_copy(update={"max_tokens": 1000})})
            first = await model_runs.session(folder, made)
            paid = server.tokens_in + server.tokens_out
            larger = made.model_copy(update={"budget": {"evaluations": 20}})
            return first, await model_runs.session(folder, larger), paid

    first, second, paid = asyncio.run(everything())
    needed = re.search(r"of 30000 tokens are spent, and the next call needs (\d+) left", first)
    assert paid < 31_500 and (paid >= 30_000 or (needed and 30_000 - paid < int(needed[1]))), first
    assert second == "evaluations 20 of 20"
    assert not rows(
        folder, "select request_id from tells where status = 'no_child' except select request_id from llm_calls"
    )
    assert replay(folder).equal


@pytest.mark.slow
def test_a_budget_of_calls_is_kept_across_sessions(tmp_path: Path) -> None:
    """Each answer here is a new kernel, so each call that is paid is told; some requests fail, which is no call."""
    folder, answered = tmp_path / "run", 0

    def script(request: Mapping[str, Any], number: int) -> Reply:
        nonlocal answered
        if number % 3 == 1:
            return Reply(status=500, error="overloaded")
        answered += 1
        source = model_runs.source_in(request["messages"][1]["content"])
        return Reply(f"CHANGE: a line\n\n{model_runs.FENCE}{source}\n{model_runs.another(str(number))}\n```")

    async def session(server: LlmServer, calls: int) -> str:
        made = model_runs.config(server.url, budget={"calls": calls})
        ((operator, task),) = made.tasks()
        right = ScriptedFitness(task, Kernel("softmax", "cpu", operator.naive("cpu")), lambda _: 0.1)
        return await model_runs.session(folder, made, fitness={task: right})

    async def everything() -> tuple[str, int, str]:
        async with LlmServer(script) as server:
            first = await session(server, 3)
            return first, answered, await session(server, 5)

    first, paid, second = asyncio.run(everything())
    assert first.startswith("3 of 3 calls") or first == "calls 3 of 3"
    assert second.startswith("5 of 5 calls") or second == "calls 5 of 5"
    (made,) = rows(folder, "select count(*) as n from llm_calls where status = 'answered'")
    (told,) = rows(
        folder, "select count(*) as n from llm_calls c join tells using (request_id) where c.status = 'answered'"
    )
    (last,) = rows(folder, "select max(calls) as n from curve")
    assert (paid, answered, made["n"], told["n"], last["n"]) == (3, 5, 5, 5, 5)
    assert replay(folder).equal


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", some_slow([Reply(status=429, error="Rate limit"), Reply(status=500, error="out of order")], 1)
)
def test_a_model_that_never_answers_leaves_the_search_to_its_mutators(tmp_path: Path, fault: Reply) -> None:
    async def silent() -> str:
        async with LlmServer(lambda request, number: fault) as server:
            made = model_runs.config(server.url, llm=llm(api_base=server.url, attempts=2), strategy="islands")
            return await model_runs.session(tmp_path / "run", made)

    assert asyncio.run(silent()) == "evaluations 20 of 20"
    (call, *_) = rows(tmp_path / "run", "select * from llm_calls")
    assert (call["status"], call["attempts"]) == ("unavailable", 2)


def test_a_key_that_is_wrong_ends_the_run_at_its_start_with_one_line(tmp_path: Path) -> None:
    async def refused() -> None:
        async with LlmServer(lambda request, number: Reply(status=401, error="Incorrect API key")) as server:
            made = model_runs.config(server.url, llm=llm(api_base=server.url), strategy="islands")
            await model_runs.session(tmp_path / "run", made)

    with pytest.raises(UserError, match=r"model openai/scripted has not answered yet and fails: .*Incorrect API key"):
        asyncio.run(refused())


@pytest.mark.slow
def test_a_model_that_stops_answering_does_not_end_the_run(tmp_path: Path) -> None:
    def script(request: Any, number: int) -> Reply:
        reply = model_runs.script(request, 0)
        return replace(reply, status=500) if 6 <= number < 14 else reply

    async def everything() -> str:
        async with LlmServer(script) as server:
            made = model_runs.config(server.url, llm=llm(api_base=server.url, attempts=1))
            return await model_runs.session(tmp_path / "run", made)

    assert asyncio.run(everything()) == "evaluations 20 of 20"
    spent = model_costs(Run(tmp_path / "run"))
    assert spent and spent.failed == 8
    done = replay(tmp_path / "run")
    assert done.equal, done.difference


def test_the_end_of_the_time_does_not_wait_for_models(tmp_path: Path) -> None:
    """The cost that they may have is lost, and their requests are open for a resume."""

    async def everything() -> str:
        async with LlmServer(lambda request, number: Reply(delay_s=600)) as server:
            made = model_runs.config(server.url, budget={"wall_s": 1e5})
            # A clock that makes a leap once the model is asked.
            return await model_runs.session(
                tmp_path / "run", made, now=lambda: time.time() + 1e6 * bool(server.requests)
            )

    assert asyncio.run(everything()).startswith("time ")
    calls = rows(tmp_path / "run", "select * from llm_calls")
    assert calls and all(call["status"] == "failed" and call["lost_tokens"] > 1000 for call in calls)
    assert rows(tmp_path / "run", "select request_id from asks except select request_id from tells")


@pytest.mark.parametrize(
    ("arguments", "words"),
    some_slow(
        [
            (("--llm", "openai/gpt-5"), "model openai/gpt-5: set OPENAI_API_KEY in the environment"),
            (("--llm", "nonsense"), "model nonsense: litellm knows no such model"),
            (("--llm", "openai/x", "--set", "llm.api_base=http://127.0.0.1:9/v1"), "no server answers there"),
            (("--llm", "openai/x", "--set", "llm.api_base=localhost:9"), "llm.api_base"),
            (("--set", "llm.temperature=1"), "such as --llm openai/gpt-5"),
            (
                ("--llm", "openai/x", "--set", "llm.api_base=http://127.0.0.1:9/v1", "--budget", "5usd"),
                "its price is not known, so that a budget in dollars would not hold",
            ),
        ],
        2,
    ),
)
def test_a_model_that_cannot_work_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    frozen = gc.get_freeze_count()
    code, _, said = evo(monkeypatch, capsys, "run", OPERATOR, *arguments, "--runs", str(tmp_path))
    assert code == 2
    assert gc.get_freeze_count() <= frozen, "DuckDB prints fifty lines at exit of what is never collected"
    assert words in said.strip().splitlines()[-1]
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_program_as_a_model_is_in_ledger_budget_and_replay_as_any_other(tmp_path: Path) -> None:
    mind = tmp_path / "mind"
    mind.write_text(f"#!{sys.executable}\n{PROGRAM}", encoding="utf-8")
    mind.chmod(0o755)
    settings = {"models": [f"cli/{mind}"], "concurrency": 1, "backoff_s": 0.01, "attempts": 1}
    model_runs.run(tmp_path / "run", stops=(3,), budget={"calls": 6}, llm=settings, strategy="asking")
    calls = rows(tmp_path / "run", "select * from llm_calls")
    heard = [call for call in calls if call["status"] != "failed"]
    assert len(heard) == 6 and {call["model"] for call in calls} == {f"cli/{mind}"}
    assert {(c["tokens_in"], c["tokens_out"], c["cost_usd"]) for c in heard} == {(70, 30, 0.5)}
    (used,) = rows(tmp_path / "run", "select sum(cost_usd) as usd, sum(tokens_in) as tokens from cost")
    assert (used["usd"], used["tokens"]) == (3.0, 420)
    mind.unlink()
    done = replay(tmp_path / "run")
    assert done.equal, done.difference


PROGRAM = """
import json, re, sys, zlib
prompt = sys.stdin.read()
source = prompt.partition("```cpp untrusted\\n")[2].partition("\\n```")[0]
number = zlib.crc32(prompt.encode())
text = f"CHANGE: line {number}\\n\\n```cpp\\n{source}\\nstatic_assert(true, \\"{number}\\");\\n```"
print(json.dumps({"content": text, "usage": {"input_tokens": 70, "output_tokens": 30}, "cost_usd": 0.5}))
"""


def test_settings_of_models_are_part_of_the_run(tmp_path: Path) -> None:
    model_runs.run(tmp_path / "run", budget={"evaluations": 2})
    (row,) = rows(tmp_path / "run", "select config_json from runs")
    stored = model_runs.RunConfig.from_json(row["config_json"]).llm
    assert isinstance(stored, LlmSettings) and stored.models == (model_runs.MODEL,)


# --- models that go and come back ----------------------------------------------------------------------------------


def child(request: Mapping[str, Any], number: int) -> Reply:
    """A new one with every answer."""
    source = model_runs.source_in(request["messages"][1]["content"])
    return Reply(f"CHANGE: comment\n\n{model_runs.FENCE}{source}\n{model_runs.another(str(number))}\n```")


def search(folder: Path, script: Script, *, stop_after: int | None = None, **changes: Any) -> tuple[str, LlmServer]:
    """A session of a run against a provider that answers by this script; why it ended."""

    async def everything() -> tuple[str, LlmServer]:
        async with LlmServer(script) as server:
            settings = llm(api_base=server.url, pause_s=0.05) | changes.pop("llm", {})
            made = model_runs.config(server.url, **changes | {"llm": settings})
            return await model_runs.session(folder, made, stop_after=stop_after), server

    return asyncio.run(asyncio.wait_for(everything(), HANGS_S))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", some_slow(["asking", "best_of_n", "islands"], 1))
@pytest.mark.parametrize("status", some_slow([401, 402, 404], 1))
def test_a_model_that_is_gone_for_a_while_neither_ends_the_run_nor_is_asked_without_end(
    strategy: str, status: int, tmp_path: Path
) -> None:
    """It is said, the search waits for it or does without, and takes it back; the replay tells the same."""
    folder, gone = tmp_path / "run", range(4, 10)
    number = 0

    def script(request: Any, _: int) -> Reply:
        nonlocal number
        number += 1
        # As many requests as six trials: the pauses grow, and the answers after them are as before.
        return Reply(status=status, error="no more") if number in gone else child(request, number)

    reason, server = search(folder, script, strategy=strategy, budget={"evaluations": 30})
    assert reason == "evaluations 30 of 30"
    calls = rows(folder, "select status, attempts, error from llm_calls where status = 'unavailable'")
    assert 0 < len(calls) <= len(gone) and all("no more" in call["error"] for call in calls)
    told = rows(folder, "select count(*) as n from tells where status = 'unavailable'")
    assert told[0]["n"] <= len(calls)
    kinds = [row["kind"] for row in rows(folder, "select kind from events where kind like 'model%'")]
    assert kinds[:1] == ["model_out"] and set(kinds) <= {"model_out", "model_back"}
    assert len(server.requests) < 200
    done = replay(folder)
    assert done.equal, done.difference


@pytest.mark.slow
def test_the_search_goes_on_with_the_other_model(tmp_path: Path) -> None:
    """And the status says which one is gone, since when and why."""
    folder = tmp_path / "run"
    other = "openai/other"
    answers: Counter[str] = Counter()

    def script(request: Any, number: int) -> Reply:
        model = request["model"]
        if model == "scripted" and answers[model] >= 2:
            return Reply(status=402, error="the credit is used up")
        answers[model] += 1
        return child(request, number)

    two = {"models": [model_runs.MODEL, other], "pause_s": 600.0, "concurrency": 3}
    reason, server = search(folder, script, strategy="best_of_n", budget={"evaluations": 25}, llm=two)
    assert reason == "evaluations 25 of 25"
    assert answers["other"] > 20
    assert sum(request["model"] == "scripted" for request in server.requests) <= 2 + 3
    spent = model_costs(Run(folder))
    assert spent
    (out,) = spent.out
    assert out.model == model_runs.MODEL and "credit is used up" in out.error
    assert f"model {model_runs.MODEL} does not answer since 20" in costs_line(spent)


@pytest.mark.slow
def test_a_search_that_waits_for_a_model_can_be_stopped_and_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def script(request: Any, number: int) -> Reply:
        return Reply(status=401, error="revoked") if number >= 3 else child(request, number)

    async def waiting() -> str:
        async with LlmServer(script) as server:
            changes: dict[str, Any] = {"strategy": "best_of_n", "llm": llm(api_base=server.url, pause_s=600.0)}
            made = model_runs.config(server.url, **changes)

            def on_change(running: Search) -> None:
                if running.models.held:
                    running.stop()

            with Store(folder, create=True) as store:
                store.commit({"runs": [run_row(made, folder)]}).result()
                pool = InlinePool(dict(model_runs.stages(made)))
                return await asyncio.wait_for(Search(made, store, pool, on_change=on_change).run(), HANGS_S)

    assert asyncio.run(waiting()) == "stopped"
    reason, _ = search(folder, child, strategy="best_of_n")
    assert reason == "evaluations 20 of 20"
    assert model_costs(Run(folder)).out == ()  # type: ignore[union-attr]
    assert not rows(folder, "select request_id from asks except select request_id from tells") or replay(folder).equal


@pytest.mark.slow
def test_an_oversized_answer_costs_its_own_proposal_and_no_more(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    prose = "prose " * 1_700_000

    def script(request: Any, number: int) -> Reply:
        return Reply(prose) if number % 5 == 1 else child(request, number)

    reason, server = search(folder, script, budget={"evaluations": 12, "tokens": 150_000})
    assert reason == "evaluations 12 of 12"
    asked = [sum(len(message["content"]) for message in request["messages"]) for request in server.requests]
    assert max(asked) < 100_000
    (longest,) = rows(folder, "select max(length(answer)) as n from llm_calls")
    assert longest["n"] <= 16_000
    done = replay(folder)
    assert done.equal, done.difference


@pytest.mark.slow
def test_a_run_that_an_older_version_left_with_an_oversized_answer_goes_on(tmp_path: Path) -> None:
    """The answer stands in the store as it came; what is shown again of it is bounded."""
    folder = tmp_path / "run"
    prose = "prose " * 100_000
    with patch("mutators.llm.client.CHARACTERS_PER_TOKEN", 10**6), patch("mutators.asking.dialogue.MAX_ECHO", 10**9):
        first, _ = search(
            folder,
            lambda request, number: Reply(prose) if number == 1 else child(request, number),
            budget={"evaluations": 12, "tokens": 60_000},
        )
    assert (first.startswith("60") or "tokens" in first) or first == "evaluations 12 of 12"
    reason, _ = search(folder, child, budget={"evaluations": 12})
    assert reason == "evaluations 12 of 12"


def test_an_answer_is_safe_before_the_store_has_taken_it(tmp_path: Path) -> None:
    """Like after a kill, the answer is in the store of the next session, once, and nothing of it is left beside."""

    class Slow:
        """A store whose commits of answers never come."""

        def __init__(self, store: Store) -> None:
            self.store, self.folder = store, store.folder
            self.rows, self.notes = store.rows, store.notes

        def commit(self, rows: Mapping[str, Any]) -> Future[None]:
            return Future() if "llm_calls" in rows else self.store.commit(rows)

    def call(number: int) -> Call:
        messages = ({"role": "user", "content": "\u00fc\n"},)
        key, text = f"key {number}", f"answer {number}\n\U0001f600"
        return Call("r#1", "rewrite", "m", messages, 0, key, CallStatus.ANSWERED, text, usage_doubt="none told")

    async def heard(store: Any, numbers: range) -> None:
        calls = StoredCalls(store)
        assert calls.heard() == (0 not in numbers)
        await asyncio.wait([asyncio.ensure_future(calls.add(call(n))) for n in numbers], timeout=0.2)

    with Store(tmp_path / "run", create=True) as store:
        asyncio.run(heard(store, range(2)))
        assert not (tmp_path / "run" / SPOOL).exists()
        asyncio.run(heard(Slow(store), range(2, 5)))
        with (tmp_path / "run" / SPOOL).open("ab") as file:
            file.write(b'{"call_id": "cut o')
    with Store(tmp_path / "run", create=False) as store:
        calls = StoredCalls(store)
        assert [calls.find(f"key {n}") for n in range(5)] == [call(n) for n in range(5)]
        assert calls.heard()
        StoredCalls(store)
    assert len(rows(tmp_path / "run", "select * from llm_calls")) == 5
    assert not (tmp_path / "run" / SPOOL).exists()
