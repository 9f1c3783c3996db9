"""Child processes that may not outlive, outgrow or outtalk us."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fitness.sandbox.disk import FILE_BYTES
from fitness.sandbox.native import jailed

GIB = 1 << 30
JAIL_ENDS_S = 5.0
"""Within this time a jail has ended what it held; it is killed otherwise."""


PYTHON_LOCALE = {"LC_ALL": "C.UTF-8"}
"""Environment of Python processes: in the locale `C`, 3.11 reads no `.pth` file that names a folder beyond ASCII."""


@dataclass(frozen=True)
class ProcessOutcome:
    """Outcome of a confined command."""

    returncode: int
    output: str
    """stdout and stderr together, cut at the limit."""
    timed_out: bool
    seconds: float


def kill_group(process: subprocess.Popen[bytes], *, alone: bool = False) -> None:
    """End a jailed process with its whole session and reap it; `alone` as it was started. Safe to call twice.

    One that was reaped before is left alone, as its number may be another's by now: see `ended`.
    """
    if process.returncode is not None:
        return
    if alone:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        ended(process, JAIL_ENDS_S)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def ended(process: subprocess.Popen[bytes], timeout_s: float = 0.0) -> bool:
    """Return whether a process ends within this time. It is not reaped, so that its number stays its session's."""
    deadline, pause_s = time.monotonic() + timeout_s, 0.0005
    with contextlib.suppress(ChildProcessError):  # another thread has reaped it meanwhile
        while process.returncode is None and not os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            pause_s = min(2 * pause_s, 0.05)
            time.sleep(min(pause_s, left_s))
    return True


def start_child(
    command: Sequence[str],
    theirs: socket.socket,
    *,
    environment: Mapping[str, str],
    stderr: int = subprocess.DEVNULL,
    cpu_s: int = 0,
    memory_bytes: int = 0,
    file_bytes: int = 0,
    alone: bool = False,
    readable: Sequence[str] | None = None,
    place: str = "",
) -> subprocess.Popen[bytes]:
    """Start a jailed process that talks over one socket alone; `kill_group` ends it.

    `command` names the descriptor of `theirs`, which is closed on our side. `environment` is all that it gets. With
    `readable` it reaches these paths and the folder `place`, where it starts. For `alone` see `native.jailed`.
    """
    with theirs:
        return subprocess.Popen(
            jailed(
                [*command],
                cpu_s=cpu_s,
                memory_bytes=memory_bytes,
                file_bytes=file_bytes,
                alone=alone,
                readable=readable,
                writable=(place,) if place else (),
            ),
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=environment,
            cwd=place or "/",
        )


def run_confined(
    command: list[str],
    *,
    cwd: str,
    timeout_s: float,
    memory_bytes: int = 4 * GIB,
    file_bytes: int = FILE_BYTES,
    output_bytes: int = 64 << 10,
    readable: Sequence[str] | None = None,
    alone: bool = False,
    environment: Mapping[str, str] | None = None,
) -> ProcessOutcome:
    """Run `command` with an almost empty environment, reading its output while it runs; beyond the limit it is dropped.

    `environment` is added to it. Limits of 0 are none.
    With `readable` it reaches these files and folders, `cwd`, and nothing else; None: everything that we do. For
    `alone` see `native.jailed`. A deadline counts wall time.
    """
    begin = time.monotonic()
    inherited = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C", "TMPDIR": cwd, "LOGNAME": "nobody"}
    process = subprocess.Popen(
        jailed(
            command,
            cpu_s=int(timeout_s) + 1,
            memory_bytes=memory_bytes,
            file_bytes=file_bytes,
            readable=readable,
            writable=(cwd,),
            alone=alone,
        ),
        cwd=cwd,
        env=inherited | dict(environment or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    try:
        kept, timed_out = _read(process.stdout.fileno(), output_bytes, begin + timeout_s)
        timed_out = timed_out or not ended(process, max(0.1, begin + timeout_s - time.monotonic()))
    finally:
        kill_group(process, alone=alone)
        process.stdout.close()
    return ProcessOutcome(process.returncode, kept.decode("utf-8", "replace"), timed_out, time.monotonic() - begin)


def _read(pipe: int, most_bytes: int, deadline: float) -> tuple[bytes, bool]:
    """The bytes in a pipe until its other end is closed, cut at a limit; and whether the deadline came first."""
    kept = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0 and selector.select(left):
            chunk = os.read(pipe, 1 << 16)
            if not chunk:
                return bytes(kept), False
            kept += chunk[: max(0, most_bytes - len(kept))]
    return bytes(kept), True
