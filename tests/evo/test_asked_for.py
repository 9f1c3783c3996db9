"""Nothing that a run was asked for is missing: tasks that lack something are told with why, and how to go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evo.api import Run
from evo.budget import doubled, parse_limits
from evo.report.document import Table
from evo.report.health import health, runs_in
from evo.report.run import document
from evo.report.run_data import material
from evo.report.status import session_lines, summary
from evo.report.terminal import lack_lines, many_line, summary_table
from evo.store import Store, query
from tests.evo import test_search
from tests.evo.test_cli import evo
from tests.evo.test_fitted import shown
from tests.store.rows import TASK, History, Row, event, joined, run

UNSURE, WRONG, FAULTY = "relu/fp32/cpu", "elu/fp32/cpu", "selu/fp32/cpu"
UNTOUCHED = [f"operator_{n}/fp32/cpu" for n in range(5)]
REASON = "wall_s 60 of 60"


def session(*, budget: dict[str, float] | None, **detail: Any) -> Row:
    asked = [TASK, UNSURE, WRONG, FAULTY, *UNTOUCHED]
    return event("session", json.dumps({"resumed": False, "tasks": asked, "budget": budget, **detail}))


def ended(kind: str = "finished") -> Row:
    return event(kind, json.dumps({"reason": REASON}))


def stored(folder: Path, *events: Row) -> Path:
    """A run of nine tasks: one confirmed, one unconfirmed, one without a correct kernel, one refused, others new."""
    sure = History().propose(0, "ancestor", "", "K0").evaluate(0, "K0", "confirmed", "correct", log_speedup=0.5)
    unsure = History(UNSURE).propose(0, "ancestor", "", "K1").evaluate(0, "K1", "screen", "correct", log_speedup=0.5)
    wrong = History(WRONG).propose(0, "rewrite", "", "K2").evaluate(0, "K2", "screen", "wrong", message="no")
    faulty = History(FAULTY).propose(0, "ancestor", "", None, failure="no reference")
    fault = event("task_failed", '{"reason": "reference() raises"}') | {"task": FAULTY}
    told = [each.tables for each in (sure, unsure, wrong, faulty)]
    known = {"source": "void kernel();", "values_json": "{}", "operator": "softmax", "target": "cpu"}
    told.append({"kernels": [{"kernel_id": name, "source_id": name, **known} for name in ("K0", "K1", "K2")]})
    with Store(folder, create=True) as store:
        row = run() | {"config_json": '{"operators": ["softmax"]}'}
        store.commit(joined({"runs": [row], "events": [events[0], fault, *events[1:]]}, *told)).result()
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    limits = {"wall_s": 60.0, "cost_usd": 1.0}
    return stored(tmp_path_factory.mktemp("asked") / "r", session(budget=limits), ended())


def test_a_summary_has_every_task_with_why_and_how_it_goes_on(folder: Path) -> None:
    found = summary(Run(folder))
    more = f"evo resume {folder} --budget 120s --budget 2usd"
    assert [(t.task, t.state, t.why, t.goes_on_with) for t in found] == [
        (TASK, "confirmed", "", ""),
        (UNSURE, "unconfirmed", "for want of time", f"evo resume {folder} --confirm"),
        (WRONG, "nothing correct", REASON, more),
        (FAULTY, "refused", "reference() raises", f"evo resume {folder}"),
        *((task, "not begun", REASON, more) for task in UNTOUCHED),
    ]
    table = shown(summary_table(found), 400)
    assert [table.count(state) for state in ("not begun", "nothing correct", "refused")] == [5, 1, 1]
    assert "5 not begun" in many_line(found)
    lines = lack_lines(found)
    assert f"5 of 9 tasks not begun ({', '.join(UNTOUCHED[:3])} and 2 more): {REASON}; go on with: {more}" in lines
    assert len(lines) == 3, "what is refused has a line of its own"


@pytest.mark.slow
def test_a_task_that_was_never_begun_is_a_finding(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [finding.cause for finding in health(Run(folder)).findings] == ["operator", "unbegun"]
    code, out, err = evo(monkeypatch, capsys, "status", str(folder))
    assert code == 1, err
    assert all(task in out for task in UNTOUCHED)
    assert "5 of 9 tasks not begun" in err and f"evo resume {folder} --confirm" in err
    code, out, _ = evo(monkeypatch, capsys, "status", str(folder), "--json")
    tasks = {task["task"]: task for task in json.loads(out)["tasks"]}
    assert len(tasks) == 9 and tasks[UNTOUCHED[0]]["goes_on_with"].startswith("evo resume ")


@pytest.mark.slow
def test_a_list_and_a_page_have_every_task(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = runs_in(folder.parent)
    assert (len(row["tasks"]), row["not_begun"], row["nothing_correct"], row["unconfirmed"]) == (9, 5, 2, 1)
    assert row["goes_on_with"] == f"evo resume {folder} --budget 120s --budget 2usd"
    _, out, _ = evo(monkeypatch, capsys, "list", "--runs", str(folder.parent))
    assert "9 tasks" in out and "5 not begun" in out and "1 unconfirmed" in out
    page = str(document(material(Run(folder)), 0.0))
    assert all(task in page for task in UNTOUCHED)
    assert f"5 of 9 tasks not begun ({', '.join(UNTOUCHED[:3])} and 2 more): {REASON}; go on with: evo resume" in page


def test_a_stopped_run_goes_on_with_the_budget_it_has(tmp_path: Path) -> None:
    found = summary(Run(stored(tmp_path / "r", session(budget={"wall_s": 60.0}), ended("stopped"))))
    assert {t.goes_on_with for t in found if t.state == "not begun"} == {f"evo resume {tmp_path / 'r'}"}


@pytest.mark.slow
def test_the_budget_that_holds_is_that_of_the_latest_session_that_has_one(tmp_path: Path) -> None:
    first, then, last = (session(budget=budget) for budget in ({"wall_s": 720.0}, {"wall_s": 3600.0}, None))
    folder = stored(tmp_path / "r", first, ended(), then, ended(), last, ended())
    (row,) = runs_in(tmp_path)
    assert row["budget"] == {"wall_s": 3600.0}
    assert summary(Run(folder))[-1].goes_on_with == f"evo resume {folder} --budget 7200s"
    lines = session_lines(Run(folder))
    assert "(budget 12 min)" in lines[0] and "(budget 60 min)" in lines[1] and "budget" not in lines[2]
    page = document(material(Run(folder)), 0.0)
    assert "of 60 min" in str(page)
    tables = [block for section in page.sections for block in section.blocks if isinstance(block, Table)]
    (sat,) = [table for table in tables if table.caption == "Sessions"]
    (budget,) = [column for column in sat.columns if column.title == "budget"]
    assert [budget.text(row) for row in sat.rows] == ["12 min", "60 min", ""]


def test_a_search_stores_what_it_is_asked_for_and_the_limits_of_each_session(tmp_path: Path) -> None:
    for evaluations in (2, 4):
        made = test_search.config(operators=["softmax", "relu", "gelu"], budget={"evaluations": evaluations})
        test_search.search(tmp_path, made, test_search.stages(made))
    found = query(tmp_path, "FROM sessions").to_pylist()
    assert [row["next_began"] for row in found] == [found[1]["began"], None]
    assert [json.loads(row["budget_json"]) for row in found] == [{"evaluations": 2}, {"evaluations": 4}]
    tasks = query(tmp_path, "FROM tasks").to_pylist()
    assert {row["task"] for row in tasks} == {str(task) for _, task in made.tasks()}


def test_a_doubled_budget_is_read_as_it_is_written() -> None:
    limits = {"wall_s": 90.0, "evaluations": 25, "calls": 7, "cost_usd": 0.125, "tokens": 2e6, "gpu_s": 10.0}
    assert parse_limits(doubled(limits)) == {kind: 2 * limit for kind, limit in limits.items()}
