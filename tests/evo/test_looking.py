"""Views of runs without a query: the list, two kernels beside each other, and whether a run is healthy."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evo.api import Run
from evo.report.health import LEAST_FREE, MOST_LOST, Health, health, runs_in, runs_table
from evo.report.status import TaskSummary
from evo.report.terminal import latest, many_line
from evo.store import Store, StoreError
from tests.choosing import some_slow
from tests.evo.test_cli import evo
from tests.evo.test_fitted import shown
from tests.store.rows import START_S, History, Row, event, joined, run
from tests.store.story import stored

ASKED = {"request_id": "softmax/fp32/cpu#0", "task": "softmax/fp32/cpu", "digest": "d", "wanted": 1}


def story(folder: Path, *events: Row, at: float = 0.0) -> Path:
    """A run whose last verdict came `at` seconds after it began."""
    told = History().propose(0, "ancestor", "", "naive").evaluate(0, "naive", "screen", "correct", log_speedup=0.0)
    told.tables["evaluations"][0]["created_at"] = START_S + at
    with Store(folder, create=True) as store:
        store.commit(joined({"runs": [run()], "events": [event("session"), *events]}, told.tables)).result()
    return folder


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some process seems to write the run."""
    monkeypatch.setattr("evo.api.has_writer", lambda folder: True)


def look(folder: Path, now: float = 10.0, free: int = 2 * LEAST_FREE) -> Health:
    return health(Run(folder), now=START_S + now, free_bytes=free)


def causes(found: Health) -> list[str]:
    assert found.is_healthy == (not found.findings) == found.line.startswith("healthy: ")
    return [finding.cause for finding in found.findings]


OUT = event("model_out", json.dumps({"model": "openai/x", "error": "401 no such key"}), at=START_S + 3)
FAULT = event("task_failed", '{"reason": "reference() raises"}', at=START_S + 3) | {"task": "softmax/fp32/cpu"}


def lost(at: float) -> Row:
    return event("worker_lost", '{"error": "gone"}', at=START_S + at)


@pytest.mark.usefixtures("alive")
@pytest.mark.parametrize(
    ("events", "now", "free", "expected"),
    some_slow(
        [
            ((), 10, 2 * LEAST_FREE, []),
            ((), 10, LEAST_FREE - 1, ["disk"]),
            ((OUT,), 10, 2 * LEAST_FREE, ["provider"]),
            ((FAULT,), 10, 2 * LEAST_FREE, ["operator"]),
            ((), 241 + 2, 2 * LEAST_FREE, ["silent"]),
            ((event("finished", at=START_S + 2400),), 2500, 2 * LEAST_FREE, ["silent"]),  # something, but no verdict
            ((event("stalled", at=START_S + 130),), 131, 2 * LEAST_FREE, ["alarm"]),
            ([lost(n) for n in range(MOST_LOST)], 10, 2 * LEAST_FREE, ["workers"]),
            ([lost(n) for n in range(MOST_LOST - 1)], 10, 2 * LEAST_FREE, []),
        ],
        2,
    ),
)
def test_a_run_that_goes_on_says_what_is_wrong(
    events: tuple[Row, ...], now: float, free: int, expected: list[str], tmp_path: Path
) -> None:
    found = look(story(tmp_path / "r", *events), now, free)
    assert found.state == "running"
    assert causes(found) == expected


def timed(folder: Path, se: float) -> Path:
    """A run that has ended, whose timings have this standard error."""
    told = History()
    for number in range(9):
        name, ratio = f"K{number}", 0.1 if number else 0.4
        told.propose(number, "transform" if number else "ancestor", "K0" if number else "", name)
        beside = {"log_speedup": ratio * (number > 0), "anchor_id": "K0", "log_ratio": ratio, "log_ratio_se": se}
        told.evaluate(number, name, "screen", "correct", **beside)
    own = {
        "workload": "n",
        "latency_us": 1.0,
        "anchor_latency_us": 1.5,
        "log_ratio": 0.4,
        "log_ratio_se": se,
        "pairs": 2,
    }
    timings = [own | {"evaluation_id": told.tables["evaluations"][0]["evaluation_id"]}]
    with Store(folder, create=True) as store:
        row, events = run() | {"config_json": '{"operators": ["softmax"]}'}, [event("session"), event("finished")]
        store.commit(joined({"runs": [row], "events": events, "timings": timings}, told.tables)).result()
    return folder


@pytest.mark.slow
def test_a_machine_too_noisy_for_what_is_asked_is_no_healthy_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert causes(look(timed(tmp_path / "quiet", 0.01))) == []
    noisy = timed(tmp_path / "noisy", 0.3)
    assert causes(look(noisy)) == ["noise"]
    code, out, told = evo(monkeypatch, capsys, "status", str(noisy))
    assert code == 1 and out.startswith("unhealthy: finished"), told
    told = "9 of 9 timings cannot tell a kernel from one 22 % faster or slower; the naive kernel beside itself: 1.49 to"
    assert told in out and f"evo resume {noisy} --confirm" in out


