"""Named queries, each on a run whose answers are known, and the dictionary of what can be asked."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from evo.store import StoreError, query
from evo.store.named import named_queries, named_query
from evo.store.schema import OF_ALL, column_meanings, relations
from tests.store.rows import TASK, History
from tests.store.story import stored, story

pytestmark = pytest.mark.usefixtures("made_once")
Row = dict[str, Any]
ROOM = 1.96 * 0.01
"""The distance by which a kernel that is not confirmed stands below its estimate; C2 alone is confirmed."""


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored(tmp_path_factory.mktemp("runs") / "one")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another run with the same ids, whose guest is slower than what it came from, and a task of its own."""
    history = story()
    for row in history.tables["evaluations"]:
        if row["kernel_id"] == "G":
            row["log_speedup"] = 0.9
    elsewhere = History("gelu/fp32/cpu").propose(0, "ancestor", "", "K0")
    elsewhere.evaluate(0, "K0", "screen", "correct", log_speedup=0.0)
    for table, rows in elsewhere.tables.items():
        history.tables[table] += rows
    return stored(tmp_path_factory.mktemp("others") / "two", history)


def asked(where: Path | list[Path], name: str, **params: str) -> list[Row]:
    known = named_query(name)
    found: list[Row] = query(where, known.text(several=isinstance(where, list)), params=known.bound(params)).to_pylist()
    return found


def by(rows: list[Row], *keys: str) -> dict[Any, Row]:
    found = {tuple(row[key] for key in keys) if len(keys) > 1 else row[keys[0]]: row for row in rows}
    assert len(found) == len(rows)
    return found


def test_the_log_speedup_of_the_best_is_shared_out_over_all_that_it_comes_from(one: Path) -> None:
    rows = asked(one, "contributors")
    shares = {(row["mutator"], row["model"], row["author"]): row["log_speedup"] for row in rows}
    assert shares == {
        ("guest", None, "ann"): pytest.approx(0.1),
        ("tune", None, None): pytest.approx(0.2),
        ("crossover", "big", None): pytest.approx(0.8 - 0.3),
        ("transform", None, None): pytest.approx(0.2 / 2),
        ("rewrite", "big", None): pytest.approx(0.4 / 2),
        ("ancestor", None, None): pytest.approx(0.0),
    }
    errors = {row["mutator"]: row["log_speedup_se"] for row in rows}
    assert errors["guest"] == pytest.approx(math.hypot(0.01, 0.01))  # of G and C2
    assert errors["crossover"] == pytest.approx(math.hypot(0.01, 0.005, 0.005))  # of C, and halves of A and B
    shares = {row["mutator"]: row["share"] for row in rows}
    assert sum(shares.values()) == pytest.approx(1) and shares["ancestor"] == 0
    assert shares["guest"] < 0.1 / 1.1 and shares["crossover"] > 0.5 / 1.1  # what is certain counts
    repaired = {row["mutator"]: row["log_speedup"] for row in asked(one, "contributors", kernel="R")}
    assert repaired == {"repair": pytest.approx(0.2), "rewrite": pytest.approx(0.4), "ancestor": 0}  # by way of W
    assert asked(one, "contributors", operator="gelu") == []


def test_mutators_and_models_are_told_by_what_they_moved_the_best(one: Path) -> None:
    mutators = by(asked(one, "mutators"), "mutator")
    assert {name: row["raised"] for name, row in mutators.items()} == {
        "ancestor": 0, "transform": pytest.approx(0.2 - ROOM), "rewrite": pytest.approx(0.2), "repair": 0,
        "crossover": pytest.approx(0.4), "tune": pytest.approx(0.2 + ROOM), "guest": pytest.approx(0.1 - ROOM),
    }  # fmt: skip
    crossover = mutators["crossover"]
    assert crossover["raised_per_usd"] == pytest.approx(0.4 / 0.25)
    assert crossover["raised_per_hour"] == pytest.approx(3600 * 0.4 / 2.5)
    transform = mutators["transform"]
    assert [transform[name] for name in ("proposals", "kernels", "correct", "improved")] == [5, 2, 2, 2]
    models = by(asked(one, "models"), "model")
    assert (models["big"]["proposals"], models["big"]["cost_usd"]) == (3, 0.75)
    assert models["big"]["raised"] == pytest.approx(0.6)
    assert mutators["guest"]["mean_gain_se"] == pytest.approx(math.hypot(0.01, 0.01))
    assert mutators["transform"]["mean_gain_se"] == pytest.approx(0.01)  # hypot(0.01, 0.01) twice, by the root of 2
    assert models["small"]["raised_per_usd"] is None


