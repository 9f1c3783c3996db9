"""The views, on lineages with known answers."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest

from evo.store import Store, query, schema
from tests.store.rows import TASK, History, joined, run

Row = dict[str, Any]


def stored(folder: Path, *parts: History) -> Path:
    with Store(folder, create=True) as store:
        store.commit(joined({"runs": [run()]}, *(part.tables for part in parts))).result()
    return folder


def told() -> History:
    """K0 -> A -> B (refuted) -> D (does not compile) -> E (a repair) -> F (pending); C is A's program again."""
    return (
        History()
        .propose(0, "ancestor", "", "K0")
        .evaluate(0, "K0", "screen", "correct", log_speedup=0.0, cell="c0")
        .propose(1, "rewrite", "K0", "A")
        .evaluate(1, "A", "screen", "correct", log_speedup=0.5, cell="c1")
        .evaluate(1, "A", "full", "correct", log_speedup=0.4, cell="c1")
        .propose(2, "rewrite", "A", None, failure="nothing to unroll")
        .call(3, "big", tokens_in=100, tokens_out=10, cost_usd=0.5, latency_s=2.0)
        .call(
            3,
            "big",
            tokens_in=50,
            cost_usd=0.25,
            latency_s=1.0,
            status="failed",
            error="timeout",
            attempts=6,
            lost_tokens=90,
            lost_usd=0.5,
        )
        .propose(3, "llm", "A K0", "B", model="big")
        .evaluate(3, "B", "screen", "correct", log_speedup=0.9, cell="c2")
        .evaluate(3, "B", "confirmed", "wrong", message="race", cell="c2")
        .propose(4, "tune", "K0", "A")
        .evaluate(4, "A", "screen", "duplicate", inherited="correct", duplicate_of="A", log_speedup=0.5, cell="c1")
        .propose(5, "tune", "K0", "C")
        .evaluate(5, "C", "screen", "duplicate", inherited="correct", duplicate_of="A", log_speedup=0.5, cell="c1")
        .call(6, "small", tokens_in=7, tokens_out=3, cost_usd=0.01, latency_s=0.5)
        .propose(6, "llm", "B", "D", model="small")
        .evaluate(6, "D", "screen", "compile_error", message="line 3")
        .propose(7, "llm", "D", "E", model="big")
        .evaluate(7, "E", "screen", "correct", log_speedup=0.3, cell="c2")
        .propose(8, "rewrite", "E", "F")
    )


