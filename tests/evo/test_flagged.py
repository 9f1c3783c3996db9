"""Suspicions about a kernel stand beside its level at every door where results leave."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from html import unescape
from pathlib import Path

import pytest

from evo.api import Run
from evo.evaluate import verdict_lines
from evo.packaging import package
from evo.report.output import plain
from evo.report.reference import _measured
from evo.report.render import html, markdown
from evo.report.run import document
from evo.report.run_data import material
from evo.report.status import TaskSummary
from evo.report.terminal import many_line, summary_table, unfolded
from evo.store.named import named_query
from fitness.evaluation import Evaluation, Level, Status
from fitness.words import CLOCK, PLACE, flags, standing
from operators.champions import Champion
from tests.evo.test_cli import evo
from tests.store.rows import START_S, TASK
from tests.store.story import stored, story

SAID = f"{CLOCK}, {PLACE}"
FACTS = json.dumps({"flagged": [CLOCK, PLACE], "registers": 7})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which the best kernel is flagged, the kernel that a duplicate repeats, and no other one."""
    history = story()
    for row in history.tables["evaluations"]:
        row["facts_json"] = FACTS if row["kernel_id"] in ("G", "A") else json.dumps({"flagged": []})
    asked = {name: history.tables["proposals"][0][name] for name in ("task", "number", "request_id", "mutator")}
    rest = {"seq": 0, "position": 0, "wanted": 1, "request_json": "{}", "digest": "d", "created_at": START_S}
    history.tables["asks"] = [asked | rest]
    return stored(tmp_path_factory.mktemp("runs") / "run", history)


def test_one_function_has_the_words() -> None:
    assert standing("confirmed") == "confirmed"
    assert standing("confirmed", CLOCK) == f"confirmed, flagged: {CLOCK}"
    assert standing("full", SAID) == f"unconfirmed (full), flagged: {SAID}"
    assert standing(None, CLOCK) == "-"
    assert flags({"flagged": [CLOCK, PLACE]}) == SAID
    assert flags({}) == flags({"flagged": []}) == ""


def test_every_view_that_has_a_level_has_the_reasons_and_a_duplicate_its_originals(folder: Path) -> None:
    with Run(folder) as run:
        for view in ("verdicts", "elites", "best", "lineage", f"ancestors('{TASK}', 'G')"):
            rows = {row["kernel_id"]: row for row in run.sql(f"select * from {view}").to_pylist()}
            assert rows["G"]["flagged"] == SAID, view
            for name in ("A", "A2") if view in ("verdicts", "lineage") else ():
                assert rows[name]["flagged"] == SAID
            assert all(rows[name]["flagged"] is None for name in ("K0", "C2") if name in rows)
        leaders = run.query("leaders").to_pylist()
        assert [row["flagged"] for row in leaders if row["kernel_id"] == "G"] == [SAID]
        (best,) = run.best()
        assert best.verdict and best.origin and best.verdict.flagged == best.origin.flagged == SAID
        assert {each.kernel_id: each.flagged for each in run.lineage(best.id)}["A"] == SAID
    assert "flagged" in named_query("leaders").sql


@pytest.mark.parametrize("command", [("best",), ("best", "--json"), ("lineage",), ("lineage", "--json")])
def test_commands_tell(
    folder: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, told, _ = evo(monkeypatch, capsys, command[0], str(folder), *command[1:])
    assert SAID in " ".join(told.split())


def test_two_kernels_beside_each_other_are_told_apart(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, told, _ = evo(monkeypatch, capsys, "diff", str(folder), "G", "C2")
    assert f"flagged: {SAID}" in " ".join(told.split()) and told.count("flagged") == 1


@pytest.mark.slow
def test_reports_tell_at_the_head_and_in_their_tables_as_files_and_served(folder: Path) -> None:
    said = document(material(Run(folder)), 0.0)
    for text in (html(said), html(said, live="x"), markdown(said)):
        shown = " ".join(unescape(text).split())
        assert shown.count(f"flagged: {SAID}") >= 3  # standings, leaders, the kernel itself
        assert f"are the leaders of {TASK}, which {SAID}." in shown.replace("\\", "")


def test_the_table_that_a_run_ends_with_tells() -> None:
    task = TaskSummary(task=TASK, candidates=3, duplicates=0, no_child=0, level="confirmed", flagged=SAID)
    assert f"confirmed, flagged: {SAID}" in unfolded(summary_table([task]))
    assert "1 flagged" in many_line([task, task := replace(task, flagged="")])
    assert "flagged" not in many_line([task])


def test_a_package_tells_in_words_and_figures(folder: Path) -> None:
    with Run(folder) as run:
        (best,) = run.best()
        known = plain(asdict(best.verdict))
    assert known["flagged"] == SAID
    softmax = package.from_file("softmax", "naive", target="cpu")
    text = package.verdict_text(replace(softmax, verdict=known))
    assert f"**Flagged.** Its machine code {SAID}." in text


def test_one_file_judged_outside_of_a_run_is_told_about() -> None:
    found = Evaluation(
        "k", TASK, Level.CONFIRMED, Status.CORRECT, log_speedup=0.5, log_speedup_se=0.1, facts={"flagged": [CLOCK]}
    )
    assert f"confirmed: correct, flagged: {CLOCK}" in verdict_lines([found])
    assert plain(asdict(found))["facts"]["flagged"] == [CLOCK]


def test_a_champion_keeps_what_its_run_found() -> None:
    record = {"file": "h200.cu", "dtype": "fp32", "device": "NVIDIA H200", "author": "ann", "added": "2026-01-01"}
    champion = Champion.model_validate(
        {**record, "level": "confirmed", "workloads": "gpu", "status": "correct", "flagged": CLOCK}
    )
    assert _measured(champion).endswith(f"correct (confirmed, flagged: {CLOCK})")