def test_rewrites_share_what_they_did_in_a_row(one: Path) -> None:
    rewrites = by(asked(one, "rewrites"), "rewrite")
    assert {name: (row["proposals"], row["nowhere"]) for name, row in rewrites.items()} == {
        "unroll": (2, 0), "simd": (2, 0), "fuse": (2, 2),
    }  # fmt: skip
    assert rewrites["unroll"]["raised"] == pytest.approx((0.2 - ROOM) / 2)
    assert rewrites["unroll"]["seconds"] == pytest.approx(2.5 / 2 + 2.5)
    assert rewrites["fuse"]["raised_per_hour"] == 0


def test_failures_that_differ_in_numbers_alone_are_the_same(one: Path) -> None:
    failures = by(asked(one, "repeated_failures"), "reason")
    wrong = failures["error N at N"]
    assert (wrong["status"], wrong["times"], wrong["mutators"]) == ("wrong", 2, ["rewrite"])
    assert (wrong["example"], wrong["kernel_id"], wrong["seconds"]) == ("error 5 at 2", "V", 5.0)
    assert failures["`fuse` applies nowhere in this kernel"]["times"] == 2
    assert asked(one, "repeated_failures", least="3") == []


def test_a_compilers_message_is_known_by_its_error_not_by_where_it_stands(tmp_path: Path) -> None:
    history = History(TASK).propose(0, "ancestor", "", "K0").evaluate(0, "K0", "screen", "correct", log_speedup=0.0)
    for number, line in ((1, 7), (2, 30)):
        message = f"kernel: In function 'void f{number}()':\nkernel:{line}:5: error: 'x' was not declared\n  x = 1;"
        history.propose(number, "rewrite", "K0", f"V{number}")
        history.evaluate(number, f"V{number}", "screen", "compile_error", message=message)
    (failure,) = asked(stored(tmp_path / "run", history), "repeated_failures")
    assert (failure["reason"], failure["times"]) == ("kernel:N:N: error: 'x' was not declared", 2)


def test_answers_that_could_not_be_used_are_told_with_what_was_said_to_them(tmp_path: Path) -> None:
    def heard(said: str) -> str:
        return json.dumps([{"role": "user", "content": "?"}, {"role": "user", "content": said}])

    history = History(TASK).propose(0, "ancestor", "", "K0").evaluate(0, "K0", "screen", "correct", log_speedup=0.0)
    for number, line in ((1, 7), (2, 30)):
        history.call(number, "big", status="answered")
        said = f"It could not be used:\n\n```untrusted\nline {line} is broken\n```\n\nAnswer again."
        history.call(number, "big", status="answered", messages_json=heard(said), cost_usd=0.25)
    history.propose(1, "rewrite", "K0", "W", model="big").evaluate(1, "W", "screen", "wrong", message="y is 3")
    history.propose(2, "rewrite", "K0", None, model="big", failure="holds no file")
    history.call(3, "big", status="cut").call(3, "big", status="answered")
    history.call(3, "small", status="failed", error="overloaded", messages_json=heard("Draft 5 is wrong"))
    history.call(4, "small", status="answered").call(5, "small", status="answered")
    history.propose(5, "rewrite", "K0", "N", model="small", failure="too noisy")
    found = {(r["model"], r["outcome"], r["reason"]): r for r in asked(stored(tmp_path / "run", history), "answers")}
    assert {kind: row["answers"] for kind, row in found.items()} == {
        ("big", "again", "line N is broken"): 2, ("big", "wrong", "y is N"): 1, ("big", "no_child", "holds no file"): 1,
        ("big", "cut", ""): 1, ("big", "again", "Draft N is wrong"): 1, ("small", "failed", "overloaded"): 1,
        ("small", "open", ""): 1, ("small", "unavailable", "too noisy"): 1,
    }  # fmt: skip
    assert found["big", "again", "line N is broken"]["request_id"] == f"{TASK}#2"
    assert found["big", "wrong", "y is N"]["cost_usd"] == 0.25


