"""The views, on lineages with known answers."""

from __future__ import annotations

import math
from pathlib import Path

import duckdb
import pytest

from evo.store import Store, query, schema
from evo.store.named import named_query
from tests.store.rows import START_S, TASK, History, Row, event, joined, run

pytestmark = pytest.mark.usefixtures("made_once")


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


def test_what_is_not_confirmed_counts_with_the_lower_end_of_its_interval(tmp_path: Path) -> None:
    history = (
        History()
        .propose(1, "rewrite", "", "sure")
        .evaluate(1, "sure", "confirmed", "correct", log_speedup=1.0, log_speedup_se=0.1)
    )
    history.propose(2, "rewrite", "sure", "lucky").evaluate(
        2, "lucky", "screen", "correct", log_speedup=1.3, log_speedup_se=0.2
    )
    (best,) = rows(stored(tmp_path / "lucky", history), "FROM best")
    assert (best["kernel_id"], best["level"]) == ("sure", "confirmed")
    history.propose(3, "rewrite", "sure", "better").evaluate(
        3, "better", "screen", "correct", log_speedup=1.3, log_speedup_se=0.1
    )
    (best,) = rows(stored(tmp_path / "better", history), "FROM best")
    assert (best["kernel_id"], best["log_speedup"]) == ("better", 1.3)


def test_the_best_kernel_is_judged_by_its_most_severe_level(folder: Path) -> None:
    best, other = rows(folder, "FROM best ORDER BY task DESC")
    assert (best["task"], best["kernel_id"], best["level"], best["log_speedup"]) == (TASK, "A", "full", 0.4)
    assert best["speedup"] == pytest.approx(math.exp(0.4))
    assert best["speedup_low"] == pytest.approx(math.exp(0.4 - 0.0196))
    assert best["speedup_high"] == pytest.approx(math.exp(0.4 + 0.0196))
    assert (best["mutator"], best["description"], best["parents"]) == ("rewrite", "rewrite made A", ["K0"])
    assert (other["task"], other["kernel_id"], other["parents"]) == ("softmax/bf16/cpu", "K0", [])


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
    best = [(s["evaluation"], s["kernel_id"], s["leader_log_speedup"], s["improved"]) for s in steps]
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
    assert [(s["best_log_speedup"], s["leader_log_speedup_se"]) for s in steps[:2]] == [
        (pytest.approx(-0.0196), 0.01), (pytest.approx(0.4 - 0.0196), 0.01),
    ]  # fmt: skip
    assert steps[1]["best_speedup"] == pytest.approx(math.exp(0.4 - 0.0196))


def test_mutators_get_credit_for_new_kernels_only(folder: Path) -> None:
    counts = "proposals, failures, kernels, duplicates, correct, improved"
    columns = f"{counts}, mean_gain, max_gain, propose_s, evaluate_s, cost_usd"
    gain = by(folder, "mutator", f"SELECT mutator, {columns} FROM mutator_gain WHERE task = '{TASK}'")
    assert list(gain["rewrite"].values())[1:] == [
        3, 1, 2, 0, 1, 1, pytest.approx(0.4), pytest.approx(0.4), 6.0, 0.5, 0.0,
    ]  # fmt: skip
    assert list(gain["tune"].values())[1:] == [2, 0, 1, 1, 1, 1, pytest.approx(0.4), pytest.approx(0.4), 4.0, 1.0, 0.0]
    assert list(gain["llm"].values())[1:] == [3, 0, 3, 0, 1, 1, None, None, 6.0, 1.5, pytest.approx(0.76)]
    assert list(gain["ancestor"].values())[1:7] == [1, 0, 1, 0, 1, 0]
    models = by(folder, "model", f"SELECT model, {columns} FROM model_gain")
    assert list(models["big"].values())[1:] == [2, 0, 2, 0, 1, 1, None, None, 4.0, 1.0, pytest.approx(0.75)]
    assert set(models) == {"big", "small"}


def test_cost_adds_up_per_model(folder: Path) -> None:
    cost = by(folder, "model", "FROM cost")
    assert list(cost["big"].values()) == ["big", 2, 1, 0, 0, 150, 10, 0.75, 6, 90, 0.5, 90, 0.5, 3.0]
    assert list(cost["small"].values()) == ["small", 1, 0, 0, 0, 7, 3, 0.01, 0, 0, 0.0, 0, 0.0, 0.5]


