"""Runs that ask language models: what they may spend, what outlives them, what is said when no model answers."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evo.replay import replay
from evo.report.queries import spending
from evo.store import query
from mutators.llm import LlmSettings
from operators.errors import UserError
from tests.evo import model_runs
from tests.evo.test_cli import evo
from tests.mutators.llm_server import LlmServer, Reply

ROOT = Path(__file__).parents[2]
OPERATOR = str(ROOT / "tests" / "data" / "axpb")


def rows(folder: Path, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = query(folder, sql).to_pylist()
    return found


def llm(**changes: Any) -> dict[str, Any]:
    """Settings for a server whose address comes later."""
    return {"models": [model_runs.MODEL], "max_tokens": 1000, "backoff_s": 0.01} | changes


def test_every_call_is_kept_and_the_ledger_is_what_is_spent(tmp_path: Path) -> None:
    reason, server = model_runs.run(tmp_path / "run")
    assert reason == "evaluations 20 of 20"
    spent = spending(tmp_path / "run")
    assert spent
    assert (spent.tokens_in, spent.tokens_out) == (server.tokens_in, server.tokens_out)
    roles = {row["role"] for row in rows(tmp_path / "run", "select distinct role from llm_calls")}
    assert roles == {"rewrite", "crossover", "repair"}


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
    # Three calls at once: no more than those can have been answered without anybody to hear it, and they are counted.
    assert len(answered) <= len(paid) <= len(answered) + 3
    spent = spending(folder)
    assert spent and bool(spent.lost_tokens) == bool(
        rows(folder, "select * from llm_calls where error like 'the process%'")
    )
    sent, ended = ("select cache_key, count(*) from " + table + " group by all" for table in ("llm_sent", "llm_calls"))
    assert not rows(folder, f"{sent} except {ended}")
    done = replay(folder)
    assert done.equal, done.difference


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
    assert "of 30000 tokens are spent, and the next call may take" in first
    assert 0 < paid <= 30_000
    assert second == "evaluations 20 of 20"
    assert not rows(
        folder, "select request_id from tells where status = 'no_child' except select request_id from llm_calls"
    )
    assert replay(folder).equal


def test_a_model_that_never_answers_ends_the_run_with_one_line(tmp_path: Path) -> None:
    async def silent() -> None:
        async with LlmServer(lambda request, number: Reply(status=500, error="out of order")) as server:
            made = model_runs.config(server.url, llm=llm(api_base=server.url, attempts=2))
            await model_runs.session(tmp_path / "run", made)

    with pytest.raises(UserError, match=r"model openai/scripted has not answered yet and fails: .*out of order"):
        asyncio.run(silent())
    (call, *_) = rows(tmp_path / "run", "select * from llm_calls")
    assert (call["status"], call["attempts"]) == ("unavailable", 2)


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
    spent = spending(tmp_path / "run")
    assert spent and spent.failed == 8
    done = replay(tmp_path / "run")
    assert done.equal, done.difference


def test_the_end_of_the_time_does_not_wait_for_models(tmp_path: Path) -> None:
    """What they may have cost is lost, and their requests are open for a resume."""

    async def everything() -> str:
        async with LlmServer(lambda request, number: Reply(delay_s=600)) as server:
            made = model_runs.config(server.url, budget={"wall_s": 1e5})
            # A clock that makes a leap once the model is asked.
            return await model_runs.session(
                tmp_path / "run", made, now=lambda: time.time() + 1e6 * bool(server.requests)
            )

    assert asyncio.run(everything()).startswith("wall_s")
    calls = rows(tmp_path / "run", "select * from llm_calls")
    assert calls and all(call["status"] == "failed" and call["lost_tokens"] > 1000 for call in calls)
    assert rows(tmp_path / "run", "select request_id from asks except select request_id from tells")


@pytest.mark.parametrize(
    ("arguments", "words"),
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
)
def test_a_model_that_cannot_work_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    code, _, said = evo(monkeypatch, capsys, "run", OPERATOR, *arguments, "--runs", str(tmp_path))
    assert code == 2
    assert words in said.strip().splitlines()[-1]
    assert "Traceback" not in said


def test_settings_of_models_are_part_of_the_run(tmp_path: Path) -> None:
    model_runs.run(tmp_path / "run", budget={"evaluations": 2})
    (row,) = rows(tmp_path / "run", "select config_json from runs")
    stored = model_runs.RunConfig.from_json(row["config_json"]).llm
    assert isinstance(stored, LlmSettings) and stored.models == (model_runs.MODEL,)