def test_a_metric_is_followed_along_the_lineage(one: Path) -> None:
    steps = asked(one, "metric", metric="dram")
    assert [(row["kernel_id"], row["value"], row["change"]) for row in steps] == [
        ("A", 10, None), ("C", 25, 15), ("G", 50, 25),
    ]  # fmt: skip
    assert steps[2]["factor"] == 2 and steps[2]["speedup"] == pytest.approx(math.exp(1.1))
    assert [row["kernel_id"] for row in asked(one, "metric", kernel="C2")] == ["A", "C"]
    assert asked(one, "metric", metric="registers") == []


def test_tuning_found_the_best_setting_of_each_file(one: Path) -> None:
    (found,) = asked(one, "tuning")
    assert (found["source_id"], found["trials"], found["correct"]) == ("file", 2, 2)
    assert (found["kernel_id"], found["values_json"], found["level"]) == ("C2", '{"BLOCK":2}', "confirmed")
    assert (found["gain"], found["gain_se"]) == (pytest.approx(0.2), pytest.approx(math.hypot(0.01, 0.01)))


def test_stagnation_counts_from_the_last_improvement_and_knows_the_longest(one: Path) -> None:
    (found,) = asked(one, "stagnation")
    assert (found["improvements"], found["best_speedup"]) == (6, pytest.approx(math.exp(1.1 - ROOM)))
    assert found["speedup"] == pytest.approx(math.exp(1.1))
    assert (found["evaluations"], found["evaluations_since"]) == (8, 1)  # V; trials and duplicates do not count
    assert found["longest_evaluations"] == 2  # W and R, between C and its tuning
    leaders = asked(one, "leaders")
    assert [row["kernel_id"] for row in leaders] == ["K0", "A", "B", "C", "C2", "G"]
    assert leaders[-1]["factor"] == pytest.approx(math.exp(0.1 - ROOM)) and leaders[-1]["author"] == "ann"
    assert leaders[-1]["best_speedup"] == pytest.approx(math.exp(1.1 - ROOM))
    assert leaders[-1]["speedup"] == pytest.approx(math.exp(1.1))
    assert found["longest_s"] >= found["seconds_since"] > 0


def test_time_is_told_by_what_came_of_it(one: Path) -> None:
    spent = by(asked(one, "lost_time"), "activity", "outcome")
    assert (spent["propose", "no_child"]["times"], spent["propose", "no_child"]["seconds"]) == (2, 4.0)
    assert (spent["build", "wrong"]["seconds"], spent["build", "correct"]["seconds"]) == (1.0, 4.0)
    assert spent["build", "duplicate"]["times"] == 2
    assert sum(row["share"] for row in spent.values()) == pytest.approx(1)


def test_duplicates_are_counted_by_what_they_have_in_common(one: Path) -> None:
    found = by(asked(one, "duplicates"), "mutator")["transform"]
    assert (found["children"], found["same_source"], found["same_code"]) == (3, 1, 1)
    assert found["saved_s"] == pytest.approx(2 * 0.5 - found["spent_s"])


def test_people_and_agents_are_told_by_what_they_brought(one: Path) -> None:
    (ann,) = asked(one, "outside")
    assert (ann["author"], ann["kernels"], ann["correct"], ann["in_best"]) == ("ann", 1, 1, 1)
    assert (ann["kernel_id"], ann["raised"]) == ("G", pytest.approx(0.1 - ROOM))


def test_migrations_are_told_by_islands_with_what_came_of_them(one: Path) -> None:
    (move,) = asked(one, "migrations")
    assert (move["source_island"], move["island"], move["migrations"], move["new"]) == (0, 1, 1, 1)
    assert (move["kernels"], move["children"], move["best_child"]) == (
        1,
        0,
        None,
    )  # the story's kernels have no islands
    assert asked(one, "migrations", operator="gelu") == []


def test_questions_and_answers_are_told_of_a_kernel_and_all_that_it_comes_from(one: Path) -> None:
    asked_for = [(row["descendant"], row["kernel_id"], row["cost_usd"], row["call"]) for row in asked(one, "prompts")]
    assert asked_for == [("G", "C", 0.25, 1), ("G", "B", 0.5, 1)]
    (question,) = asked(one, "prompts", kernel="R")
    assert (question["kernel_id"], question["model"], question["verdict"]) == ("B", "big", "correct")
    assert question["messages_json"] == "[]"


def test_a_session_is_told_with_its_budget_and_what_it_used(one: Path) -> None:
    (session,) = asked(one, "sessions")
    assert (session["session"], session["evaluations"], session["trials"]) == (1, 8, 2)
    assert (json.loads(session["budget_json"]), session["calls"], session["cost_usd"]) == ({"cost_usd": 2}, 2, 0.75)
    assert session["usd_so_far"] == 0.75 and session["took_s_so_far"] == session["took_s"] > 0


