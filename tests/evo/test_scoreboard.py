"""`evo score`: what communities report of sets of tasks, from stored verdicts."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from evo.cli import commands
from evo.report.render import markdown
from evo.report.scoreboard import OWN, TaskScore, document, set_scores

FAST = TaskScore(
    "KernelBench level1", "a/fp32/cuda", "one", "k" * 64, "confirmed", 10.0, 4.0, 3.9, 4.1, 2.5, 2.2, 2.8, 0.75
)  # fmt: skip
TIED = replace(FAST, task="b/fp32/cuda", over_torch=1.02, over_torch_low=0.97, over_torch_high=1.07, sol=0.5)
UNSOLVED = replace(
    FAST, task="c/fp32/cuda", kernel_id=None, level=None, best_us=None, over_naive=None, over_naive_low=None,
    over_naive_high=None, over_torch=None, over_torch_low=None, over_torch_high=None, sol=None,
)  # fmt: skip


def test_shares_count_every_task_and_leave_open_what_intervals_do() -> None:
    (found,) = set_scores([FAST, TIED, UNSOLVED])
    assert (found.tasks, found.confirmed) == (3, 2)
    assert found.fast["0"] == pytest.approx((2 / 3, 2 / 3, 2 / 3))
    assert found.fast["1"] == pytest.approx((2 / 3, 1 / 3, 2 / 3))
    assert found.fast["1.5"] == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert found.over_torch and found.over_torch[0] == pytest.approx(math.sqrt(2.5 * 1.02))
    assert found.over_torch[1] < found.over_torch[0] < found.over_torch[2]
    assert found.sol == pytest.approx(0.625)


def test_a_set_without_a_confirmed_kernel_has_no_mean() -> None:
    (found,) = set_scores([UNSOLVED])
    assert found.over_torch is None and found.over_naive is None and found.sol is None
    assert found.fast["0"] == (0.0, 0.0, 0.0)


def test_the_page_has_a_row_for_each_set_and_each_task() -> None:
    page = markdown(document([FAST, TIED, UNSOLVED, replace(FAST, set=OWN)], "runs", 0.0))
    assert page.count("a/fp32/cuda") == 2 and "nothing correct" in page and "2.20 to 2.80" in page


def test_a_run_is_scored(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["evo", "score", str(run_folder), "--json"])
    with pytest.raises(SystemExit) as stopped:
        commands.main()
    assert not stopped.value.code
    found = json.loads(capsys.readouterr().out)
    (task,) = found["tasks"]
    assert task["set"] == OWN and task["run"] == run_folder.name and found["sets"][0]["tasks"] == 1
    out = tmp_path / "scores.md"
    monkeypatch.setattr("sys.argv", ["evo", "score", str(run_folder), "--out", str(out)])
    with pytest.raises(SystemExit):
        commands.main()
    assert task["task"] in out.read_text()