def test_what_is_lost_likely_took_the_part_of_its_bound_that_answered_calls_took(tmp_path: Path) -> None:
    history = History()
    lost = {"status": "failed", "lost_tokens": 1000, "lost_usd": 0.1, "tokens_in": 0, "tokens_out": 0, "cost_usd": 0.0}
    paid = {"status": "answered", "tokens_in": 200, "tokens_out": 50, "cost_usd": 0.02}
    history.call(0, "m", cache_key="a", usage_doubt="", **paid)
    history.call(1, "m", cache_key="b", usage_doubt="", **paid)
    history.call(2, "m", cache_key="c", usage_doubt="no usage was told", **paid | {"tokens_in": 950})
    history.call(3, "m", cache_key="d", **lost)
    history.call(4, "never heard", cache_key="e", **lost)
    history.tables["llm_sent"] = [
        {
            "request_id": "r", "role": "rewrite", "model": "m", "cache_key": key, "sample": 0, "most_in": 500,
            "most_tokens": 1000, "most_usd": 0.1, "created_at": 0.0,
        }
        for key in "abcde"
    ]  # fmt: skip
    cost = by(stored(tmp_path, history), "model", "FROM cost")
    assert (cost["m"]["lost_tokens"], cost["m"]["likely_lost_tokens"]) == (1000, 250)
    assert cost["m"]["likely_lost_usd"] == pytest.approx(0.02)
    assert (cost["m"]["doubted_calls"], cost["m"]["failed_calls"]) == (1, 1)
    assert cost["never heard"]["likely_lost_tokens"] == 1000


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
    assert by(folder, "kernel_id", "FROM lineage")["A"]["mutator"] == "rewrite"  # unasked, but no ancestor


def test_the_latest_of_equally_severe_verdicts_counts(tmp_path: Path) -> None:
    history = told().evaluate(None, "A", "full", "correct", log_speedup=0.2, cell="c1")
    assert by(stored(tmp_path, history), "kernel_id", "FROM verdicts")["C"]["log_speedup"] == 0.2


def test_a_duplicate_of_an_unknown_kernel_keeps_what_it_inherited(tmp_path: Path) -> None:
    history = History().propose(0, "m", "", "X")
    history.evaluate(0, "X", "screen", "duplicate", inherited="correct", duplicate_of="gone", log_speedup=0.1)
    (best,) = rows(stored(tmp_path, history), "FROM best")
    assert (best["kernel_id"], best["log_speedup"]) == ("X", 0.1)


def test_a_duplicate_of_an_unknown_kernel_leads_whom_it_is_faster_than(tmp_path: Path) -> None:
    history = History().propose(0, "m", "", "W").evaluate(0, "W", "screen", "correct", log_speedup=0.3)
    history.propose(1, "m", "W", "X")
    history.evaluate(1, "X", "screen", "duplicate", inherited="correct", duplicate_of="gone", log_speedup=0.4)
    (best,) = rows(stored(tmp_path, history), "FROM best")
    assert (best["kernel_id"], best["log_speedup"]) == ("X", 0.4)


def test_of_a_kernel_and_its_duplicates_the_kernel_itself_is_the_best(tmp_path: Path) -> None:
    history = History().propose(0, "m", "", "A")
    history.evaluate(0, "A", "screen", "duplicate", inherited="correct", duplicate_of="B", log_speedup=0.9)
    history.propose(1, "m", "A", "B").evaluate(1, "B", "screen", "correct", log_speedup=0.3)
    assert rows(stored(tmp_path, history), "SELECT kernel_id, log_speedup FROM best") == [
        {"kernel_id": "B", "log_speedup": 0.3}
    ]


def crossed() -> History:
    """Two lines of unequal length from K0, whose ends X and P have a child, and a kernel that only X would explain."""
    history = History().propose(0, "ancestor", "", "K0").evaluate(0, "K0", "screen", "correct", log_speedup=0.0)
    for number, (parent, child) in enumerate((("K0", "P"), ("K0", "W"), ("W", "X")), 1):
        history.propose(number, "rewrite", parent, child)
        history.evaluate(number, child, "screen", "correct", log_speedup=0.1 * number)
    history.propose(4, "crossover", "P X", "C").evaluate(4, "C", "screen", "correct", log_speedup=0.25)
    history.propose(5, "crossover", "C P", "D").evaluate(5, "D", "screen", "correct", log_speedup=0.5)
    return history.propose(6, "rewrite", "C", "K0").evaluate(6, "K0", "screen", "duplicate", duplicate_of="K0")


