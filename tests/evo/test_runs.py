"""A search as a user's own process: asked while it runs, stopped by Ctrl-C, killed, resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evo.store import query
from tests.bench.kills import acknowledged, alive, descendants
from tests.choosing import some_long

EVO = (sys.executable, "-m", "evo.cli")
OPERATOR = str(Path(__file__).parents[1] / "data" / "axpb")


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*EVO, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def told(folder: Path) -> int:
    command = [*EVO, "sql", str(folder), "select count(*) as n from tells", "--json"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(json.loads(answer.stdout)[0]["n"])


def wait_for_tells(runs: Path, count: int) -> Path:
    """The run's folder once so many tells are in its store, asked from outside while it goes on."""
    while True:
        folders = [path.parent for path in runs.glob("*/evo.sock")]
        if folders and query(folders[0], "from tells").num_rows >= count:
            assert told(folders[0]) >= count, "a command says it too, which takes a second to start"
            return folders[0]
        time.sleep(0.2)


@pytest.mark.slow
@pytest.mark.parametrize("number", some_long([signal.SIGINT, signal.SIGKILL], [signal.SIGINT]))
def test_it_answers_while_it_runs_stops_and_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    search = start("run", OPERATOR, "--budget", "1h", "--runs", str(tmp_path), "--workers", "1")
    folder = wait_for_tells(tmp_path, 3)
    before = acknowledged(folder)
    below = descendants(search.pid)
    assert below
    os.kill(search.pid, number)
    _, said = search.communicate()
    if number is signal.SIGINT:
        assert search.returncode == 130
        assert said.strip().splitlines()[-1] == f"stopped; continue with: evo resume {folder}"
    while alive(below):  # if need be until pytest ends the test
        time.sleep(0.05)
    resumed = start("resume", str(folder), "--budget", "1evals", "--json")
    out, said = resumed.communicate()
    assert resumed.returncode == 0, said
    (task,) = json.loads(out)["tasks"]
    told = task["candidates"] + task["duplicates"] + task["no_child"]
    assert told >= len(before["tells"])
    after = acknowledged(folder)
    assert all(ids <= after[table] for table, ids in before.items())
    assert after["asks"] == after["tells"]
