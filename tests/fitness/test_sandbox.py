"""Confined commands: limits of time and output, and no survivors."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fitness.sandbox import run_confined


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_output_and_exit_code_come_back(tmp_path: Path) -> None:
    outcome = run_confined(["sh", "-c", "echo out; echo err >&2; exit 3"], cwd=str(tmp_path), timeout_s=10)
    assert (outcome.returncode, outcome.timed_out) == (3, False)
    assert set(outcome.output.split()) == {"out", "err"}


def test_a_flood_of_output_is_cut_and_does_not_block(tmp_path: Path) -> None:
    outcome = run_confined(["sh", "-c", "yes | head -c 5000000"], cwd=str(tmp_path), timeout_s=20, output_bytes=1000)
    assert outcome.returncode == 0
    assert len(outcome.output) == 1000


def test_a_deadline_ends_the_whole_session(tmp_path: Path) -> None:
    command = ["sh", "-c", "sleep 600 & echo $! > child; wait"]
    outcome = run_confined(command, cwd=str(tmp_path), timeout_s=0.5)
    assert outcome.timed_out
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 5
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(child)


def test_the_environment_holds_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    assert "secret" not in run_confined(["env"], cwd=str(tmp_path), timeout_s=10).output


def test_a_disk_bomb_is_stopped(tmp_path: Path) -> None:
    command = ["sh", "-c", "head -c 10000000 /dev/zero > big"]
    run_confined(command, cwd=str(tmp_path), timeout_s=10, file_bytes=1 << 20)
    assert (tmp_path / "big").stat().st_size <= 1 << 20
