"""Programs of this machine as language models: answers, costs, and all the ways in which one fails."""

from __future__ import annotations

import asyncio
import json
import math
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mutators.base import Call, CallStatus, Message, OutOfBudget, Request
from mutators.llm.calls import MemoryCalls
from mutators.llm.client import LLM
from mutators.llm.settings import LlmSettings
from mutators.llm.spending import Spending
from operators.definition.spec import Task
from operators.errors import UserError

ASKED: tuple[Message, ...] = ({"role": "system", "content": "Be terse."}, {"role": "user", "content": "Say a word."})
CLAUDE = {
    "type": "result", "subtype": "success", "is_error": False, "duration_ms": 1998, "num_turns": 1, "result": "a word",
    "stop_reason": "end_turn", "session_id": "0e639165", "total_cost_usd": 0.0079825,
    "usage": {
        "input_tokens": 3, "cache_creation_input_tokens": 40, "cache_read_input_tokens": 15635, "output_tokens": 6,
    },
}  # fmt: skip
CODEX = (
    {"type": "thread.started", "thread_id": "0199"},
    {"type": "turn.started"},
    {"type": "item.completed", "item": {"id": "item_0", "type": "reasoning", "text": "hm"}},
    {"type": "item.completed", "item": {"id": "item_1", "type": "agent_message", "text": "a word"}},
    {"type": "turn.completed", "usage": {"input_tokens": 24763, "cached_input_tokens": 24448, "output_tokens": 122}},
)


