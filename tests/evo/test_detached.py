"""A search goes on without its terminal, is looked at from another one, and is stopped in good order."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evo.api import Run
from evo.report.health import Health, health, state_of
from evo.report.live import attach
from evo.report.status import sessions
from tests.bench.kills import alive
from tests.evo import test_search
from tests.evo.ends import is_end
from tests.evo.test_runs import EVO, OPERATOR
from tests.store.story import stored


@pytest.mark.slow
def test_a_detached_run_outlives_its_command_and_a_look_leaves_it_alone(tmp_path: Path) -> None:
    command = [*EVO, "run", OPERATOR, "--budget", "1h", "--workers", "1", "--runs", str(tmp_path), "--detach"]
    begun = subprocess.run(command, capture_output=True, text=True, start_new_session=True)
    assert begun.returncode == 0, begun.stderr
    (folder,) = (path.parent for path in tmp_path.glob("*/run.log"))
    process = int(begun.stdout.partition("(process ")[2].partition(",")[0])
    assert os.getsid(process) == process, "no terminal's signals reach it"
    assert f"evo attach {folder}" in begun.stdout and f"kill {process}" in begun.stdout
    try:
        while state_of(Run(folder))[0] != "running":
            time.sleep(0.1)
        look = subprocess.Popen(
            [*EVO, "attach", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert look.stdout and "running" in look.stdout.readline()
        look.send_signal(signal.SIGINT)
        _, said = look.communicate()
        assert look.returncode == 0 and f"run {folder} is left alone" in said
        assert state_of(Run(folder))[0] == "running"
    finally:
        os.kill(process, signal.SIGTERM)
    while alive({process}):
        time.sleep(0.1)
    assert health(Run(folder)).state == "stopped"
    assert f"stopped; continue with: evo resume {folder}" in (folder / "run.log").read_text()


@pytest.mark.slow
def test_a_run_is_resumed_detached_too(run_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run_folder, tmp_path / run_folder.name))
    more = [*EVO, "resume", "last", "--budget", "6evals", "--runs", str(tmp_path), "--detach", "--json"]
    begun = subprocess.run(more, capture_output=True, text=True)
    assert begun.returncode == 0, begun.stderr
    told = json.loads(begun.stdout)
    assert (Path(told["run"]), Path(told["log"])) == (folder, folder / "run.log") and told["process"] > 0
    while alive({told["process"]}):
        time.sleep(0.1)
    said = (folder / "run.log").read_text()
    assert is_end(said.partition("\nended: ")[2].partition("\n")[0], 6), said
    assert state_of(Run(folder))[0] == "finished" and len(sessions(Run(folder))) == 2


@pytest.mark.slow
def test_what_is_wrong_is_said_at_once_and_nothing_is_left(tmp_path: Path) -> None:
    command = [*EVO, "run", "no_such_operator", "--runs", str(tmp_path / "runs"), "--detach"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("evo: ") and "no_such_operator" in done.stderr and done.stderr.count("\n") == 1
    assert not list((tmp_path / "runs").iterdir())


def test_a_look_into_a_pipe_writes_a_line_when_something_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = [Health("running", "", float(age), ()) for age in range(5)] + [Health("finished", "", 9.0, ())]
    monkeypatch.setattr("evo.report.live.health", lambda _: seen.pop(0))
    attach(stored(tmp_path / "run"), sleep=lambda _: None)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(",")[0] for line in lines] == ["healthy: running", "healthy: finished"]


@pytest.mark.slow
def test_a_look_at_a_run_that_has_ended_says_how_and_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = test_search.config()
    test_search.search(tmp_path, made, test_search.stages(made))
    line = attach(tmp_path, sleep=lambda _: sys.exit("it waits"))
    assert "finished (evaluations 25 of 25)" in line and line in capsys.readouterr().out
