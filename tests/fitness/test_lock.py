"""Sharing a device and having it alone, among threads and processes."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from fitness.sandbox.lock import FairLock

ALONE = """
import sys
from pathlib import Path
from fitness.sandbox.lock import FairLock
with FairLock(Path(sys.argv[1]), "gpu").alone():
    print("alone", flush=True)
    sys.stdin.readline()
"""


def other(folder: Path) -> subprocess.Popen[str]:
    """A process that wants to be alone, says so once it is, and stays until it is told something."""
    command = [sys.executable, "-c", ALONE, str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def entered(lock: FairLock) -> threading.Event:
    """Set once a thread has had its share."""
    done = threading.Event()

    def share() -> None:
        with lock.shared():
            done.set()

    threading.Thread(target=share, daemon=True).start()
    return done


def test_a_folder_that_is_made_again_has_one_lock(tmp_path: Path) -> None:
    folder = tmp_path / "build"
    folder.mkdir()
    lock = FairLock(folder, "gpu")
    with other(folder) as process:
        assert process.stdout and process.stdin
        assert process.stdout.readline() == "alone\n"
        done = entered(lock)
        while not any(Path(path).samefile(folder / "gpu.lock") for path in held()):  # it waits for the old file
            time.sleep(0.01)
        folder.rename(tmp_path / "removed")
        folder.mkdir()
        with FairLock(folder, "gpu").alone():
            process.stdin.close()
            process.wait()
            assert not done.wait(0.2)
        assert done.wait(60)


def held() -> list[str]:
    """Files that this process has open."""
    return [path for path in map(os.path.realpath, Path("/proc/self/fd").iterdir()) if Path(path).exists()]


def test_one_that_is_alone_is_alone(tmp_path: Path) -> None:
    lock = FairLock(tmp_path, "gpu")
    with other(tmp_path) as process:
        assert process.stdout and process.stdin
        assert process.stdout.readline() == "alone\n"
        done = entered(lock)
        assert not done.wait(0.1)
        process.stdin.write("\n")
        process.stdin.close()
        assert done.wait(60)


def test_one_that_waits_to_be_alone_is_next_though_a_share_within_a_share_goes_on(tmp_path: Path) -> None:
    lock, elsewhere = FairLock(tmp_path, "gpu"), FairLock(tmp_path, "gpu")
    with lock.shared():
        process = other(tmp_path)
        while not _taken(tmp_path / "gpu.gate"):  # until it waits behind the gate
            time.sleep(0.01)
        later = entered(elsewhere)
        with lock.shared():
            assert not later.wait(0.1)
    assert process.stdout and process.stdin
    with process:
        assert process.stdout.readline() == "alone\n"
        process.stdin.write("\n")
        process.stdin.close()
    assert later.wait(60)


def test_one_that_is_alone_may_share_with_itself_and_others_wait(tmp_path: Path) -> None:
    lock = FairLock(tmp_path, "gpu")
    with lock.alone():
        done = entered(lock)
        with lock.shared():
            assert not done.wait(0.1)
    assert done.wait(60)


def test_a_process_that_is_killed_holds_nothing(tmp_path: Path) -> None:
    with other(tmp_path) as process:
        assert process.stdout
        assert process.stdout.readline() == "alone\n"
        process.kill()
    with FairLock(tmp_path, "gpu").alone():
        pass


def _taken(path: Path) -> bool:
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