def test_both_parents_count_for_generation_and_ancestry(tmp_path: Path) -> None:
    folder = stored(tmp_path, crossed())
    generations = {r["kernel_id"]: r["generation"] for r in rows(folder, "FROM lineage")}
    assert generations == {"K0": 0, "P": 1, "W": 1, "X": 2, "C": 3, "D": 4}
    found = rows(folder, f"SELECT kernel_id FROM ancestors('{TASK}', 'C') ORDER BY generation, number")
    assert [r["kernel_id"] for r in found] == ["K0", "P", "W", "X", "C"]
    assert rows(folder, "FROM ancestors('gelu/fp32/cpu', 'C')") == []


def test_a_crossover_gains_what_it_is_faster_than_the_faster_parent(tmp_path: Path) -> None:
    gain = by(stored(tmp_path, crossed()), "kernel_id", "FROM offspring WHERE mutator = 'crossover'")
    assert gain["C"]["gain"] == pytest.approx(0.25 - 0.3)  # slower than X, though faster than P
    assert gain["D"]["gain"] == pytest.approx(0.5 - 0.25)
    (found,) = rows(tmp_path, "FROM mutator_gain WHERE mutator = 'crossover'")
    assert (found["improved"], found["mean_gain"]) == (1, pytest.approx(0.1))


def test_a_child_that_alone_of_its_parents_is_correct_is_an_improvement(tmp_path: Path) -> None:
    history = crossed().propose(7, "llm", "K0", "B").evaluate(7, "B", "screen", "wrong")
    history.propose(8, "crossover", "B P", "S").evaluate(8, "S", "screen", "correct", log_speedup=0.05)
    history.propose(9, "repair", "B", "R").evaluate(9, "R", "screen", "correct", log_speedup=0.01)
    folder = stored(tmp_path, history)
    found = by(folder, "kernel_id", "FROM offspring")
    assert found["S"]["gain"] == pytest.approx(0.05 - 0.1) and found["S"]["parent_status"] == "correct"
    assert found["R"]["gain"] is None and found["R"]["parent_status"] == "wrong"
    assert by(folder, "mutator", "FROM mutator_gain")["repair"]["improved"] == 1


def test_ancestors_of_a_circle_end(tmp_path: Path) -> None:
    history = History().propose(0, "ancestor", "", "K0").propose(1, "m", "B", "A").propose(2, "m", "A", "B")
    assert len(rows(stored(tmp_path, history), f"FROM ancestors('{TASK}', 'A')")) == 2


def test_a_kernel_from_another_task_has_its_lineage_there_and_gains_over_its_own_tasks_parents(tmp_path: Path) -> None:
    """One file may be a kernel of two dtypes: its parent is itself, in the other one."""
    away = "softmax/bf16/cpu"
    ported = History(away).propose(0, "ancestor", "", "K0").evaluate(0, "K0", "screen", "correct", log_speedup=0.0)
    ported.propose(1, "rewrite", "K0", "Y").evaluate(1, "Y", "screen", "correct", log_speedup=0.1)
    ported.propose(2, "carry", "X", "X", source_task=TASK).evaluate(2, "X", "screen", "correct", log_speedup=0.2)
    ported.propose(3, "port", "C Y", "Z", source_task=TASK).evaluate(3, "Z", "screen", "correct", log_speedup=0.4)
    folder = stored(tmp_path, crossed(), ported)
    found = rows(folder, f"SELECT task, kernel_id FROM ancestors('{away}', 'X') ORDER BY task DESC, number")
    assert [(r["task"], r["kernel_id"]) for r in found] == [(TASK, "K0"), (TASK, "W"), (TASK, "X"), (away, "X")]
    found = rows(folder, f"SELECT task, kernel_id FROM ancestors('{away}', 'Z') ORDER BY task DESC, number")
    there = [(TASK, name) for name in ("K0", "P", "W", "X", "C")]
    assert [(r["task"], r["kernel_id"]) for r in found] == [*there, (away, "K0"), (away, "Y"), (away, "Z")]
    gains = by(folder, "kernel_id", f"FROM offspring WHERE task = '{away}'")
    assert gains["Z"]["gain"] == pytest.approx(0.3) and gains["Z"]["parent_id"] == "C"
    assert gains["X"]["gain"] is None