def program(folder: Path, text: str, name: str = "mind") -> str:
    """The model that a script is, of Python where it does not say otherwise."""
    path = folder / name
    head = "" if text.startswith("#!") else "#!/usr/bin/env python3\nimport json, os, sys, time\n"
    path.write_text(f"{head}{text}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return f"cli/{path}"


def gone(pid: int) -> bool:
    """Whether a process has ended, within a minute; one that no parent has reaped has."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def says(text: str) -> str:
    """A script of the shell, which starts faster."""
    return f"#!/bin/sh\ncat > /dev/null\ncat << 'END'\n{text}\nEND"


def client(model: str, *, spending: Spending | None = None, calls: MemoryCalls | None = None, **changes: Any) -> LLM:
    fast: dict[str, Any] = {"models": (model,), "attempts": 1, "timeout_s": 60.0, "backoff_s": 0.005}
    return LLM(LlmSettings(**(fast | changes)), spending=spending, calls=calls, say=lambda text: None)


def ask(llm: LLM, number: int = 0) -> Call:
    request = Request(Task("softmax", "fp32", "cpu"), number, "rewrite", (), 0)
    return asyncio.run(llm.complete(ASKED, request=request, role="rewrite"))


def test_an_answer_is_what_the_program_writes_and_its_tokens_are_estimated(tmp_path: Path) -> None:
    llm = client(program(tmp_path, "print('heard', len(sys.stdin.read()), sys.argv[1:])") + " --loud 'two words'")
    call = ask(llm)
    assert (call.status, call.error, call.attempts) == (CallStatus.ANSWERED, "", 1)
    assert call.answer.startswith("heard ") and "['--loud', 'two words']" in call.answer
    assert 0 < call.tokens_out < call.tokens_in < 200 and "estimated" in call.usage_doubt
    assert llm.spending.tokens == call.tokens_in + call.tokens_out and llm.spending.reserved_tokens == 0
    (tmp_path / "mind").unlink()
    assert ask(llm) == call, "an answer that is stored is not asked for again"


def test_the_prompt_is_the_whole_conversation(tmp_path: Path) -> None:
    call = ask(client(program(tmp_path, "print(sys.stdin.read())")))
    assert call.answer.index("--- system\nBe terse.") < call.answer.index("--- user\nSay a word.")


@pytest.mark.parametrize(
    ("name", "output", "tokens", "cost_usd"),
    [
        ("claude", json.dumps(CLAUDE), (15678, 6), 0.0079825),
        ("codex", "\n".join(map(json.dumps, CODEX)), (24763, 122), 0.0),
        ("mind", json.dumps({"content": "a word", "usage": {"input_tokens": 7, "output_tokens": 2}, "cost_usd": 0.5}),
         (7, 2), 0.5),
    ],
)  # fmt: skip
def test_json_tells_the_answer_its_tokens_and_its_dollars(
    name: str, output: str, tokens: tuple[int, int], cost_usd: float, tmp_path: Path
) -> None:
    llm = client(program(tmp_path, says(output), name))
    call = ask(llm)
    assert (call.status, call.answer, call.usage_doubt) == (CallStatus.ANSWERED, "a word", "")
    assert (call.tokens_in, call.tokens_out, call.cost_usd) == (*tokens, cost_usd)
    assert (llm.spending.tokens, llm.spending.cost_usd) == (sum(tokens), cost_usd)


def test_claude_is_asked_for_json_without_tools_or_a_title(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tells = "open(os.environ['CLAUDE_SEEN'], 'w').write(json.dumps([sys.argv[1:], dict(os.environ)]))"
    tells = f"sys.stdin.read()\n{tells}"
    seen = tmp_path / "seen"
    monkeypatch.setenv("CLAUDE_SEEN", str(seen))
    ask(client(program(tmp_path, f"{tells}\nprint({json.dumps(CLAUDE)!r})", "claude") + " --model opus"))
    words, variables = json.loads(seen.read_text())
    assert variables["CLAUDE_CODE_DISABLE_TERMINAL_TITLE"] == "1"
    assert words[:3] == ["-p", "--output-format", "json"] and words[words.index("--tools") + 1] == ""
    assert words[-2:] == ["--model", "opus"]


def test_dollars_are_those_that_are_told_else_those_of_the_settings(tmp_path: Path) -> None:
    model = program(tmp_path, says(json.dumps({"content": "x", "usage": {"input_tokens": 10, "output_tokens": 20}})))
    assert ask(client(model, prices={model: {"input": 1.0, "output": 2.0}})).cost_usd == pytest.approx(50e-6)
    (told := tmp_path / "told").mkdir()
    model = program(told, says(json.dumps({"content": "x", "cost_usd": 0.25})))
    assert ask(client(model, prices={model: {"input": 1.0, "output": 2.0}})).cost_usd == 0.25
    for odd in ("nan", -1, True, 1e30, "much"):
        (place := tmp_path / f"odd{odd}").mkdir()
        model = program(place, says(json.dumps({"content": "x", "cost_usd": odd}).replace('"nan"', "NaN")))
        assert ask(client(model)).cost_usd == 0.0


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("sys.exit('the network is down')", "mind", "mind ended with 1: the network is down"),
        ("os.kill(os.getpid(), 9)", "mind", "mind ended with -9: nothing was said"),
        ("sys.stdin.read()", "mind", "mind gave no answer: nothing was said"),
        (says("no JSON"), "claude", "claude gave no answer: its output is not in the form that it is asked for"),
        (says("[" * 100_000), "claude", "not in the form"),
        (says(json.dumps({"type": "result", "subtype": "error_max_turns"})), "claude", "it ended with error_max_turns"),
        (says(json.dumps({"type": "turn.failed", "error": {"message": "usage limit"}})), "codex", "usage limit"),
        (says("[1]\n2"), "codex", "not in the form"),
    ],
)  # fmt: skip
def test_a_program_that_fails_is_a_failed_call_with_its_reason(
    text: str, name: str, words: str, tmp_path: Path
) -> None:
    llm = client(program(tmp_path, text, name), attempts=2)
    call = ask(llm)
    assert not call.status.heard and call.attempts == 2
    assert words in call.error and "\n" not in call.error
    assert llm.spending.calls == 0 and llm.spending.lost_tokens == call.lost_tokens > 0


def test_what_may_pass_is_tried_again(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    text = f"""
if not os.path.exists({str(seen)!r}):
    open({str(seen)!r}, "w").close()
    sys.exit("busy")
print("x")
"""
    call = ask(client(program(tmp_path, text), attempts=3))
    assert (call.status, call.answer.strip(), call.attempts) == (CallStatus.ANSWERED, "x", 2)


def test_a_refusal_is_an_answer(tmp_path: Path) -> None:
    call = ask(client(program(tmp_path, says(json.dumps({"refused": "not this one"})))))
    assert (call.status, call.error) == (CallStatus.REFUSED, "not this one")


def test_an_account_that_is_not_logged_in_is_one_line_for_the_user(tmp_path: Path) -> None:
    told = {**CLAUDE, "is_error": True, "result": "Invalid API key · Please run /login"}
    llm = client(program(tmp_path, f"{says(json.dumps(told))}\nexit 1", "claude"))
    with pytest.raises(UserError, match="claude ended with 1: Invalid API key"):
        ask(llm)


def test_a_program_that_is_missing_is_one_line_before_the_search(tmp_path: Path) -> None:
    for model in (f"cli/{tmp_path}/none", "cli/", "cli/'", "cli/no-such-program-anywhere"):
        with pytest.raises(UserError, match="no such program can be run here"):
            asyncio.run(client(model).check())
    asyncio.run(client(program(tmp_path, "")).check())
    path = tmp_path / "mind"
    path.unlink()
    with pytest.raises(UserError, match="there is no program"):
        ask(client(f"cli/{path}"))


def test_a_program_that_is_too_slow_ends_with_all_that_it_began(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    text = f"""
child = os.fork()
if child:
    open({str(pids)!r}, "w").write(f"{{os.getpid()}} {{child}}")
time.sleep(600)
"""
    model, timeout_s = program(tmp_path, text), 1.0
    while not (pids.exists() and pids.read_text()):  # it must have begun
        timeout_s *= 2
        call = ask(client(model, timeout_s=timeout_s))
    assert not call.status.heard and call.error == "no answer in time" and call.lost_tokens
    assert all(gone(int(pid)) for pid in pids.read_text().split())


def test_a_program_that_leaves_work_behind_is_not_waited_for(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    text = f"""
child = os.fork()
if not child:
    time.sleep(600)
open({str(pid)!r}, "w").write(str(child))
print("done")
"""
    began = time.monotonic()
    assert ask(client(program(tmp_path, text))).answer == "done\n"
    assert time.monotonic() - began < 60
    assert gone(int(pid.read_text()))


def test_a_cancelled_call_ends_the_program(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    llm = client(program(tmp_path, f"open({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"))

    async def work() -> None:
        request = Request(Task("softmax", "fp32", "cpu"), 0, "rewrite", (), 0)
        asking = asyncio.create_task(llm.complete(ASKED, request=request, role="rewrite"))
        while not (pid.exists() and pid.read_text()):
            await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(work())
    assert gone(int(pid.read_text()))
    assert llm.spending.lost_tokens > 0


ASKS = """
import asyncio, sys
from mutators.llm.program import ask
asyncio.run(ask(sys.argv[1], ()))
"""


def test_a_program_dies_with_a_search_that_is_killed(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    model = program(tmp_path, f"open({str(told)!r}, 'w').write(f'{{os.getpid()}}.'); time.sleep(600)")
    with subprocess.Popen([sys.executable, "-c", ASKS, model]) as search:
        while not (told.exists() and told.read_text().endswith(".")):
            assert search.poll() is None
            time.sleep(0.05)
        search.kill()
    assert gone(int(told.read_text()[:-1]))


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_program_that_floods_its_output_is_ended(stream: str, tmp_path: Path) -> None:
    call = ask(client(program(tmp_path, f"while True:\n    sys.{stream}.write('x' * 65536)"), attempts=3))
    assert call.status is CallStatus.FAILED and call.attempts == 1
    assert "wrote more than" in call.error


def test_a_long_answer_is_cut(tmp_path: Path) -> None:
    call = ask(client(program(tmp_path, "print('x' * 5000)"), max_tokens=100))
    assert (call.status, len(call.answer)) == (CallStatus.CUT, 1600)


def test_it_works_in_a_folder_of_its_own_and_gets_few_of_our_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHERS_API_KEY", "sk-of-another-provider")
    monkeypatch.setenv("MY_MIND_KEY", "its own")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    text = "open('note', 'w').close()\nprint(json.dumps([os.getcwd(), os.listdir(), dict(os.environ)]))"
    call = ask(client(program(tmp_path, text, "my-mind.py")))
    folder, there, variables = json.loads(call.answer)
    assert there == ["note"] and not Path(folder).exists()
    assert "OTHERS_API_KEY" not in variables and "sk-of-another" not in call.answer
    assert variables["MY_MIND_KEY"] == "its own" and variables["HTTPS_PROXY"] == "http://127.0.0.1:1"
    assert variables["HOME"] == os.environ["HOME"] and variables["TMPDIR"] == folder


def test_a_budget_of_calls_is_kept_and_one_of_tokens_ends(tmp_path: Path) -> None:
    model = program(tmp_path, says(json.dumps({"content": "x", "usage": {"input_tokens": 400, "output_tokens": 100}})))
    llm = client(model, spending=Spending(limit_calls=3))
    for number in range(3):
        assert ask(llm, number).status.heard
    with pytest.raises(OutOfBudget, match="3 of 3 calls"):
        ask(llm, 3)
    limited, made = client(model, spending=Spending(limit_tokens=10_000), max_tokens=200), 0
    with pytest.raises(OutOfBudget, match="tokens are spent"):
        while made < 100:
            made += ask(limited, made).status.heard
    assert 18 <= made <= 20 and limited.spending.tokens == 500 * made


def test_a_budget_in_dollars_needs_a_price(tmp_path: Path) -> None:
    model = program(tmp_path, says("x"))
    with pytest.raises(UserError, match="its price is not known"):
        asyncio.run(client(model, spending=Spending(limit_usd=5)).check())
    asyncio.run(client(model, spending=Spending(limit_usd=5), prices={model: {"input": 1, "output": 1}}).check())
    asyncio.run(client(model, spending=Spending(limit_usd=math.inf)).check())
