"""Confined commands: limits of time and output, and no survivors."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fitness.sandbox.foreign import furnished
from fitness.sandbox.native import jailed
from fitness.sandbox.processes import ended, kill_group, run_confined
from tests.redteam.processes import adopt_orphans, descendants, left_over


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
    for timeout_s in (0.5, 5.0, 50.0):  # on a busy machine a shell may not have begun by then
        assert run_confined(command, cwd=str(tmp_path), timeout_s=timeout_s).timed_out
        if (tmp_path / "child").exists():
            break
    child = int((tmp_path / "child").read_text())
    while alive(child):
        time.sleep(0.01)


def test_a_foreign_source_has_a_python_that_starts_beside_any_name_of_a_folder(
    accented_python: str, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    environment, _ = furnished(str(place), {"source.py": ""})
    ended_well = run_confined(
        [accented_python, "-c", "import source"], cwd=str(place), timeout_s=60, environment=environment
    )
    assert ended_well.returncode == 0, ended_well.output


@pytest.mark.parametrize("alone", [True, False])
def test_a_process_that_has_ended_takes_its_session_along_and_its_number_is_signalled_no_more(
    alone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = jailed(["sh", "-c", "sleep 600 & echo $! > child; exit 3"], writable=(str(tmp_path),), alone=alone)
    process = subprocess.Popen(command, cwd=tmp_path)
    assert ended(process, 60.0) and process.returncode is None
    kill_group(process, alone=alone)
    assert process.returncode == 3
    if not alone:  # a jail's numbers are its own
        child = int((tmp_path / "child").read_text())
        while alive(child):
            time.sleep(0.01)
    signalled: list[int] = []
    for name in ("kill", "killpg"):
        monkeypatch.setattr(f"os.{name}", lambda number, _: signalled.append(number))
    kill_group(process, alone=alone)
    assert ended(process) and not signalled


def test_the_environment_holds_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    assert "secret" not in run_confined(["env"], cwd=str(tmp_path), timeout_s=10).output


def test_a_disk_bomb_is_stopped(tmp_path: Path) -> None:
    command = ["sh", "-c", "head -c 10000000 /dev/zero > big"]
    run_confined(command, cwd=str(tmp_path), timeout_s=10, file_bytes=1 << 20)
    assert (tmp_path / "big").stat().st_size <= 1 << 20


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_with_its_owner_all_of_a_jail_ends_though_nobody_buries_orphans(number: signal.Signals) -> None:
    adopt_orphans()  # as the first process of many a container does, which never waits for them
    before = descendants()
    script = (
        "import subprocess; from fitness.sandbox.native import jailed;"
        "subprocess.run(jailed(['sh', '-c', 'setsid sleep 600 & sleep 600'], alone=True))"
    )
    owner = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    try:
        while len(below := descendants() - before) < 5:
            time.sleep(0.01)  # the owner, the jail, its first process, the shell and what that started
        owner.send_signal(number)
        owner.wait()
        while any(map(alive, below)):
            time.sleep(0.01)
    finally:
        owner.kill()
        left_over(before)


@pytest.mark.parametrize("alone", [True, False])
def test_a_jail_ends_as_its_program_does(alone: bool) -> None:
    def code(command: str) -> int:
        return subprocess.run(jailed(["sh", "-c", command], alone=alone), timeout=60).returncode

    assert code("exit 7") == 7
    assert code("kill -11 $$") == -11
    assert code("kill -9 $$") == -9
    assert code("(sleep 0.01; exit 3) & exit 5") == 5
