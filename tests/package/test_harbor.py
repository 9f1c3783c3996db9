"""An operator as a task of Harbor: its folder, and a reward that follows from the verdict."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from evo.packaging.exports import ENGINE, write_task
from operators.errors import UserError
from tests.structure import ROOT


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("harbor") / "softmax"
    write_task("softmax", folder, target="cpu", dtype="")
    return folder


def test_a_task_has_the_files_that_harbor_reads(folder: Path) -> None:
    told = tomllib.loads((folder / "task.toml").read_text())
    assert told["task"]["name"] == "kernel-evo/softmax-fp32-cpu"
    assert {"verifier", "agent", "environment"} < told.keys() and "gpus" not in told["environment"]
    instruction = (folder / "instruction.md").read_text()
    assert "/app/kernel.cpp" in instruction and "# The kernel file" in instruction and "/*! evo" in instruction
    assert "FROM python" in (folder / "environment" / "Dockerfile").read_text()
    for script in ("tests/test.sh", "solution/solve.sh"):
        assert os.access(folder / script, os.X_OK)
        subprocess.run(["bash", "-n", folder / script], check=True)
    with tarfile.open(fileobj=io.BytesIO((folder / "tests" / ENGINE).read_bytes())) as archive:
        names = archive.getnames()
    assert {"evo/cli/commands.py", "operators/catalog.py", "pyproject.toml"} <= set(names)
    assert (folder / "tests" / ENGINE).read_bytes() == (folder / "environment" / ENGINE).read_bytes()
    assert not list(folder.rglob("*champions*")) and not [n for n in names if "/champions/" in n]
    with pytest.raises(UserError, match="is there already"):
        write_task("softmax", folder, target="cpu", dtype="")
    with pytest.raises(UserError, match="on cpu, not int8"):
        write_task("softmax", folder / "x", target="cpu", dtype="int8")


VERDICTS = {
    "confirmed": (
        {"status": "correct", "level": "confirmed", "log_speedup": 1.0, "log_speedup_se": 0.1},
        math.exp(0.804),
    ),
    "screened": ({"status": "correct", "level": "screen", "log_speedup": 1.0, "log_speedup_se": 0.1}, 0.0),
    "wrong": ({"status": "wrong", "level": "screen", "log_speedup": None, "log_speedup_se": None}, 0.0),
}


@pytest.mark.parametrize("name", [*VERDICTS, "nothing"])
def test_the_reward_is_what_the_verdict_makes_certain(name: str, folder: Path, tmp_path: Path) -> None:
    """The engine is stood in for by one that answers at once."""
    verdict, wanted = VERDICTS.get(name, (None, 0.0))
    package = tmp_path / "evo"
    package.mkdir()
    (package / "__init__.py").touch()
    told = f"print({json.dumps(json.dumps([verdict]))})" if verdict else "raise SystemExit('no kernel')"
    (package / "cli.py").write_text(f"import sys\nassert sys.argv[-3:] == ['--dtype', 'fp32', '--json']\n{told}\n")
    command = [sys.executable, folder / "tests" / "reward.py", tmp_path, tmp_path / "kernel.cpp"]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(tmp_path), "PATH": os.environ["PATH"]}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert float((tmp_path / "reward.txt").read_text()) == pytest.approx(wanted, rel=1e-4)
    assert (json.loads((tmp_path / "verdict.json").read_text())[0] == verdict) == bool(verdict)


@pytest.mark.slow
def test_the_naive_kernel_earns_something_with_the_engine_that_is_carried(folder: Path, tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO((folder / "tests" / ENGINE).read_bytes())) as archive:
        archive.extractall(tmp_path / "engine", filter="data")
    assert (tmp_path / "engine" / "evo").is_dir() and ROOT not in (tmp_path / "engine").parents
    command = [sys.executable, folder / "tests" / "reward.py", tmp_path, folder / "environment" / "naive.cpp"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "engine")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    last = json.loads((tmp_path / "verdict.json").read_text())[-1]
    assert last["status"] in ("correct", "quarantined"), "timers err on a busy machine; all else is a fault"
    assert (float((tmp_path / "reward.txt").read_text()) > 0) == (last["status"] == "correct")
