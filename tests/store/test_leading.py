"""One rule of leading: under heavy noise no view, page or table shows a history above what is certain in the end."""

from __future__ import annotations

import asyncio
import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evo import rows as records
from evo.api import Run
from evo.compare.cells import Point
from evo.compare.conclusions import best_at
from evo.config import RunConfig
from evo.outside.drafts import DraftWorkers, Sessions
from evo.outside.mcp_tools import Studio
from evo.outside.questions import config_of
from evo.report.health import runs_in
from evo.report.run import document
from evo.report.run_data import material
from evo.report.status import summary
from evo.report.terminal import many_line
from evo.store import Store, query
from evo.store.named import named_query
from fitness.words import ratio
from operators.kernel import Kernel
from tests.choosing import some_slow
from tests.evo.test_cli import evo
from tests.store.rows import TASK, History, event
from tests.store.story import stored, tables

pytestmark = pytest.mark.usefixtures("made_once")
Row = dict[str, Any]
NOISE = 0.6
"""Standard error of a screening, ln: of twenty estimates the luckiest is about three times too fast."""
SEEDS = (1, 2, 3)


def lucky(seed: int) -> History:
    """Kernels of which hardly any is faster, screened with much noise; of those that look best some are confirmed."""
    draw = random.Random(seed)
    history = History().propose(0, "ancestor", "", "K0")
    history.evaluate(0, "K0", "screen", "correct", log_speedup=0.0, log_speedup_se=0.0, cell="c0")
    names = ["K0"]
    for number in range(1, 30):
        name, truth = f"K{number}", draw.choice((0.0, 0.0, 0.1, 0.3))
        parents = " ".join(draw.sample(names, min(len(names), draw.choice((1, 2)))))
        history.propose(number, draw.choice(("transform", "tune", "rewrite")), parents, name, model="big")
        seen = {"log_speedup": truth + draw.gauss(0, NOISE), "log_speedup_se": NOISE, "cell": f"c{number % 4}"}
        history.evaluate(number, name, "screen", "correct", **seen)
        if draw.random() < 0.2:
            sure = {"log_speedup": truth, "log_speedup_se": 0.01, "cell": seen["cell"]}
            history.evaluate(number, name, "confirmed", draw.choice(("correct", "correct", "wrong")), **sure)
        names.append(name)
    return history


@pytest.fixture(scope="module", params=some_slow(SEEDS, 1))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored(tmp_path_factory.mktemp("lucky") / f"{request.param}", lucky(request.param))


def rows(folder: Path, sql: str) -> list[Row]:
    found: list[Row] = query(folder, sql).to_pylist()
    return found


def asked(folder: Path, name: str) -> list[Row]:
    known = named_query(name)
    found: list[Row] = query(folder, known.text(several=False), params=known.bound({})).to_pylist()
    return found


def certain(folder: Path) -> float:
    (best,) = rows(folder, "FROM best")
    luckiest = max(row["log_speedup"] for row in rows(folder, "FROM verdicts WHERE status = 'correct'"))
    assert luckiest > best["stands_at"] + 0.5, "there is no luck to be fooled by"
    return float(best["stands_at"])


def test_views_of_a_history_end_where_the_best_stands(folder: Path) -> None:
    stands_at, leader = certain(folder), rows(folder, "FROM best")[0]
    for view, order in (("progress", "evaluation"), ("curve", "seq")):
        history = rows(folder, f"FROM {view} ORDER BY {order}")
        highs = [row["best_log_speedup"] for row in history]
        assert highs == sorted(highs) and highs[-1] == pytest.approx(stands_at), view
        last = history[-1]
        assert (last["leader_id"], last["leader_log_speedup"]) == (leader["kernel_id"], leader["log_speedup"]), view
        assert last["leader_log_speedup_se"] == pytest.approx(leader["log_speedup_se"]), view
    assert sum(row["raised"] for row in rows(folder, "FROM raised")) == pytest.approx(max(stands_at, 0))


