"""Calls of tools by dialogues on their workbenches are stored: served on resume and replay, and told in SQL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from evo.replay import replay
from evo.store import query
from operators.kernel import Kernel
from tests.evo import model_runs
from tests.mutators.llm_server import Reply

CHECKED = model_runs.stages(model_runs.config("http://127.0.0.1:9/v1"))
"""Stages that check drafts of these runs."""


def rows(folder: Path, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = query(folder, sql).to_pylist()
    return found


def at_fault_now_and_then(request: Mapping[str, Any], number: int) -> Reply:
    """The answer of `script`, but that a third of the questions that begin dialogues get drafts that a check
    refuses."""
    if number % 3 or len(request["messages"]) > 2:
        return model_runs.script(request, number)
    source = model_runs.source_in(request["messages"][1]["content"])
    drafts = (f"{source}\n{model_runs.another(f'{number} {attempt}')}\n" for attempt in count())
    draft = next(text for text in drafts if refused(Kernel("softmax", "cpu", text)))
    return Reply(f"CHANGE: draft {number}\n\n{model_runs.FENCE}{draft}```")


def refused(kernel: Kernel) -> bool:
    (fitness,) = CHECKED.values()
    return fitness.spot_check(kernel).rejection is not None


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in three sessions, in which some drafts are at fault."""
    folder = tmp_path_factory.mktemp("runs") / "asked"
    model_runs.run(folder, stops=(5, 12), budget={"evaluations": 30}, answer=at_fault_now_and_then)
    return folder


@pytest.mark.slow
def test_every_draft_is_looked_at_once_and_kept(asked: Path) -> None:
    found = rows(asked, "select * from tool_calls order by rowid")
    assert {row["tool"] for row in found} == {"check"} and {row["failed"] for row in found} == {True, False}
    assert len({row["tool_key"] for row in found}) == len(found)
    kernels = {row["kernel_id"] for row in rows(asked, "select kernel_id from kernels")}
    assert len(rows(asked, "select * from kernels")) == len(kernels) >= len({row["kernel_id"] for row in found})
    assert {row["kernel_id"] for row in found} <= kernels
    assert all(row["evaluations"] == 0 and row["text"] for row in found)


@pytest.mark.slow
def test_what_a_draft_was_at_fault_for_is_in_the_next_question_of_its_dialogue(asked: Path) -> None:
    # Of calls that a stop cut off nothing is kept but what they may have cost.
    sql = "select request_id, messages_json from llm_calls where role = 'mend' and messages_json <> '[]'"
    mended = rows(asked, sql)
    assert mended
    for row in mended:
        texts = rows(asked, f"select text from tool_calls where failed and request_id = '{row['request_id']}'")
        asked_with = [message["content"] for message in json.loads(row["messages_json"])]
        assert any(each["text"].strip() in content for each in texts for content in asked_with), (texts, asked_with[2:])


@pytest.mark.slow
def test_a_replay_hears_what_was_found_and_finds_nothing_anew(asked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evo.workbench.bench.Workbench.use", lambda *_: pytest.fail("a tool was used"))
    done = replay(asked)
    assert done.equal, done.difference
    again = replay(Path(done.replay))
    assert again.equal, again.difference


@pytest.mark.slow
def test_a_dialogue_that_tells_something_else_is_found_out(asked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evo.workbench.recorded.digest", lambda *_: "other")
    done = replay(asked)
    assert not done.equal and "uses a tool that it did not use then" in done.difference


@pytest.mark.slow
def test_evaluators_time_for_drafts_is_charged_to_the_request(asked: Path) -> None:
    sql = """
        select t.seconds, coalesce(sum(c.seconds), 0) as drafts from tells t join tool_calls c using (request_id)
        group by t.request_id, t.seconds
    """
    found = rows(asked, sql)
    assert all(row["seconds"] >= row["drafts"] - 1e-9 for row in found) and any(row["drafts"] for row in found)


@pytest.mark.slow
def test_without_a_look_what_is_answered_is_judged(tmp_path: Path) -> None:
    model_runs.run(tmp_path / "run", check=False)
    assert rows(tmp_path / "run", "select * from tool_calls") == []
    assert rows(tmp_path / "run", "select * from llm_calls where role = 'mend'") == []
