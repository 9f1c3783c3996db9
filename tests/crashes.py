"""The end of a process of pytest that crashed or hung, and where its threads were: xdist says only that it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

ENDS_S = 10.0
CRASHES = pytest.StashKey[list[str]]()


def _trace(told: dict[str, Any]) -> Path:
    """Where a process writes its threads' stacks when it is ended by a fault of its own or by a test's time limit."""
    return Path(tempfile.gettempdir(), f"pytest-{told['testrunuid']}-{told['workerid']}.fault")


def pytest_sessionstart(session: pytest.Session) -> None:
    """In a process of xdist, stacks go to a file, which the one that shows failures reads."""
    if told := getattr(session.config, "workerinput", None):
        with _trace(told).open("w") as file:
            os.dup2(file.fileno(), session.config.stash[fault_handler_stderr_fd_key])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """A process has ended; `error` is None where it did in good order."""
    trace = _trace(node.workerinput)
    if error is not None:
        code: int | None = None
        with suppress(subprocess.TimeoutExpired):
            code = node.gateway._io.popen.wait(ENDS_S)
        how = "has not ended" if code is None else f"ended with {code}"
        if code is not None and code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        stacks = trace.read_text(errors="replace") if trace.exists() else ""
        crashes = node.config.stash.setdefault(CRASHES, [])
        crashes.append(f"{node.gateway.id} {how}\n{stacks or 'It wrote no stacks.'}")
    trace.unlink(missing_ok=True)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Beside the failures stands what is known of crashes."""
    for told in terminalreporter.config.stash.get(CRASHES, []):
        terminalreporter.section("crashed process")
        terminalreporter.write_line(told)
