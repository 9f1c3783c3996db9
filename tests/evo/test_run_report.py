"""The report of a run: its numbers are the answers of its queries, and nothing in it is more than text."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evo.api import Run
from evo.report.output import as_json
from evo.report.run import write_report
from evo.report.run_kernels import Room
from evo.store import Store
from evo.store.named import named_query
from evo.version import engine_version
from operators.errors import UserError
from tests.evo import model_runs
from tests.evo.browser import CHROMIUM, tab
from tests.evo.model_runs import FENCE, another, chance_of, source_in
from tests.evo.pages import Page
from tests.evo.test_cli import evo
from tests.evo.test_comparison_report import HOSTILE, same
from tests.mutators.llm_server import Reply
from tests.store.rows import History, event, run
from tests.store.story import stored

SECTIONS = (
    "found",
    "progress",
    "lineage",
    "archive",
    "roofline",
    "failures",
    "gains",
    "tuning",
    "spent",
    "settings",
)


@dataclass(frozen=True)
class Reported:
    """A run with its report."""

    folder: Path
    file: Path
    text: str
    page: Page


def hostile(request: Mapping[str, Any], number: int) -> Reply:
    prompts = [m["content"] for m in request["messages"] if m["role"] == "user"]
    source = next(filter(None, map(source_in, reversed(prompts))), "")
    chance = chance_of(request)
    return Reply(f"CHANGE: idea {chance} {HOSTILE}\n\n{FENCE}{source}\n{another(str(chance))} // {HOSTILE}\n```")


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    folder = tmp_path_factory.mktemp("reported") / "a run"
    wanted: dict[str, Any] = {"operators": ["softmax", "relu"], "profile": "filtered", "budget": {"evaluations": 12}}
    model_runs.run(folder, answer=hostile, **wanted)
    file = write_report(folder, folder.parent / "report.html")
    text = file.read_text(encoding="utf-8")
    return Reported(folder, file, text, Page(text))


def answer(folder: Path, command: str) -> list[dict[str, Any]]:
    """The rows that a printed command gives."""
    if "--query" in command:
        words = shlex.split(command)
        where, sql = words[2], named_query(words[4]).sql
        params: dict[str, str] = named_query(words[4]).bound({})
    else:
        found = re.fullmatch(r"evo sql '?(.*?)'? \"\$\(cat <<'SQL'\n(.*)\nSQL\n\)\"", command, re.DOTALL)
        assert found
        where, sql, params = found[1], found[2], {}
    assert where == str(folder)
    return list(json.loads(as_json(Run(Path(where)).sql(sql, params).to_pylist())))


@pytest.mark.slow
def test_every_number_of_a_table_is_the_answer_to_the_query_below_it(reported: Reported) -> None:
    tables = [table for table in reported.page.tables if table.rows and table.commands]
    assert len(tables) >= 20
    answers = {command: answer(reported.folder, command) for command in {table.commands[0] for table in tables}}
    for table in tables:
        left = iter(answers[table.commands[0]])  # a part of what is longer, in its order
        for row in table.values("query"):
            assert any(all(same(row[name], other[name]) for name in row) for other in left), (table.caption, row)


def test_it_says_when_each_session_ended_and_why(reported: Reported) -> None:
    (table,) = [table for table in reported.page.tables if table.caption == "Sessions"]
    assert [(row["ended"], row["reason"]) for row in answer(reported.folder, table.commands[0])] == [
        ("finished", "evaluations 12 of 12")
    ]
    assert len(table.rows) == 1


def test_it_shows_every_view_and_all_about_the_kernels_of_a_lineage(reported: Reported) -> None:
    anchors = {found["id"] for _, found in reported.page.elements if found.get("id")}
    assert anchors >= set(SECTIONS)
    goals = [str(found["href"])[1:] for found in reported.page.all("a") if "class" not in found]
    assert set(goals) <= anchors and sum(goal.startswith("kernel-") for goal in goals) > 10
    known = Run(reported.folder)
    champions = known.best()
    assert len(champions) == 2
    codes = {code.strip("\n") for code in reported.page.codes}
    for kernel in champions:
        assert f"kernel-{kernel.task}-{kernel.id}" in anchors
        assert kernel.text.strip("\n") in codes and (not kernel.diff or kernel.diff in codes)
        assert kernel.origin and kernel.origin.parents
    assert any(code.startswith("--- system ---") for code in codes) and any("CHANGE: idea" in code for code in codes)
    (best,) = (table for table in reported.page.tables if table.caption == "The best kernel of each task")
    levels = [row["level"] for row in best.values("query")]
    assert len(levels) == 2 and ("tasks unconfirmed (" in reported.text) == (levels != ["confirmed"] * 2)


def test_hostile_words_are_text_and_nothing_is_asked_of_a_network(reported: Reported) -> None:
    assert any(HOSTILE in code for code in reported.page.codes)
    assert not [*reported.page.all("img")] and sum("type" not in each for each in reported.page.all("script")) == 1
    assert all("onerror" not in found for _, found in reported.page.elements)
    for name in ("href", "src"):
        assert all(str(found[name]).startswith("#") for _, found in reported.page.elements if name in found)
    assert reported.text.count("Content-Security-Policy") == 1 and engine_version() in reported.text


@pytest.mark.slow
def test_where_naive_leads_it_is_said_that_nothing_is_faster(tmp_path: Path) -> None:
    told = History().propose(0, "ancestor", "", "K0")
    told.evaluate(0, "K0", "screen", "correct", log_speedup=0.0, log_speedup_se=0.0)
    folder = stored(tmp_path / "naive", told, config_json='{"strategy": "islands"}')
    said = write_report(folder, tmp_path / "naive.html").read_text(encoding="utf-8")
    assert "Nothing faster than the naive kernel." in said and "1 kernel tried" in said and "1 kernel was" in said
    assert "it may be lucky" not in said and "Measured as" not in said


@pytest.mark.slow
def test_runs_with_nothing_right_and_unbegun_render(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    stored(wrong, config_json='{"strategy": "islands"}')
    empty = tmp_path / "empty"
    with Store(empty, create=True) as store:
        store.commit({"runs": [run()], "events": [event("stopped")]}).result()
    for folder in (wrong, empty):
        page = Page(write_report(folder, tmp_path / f"{folder.name}.html").read_text(encoding="utf-8"))
        assert {found["id"] for _, found in page.elements if found.get("id")} >= set(SECTIONS)
    said = (tmp_path / "empty.html").read_text(encoding="utf-8")
    assert "No kernel is correct: there is no result." in said and "evo resume" in said


@pytest.mark.slow
def test_the_command_writes_a_new_file_and_says_what_it_cannot(
    reported: Reported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ("report", str(reported.folder))
    assert evo(monkeypatch, capsys, *command)[:2] == (0, "a run-report.html\n")
    code, _, told = evo(monkeypatch, capsys, *command)
    assert code == 2 and "exists already; name another file, or say --force" in told
    code, _, told = evo(monkeypatch, capsys, *command, "--out", str(tmp_path / "no" / "x.html"))
    assert code == 2 and "cannot be written: there is no folder" in told
    with pytest.raises(UserError, match="exists already"):
        write_report(reported.folder, reported.file)


def test_texts_are_bounded_and_what_is_left_out_is_told() -> None:
    room = Room(1000)
    assert room.cut("x" * 300, 500, "evo sql") == "x" * 300
    cut = room.cut("a" * 900 + "b" * 900, 600, "evo sql 'x'")
    assert "[1,200 characters left out; whole: evo sql 'x']" in cut
    assert cut.startswith("a" * 400) and cut.endswith("b" * 200)


PROBE = """
(async () => {
  const followed = (link) => new Promise((done) => {
    history.replaceState(null, "", location.pathname);
    addEventListener("hashchange", done, { once: true });
    link.click();
  });
  const wide = [document.documentElement.scrollWidth > innerWidth];
  for (const link of document.querySelectorAll("nav a")) await followed(link);
  const links = [...document.querySelectorAll("td a[href^='#kernel-'], th a[href^='#kernel-']")].slice(0, 20);
  let opened = 0;
  for (const link of links) {
    await followed(link);
    const place = document.getElementById(decodeURIComponent(link.hash.slice(1)));
    opened += place.open && place.offsetHeight > 60 && document.activeElement === place.firstElementChild;
  }
  const folded = [...document.querySelectorAll(".finding")].every((each) => {
    each.open = false;
    const shown = [...each.querySelectorAll(".number, .brief, .standing")].map((part) => part.getBoundingClientRect());
    return shown.every((part) => part.height > 10 && part.left >= 0 && part.right <= innerWidth);
  });
  for (const fold of document.querySelectorAll("details")) fold.open = true;
  for (const heading of document.querySelectorAll("thead th button")) heading.click();
  wide.push(document.documentElement.scrollWidth > innerWidth);
  const sorted = document.querySelectorAll("th[aria-sort]").length === document.querySelectorAll("thead").length;
  const figures = [...document.querySelectorAll("figure svg")].every((each) => each.getBoundingClientRect().width > 50);
  return { wide, closed: links.length - opened, sorted, figures, folded };
})()
"""


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium here")
def test_in_a_browser_every_view_opens_and_nothing_is_too_wide(reported: Reported, tmp_path: Path) -> None:
    with tab(tmp_path) as page:
        for width in (1280, 400):
            page.show(width)
            page.go("about:blank")
            page.go(reported.file.as_uri())
            found = page.run(PROBE)
            whole = {"wide": [False, False], "closed": 0, "sorted": True, "figures": True, "folded": True}
            assert found == whole, width