@pytest.mark.slow
def test_a_run_whose_process_died_is_not_finished(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert causes(look(story(tmp_path / "died"))) == ["died"]
    for kind in ("finished", "stopped"):
        ended = story(tmp_path / kind, event(kind, '{"reason": "wall_s"}', at=START_S + 5))
        assert (look(ended, 1e6, free=0).state, causes(look(ended, 1e6, free=0))) == (kind, [])
    died = tmp_path / "real"
    shutil.copytree(run_folder, died)
    noise = causes(look(died))
    assert set(noise) <= {"noise"}  # other work on the machine is told
    assert evo(monkeypatch, capsys, "status", str(died))[0] == len(noise)
    with Store(died, create=False) as store:
        store.commit({"events": [event("session")]}).result()
    code, out, _ = evo(monkeypatch, capsys, "status", str(died))
    assert code == 1
    assert out.startswith("unhealthy: died, last verdict ")
    assert f"evo resume {died}" in out.splitlines()[1]
    code, out, _ = evo(monkeypatch, capsys, "status", str(died), "--json")
    assert (code, json.loads(out)["health"]["findings"][0]["cause"]) == (1, "died")


def test_the_list_tells_of_every_run(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(run_folder, runs / run_folder.name)
    story(runs / "0-died")
    (runs / "torn").mkdir()
    (runs / "torn" / "evo.duckdb").write_bytes(b"no database")
    code, out, _ = evo(monkeypatch, capsys, "list", "--runs", str(runs), "--json")
    died, good, torn = json.loads(out)
    assert code == 0
    assert (died["state"], good["state"], torn["state"]) == ("died", "finished", "unreadable")
    assert good["tasks"] == ["axpb/fp32/cpu"]
    assert good["used"]["evaluations"] == good["budget"]["evaluations"] == 4
    assert good["used"]["wall_s"] > 0
    assert good["speedup"] > 0
    table = runs_table(runs_in(runs))
    for width in (60, 80, 160):
        assert run_folder.name in shown(table, width)
    assert "no run in" in evo(monkeypatch, capsys, "list", "--runs", str(tmp_path / "none"))[1]


def test_two_kernels_beside_each_other(run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    sql = "select kernel_id from individuals where kernel_id is not null order by created_at"
    rows = json.loads(evo(monkeypatch, capsys, "sql", str(run_folder), sql, "--json")[1])
    a, b = rows[0]["kernel_id"], rows[-1]["kernel_id"]
    code, out, _ = evo(monkeypatch, capsys, "diff", str(run_folder), a[:10], b, "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["a"]["kernel_id"], found["b"]["kernel_id"]) == (a, b)
    assert any(found[part] for part in ("source", "plan")) or found["tunables"]
    assert len(found["workloads"]) > 1
    _, out, _ = evo(monkeypatch, capsys, "diff", str(run_folder), a, b)
    assert a[:12] in out and b[:12] in out
    same = json.loads(evo(monkeypatch, capsys, "diff", str(run_folder), a, a, "--json")[1])
    assert (same["source"], same["plan"]) == ("", "")


def test_kernels_that_have_names_and_lines_that_keep_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    folder = stored(tmp_path / "run")
    _, out, _ = evo(monkeypatch, capsys, "diff", str(folder), "naive", "best", "--json")
    found = json.loads(out)
    assert (found["a"]["kernel_id"], found["b"]["kernel_id"]) == ("K0", "G")
    assert found["source"].splitlines()[2:] == ["@@ -5,2 +5,2 @@", "-// K0", "+// G", " void softmax();"]
    with Store(tmp_path / "empty", create=True) as store:
        store.commit({"runs": [run()]}).result()
    code, _, told = evo(monkeypatch, capsys, "diff", str(tmp_path / "empty"), "naive", "best")
    assert (code, told) == (2, "evo: the naive kernel: run empty has none yet\n")


def test_of_many_tasks_the_last_to_change_are_shown() -> None:
    tasks = [
        TaskSummary(
            task=f"t{n}", candidates=1, duplicates=0, no_child=0, best_speedup=2.0, problem="wrong" if n == 7 else ""
        )
        for n in range(102)
    ]
    found = latest(tasks, {f"t{n}": float(n) for n in range(102)}, 4)
    assert [t.task for t in found] == ["t7", "t99", "t100", "t101"]
    assert many_line(tasks) == "102 tasks, 102 faster than naive, 0 confirmed, 1 failed, geometric mean 2.00x"


@pytest.mark.slow
def test_shells_complete_runs_kernels_and_operators(run_folder: Path) -> None:
    runs = str(run_folder.parent)
    for words, expected in (
        ("evo status 2", run_folder.name),
        ("evo run softm", "softmax"),
        (f"evo diff {run_folder.name} ", ""),
    ):
        environment = {
            "_EVO_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")),
            "EVO_RUNS": runs, "PATH": "/usr/bin:/bin",
        }  # fmt: skip
        command = [sys.executable, "-c", "import sys; from evo.cli.commands import main; sys.argv = ['evo']; main()"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        lines = done.stdout.split()
        assert lines, done.stderr
        assert expected in lines if expected else all(len(line) == 12 for line in lines)


def test_a_run_that_is_gone_is_told_as_one_that_is_none(tmp_path: Path) -> None:
    folder = story(tmp_path / "run")
    gone = Run(folder)
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match=r"no evo.duckdb there; is this a run's folder\?"):
        health(gone)
