"""Pages of `evo ui` beside the report: what they show is what the run's views say, and what is not there is no page."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from evo.api import Run
from evo.report.ui.pages import Missing, page
from evo.store import Store
from fitness.words import ratio
from tests.evo.pages import Page
from tests.evo.test_comparison_report import HOSTILE
from tests.store.rows import START_S, TASK, event, joined
from tests.store.story import stored, story, tables

pytestmark = pytest.mark.usefixtures("made_once")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The known story, judged by two workers, with a request that is still under way."""
    folder = tmp_path_factory.mktemp("runs") / "one"
    told = story()
    for place, row in enumerate(told.tables["evaluations"]):
        row["worker"] = f"GPU {place % 2}"
    told.propose(14, "rewrite", "G", None, model="big")
    rows = tables(told, config_json='{"strategy": "islands"}')
    rows["tells"] = [row for row in rows["tells"] if row["number"] != 14]
    sent = {
        "request_id": f"{TASK}#14", "role": "mutate", "model": "big", "cache_key": "q", "sample": 0, "most_tokens": 1,
        "most_in": 1, "most_usd": 0.0, "created_at": START_S + 60, "messages_json": "[]",
    }  # fmt: skip
    with Store(folder, create=True) as store:
        store.commit(joined(rows, {"llm_sent": [sent], "events": [event("session"), event("stopped")]})).result()
    stored(folder.parent / "two")
    return folder


def shown(folder: Path, path: str, **params: str) -> Page:
    return Page(page(folder, folder.parent, f"{path}?{urlencode(params)}" if params else path))


def listed(folder: Path, **params: str) -> list[str]:
    (table,) = shown(folder, "/kernels", **params).tables
    return [row["kernel_id"] for row in table.values("")]


def test_a_kernel_that_has_no_verdict_is_listed_all_the_same(tmp_path: Path) -> None:
    folder = stored(tmp_path / "run", story().propose(14, "rewrite", "G", "U"))
    assert listed(folder, status="no verdict") == ["U"] and "U" in listed(folder)
    assert "no verdict" in page(folder, tmp_path, "/kernel/G?task=" + TASK)


def test_a_page_of_a_kernel_says_what_best_says(folder: Path) -> None:
    (best,) = Run(folder).best()
    assert best.verdict and best.verdict.speedup
    text = page(folder, folder.parent, f"/kernel/{best.id}")
    assert ratio(best.verdict.speedup) in text and best.task in text
    found = Page(text)
    codes = {code.strip("\n") for code in found.codes}
    assert best.text.strip("\n") in codes and best.diff.strip("\n") in codes
    way = next(table for table in found.tables if table.caption == "From the first ancestor on")
    assert [row["kernel_id"] for row in way.values("")] == ["K0", "A", "C", "C2", "G"]
    links = {str(each["href"]) for each in found.all("a")}
    assert f"/kernel/C2?{urlencode({'task': TASK})}" in links
    children = next(table for table in shown(folder, "/kernel/C").tables if table.caption == "Its children")
    assert {row["kernel_id"] for row in children.values("")} == {"C2", "C3"}


@pytest.mark.slow
def test_the_list_has_every_kernel_and_the_search_finds(folder: Path) -> None:
    rows = Run(folder).sql("from lineage").to_pylist()
    assert sorted(listed(folder)) == sorted(row["kernel_id"] for row in rows)
    assert listed(folder)[0] == Run(folder).best()[0].id
    assert listed(folder, text="unroll", sort="oldest") == ["A", "A2"]
    assert listed(folder, text="// C2") == ["C2"], "a text of the source"
    assert set(listed(folder, status="wrong")) == {"W", "V"} == set(listed(folder, status="wrong", task=TASK))
    assert (
        set(listed(folder, mutator="tune")) == {"C2", "C3"} and listed(folder, model="small", sort="newest")[0] == "R"
    )
    assert listed(folder, text="' or 1=1 --") == []
    hostile = page(folder, folder.parent, f"/kernels?{urlencode({'text': HOSTILE})}")
    assert "<img" not in hostile and not [*Page(hostile).all("img")]


def test_what_is_not_there_is_told_in_one_line(folder: Path) -> None:
    for path in ("/kernel/nope", "/kernels?page=2", "/kernels?page=x", "/kernels?sort=x", "/runs?a=..", "/use?x=1"):
        with pytest.raises(Missing) as told:
            page(folder, folder.parent, path)
        assert "\n" not in str(told.value), path


def test_what_is_under_way_is_what_was_asked_and_not_told(folder: Path) -> None:
    under_way, questions = shown(folder, "/queue").tables
    (row,) = under_way.values("")
    assert (row["task"], row["number"], row["state"]) == (TASK, 14, "waits for a model")
    assert [row["cache_key"] for row in questions.values("")] == ["q"]


def test_the_use_of_workers_adds_up_to_what_judging_took(folder: Path) -> None:
    (workers,) = shown(folder, "/use").tables
    took = {
        row["worker"]: row["s"]
        for row in Run(folder).sql("select worker, sum(build_ms) / 1e3 as s from evaluations group by 1").to_pylist()
    }
    assert {row["worker"]: row["busy_s"] for row in workers.values("")} == pytest.approx(took)
    busy: dict[str, float] = dict.fromkeys(took, 0.0)
    for row in Run(folder).rows("ui.use", bins=7):
        busy[row["worker"]] += row["busy_s"]
    assert busy == pytest.approx(took)


def test_shares_of_requests_add_up_and_costs_end_where_the_models_table_does(folder: Path) -> None:
    run, shares = Run(folder), dict[int, float]()
    for row in run.rows("ui.shares", bins=5):
        shares[row["requests"]] = shares.get(row["requests"], 0.0) + row["share"]
    assert len(shares) == 5 and all(total == pytest.approx(1.0) for total in shares.values())
    ends = {row["model"]: row["cost_usd"] for row in run.rows("ui.spending", most=2)}
    assert ends == {row["model"]: row["cost_usd"] for row in run.rows("report.costs")}
    costs, gains, answers = shown(folder, "/models").tables
    assert (costs.caption, gains.caption) == ("Models", "What they gained")
    calls = Run(folder).sql("select count(*) as n from llm_calls").to_pylist()[0]["n"]
    assert sum(row["answers"] for row in answers.values("")) == calls > 0


def test_a_run_that_cannot_be_read_is_listed_with_why(tmp_path: Path) -> None:
    folder = stored(tmp_path / "one")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "evo.duckdb").write_bytes(b"no database")
    (table,) = shown(folder, "/runs").tables
    torn, right = sorted(table.values(""), key=lambda row: row["run"], reverse=True)
    assert (torn["state"], torn["n"]) == ("unreadable", None) and "two" in torn["reason"]
    assert right["n"] == 1
    assert ">all<" not in page(folder, tmp_path, "/runs"), "no run is chosen, which is not all of them"
    assert "1 worker judged" in page(folder, tmp_path, "/use")


@pytest.mark.slow
def test_all_runs_and_two_side_by_side(folder: Path) -> None:
    (table,) = shown(folder, "/runs").tables
    assert {row["run"] for row in table.values("")} == {"one", "two"}
    beside = shown(folder, "/runs", a="one", b="two").tables[0]
    (row,) = beside.values("")
    best: dict[str, Any] = Run(folder).sql("select exp(stands_at) as certain, speedup from best").to_pylist()[0]
    assert row["a_best_speedup"] == row["b_best_speedup"] == pytest.approx(best["certain"])
    assert row["a_speedup"] == pytest.approx(best["speedup"])
