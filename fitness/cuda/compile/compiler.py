"""Our side of the compiler's process: it can be killed, is confined, and a new one takes its place."""

from __future__ import annotations

import json
import os
import pickle
import select
import socket
import subprocess
import sys
import time
from dataclasses import astuple
from pathlib import Path

from fitness.cuda.compile.nvrtc import Compiled, CompileJob, include_folders
from fitness.judging.base import COMPILE_LIMIT_S, PATIENCE
from fitness.sandbox.channel import receive, receive_frame, send_frame
from fitness.sandbox.native import built
from fitness.sandbox.processes import GIB, PYTHON_LOCALE, kill_group, start_child
from operators.errors import UserError

TIMEOUT_S = COMPILE_LIMIT_S["cuda"]
"""Time limit of one compilation, in processor time so that a busy machine fails no kernel; CuTe takes 5 to 20 s."""
POLL_S = 0.2
START_TIMEOUT_S = 60.0
MEMORY_BYTES = 16 * GIB
ANSWER_BYTES = 256 << 20
JOBS_PER_PROCESS = 200
"""NVRTC keeps some memory of every program."""


class CompilerFault(Exception):
    """The compiler did not answer: it was killed, died, or wrote nonsense. What it was given is to blame."""


class Compiler:
    """Compiles one job after the other in a process of its own. Not thread-safe."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._jobs = 0

    def __enter__(self) -> Compiler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process; the next job starts another."""
        if self._socket:
            self._socket.close()
        if self._process:
            kill_group(self._process)
        self._socket = self._process = None
        self._jobs = 0

    def compile(self, job: CompileJob, *, timeout_s: float = TIMEOUT_S) -> Compiled:
        """The result of a job. It raises CompilerFault, and UserError for what the user's machine lacks."""
        if self._jobs >= JOBS_PER_PROCESS:
            self.close()
        if self._process is None:
            self._start()
        self._jobs += 1
        assert self._socket
        try:
            send_frame(self._socket, pickle.dumps(astuple(job)))
            self._await_answer(timeout_s)
            return _answer(self._socket, time.monotonic() + PATIENCE * timeout_s, job)
        except TimeoutError:
            self.close()
            raise CompilerFault(f"the compiler did not finish within {timeout_s:.0f} s") from None
        except (OSError, EOFError, ValueError, KeyError, TypeError, ArithmeticError, RecursionError):
            self.close()
            raise CompilerFault("the compiler broke down; it takes at most 16 GiB of memory") from None

    def _await_answer(self, timeout_s: float) -> None:
        """Wait until the answer begins, or the end of the process shows. Raises TimeoutError beyond the limits."""
        assert self._process and self._socket
        begin_s, used_s = time.monotonic(), _processor_s(self._process.pid)
        while not select.select([self._socket], [], [], min(POLL_S, timeout_s))[0]:
            if _processor_s(self._process.pid) - used_s > timeout_s:
                raise TimeoutError
            if time.monotonic() - begin_s > PATIENCE * timeout_s:
                raise TimeoutError

    def _start(self) -> None:
        """Raises UserError where it does not come up."""
        folders = os.pathsep.join(map(str, include_folders()))  # also says what is not installed
        ours, theirs = socket.socketpair()
        library = str(built("cuda/confine.cpp", "-shared", "-fPIC"))
        command = [sys.executable, "-m", "fitness.cuda.compile.nvrtc", str(theirs.fileno()), folders, library]
        environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"} | PYTHON_LOCALE
        environment |= {k: os.environ[k] for k in ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH") if k in os.environ}
        self._process = start_child(
            command,
            theirs,
            environment=environment | {"HOME": "/nonexistent"},
            stderr=subprocess.PIPE,
            memory_bytes=MEMORY_BYTES,
            file_bytes=4096,
        )
        self._socket = ours
        try:
            receive(ours, 1, time.monotonic() + START_TIMEOUT_S)
        except (TimeoutError, OSError, EOFError):
            process = self._process
            self.close()
            assert process.stderr
            last = process.stderr.read().decode(errors="replace").strip().splitlines()[-1:]
            raise UserError(f"the compiler's process does not start: {' '.join(last)[:300]}") from None
        # Nothing reads what it says from now on.
        assert self._process.stderr
        self._process.stderr.close()


def _processor_s(pid: int) -> float:
    """The processor time that a process of ours has used, all its threads together; see proc_pid_stat(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _answer(channel: socket.socket, deadline: float, job: CompileJob) -> Compiled:
    head = json.loads(receive_frame(channel, deadline, most_bytes=ANSWER_BYTES))
    if "user" in head:
        raise UserError(str(head["user"])[:500])
    if "broken" in head:
        raise ValueError(head["broken"])
    sizes = [int(size) for size in head["sizes"]]
    if min(sizes) < 0 or sum(sizes) > ANSWER_BYTES:
        raise ValueError("too long")
    log, cubin, ptx = (receive(channel, size, deadline) for size in sizes)
    lowered = {name: str(head["lowered"][name]) for name in job.expressions} if cubin else {}
    return Compiled(log.decode(errors="replace"), cubin, ptx.decode(errors="replace"), lowered)