def test_empty_runs_have_empty_views(tmp_path: Path) -> None:
    folder = stored(tmp_path)
    views = rows(folder, "SELECT view_name FROM duckdb_views() WHERE NOT internal")
    assert len(views) == 23
    assert all(query(folder, f"FROM {view['view_name']}").num_rows == 0 for view in views)


def test_migrants_have_the_children_that_were_made_of_them_where_they_went(tmp_path: Path) -> None:
    history = History().propose(0, "ancestor", "", "K0", island=0)
    history.evaluate(0, "K0", "screen", "correct", log_speedup=0.0, log_speedup_se=0.0)
    made = [("early", 1, 0.9), ("there", 1, 0.5), ("slow", 1, -0.5), ("home", 0, 0.7)]
    for number, (kernel, island, gain) in enumerate(made, 1):
        history.propose(number, "m", "K0", kernel, island=island)
        history.evaluate(number, kernel, "screen", "correct", log_speedup=gain, log_speedup_se=0.0)
    history.propose(5, "m", "there K0", None, island=1, failure="nothing")
    move = {"task": TASK, "number": 2, "kernel_id": "K0", "source_island": 0, "island": 1, "created_at": START_S + 9}
    moves = [move | {"kind": "migration", "outcome": "new"}, move | {"number": 9, "kind": "restart", "outcome": "new"}]
    history.tables["migrations"] = moves
    first, last = rows(stored(tmp_path, history), "FROM migrants")
    assert (first["children"], first["improved"], first["best_child"]) == (2, 1, "there")
    assert first["best_child_stands_at"] == 0.5 and first["stands_at"] == 0 and first["elapsed_s"] == 9
    assert (last["kind"], last["children"], last["improved"], last["best_child"]) == ("restart", 0, 0, None)


def test_a_worker_is_never_busier_than_all_the_time_though_its_verdicts_overlap(tmp_path: Path) -> None:
    history = History()
    for number, (ended, took) in enumerate([(10, 10), (12, 8), (40, 5), (100, 70), (110, 10)]):
        history.propose(number, "m", "", f"K{number}")
        history.evaluate(
            number, f"K{number}", "screen", "correct", worker="one", build_ms=0.0, verify_ms=took * 600.0,
            time_ms=took * 400.0, created_at=START_S + ended,
        )  # fmt: skip
    folder = stored(tmp_path, history)
    found = [(row["busy_s"], row["verdicts"]) for row in rows(folder, "FROM stretches")]
    assert found == [(12, 2), (80, 3)]
    use = named_query("use")
    shares = [row["busy_s"] for row in query(folder, use.text(several=False), params=use.bound({})).to_pylist()]
    assert sum(shares) == pytest.approx(92) and max(shares) <= 60 and len(shares) <= 3


def test_profiles_keep_their_worker_busy_too_and_their_wait_for_it_does_not(tmp_path: Path) -> None:
    history = History().propose(0, "ancestor", "", "K0")
    history.evaluate(0, "K0", "screen", "correct", worker="one", build_ms=0.0, time_ms=4e3, created_at=START_S + 10)
    taken = {
        "task": TASK, "kernel_id": "K0", "evaluation_id": "e", "notes_json": "[]", "seconds": 5.0, "seq": 1,
        "created_at": START_S + 14,
    }  # fmt: skip
    tool = {
        "tool_key": "k", "task": TASK, "request_id": "r", "number": 0, "tool": "profile", "arguments_json": "{}",
        "failed": False, "text": "", "evaluations": 0, "seconds": 3.0, "created_at": START_S + 30,
    }  # fmt: skip
    history.tables["profiles"] = [taken | {"worker": "one"}, taken | {"worker": None, "failure": "lost"}]
    history.tables["tool_calls"] = [tool | {"worker": "two"}, tool | {"tool": "build"}]
    sql = "SELECT worker, busy_s, verdicts, profiles FROM stretches ORDER BY began"
    found = [tuple(row.values()) for row in rows(stored(tmp_path, history), sql)]
    assert found == [
        ("one", 8.0, 1, 1),
        ("two", 3.0, 0, 1),
    ]  # on worker one it began when the verdict was all but there


