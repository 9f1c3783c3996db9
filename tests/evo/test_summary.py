"""Words on a task's best kernel agree with themselves, and counts cannot be misread."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evo import rows as records
from evo.api import Run
from evo.evaluate import verdict_lines
from evo.report.status import Standing, TaskSummary, standings, summary
from evo.report.terminal import console, many_line, problem_lines, standing_cells, summary_table, tally
from evo.store import Store
from fitness.evaluation import Evaluation, Level, LibraryTiming, Status, Timing
from fitness.words import interval, ratio
from operators.definition.spec import Task
from tests.choosing import examples
from tests.store.rows import TASK, run

Row = dict[str, Any]
MICROSECONDS = st.floats(0.5, 1e7)
LOG = st.floats(-4.0, 4.0)
SE = st.floats(1e-4, 0.5)

TOGETHER = 10
"""Cases of a property that are tasks of one run: to make one takes longer than to read it."""

Paired = list[tuple[float, float, float]]
"""Microseconds, log ratio and its standard error, by workload."""
PAIRED = st.lists(st.tuples(MICROSECONDS, LOG, SE), min_size=1, max_size=5)


def found(folder: Path, evaluations: Sequence[Evaluation]) -> list[Standing]:
    """The standings of kernels each of which is the only one of its task, and so the best."""
    alone = [replace(each, task=f"op{n}/fp32/cpu", kernel_id=f"k{n}") for n, each in enumerate(evaluations)]
    known = standings(Run(stored(folder, alone)))
    return [known[each.task][0] for each in alone]


def paired(pairs: Paired, library: Paired, level: Level = Level.CONFIRMED, anchor: float = 0.0) -> Evaluation:
    """The evaluation of a kernel that was paired so, with an anchor that was faster than the baseline by so much."""
    mine = tuple(Timing(f"n={n}", us, us * math.exp(log), log, se, 40) for n, (us, log, se) in enumerate(pairs))
    theirs = tuple(
        LibraryTiming(f"n={n}", us, us * math.exp(log), log, se, 20, library="a")
        for n, (us, log, se) in enumerate(library)
    )
    log = sum(each.log_ratio for each in mine) / len(mine)
    se = math.sqrt(sum(each.log_ratio_se**2 for each in mine)) / len(mine)
    return confirmed(level=level, log_speedup=log + anchor, log_speedup_se=se, timings=mine, library_timings=theirs)


@pytest.mark.slow
@examples(100 // TOGETHER)
@given(st.lists(st.tuples(PAIRED, PAIRED), min_size=TOGETHER, max_size=TOGETHER))
def test_times_and_speedups_of_a_row_are_of_one_pairing(
    tmp_path_factory: pytest.TempPathFactory, cases: list[tuple[Paired, Paired]]
) -> None:
    every = found(tmp_path_factory.mktemp("run"), [paired(*case) for case in cases])
    for best, (pairs, _) in zip(every, cases, strict=True):
        assert best.best_us and best.baseline_us and best.library_us and best.speedup and best.against_library
        assert best.baseline_us / best.best_us == pytest.approx(best.speedup)
        assert best.library_us / best.best_us == pytest.approx(best.against_library)
        assert best.speedup_low and best.speedup_high and best.speedup_low <= best.speedup <= best.speedup_high
        assert math.log(best.best_us) == pytest.approx(sum(math.log(us) for us, _, _ in pairs) / len(pairs))
        per_workload = [us * math.exp(log) for us, log, _ in pairs]
        assert math.log(best.baseline_us) == pytest.approx(sum(map(math.log, per_workload)) / len(pairs), abs=1e-6)


@pytest.mark.slow
@examples(100 // TOGETHER)
@given(st.lists(st.tuples(PAIRED, st.floats(-2.0, 2.0)), min_size=TOGETHER, max_size=TOGETHER))
def test_of_an_unconfirmed_best_the_anchors_speedup_is_a_part(
    tmp_path_factory: pytest.TempPathFactory, cases: list[tuple[Paired, float]]
) -> None:
    made = [paired(pairs, [], Level.FULL, anchor) for pairs, anchor in cases]
    for best in found(tmp_path_factory.mktemp("run"), made):
        assert best.baseline_us and best.best_us and best.speedup
        assert best.baseline_us / best.best_us == pytest.approx(best.speedup)
        assert not best.confirmed
        assert best.library_us is best.against_library is None
        assert standing_cells(best)[5:] == ("unconfirmed (full)", "-", "-")


def confirmed(**changes: Any) -> Evaluation:
    mine = (Timing("n=1", 100.0, 200.0, math.log(2), 0.01, 40), Timing("n=2", 50.0, 400.0, math.log(8), 0.01, 40))
    call: dict[str, Any] = {"library": "torch.sort", "kind": "call"}
    library = (
        LibraryTiming("n=1", 100.0, 150.0, math.log(1.5), 0.02, 20, **call),
        LibraryTiming("n=2", 50.0, 60.0, math.log(1.2), 0.02, 20, **call),
    )
    known: Row = {
        "log_speedup": math.log(4), "log_speedup_se": 0.01, "anchor_id": "naive", "anchor_log_speedup": 0.0,
        "log_ratio": math.log(4), "log_ratio_se": 0.01, "timings": mine, "library_timings": library,
    }  # fmt: skip
    return Evaluation(
        **({"kernel_id": "k", "task": TASK, "level": Level.CONFIRMED, "status": Status.CORRECT} | known | changes)
    )


def stored(folder: Path, evaluations: Sequence[Evaluation], statuses: Sequence[str] = ()) -> Path:
    rows: dict[str, list[Row]] = defaultdict(list)
    for number, evaluation in enumerate(evaluations):
        found = records.evaluation_rows(evaluation, evaluation_id=f"e{number}", request_id=None, at=1.0)
        for table, more in found.items():
            rows[table] += more
    ask = {"seq": 1, "position": 0, "wanted": 1, "task": TASK, "number": 0, "request_id": "r", "mutator": "m"}
    ask |= {"request_json": "{}", "digest": "d", "created_at": 1.0}
    tells = [
        {"seq": 2 + i, "task": TASK, "number": i, "request_id": f"r{i}", "status": s, "digest": "d", "created_at": 1.0}
        for i, s in enumerate(statuses)
    ]
    with Store(folder, create=True) as store:
        store.commit({"runs": [run()], "asks": [ask], "tells": tells, **rows}).result()
    return folder


def shown(tasks: list[TaskSummary]) -> str:
    made = console()
    with made.capture() as captured:
        made.print(summary_table(tasks))
    return captured.get()


def test_a_confirmed_evaluation_is_shown_as_it_was_stored(tmp_path: Path) -> None:
    found, problem = standings(Run(stored(tmp_path, [confirmed()])))[TASK]
    assert (problem, found.library, found.library_kinds) == ("", "torch.sort", "")
    assert standing_cells(replace(found, library_kinds="composed"))[6] == "1.34x composed"
    expected = {"best_us": 70.71, "baseline_us": 282.84, "library_us": 94.87, "speedup": 4.0, "against_library": 1.342}
    assert {name: getattr(found, name) for name in expected} == pytest.approx(expected, rel=1e-3)


def test_workloads_may_have_other_calls_of_the_library(tmp_path: Path) -> None:
    first, second = confirmed().library_timings
    made = confirmed(library_timings=(first, replace(second, library="torch.compile(torch.topk)", kind="compiled")))
    found, _ = standings(Run(stored(tmp_path, [made])))[TASK]
    assert found.library == "torch.sort (n=1); torch.compile(torch.topk) (n=2)"
    assert found.library_kinds == "partly compiled"
    assert found.library_us == pytest.approx(math.sqrt(150.0 * 60.0)), "the geometric mean of each workload's call"

    assert verdict_lines([made])[-1].endswith("over the library (torch.sort (n=1); torch.compile(torch.topk) (n=2))")
    assert verdict_lines([confirmed()])[-1].endswith("over the library (torch.sort)")


def test_a_rival_that_was_not_tried_stands_beside_the_figure(tmp_path: Path) -> None:
    made = [replace(each, untried="torch.compile(torch.sort)") for each in confirmed().library_timings]
    found, _ = standings(Run(stored(tmp_path, [confirmed(library_timings=tuple(made))])))[TASK]
    assert standing_cells(found)[6] == "1.34x rivals untried"


def test_what_is_stored_of_a_library_comes_back() -> None:
    assert records.as_stored(confirmed()).library_timings == confirmed().library_timings


def test_why_a_library_was_not_timed_is_told(tmp_path: Path) -> None:
    (task,) = summary(Run(stored(tmp_path, [confirmed(library_timings=(), library_lack="it is wrong")])))
    assert problem_lines([task]) == [f"{TASK}: the library was not timed: it is wrong"]
    assert task.against_library is None


def test_many_tasks_in_a_line_say_what_used_no_budget_up(tmp_path: Path) -> None:
    tasks = summary(Run(stored(tmp_path, [confirmed()], ["correct", "unavailable", "unavailable"])))
    assert ", 2 unavailable, geometric mean" in many_line(tasks)


def test_requests_without_a_child_are_no_failures(tmp_path: Path) -> None:
    statuses = ["correct"] * 5 + ["slower"] * 3 + ["compile_error"] + ["no_child"] * 8 + ["duplicate"] * 2
    statuses += ["unavailable"] * 4 + ["said"]
    (task,) = summary(Run(stored(tmp_path, [confirmed()], statuses)))
    assert (task.candidates, task.failures, task.no_child, task.duplicates) == (9, {"compile_error": 1}, 8, 2)
    assert sum(task.outcomes.values()) == task.candidates
    line = shown([task]).splitlines()[1].split()
    assert " ".join(line[-15:]) == "9 5 correct, 3 slower, 1 compile error 2 duplicate, 8 no child, 4 unavailable"


@given(st.dictionaries(st.sampled_from([s.value for s in Status]), st.integers(0, 99)))
def test_a_tally_names_every_count(counts: dict[str, int]) -> None:
    text = tally(counts)
    assert text.count(",") == max(sum(n > 0 for n in counts.values()) - 1, 0)
    assert "_" not in text


def test_a_problem_counts_in_the_session_that_met_it(tmp_path: Path) -> None:
    def events(*kinds: str) -> dict[str, list[Row]]:
        detail = json.dumps({"reason": "the naive kernel is wrong"})
        return {"events": [{"created_at": 1.0, "kind": k, "task": TASK, "detail_json": detail} for k in kinds]}

    stored(tmp_path, [confirmed()])
    for kinds, problem in ((("session", records.TASK_FAILED), "the naive kernel is wrong"), (("session",), "")):
        with Store(tmp_path, create=False) as store:
            store.commit(events(*kinds)).result()
        assert summary(Run(tmp_path))[0].problem == problem


def test_a_task_without_a_verdict_is_dashes() -> None:
    assert standing_cells(Standing()) == ("-",) * 8
    assert (ratio(None), interval(None, None)) == ("-", "-")
    assert Task.parse(TASK).operator in shown([TaskSummary(task=TASK, candidates=0, duplicates=0, no_child=0)])