def test_a_worker_is_told_with_its_share_of_the_time_and_its_seconds_by_stage(one: Path) -> None:
    (worker,) = asked(one, "workers")
    assert worker["verdicts"] == 13 and worker["profiles"] == 0 and worker["build_s"] == 6
    assert 0 < worker["busy_s"] <= 6 and 0 < worker["share"] < 1


def test_a_task_is_told_with_its_state_and_the_command_that_goes_on(one: Path) -> None:
    (task,) = asked(one, "tasks")
    assert (task["task"], task["state"], task["level"]) == (TASK, "unconfirmed", "screen")
    assert task["goes_on_with"] == "evo resume RUN --confirm"


def test_tasks_are_compared_within_a_run_and_runs_among_each_other(one: Path, two: Path) -> None:
    (task,) = asked(one, "operators")
    assert (task["task"], task["evaluations"], task["trials"], task["generation"]) == (TASK, 8, 2, 4)
    assert (task["correct_share"], task["failed_share"]) == (8 / 10, 2 / 10)
    beside = [(row["run"], row["task"]) for row in asked([one, two], "operators")]
    assert beside == [("one", TASK), ("two", TASK), ("two", "gelu/fp32/cpu")]
    (pair,) = asked([one, two], "runs", operator="softmax")
    assert (pair["first"], pair["second"], pair["winner"]) == ("one", "two", "one")
    assert pair["ratio"] == pytest.approx(math.exp(1.1 - 1.0))
    assert pair["ratio_low"] == pytest.approx(math.exp(0.1 - 1.96 * math.hypot(0.01, 0.01)))
    with pytest.raises(StoreError, match="name several by a pattern"):
        asked(one, "runs")


@pytest.mark.slow
def test_of_several_runs_each_is_answered_as_if_it_were_alone(one: Path, two: Path) -> None:
    """Both hold kernels and requests of the same ids."""
    for name, known in named_queries().items():
        if not known.needs_several:
            alone = rounded(asked(one, name))
            together = rounded([row for row in asked([one, two], name) if row.pop("run") == "one"])
            assert alone or name == "noise", name  # the story's ratios have no errors
            assert sorted(together, key=str) == sorted(alone, key=str), name


def rounded(rows: list[Row]) -> list[Row]:
    return [{k: round(v, 9) if isinstance(v, float) else v for k, v in row.items()} for row in rows]


def test_every_named_query_says_what_it_answers_and_takes() -> None:
    for name, known in named_queries().items():
        assert known.answers.endswith(".") and "\n" not in known.answers, name
        assert all(f"${parameter.name}" in known.sql for parameter in known.parameters), name
        assert all(parameter.meaning.endswith(".") for parameter in known.parameters), name
    with pytest.raises(StoreError, match="did you mean `mutators`"):
        named_query("mutator")
    with pytest.raises(StoreError, match="unknown parameter `opera`; did you mean `operator`"):
        named_query("mutators").bound({"opera": "x"})


def test_parameters_are_bound_and_never_pasted(one: Path) -> None:
    hostile = "softmax' OR true --"
    assert asked(one, "mutators", operator=hostile) == []
    assert query(one, "select $x as x", params={"x": hostile}).to_pylist() == [{"x": hostile}]
    for sql, params, words in (
        ("select $x", {}, r"wants a value for \$x: say --param x=VALUE, in Python \{'x': VALUE\}"),
        ("select 1", {"x": "1"}, "holds no \\$x"),
    ):
        with pytest.raises(StoreError, match=words):
            query(one, sql, params=params)


def test_every_relation_and_column_has_a_meaning_and_no_meaning_is_left_over() -> None:
    found = {relation.name: relation for relation in relations()}
    lacking = [f"{r.name}.{c.name}" for r in found.values() for c in r.columns if not c.meaning]
    assert not lacking and all(relation.about for relation in found.values())
    columns = {(relation.name, column.name) for relation in found.values() for column in relation.columns}
    names = {column for _, column in columns}
    meanings = column_meanings()
    assert not set(meanings.pop(OF_ALL)) - names
    assert not {(relation, name) for relation, said in meanings.items() for name in said} - columns
    assert found["best"].is_view and not found["kernels"].is_view
    task = next(column for column in found["kernels"].columns if column.name == "source")
    assert (task.type, task.required) == ("VARCHAR", True)
