"""Lessons: what ideas came to in one run, and that another one tells them when it is asked to."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path

import pytest

from evo.config import RunConfig
from evo.lessons import EARLIER_FAILED, EARLIER_HELPED, KEPT, Lessons, earlier
from evo.replay import replay
from evo.store import query
from mutators.briefing import Attempt, Ratio
from operators.errors import UserError
from tests.evo import model_runs
from tests.mutators.llm_server import LlmServer


def test_an_idea_stands_once_with_the_most_that_it_brought() -> None:
    known = Lessons()
    for gain in (0.3, 0.6, 0.1):
        known.learn(Attempt("Use  vectors", "correct", Ratio(gain, 0.01)), by_model=True)
    known.learn(Attempt("use vectors", "correct", Ratio(0.5, 0.01)), by_model=False)
    (attempt,) = known.helped(9)
    assert attempt.gain == Ratio(0.6, 0.01)


def test_an_idea_that_failed_and_then_brought_nothing_is_told_of_once() -> None:
    known = Lessons()
    for status in ("compile_error", "slower", "wrong", "slower"):
        known.learn(Attempt("Use vectors", status), by_model=True)
    assert [a.status for a in (*known.failed(9, ()), *known.fruitless(9, ()))] == ["slower"]


def test_what_is_not_certain_to_help_is_no_gain() -> None:
    known = Lessons()
    known.learn(Attempt("luck", "correct", Ratio(0.458, 0.44)), by_model=True)
    assert not known.helped(9) and [attempt.description for attempt in known.fruitless(9, ())] == ["luck"]


def test_only_so_many_are_kept_and_the_best_of_them() -> None:
    known = Lessons()
    for number in range(10 * KEPT):
        gain = Ratio(math.sin(number) + 1.1, 0.01)
        known.learn(Attempt(f"idea {number}", "correct", gain), by_model=True)
        known.learn(Attempt(f"fault {number}", "wrong"), by_model=True)
    best = sorted((math.sin(number) + 1.1 for number in range(10 * KEPT)), reverse=True)[:5]
    assert [attempt.gain.log for attempt in known.helped(5) if attempt.gain] == pytest.approx(best)
    failed = known.failed(3, ())
    assert [attempt.description for attempt in failed] == [f"fault {10 * KEPT - left}" for left in (3, 2, 1)]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "first"
    model_runs.run(folder, budget={"evaluations": 30})
    return folder


@pytest.mark.slow
def test_a_run_hands_on_what_it_learnt(first: Path) -> None:
    found = earlier(first, {"softmax"}, target="cpu")
    helped = [attempt for attempt in found if attempt.gain]
    assert 0 < len(helped) <= EARLIER_HELPED and len(found) - len(helped) <= EARLIER_FAILED
    assert all(attempt.task.startswith("softmax/fp32/cpu on ") for attempt in found)
    assert all(attempt.gain.low > 0 for attempt in helped if attempt.gain)
    assert earlier(first, {"softmax"}, target="cpu") == found
    assert earlier(first, {"relu"}, target="cpu") == () == earlier(first, {"softmax"}, target="cuda")


@pytest.mark.slow
def test_a_later_run_tells_it_from_its_first_question_on_and_replays_without_the_first(
    first: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "second"

    async def searched() -> None:
        async with LlmServer(model_runs.script) as server:
            made = model_runs.config(server.url, lessons=[str(first)], budget={"evaluations": 6})
            folder.mkdir()
            await model_runs.session(folder, made)

    asyncio.run(searched())
    idea = next(attempt.description for attempt in earlier(first, {"softmax"}, target="cpu") if attempt.gain)
    (config,) = query(folder, "select config_json from runs").column(0).to_pylist()
    assert RunConfig.from_json(config).learnt == earlier(first, {"softmax"}, target="cpu")
    asked = query(folder, "select messages_json from llm_calls order by rowid limit 1").column(0)[0].as_py()
    user = json.loads(asked)[1]["content"]
    assert f"- {idea} (on softmax/fp32/cpu on " in user
    first_name = first.rename(first.with_name("gone"))
    try:
        done = replay(folder)
    finally:
        first_name.rename(first)
    assert done.equal, done.difference


def test_a_folder_without_a_run_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="lessons: ") as error:
        RunConfig(operators=["softmax"], lessons=[str(tmp_path / "nowhere")]).resolved()
    assert "\n" not in str(error.value)
