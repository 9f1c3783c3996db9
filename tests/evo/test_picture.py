"""The picture of individuals, and the charts that notebooks show: they agree with the store and can be drawn."""

from __future__ import annotations

import base64
import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
import vl_convert

import evo
from evo.api import Run
from evo.charts.drawing import Interactive, on_paper
from evo.charts.figures import lines_figure, progress_figure
from evo.charts.picture import SHADES, individuals_picture, pictured
from evo.report.run import write_report
from evo.store import Store
from operators.errors import UserError
from tests.evo.browser import CHROMIUM, tab
from tests.store.rows import START_S, TASK, History, joined, run
from tests.store.story import stored


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(stored(tmp_path_factory.mktemp("story")))


def drawn(found: Run, **options: Any) -> Interactive:
    return individuals_picture(**_renamed(pictured(found, **options)), link="#kernel-{task}-{id}")


def _renamed(found: dict[str, Any]) -> dict[str, Any]:
    return {"rows": found["individuals"], "paths": found["paths"], "migrations": found["migrations"]}


def test_every_individual_is_a_point_and_stands_at_what_is_certain_of_it(story: Run) -> None:
    points = {point["card"]: point for point in drawn(story).spec["datasets"]["individuals"]}
    rows = story.sql("select kernel_id, exp(stands_at) as certain, mutator, model, generation from lineage").to_pylist()
    assert points.keys() == {row["kernel_id"] for row in rows}
    for row in rows:
        point = points[row["kernel_id"]]
        assert point["certain"] == (row["certain"] and pytest.approx(row["certain"], rel=1e-3))
        assert (point["mutator"], point["model"]) == (row["mutator"], row["model"] or "none")
        assert point["generation"] == row["generation"]
    assert points["W"]["verdict"] == "wrong" and points["A2"]["verdict"] == "same program"
    assert points["C2"]["verdict"] == "confirmed" and points["C"]["verdict"] == "unconfirmed"


def test_the_path_leads_from_the_first_ancestor_to_the_best(story: Run) -> None:
    (best,) = story.sql("select kernel_id, exp(stands_at) as certain from best").to_pylist()
    steps = drawn(story).spec["datasets"]["paths"]
    assert [step["card"] for step in steps] == ["K0", "A", "C", "C2", "G"] and steps[-1]["card"] == best["kernel_id"]
    assert steps[-1]["certain"] == pytest.approx(best["certain"], rel=1e-3)
    of_one = drawn(story, task=TASK, kernel="W").spec["datasets"]["paths"]
    assert [step["card"] for step in of_one] == ["K0", "B", "W"]


def test_an_unconfirmed_stroke_of_luck_is_drawn_below_its_estimate(tmp_path: Path) -> None:
    history = History()
    for number, (kernel, level, gain, se) in enumerate(
        [("naive", "screen", 0.0, 0.0), ("sure", "confirmed", 0.5, 0.1), ("lucky", "screen", 1.2, 0.5)]
    ):
        history.propose(number, "transform" if number else "ancestor", "naive" if number else "", kernel)
        history.evaluate(number, kernel, level, "correct", log_speedup=gain, log_speedup_se=se)
    with Store(tmp_path / "run", create=True) as store:
        store.commit({"runs": [run()], **history.tables}).result()
    made = drawn(Run(tmp_path / "run")).spec["datasets"]
    lucky = next(point for point in made["individuals"] if point["card"] == "lucky")
    assert lucky["speedup"] == pytest.approx(math.exp(1.2), rel=1e-3)
    assert lucky["certain"] == pytest.approx(lucky["low"]) and lucky["certain"] < math.exp(0.5)
    assert made["paths"][-1]["card"] == "sure"


def test_what_filters_and_colours_go_by_is_in_the_points_and_the_drawing_compiles(story: Run) -> None:
    spec = drawn(story).spec
    fields = set(spec["datasets"]["individuals"][0])
    assert {*SHADES, "generation", "at", "until", "change", "cell"} <= fields
    bound = {each["name"]: each["bind"] for each in spec["params"] if "bind" in each}
    assert set(bound["mutator"]["options"][1:]) == {point["mutator"] for point in spec["datasets"]["individuals"]}
    assert {"across", "shade", "mutator", "model", "verdict", "archive", "words", "until"} <= bound.keys()
    compiled = vl_convert.vegalite_to_vega(on_paper(spec))
    assert "var(" not in json.dumps(compiled)