def test_named_queries_credit_no_more_than_is_certain(folder: Path) -> None:
    stands_at = certain(folder)
    leaders, (pause,) = asked(folder, "leaders"), asked(folder, "stagnation")
    assert leaders[-1]["best_speedup"] == pause["best_speedup"] == pytest.approx(math.exp(stands_at))
    assert leaders[-1]["kernel_id"] == rows(folder, "FROM best")[0]["kernel_id"]
    assert leaders[-1]["speedup"] == pause["speedup"]
    for name in ("mutators", "models"):
        assert sum(row["raised"] for row in asked(folder, name)) <= max(stands_at, 0) + 1e-9, name
    shared = asked(folder, "contributors")
    assert sum(row["log_speedup"] for row in shared) == pytest.approx(math.log(leaders[-1]["speedup"]))
    unsure = [row for row in shared if row["log_speedup"] < 1.96 * row["log_speedup_se"]]
    assert all(not row["share"] for row in unsure)


def test_a_gain_within_its_error_improves_nothing(folder: Path) -> None:
    offspring = rows(folder, "FROM offspring WHERE is_new AND gain IS NOT NULL")
    assert any(row["gain"] > 0 and not row["improved"] for row in offspring)
    assert all(row["gain"] > 1.96 * row["gain_se"] for row in offspring if row["improved"])
    (gains,) = rows(folder, "SELECT sum(improved) AS n FROM mutator_gain")
    assert gains["n"] == sum(row["improved"] for row in offspring)


def test_cells_of_the_map_hold_what_stands_highest(folder: Path) -> None:
    found = {row["cell"]: row["stands_at"] for row in rows(folder, "FROM elites")}
    highest = rows(folder, "SELECT cell, max(stands_at) AS at FROM verdicts WHERE stands_at IS NOT NULL GROUP BY cell")
    assert found == {row["cell"]: row["at"] for row in highest}
    assert max(found.values()) == pytest.approx(certain(folder))


def test_the_page_and_the_tables_end_where_the_best_stands(folder: Path) -> None:
    stands_at = certain(folder)
    run = Run(folder)
    (task,) = summary(run)
    assert task.task == TASK and task.best_speedup == pytest.approx(math.exp(stands_at))
    assert ratio(math.exp(stands_at)) in many_line([task])
    (listed,) = [row for row in runs_in(folder.parent) if row["run"] == folder.name]
    assert (listed["best_speedup"], listed["speedup"]) == (pytest.approx(math.exp(stands_at)), task.speedup)
    told = str(document(material(run), 0.0))
    assert f"Certain speedup so far of {TASK}: {ratio(math.exp(stands_at))} after" in told


def test_the_curve_of_a_comparison_ends_where_the_best_stands(folder: Path) -> None:
    stands_at = certain(folder)
    kinds = ("evaluations", "trials", "calls", "tokens", "cost_usd", "evaluator_s", "elapsed_s")
    points = [
        Point(**{name: row[name] for name in (*kinds, "best_log_speedup")})
        for row in rows(folder, "FROM curve WHERE best_log_speedup IS NOT NULL ORDER BY seq")
    ]
    end = best_at(np.array([points[-1].evaluations], dtype=np.float64), "evaluations", points)
    assert end[0] == pytest.approx(stands_at)


def test_the_last_fit_moves_what_is_not_confirmed_and_was_judged_before_it(tmp_path: Path) -> None:
    history = History().propose(0, "ancestor", "", "K0")
    history.evaluate(0, "K0", "screen", "correct", log_speedup=0.0, cell="c")
    for number, (name, level) in enumerate({"A": "full", "B": "confirmed", "C": "screen"}.items(), 1):
        history.propose(number, "rewrite", "K0", name).evaluate(
            number, name, level, "correct", log_speedup=3.0, cell="c"
        )
    history.propose(4, "rewrite", "K0", "A2")
    history.evaluate(4, "A2", "screen", "duplicate", inherited="correct", duplicate_of="A", log_speedup=3.0)
    at = max(row["created_at"] for row in history.tables["evaluations"])
    history.evaluate(3, "C", "full", "correct", log_speedup=2.5, cell="c")
    fit = {"task": TASK, "kernel_ids": ["A", "B", "C"], "log_speedup_ses": [0.2] * 3, "created_at": at}
    history.tables["fits"] = [fit | {"log_speedups": [9.0] * 3}, fit | {"log_speedups": [2.0] * 3}]
    found = {row["kernel_id"]: row for row in rows(stored(tmp_path / "run", history), "FROM verdicts")}
    assert {name: row["log_speedup"] for name, row in found.items()} == {"K0": 0, "A": 2, "B": 3, "C": 2.5, "A2": 2}
    assert found["A"]["stands_at"] == pytest.approx(2 - 1.96 * 0.2)
    assert found["B"]["stands_at"] == 3