def test_each_session_has_the_calls_that_it_sent_also_those_that_its_end_cut_off(tmp_path: Path) -> None:
    def sent(key: str, at: float, **columns: object) -> Row:
        row: Row = {"request_id": "r", "role": "m", "model": "big", "cache_key": key, "sample": 0, "most_in": 1}
        return row | {"most_tokens": 100, "most_usd": 2.0, "created_at": START_S + at} | columns

    lost = {"status": "failed", "lost_tokens": 100, "lost_usd": 2.0}
    paid = {"status": "answered", "tokens_in": 30, "tokens_out": 4, "cost_usd": 0.5}
    history = History()
    history.tables["events"] = [event("session", at=START_S + at) for at in (0, 100, 200)]
    history.tables["llm_sent"] = [
        sent("a", 5), sent("b", 50), sent("b", 120), sent("c", 130), sent("d", 210),
        sent("out", 60, messages_json="[]", most_usd=0.0),
    ]  # fmt: skip
    history.call(0, "big", cache_key="a", created_at=START_S + 10, **paid)
    history.call(1, "big", cache_key="b", created_at=START_S + 101, **lost)  # told by the session after the kill
    history.call(1, "big", cache_key="b", created_at=START_S + 140, **paid)
    history.call(2, "big", cache_key="c", created_at=START_S + 201, **lost)
    history.call(3, "big", cache_key="out", created_at=START_S + 205, **paid)
    history.call(4, "big", cache_key="never sent", created_at=START_S + 220, status="unavailable")
    folder = stored(tmp_path, history)
    columns = ("calls", "failed_calls", "cost_usd", "lost_usd", "open_calls", "open_usd")
    found = [tuple(row[name] for name in columns) for row in rows(folder, "FROM sessions ORDER BY session")]
    assert found == [(3, 1, 1.0, 2.0, 0, 0.0), (2, 1, 0.5, 2.0, 0, 0.0), (1, 1, 0.0, 0.0, 1, 2.0)]
    tokens = [
        (row["tokens_in"], row["tokens_out"], row["lost_tokens"], row["open_tokens"])
        for row in rows(folder, "FROM sessions")
    ]
    assert tokens == [(60, 8, 100, 0), (30, 4, 100, 0), (0, 0, 0, 100)]


CHAIN = """
    INSERT INTO proposals BY NAME
    SELECT 't#' || i AS request_id, 't' AS task, i AS number, 'm' AS mutator, 'k' || i AS kernel_id, true AS is_new,
           i // {step} AS generation, CASE WHEN i > 0 THEN ['k' || greatest(0, i - {step})] ELSE [] END AS parents,
           0.1 AS seconds, 0.1 AS evaluate_s, 'child' AS kind,
           to_timestamp(1.7e9 + i) AS created_at FROM range({n}) r(i);
    INSERT INTO evaluations BY NAME
    SELECT 'e' || i AS evaluation_id, 't#' || i AS request_id, 't' AS task, 'k' || i AS kernel_id, 'screen' AS level,
           'correct' AS status, true AS is_verdict, i / 1e6 AS log_speedup, 0.01 AS log_speedup_se,
           'c' || i % 30 AS cell, to_timestamp(1.7e9 + i + 0.5) AS created_at FROM range({n}) r(i);
"""


def test_a_chain_of_5000_generations_is_followed_to_its_end() -> None:
    with duckdb.connect() as connection:
        schema.make(connection)
        connection.execute(CHAIN.format(n=5000, step=1))
        found = connection.execute("SELECT count(*), max(generation) FROM ancestors('t', 'k4999')").fetchall()
    assert found == [(5000, 4999)]


def test_no_view_hangs_under_a_limit() -> None:
    with duckdb.connect() as connection:
        schema.make(connection)
        connection.execute(CHAIN.format(n=100_000, step=100))
        views = connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
        for view in [*(f"FROM {name}" for (name,) in views), "FROM ancestors('t', 'k99999')"]:
            connection.execute(f"SELECT count(*) FROM ({view} LIMIT 10)").fetchall()