def test_every_edge_of_the_tree_is_there_also_of_second_parents_and_of_other_tasks(story: Run, tmp_path: Path) -> None:
    spec = drawn(story).spec["datasets"]
    named = {point["until"]: point["card"] for point in spec["individuals"]}
    rows = story.sql("select kernel_id, unnest(parents) as parent from lineage").to_pylist()
    edges = sorted((named[edge["parent"]], named[edge["child"]]) for edge in spec["edges"])
    assert edges == sorted((row["parent"], row["kernel_id"]) for row in rows) and len(edges) > len(named) - 1
    first, second = History(TASK), History("softmax/fp64/cpu")
    first.propose(0, "ancestor", "", "K0").evaluate(0, "K0", "screen", "correct", log_speedup=0.1)
    second.propose(0, "port", "K0", "P", source_task=TASK).evaluate(0, "P", "screen", "correct", log_speedup=0.1)
    with Store(tmp_path / "run", create=True) as store:
        store.commit(joined({"runs": [run()]}, first.tables, second.tables)).result()
    spec = drawn(Run(tmp_path / "run")).spec["datasets"]
    named = {point["until"]: point["task"] for point in spec["individuals"]}
    assert [(named[edge["parent"]], named[edge["child"]]) for edge in spec["edges"]] == [(TASK, "softmax/fp64/cpu")]


