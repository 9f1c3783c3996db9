"""Processes of pytest that crash are told with how they ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CRASHING = """
import faulthandler, os, time

def test_it_is_killed():
    os.kill(os.getpid(), 9)

def test_it_leaves():
    os._exit(3)

def test_it_faults():
    faulthandler._sigsegv()

def test_it_hangs():
    time.sleep(600)

def test_it_is_right():
    pass
"""


@pytest.mark.slow
def test_the_signal_or_exit_code_and_the_stacks_of_each_stand_beside_the_failures(tmp_path: Path) -> None:
    (tmp_path / "test_crashing.py").write_text(CRASHING)
    command = [sys.executable, "-m", "pytest", "-p", "tests.crashes", "-p", "no:cacheprovider", "--numprocesses", "1"]
    command += ["--dist", "load", "-o", "faulthandler_timeout=5", "-o", "faulthandler_exit_on_timeout=true"]
    ended = subprocess.run(
        [*command, "--rootdir", str(tmp_path), str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    said = ended.stdout
    assert "4 failed, 1 passed" in said, said + ended.stderr
    told = said.split("= crashed process =")[1:]
    assert len(told) == 4
    for words in (
        ("was ended by SIGKILL\nIt wrote no stacks.",),
        ("ended with 3\nIt wrote no stacks.",),
        ("was ended by SIGSEGV\nFatal Python error: Segmentation fault", "in test_it_faults"),
        ("ended with 1\nTimeout", "in test_it_hangs"),
    ):
        assert any(all(word in one for word in words) for one in told), (words, said)