def elsewhere() -> History:
    return (
        History("softmax/bf16/cpu")
        .propose(0, "ancestor", "", "K0")
        .evaluate(0, "K0", "screen", "correct", log_speedup=0.0, cell="c0")
        .propose(1, "transfer", "A", "A")
        .evaluate(1, "A", "screen", "slower", cell="c1", message="0.8 of its anchor")
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored(tmp_path_factory.mktemp("told"), told(), elsewhere())


def rows(folder: Path, sql: str) -> list[Row]:
    found: list[Row] = query(folder, sql).to_pylist()
    return found


def by(folder: Path, key: str, sql: str) -> dict[str, Row]:
    return {row[key]: row for row in rows(folder, sql)}


def test_the_best_kernel_is_judged_by_its_most_severe_level(folder: Path) -> None:
    best, other = rows(folder, "FROM best ORDER BY task DESC")
    assert (best["task"], best["kernel_id"], best["level"], best["log_speedup"]) == (TASK, "A", "full", 0.4)
    assert best["speedup"] == pytest.approx(math.exp(0.4))
    assert best["speedup_low"] == pytest.approx(math.exp(0.4 - 0.0196))
    assert best["speedup_high"] == pytest.approx(math.exp(0.4 + 0.0196))
    assert (best["mutator"], best["description"], best["parents"]) == ("rewrite", "rewrite made A", ["K0"])
    assert (other["task"], other["kernel_id"], other["parents"]) == ("softmax/bf16/cpu", "K0", None)


def test_elites_hold_no_refuted_kernel_and_no_duplicate(folder: Path) -> None:
    elites = rows(folder, f"SELECT cell, kernel_id FROM elites WHERE task = '{TASK}' ORDER BY cell")
    assert [(e["cell"], e["kernel_id"]) for e in elites] == [("c0", "K0"), ("c1", "A"), ("c2", "E")]


def test_lineage_has_every_individual_once(folder: Path) -> None:
    lineage = rows(folder, f"FROM lineage WHERE task = '{TASK}' ORDER BY number")
    told = [(r["kernel_id"], r["parent_id"], r["generation"], r["status"], r["level"]) for r in lineage]
    assert told == [
        ("K0", None, 0, "correct", "screen"),
        ("A", "K0", 1, "correct", "full"),
        ("B", "A", 2, "wrong", "confirmed"),
        ("C", "K0", 1, "correct", "full"),
        ("D", "B", 3, "compile_error", "screen"),
        ("E", "D", 4, "correct", "screen"),
        ("F", "E", 5, None, None),
    ]
    individuals = {r["kernel_id"]: r for r in lineage}
    assert individuals["B"]["parents"] == ["A", "K0"]
    assert (individuals["B"]["model"], individuals["B"]["speedup"]) == ("big", None)
    assert (individuals["C"]["duplicate_of"], individuals["A"]["duplicate_of"]) == ("A", None)


def test_a_parent_from_another_task_counts_as_a_first_ancestor(folder: Path) -> None:
    found = by(folder, "kernel_id", "FROM lineage WHERE task = 'softmax/bf16/cpu'")
    assert found["K0"]["generation"] == 0
    assert (found["A"]["generation"], found["A"]["parent_id"], found["A"]["mutator"]) == (1, "A", "transfer")


def test_progress_knows_what_became_of_every_kernel(folder: Path) -> None:
    steps = rows(folder, f"FROM progress WHERE task = '{TASK}'")
    best = [(s["evaluation"], s["kernel_id"], s["best_log_speedup"], s["improved"]) for s in steps]
    assert best == [
        (1, "K0", 0.0, True),
        (2, "A", 0.4, True),
        (3, "A", 0.4, False),
        (4, "B", 0.4, False),
        (5, "B", 0.4, False),
        (6, "A", 0.4, False),
        (7, "C", 0.4, False),
        (8, "D", 0.4, False),
        (9, "E", 0.4, False),
    ]
    assert [s["elapsed_s"] for s in steps[:3]] == [2.0, 4.0, 5.0]
    assert steps[1]["best_speedup"] == pytest.approx(math.exp(0.4))


def test_mutators_get_credit_for_new_kernels_only(folder: Path) -> None:
    columns = "proposals, failures, kernels, duplicates, correct, improved, mean_gain, max_gain, seconds, cost_usd"
    gain = by(folder, "mutator", f"SELECT mutator, {columns} FROM mutator_gain WHERE task = '{TASK}'")
    assert list(gain["rewrite"].values())[1:] == [3, 1, 2, 0, 1, 1, pytest.approx(0.4), pytest.approx(0.4), 6.0, 0.0]
    assert list(gain["tune"].values())[1:] == [2, 0, 1, 1, 1, 1, pytest.approx(0.4), pytest.approx(0.4), 4.0, 0.0]
    assert list(gain["llm"].values())[1:] == [3, 0, 3, 0, 1, 1, None, None, 6.0, pytest.approx(0.76)]
    assert list(gain["ancestor"].values())[1:7] == [1, 0, 1, 0, 1, 0]
    models = by(folder, "model", f"SELECT model, {columns} FROM model_gain")
    assert list(models["big"].values())[1:] == [2, 0, 2, 0, 1, 1, None, None, 4.0, pytest.approx(0.75)]
    assert set(models) == {"big", "small"}


def test_cost_adds_up_per_model(folder: Path) -> None:
    cost = by(folder, "model", "FROM cost")
    assert list(cost["big"].values()) == ["big", 2, 1, 150, 10, 0.75, 6, 90, 0.5, 3.0]
    assert list(cost["small"].values()) == ["small", 1, 0, 7, 3, 0.01, 0, 0, 0.0, 0.5]


def test_failures_come_with_an_example(folder: Path) -> None:
    found = [(r["status"], r["count"], r["example"]) for r in rows(folder, "FROM failures ORDER BY status")]
    assert found == [("compile_error", 1, "line 3"), ("no_child", 1, "nothing to unroll"), ("wrong", 1, "race")]


def test_a_duplicate_falls_with_its_original(tmp_path: Path) -> None:
    history = told().evaluate(None, "A", "confirmed", "wrong", message="only lucky")
    folder = stored(tmp_path, history)
    verdicts = by(folder, "kernel_id", "FROM verdicts")
    assert (verdicts["A"]["status"], verdicts["C"]["status"]) == ("wrong", "wrong")
    assert verdicts["C"]["speedup"] is None
    assert rows(folder, "SELECT kernel_id FROM best") == [{"kernel_id": "E"}]
    assert by(folder, "kernel_id", "FROM lineage")["A"]["mutator"] == "rewrite"  # nobody asked, but it is no ancestor


def test_the_latest_of_equally_severe_verdicts_counts(tmp_path: Path) -> None:
    history = told().evaluate(None, "A", "full", "correct", log_speedup=0.2, cell="c1")
    assert by(stored(tmp_path, history), "kernel_id", "FROM verdicts")["C"]["log_speedup"] == 0.2


def test_a_duplicate_of_an_unknown_kernel_keeps_what_it_inherited(tmp_path: Path) -> None:
    history = History().propose(0, "m", "", "X")
    history.evaluate(0, "X", "screen", "duplicate", inherited="correct", duplicate_of="gone", log_speedup=0.1)
    (best,) = rows(stored(tmp_path, history), "FROM best")
    assert (best["kernel_id"], best["log_speedup"]) == ("X", 0.1)


def test_an_ancestor_needs_no_request_and_keeps_its_place(tmp_path: Path) -> None:
    history = History().evaluate(None, "N", "screen", "correct", log_speedup=0.0).propose(0, "m", "N", "A")
    history.propose(1, "m", "A", "N")  # back where it started
    lineage = by(stored(tmp_path, history), "kernel_id", "FROM lineage")
    assert (lineage["N"]["generation"], lineage["N"]["parent_id"], lineage["N"]["request_id"]) == (0, None, None)
    assert (lineage["A"]["generation"], lineage["A"]["parent_id"]) == (1, "N")


def test_a_circle_has_no_generations_and_ends(tmp_path: Path) -> None:
    history = History().propose(0, "m", "", "K0").propose(1, "m", "B", "A").propose(2, "m", "A", "B")
    generations = rows(stored(tmp_path, history), "SELECT kernel_id, generation FROM lineage ORDER BY number")
    assert [r["generation"] for r in generations] == [0, None, None]


def test_empty_runs_have_empty_views(tmp_path: Path) -> None:
    folder = stored(tmp_path)
    views = rows(folder, "SELECT view_name FROM duckdb_views() WHERE NOT internal")
    assert len(views) == 11
    assert all(query(folder, f"FROM {view['view_name']}").num_rows == 0 for view in views)


CHAIN = """
    INSERT INTO proposals BY NAME
    SELECT 't#' || i AS request_id, 't' AS task, i AS number, 'm' AS mutator, 'k' || i AS kernel_id, 0.1 AS seconds,
           to_timestamp(1.7e9 + i) AS created_at FROM range({n}) r(i);
    INSERT INTO parents SELECT 't#' || i, 0, 'k' || greatest(0, i - {step}) FROM range(1, {n}) r(i);
    INSERT INTO evaluations BY NAME
    SELECT 'e' || i AS evaluation_id, 't#' || i AS request_id, 't' AS task, 'k' || i AS kernel_id, 'screen' AS level,
           'correct' AS status, i / 1e6 AS log_speedup, 0.01 AS log_speedup_se, 'c' || i % 30 AS cell,
           to_timestamp(1.7e9 + i + 0.5) AS created_at FROM range({n}) r(i);
"""


def test_a_chain_of_5000_generations_is_followed_fast() -> None:
    with duckdb.connect() as connection:
        schema.migrate(connection)
        connection.execute(CHAIN.format(n=5000, step=1))
        start_s = time.monotonic()
        lineage = connection.execute("SELECT max(generation), count(*), count(generation) FROM lineage").fetchall()
        ancestors = connection.execute(
            "WITH RECURSIVE l AS MATERIALIZED (SELECT kernel_id, parent_id FROM individuals), up AS ("
            "SELECT * FROM l WHERE kernel_id = 'k4999' UNION ALL"
            " SELECT l.* FROM up JOIN l ON l.kernel_id = up.parent_id) SELECT count(*) FROM up"
        ).fetchall()
        assert time.monotonic() - start_s < 3.0
    assert lineage == [(4999, 5000, 5000)]
    assert ancestors == [(5000,)]


def test_no_view_hangs_under_a_limit() -> None:
    with duckdb.connect() as connection:
        schema.migrate(connection)
        connection.execute(CHAIN.format(n=100_000, step=100))
        views = connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
        for (view,) in views:
            connection.execute(f"SELECT count(*) FROM (FROM {view} LIMIT 10)").fetchall()
        assert connection.execute("SELECT max(generation) FROM lineage").fetchall() == [(1000,)]
