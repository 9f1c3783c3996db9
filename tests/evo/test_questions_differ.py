"""No two requests of a run ask a model in the same words, and all of a task's prompts begin with the same ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evo.replay import replay
from evo.store import query
from tests.choosing import some_slow
from tests.evo import model_runs


@pytest.mark.parametrize(
    ("strategy", "settings"),
    some_slow([("islands", {"islands": 1}), ("best_of_n", {"n": 12}), ("refine", {"n": 4, "turns": 3})], 0),
)
def test_no_question_is_asked_twice_in_the_same_words(strategy: str, settings: dict[str, int], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    model_runs.run(folder, strategy=strategy, settings=settings, budget={"evaluations": 24})
    calls = query(folder, "select request_id, messages_json from llm_calls").to_pylist()
    asked = {(call["request_id"], call["messages_json"]) for call in calls}
    assert len(asked) >= 8
    assert len({words for _, words in asked}) == len(asked)
    assert len({json.loads(words)[0]["content"] for _, words in asked}) == 1, "the system message"
    done = replay(folder)
    assert done.equal, done.difference


def test_attempts_that_are_to_be_independent_hear_nothing_of_each_other(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    model_runs.run(folder, strategy="best_of_n", settings={"n": 12}, budget={"evaluations": 12})
    said = "".join(query(folder, "select messages_json from llm_calls").column(0).to_pylist())
    assert "# What was learnt on this task" not in said and "# A kernel that wins" not in said
    assert "# What was tried" not in said and "This question was asked" in said
