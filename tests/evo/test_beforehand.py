"""Warnings before a run begins: a budget that is too small, a GPU that another run uses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evo.config import RunConfig
from evo.report import health
from evo.report.health import BEYOND_ANCESTORS, too_small
from evo.session import LocalBackend, run_row
from evo.store import Store
from evo.workers.local import Claims
from fitness.testing import scripted
from tests.evo.test_cli import evo
from tests.inline import InlinePool

AXPB = str(Path(__file__).parents[1] / "data" / "axpb")


def config(**changes: Any) -> RunConfig:
    return RunConfig(**({"operators": ["softmax"]} | changes)).resolved()


def needed(made: RunConfig) -> int:
    return sum(len(made.ancestor_names(*each)) + BEYOND_ANCESTORS for each in made.tasks())


def test_a_budget_that_is_large_enough_or_has_no_such_limit_says_nothing(tmp_path: Path) -> None:
    assert too_small(config(budget={"wall_s": 3600.0}), tmp_path) == ""
    assert too_small(config(budget={"evaluations": needed(config())}), tmp_path) == ""
    assert too_small(config(budget={}), tmp_path) == ""


def test_too_few_evaluations_are_said_with_the_number_that_would_do(tmp_path: Path) -> None:
    made = config(operators=["softmax", "relu"], budget={"evaluations": 6})
    told = too_small(made, tmp_path)
    assert (
        "for 3 kernels or so for each of 2 tasks" in told and f"give {needed(made)}evals" in told and "\n" not in told
    )


def test_without_earlier_runs_the_sizes_of_operators_tell_and_larger_ones_take_longer(tmp_path: Path) -> None:
    told = too_small(config(operators=["softmax", "gelu", "relu"], budget={"wall_s": 5.0}), tmp_path)
    assert "assumed by the operators' sizes" in told and "name fewer operators" in told
    small, large = (
        float(too_small(config(operators=[name], budget={"wall_s": 1e-3}), tmp_path).partition("at ")[2].split()[0])
        for name in (AXPB, "softmax")
    )
    assert 0 < small <= large


def test_more_gpus_reach_more_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = RunConfig(operators=["softmax"], target="cuda", workload_set="realistic", budget={"wall_s": 1e-3})

    def pace_s(*gpus: str) -> float:
        monkeypatch.setattr(health, "devices", lambda target: [*gpus])
        return float(too_small(made, tmp_path).partition("at ")[2].split()[0])

    assert pace_s("0", "1", "2", "3") == pytest.approx(pace_s("0") / 4, rel=0.1)


def test_the_pace_of_an_earlier_run_of_the_same_operators_tells(run_folder: Path, tmp_path: Path) -> None:
    runs = run_folder.parent
    told = too_small(config(operators=[AXPB], budget={"wall_s": 1e-3}), runs)
    assert f"as in run {run_folder.name}" in told
    assert "assumed" in too_small(config(operators=["relu"], budget={"wall_s": 1e-3}), runs), (
        "it says nothing of others"
    )
    with Store(tmp_path / "empty", create=True) as store:
        store.commit({"runs": [run_row(config(operators=[AXPB]), tmp_path / "empty")]}).result()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "evo.duckdb").write_text("no database")
    assert "assumed" in too_small(config(operators=[AXPB], budget={"wall_s": 1e-3}), tmp_path)


@pytest.mark.slow
def test_the_command_says_it_before_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(LocalBackend, "pool", lambda _, config, *__: InlinePool(dict(scripted(config.tasks()))))
    code, _, said = evo(monkeypatch, capsys, "run", AXPB, "--budget", "2evals", "--runs", str(tmp_path))
    assert code == 0
    assert said.index("evo: the budget suffices for 2 kernels or so") < said.index("run ")


def test_runs_on_one_gpu_know_of_each_other_until_they_end(tmp_path: Path) -> None:
    first, second, third = (Claims(tmp_path) for _ in range(3))
    assert first.take(["0", "1"], "runs/first") == {}
    assert second.take(["1", "GPU-a/b"], "runs/second") == {"1": "runs/first"}
    first.close()
    assert set(third.take(["0", "1"], "runs/third")) == {"1"}, "who came second is there still"
    second.close()
    third.close()
    dies = f"""
import os
from pathlib import Path
from evo.workers.local import Claims
Claims(Path({str(tmp_path)!r})).take(["0"], "x")
os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", dies], check=False).returncode == 9
    assert first.take(["0"], "runs/next") == {}, "a run that was killed leaves no mark"
    first.close()
