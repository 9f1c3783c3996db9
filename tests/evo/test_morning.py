"""Words in the morning: why each session ended, what it found, and what a search waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from evo import rows as records
from evo.api import Run
from evo.budget import Budget, RunClock
from evo.report.health import health
from evo.report.status import session_lines, sessions
from evo.search.schedule import WAITED_S, InFlight, Scheduler
from evo.session import _reason_stored
from evo.store import Store, query
from operators.errors import UserError
from tests.choosing import some_slow
from tests.evo import test_search
from tests.evo.histories import Fault


@pytest.mark.parametrize(
    ("error", "reason"),
    some_slow(
        [
            (Fault("no such\nthing"), "Fault: no such thing"),
            (UserError("one line"), "one line"),
            (MemoryError(), "MemoryError"),
        ],
        1,
    ),
)
def test_why_a_session_ended_is_stored_before_it_is_told(tmp_path: Path, error: Exception, reason: str) -> None:
    made = test_search.config()
    test_search.search(tmp_path, made, test_search.stages(made), stop_after=5)
    with Store(tmp_path, create=False) as store:
        store.commit(records.event_rows("session", {}, at=2e9)).result()
        with pytest.raises(type(error)), _reason_stored(store):
            raise error
    found = health(Run(tmp_path))
    assert (found.state, found.reason) == ("failed", reason)
    assert reason in found.findings[0].told and f"evo resume {tmp_path}" in found.findings[0].told
    first, second = sessions(Run(tmp_path))
    assert (first.ended, second.ended, second.reason) == ("stopped", "failed", reason)
    assert first.judged >= 2 and first.leaders == 1 and second.judged == 0
    assert session_lines(Run(tmp_path))[1].endswith(f"failed: {reason}")


@pytest.mark.slow
def test_a_session_that_says_nothing_is_told_apart(tmp_path: Path) -> None:
    made = test_search.config()
    test_search.search(tmp_path, made, test_search.stages(made))
    with Store(tmp_path, create=False) as store:
        store.commit(records.event_rows("session", {}, at=2e9)).result()
        assert len(session_lines(Run(tmp_path))) == 1, "it may go on yet"
    first, second = session_lines(Run(tmp_path))
    assert first.endswith("finished: evaluations 25 of 25") and second.endswith("its process ended without a word")


def test_what_a_search_waits_for_is_stored_once_and_again_when_it_changes(tmp_path: Path) -> None:
    still = SimpleNamespace(still_s=0.0)
    task = object()
    questions = SimpleNamespace(thinking={task}, held=set(), outside=set())
    jobs = ["screen softmax/fp32/cpu 0123 5 s"]
    evaluator = SimpleNamespace(pool=SimpleNamespace(jobs=lambda: jobs))
    stored: list[str] = []

    async def note(kind: str, detail: Mapping[str, Any], *, moves: bool = True) -> None:
        assert kind == records.WAITS and not moves
        stored.append(detail["for"])

    history = SimpleNamespace(states={}, note=note)
    parts: Any = (Budget({}), RunClock(lambda: 1.0), still, history, evaluator, questions)
    made = Scheduler(*parts, llm=None, stall_s=1.0, say=print)
    made.flight = cast(InFlight, SimpleNamespace(tasks={task, 1}))

    def told() -> int:
        asyncio.run(made.tell())
        return len(stored)

    assert told() == 0
    still.still_s = WAITED_S
    assert told() == 1 and "1 answer of models; workers: screen softmax/fp32/cpu 0123 5 s" in stored[0]
    jobs[0] = jobs[0].replace("5 s", "9 s")
    assert told() == 1, "time passes, and nothing else"
    questions.held = {task}
    assert told() == 2 and "1 question to models that are put aside" in stored[1]


def test_a_status_says_what_a_running_search_waits_for(tmp_path: Path) -> None:
    made = test_search.config()
    test_search.search(tmp_path, made, test_search.stages(made), stop_after=5)
    with Store(tmp_path, create=False) as store:
        store.commit(records.event_rows("session", {}, at=2e9)).result()
        store.commit(records.event_rows(records.WAITS, {"for": "3 answers of models"}, at=2.1e9)).result()
        assert "running, waits for 3 answers of models" in health(Run(tmp_path), now=2.1e9).line
    assert health(Run(tmp_path)).waits == ""
    assert query(tmp_path, "select 1 from events where kind = 'waits'").num_rows == 1