def moved(folder: Path, level: str) -> tuple[str, str]:
    """A run whose best kernel was measured as 3.00x, which a later fit made 1.97x; its id, and that of a duplicate."""
    naive, faster, twin = (Kernel("softmax", "cpu", f"/*! evo\n*/\nvoid softmax() {{}}  // {n}\n") for n in range(3))
    history = History().propose(0, "ancestor", "", naive.id).propose(1, "rewrite", naive.id, faster.id)
    history.evaluate(0, naive.id, "screen", "correct", log_speedup=0.0, log_speedup_se=0.0, cell="c")
    seen = {"log_speedup": math.log(3.0), "log_speedup_se": 0.17, "anchor_id": naive.id, "facts_json": "{}"}
    history.evaluate(1, faster.id, level, "correct", log_ratio=math.log(3.0), log_ratio_se=0.17, cell="d", **seen)
    history.propose(2, "rewrite", naive.id, twin.id)
    known = {"inherited": "correct", "duplicate_of": faster.id, "log_speedup": math.log(3.0)}
    history.evaluate(2, twin.id, "screen", "duplicate", **known)
    at = max(row["created_at"] for row in history.tables["evaluations"])
    fit = {"kernel_ids": [faster.id], "log_speedups": [math.log(1.97)], "log_speedup_ses": [0.125]}
    history.tables["fits"] = [fit | {"task": TASK, "created_at": at}]
    written = tables(
        history, config_json=RunConfig.model_validate({"operators": ["softmax"]}).resolved().model_dump_json()
    )
    begun = event("session", json.dumps({"resumed": False, "tasks": [TASK], "budget": None}))
    with Store(folder, create=True) as store:
        kernels = [*map(records.kernel_row, (naive, faster, twin))]
        store.commit(written | {"kernels": kernels, "events": [begun]}).result()
    return faster.id, twin.id


@pytest.mark.parametrize(
    ("level", "standing"), some_slow([("full", "unconfirmed (full)"), ("confirmed", "confirmed")], 1)
)
def test_a_speedup_that_a_fit_moved_is_told_alike_by_tools_commands_and_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], level: str, standing: str
) -> None:
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    from evo.outside.mcp_server import Shelf

    folder = tmp_path / "run"
    name, twin = moved(folder, level)
    figure, ends = ("1.97x", "1.54 to 2.52") if level == "full" else ("3.00x", "2.15 to 4.19")
    made = config_of(folder)
    ((operator, task),) = made.tasks()
    workers, sessions = DraftWorkers(folder, made), Sessions(folder, None)
    studio = Studio(folder, made, operator, task, pool=workers, sessions=sessions, author="ann")
    shelf = Shelf(tmp_path, lambda *_: studio, studio)
    uses: list[tuple[str, dict[str, Any]]] = [
        ("verdict", {"of": name, "wait_s": 0}), ("read_kernel", {"kernel": name}), ("lineage", {}), ("status", {}),
        ("lineage", {"kernel": name}), ("verdict", {"of": twin, "wait_s": 0}),
        ("find_kernels", {}), ("compare_kernels", {"run": "run"}),
        ("show_kernel", {"run": "run"}), ("show_kernel", {"run": "run", "part": "lineage"}),
    ]  # fmt: skip
    for tool, arguments in uses:
        told = asyncio.run(shelf.use(tool, arguments)).text
        assert f"{figure} (95 %: {ends})" in told and standing in told, f"{tool}: {told}"
        same = f"Kernel {twin[:12]}: It is correct" in told and f"the same program as kernel {name[:12]}" in told
        assert same == (arguments.get("of") == twin)
    for command in (("best",), ("lineage",), ("diff", "naive", "best"), ("best", "--show"), ("status",)):
        _, told, _ = evo(monkeypatch, capsys, command[0], str(folder), *command[1:])
        assert figure in told and ends in told and standing.split()[0] in told, f"{command}: {told}"
    certain = ratio(1.97 * math.exp(-1.96 * 0.125)) if level == "full" else figure
    assert certain in evo(monkeypatch, capsys, "list", "--runs", str(tmp_path))[1]
    assert f"{figure} (95 %: {ends})" in str(document(material(Run(folder)), 0.0))
    asyncio.run(workers.close())