def test_of_many_individuals_a_part_is_drawn_which_is_said_with_the_best_in_it(
    story: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = len(story.sql("select * from lineage"))
    with monkeypatch.context() as patch:
        patch.setattr("evo.charts.picture.MOST_POINTS", 3)
        made = drawn(story)
    points = {point["card"] for point in made.spec["datasets"]["individuals"]}
    assert {"K0", "A", "C", "C2", "G"} <= points and len(points) < total
    assert made.said.startswith(f"{len(points)} of {total} individuals are drawn")
    assert drawn(story).said.startswith(f"All {total} individuals are drawn")


def test_migrations_are_drawn_from_where_a_kernel_came_to_be_to_when_it_moved(tmp_path: Path) -> None:
    history = History()
    for number, kernel in enumerate(("naive", "better")):
        history.propose(number, "transform" if number else "ancestor", "naive" if number else "", kernel, island=number)
        history.evaluate(number, kernel, "confirmed", "correct", log_speedup=0.5 * number)
    move = {
        "task": TASK, "number": 2, "kernel_id": "better", "source_island": 1, "island": 0, "kind": "migration",
        "created_at": START_S + 60,
    }  # fmt: skip
    moves = [move | {"outcome": "new"}, move | {"outcome": "rejected"}]
    with Store(tmp_path / "run", create=True) as store:
        store.commit({"runs": [run()], "migrations": moves, **history.tables}).result()
    spec = drawn(Run(tmp_path / "run")).spec
    (moved,) = spec["datasets"]["migrations"]
    assert (moved["card"], moved["from"], moved["to"], moved["moved"]) == ("better", "island 1", "island 0", 60)
    assert moved["certain"] == pytest.approx(math.exp(0.5), rel=1e-3) and moved["moved_until"] == 2
    assert "migrations" in {each["name"] for each in spec["params"]}
    vl_convert.vegalite_to_vega(on_paper(spec))


def test_points_lead_to_cards_that_there_are(story: Run) -> None:
    rows = _renamed(pictured(story))
    made = individuals_picture(**rows, link="#kernel-{task}-{id}", carded=frozenset({(TASK, "G")}))
    assert {point["card"] for point in made.spec["datasets"]["individuals"]} == {"G", ""}
    assert '"#kernel-" + datum.task + "-" + datum.card + ""' in json.dumps(made.spec["transform"]).replace('\\"', '"')


def test_a_page_holds_its_rows_once_and_small(story: Run) -> None:
    made = drawn(story)
    text = gzip.decompress(base64.b64decode(made.packed)).decode()
    columns = json.loads(text)["datasets"]["individuals"]
    rows = made.spec["datasets"]["individuals"]
    for name, found in columns.items():
        values = found if isinstance(found, list) else [found["of"][place] for place in found["at"]]
        assert values == [row[name] for row in rows]


@pytest.mark.slow
def test_charts_are_shown_and_saved(story: Run, tmp_path: Path) -> None:
    for made in (story.plot.progress(), story.plot.progress(over="time"), story.plot.archive()):
        assert "<svg" in made._repr_html_() and "var(" not in made._repr_html_() and len(repr(made)) < 500
    file = story.plot.progress().save(tmp_path / "a.png")
    assert file.read_bytes().startswith(b"\x89PNG")
    page = story.plot.lineage("G").save(tmp_path / "lineage.html").read_text()
    assert 'class="picture"' in page and 'id="vega"' in page and "http://" not in page.split("<script")[0]
    with pytest.raises(UserError, match=r"unknown ending.*\.html"):
        story.plot.archive().save(tmp_path / "a.gif")
    with pytest.raises(UserError, match="nothing to draw"):
        story.plot.progress("gelu")


@pytest.mark.parametrize(
    ("end_s", "unit", "end"), [(170, "seconds", 170), (1200, "minutes", 20), (28_800, "hours", 8), (345_600, "days", 4)]
)
def test_an_axis_of_time_is_in_the_unit_that_people_read_it_in(end_s: float, unit: str, end: float) -> None:
    leader = {"best_speedup": 2.0, "speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1}
    progress = progress_figure(TASK, [leader | {"elapsed_s": 0.0}], {"elapsed_s": end_s}, "elapsed_s")
    rows = [{"series": "a", "elapsed_s": place, "share": 0.5} for place in (0.0, end_s)]
    lines = lines_figure("Busy", rows, ["a"], ("elapsed_s", "seconds"), ("share", "share"))
    for made, field in ((progress, "at"), (lines, "elapsed_s")):
        assert made.spec["layer"][-1]["encoding"]["x"]["title"] == unit
        assert made.spec["data"]["values"][-1][field] == end
        vl_convert.vegalite_to_vega(on_paper(made.spec))


def test_runs_and_kernels_have_short_words(
    story: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_folder: Path
) -> None:
    monkeypatch.setenv("EVO_RUNS", str(run_folder.parent))
    assert [each.folder for each in evo.runs()] == [run_folder] and evo.open(run_folder.name).folder == run_folder
    assert str(run_folder.parent) in repr(evo.runs()) and len(repr(evo.runs())) < 500
    assert "none" in repr(evo.runs(tmp_path)) and str(tmp_path) in evo.runs(tmp_path)._repr_html_()
    with pytest.raises(UserError, match=str(run_folder.parent)):
        evo.open("nothing")
    (best,) = story.best()
    assert best.id[:12] in repr(best) and len(repr(best)) < 200 and "<pre>" in best._repr_html_()
    assert best.id[:12] in story._repr_html_()


def test_a_real_run_tells_islands_workers_and_facts_of_the_build(run_folder: Path) -> None:
    found = Run(run_folder)
    rows = found.sql("select island, worker, number from lineage where status <> ''").to_pylist()
    assert all(row["island"] == row["number"] % 2 and row["worker"] for row in rows)
    known = set(found.sql("select * exclude (task, kernel_id, evaluation_id) from facts").column_names)
    for row in found.sql("select * from facts").to_pylist():
        told = json.loads(row["facts_json"])
        assert told.keys() - {"undefined_symbols", "flagged"} <= known
        assert row["code_bytes"] == told["code_bytes"] and row["vector_bits"] == told["vector_bits"]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_the_picture_of_a_report_is_drawn_filtered_and_leads_to_cards(story: Run, tmp_path: Path) -> None:
    file = write_report(story.folder, tmp_path / "page.html")
    with tab(tmp_path / "profile") as page:
        page.show(1280)
        page.go(file.as_uri())
        page.run("document.querySelector('figure.picture').scrollIntoView()")
        page.until("document.querySelector('figure.picture').view")
        colours = {}
        for dark in (False, True):
            page.show(1280, dark=dark)
            page.until("document.querySelector('figure.picture').view.signal('until') > 0")
            colours[dark] = page.run("getComputedStyle(document.documentElement).getPropertyValue('--series-0')")
        assert colours[False] != colours[True]
        count = "document.querySelector('figure.picture').view.data('individuals').length"
        assert page.run(count) == len(story.sql("select * from lineage"))
        page.run(
            "(() => { const choice = [...document.querySelectorAll('.picture select')]"
            ".find((each) => each.parentElement.textContent.startsWith('mutator'));"
            "choice.value = 'tune'; choice.dispatchEvent(new Event('change')); })()"
        )
        page.until("document.querySelector('figure.picture').view.signal('mutator') === 'tune'")
        assert page.run("document.querySelector('figure.picture canvas').getAttribute('aria-label')")
