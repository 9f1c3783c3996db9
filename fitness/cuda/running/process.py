"""The verifier's handle on a process that uses the GPU beside it: a runner of candidates, or of vendors' calls.

Such a process may die of what it runs. It maps blocks of the verifier's memory, and nothing else of it.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from fitness.cuda.running.memory import MemoryBlock
from fitness.evaluation import Status
from fitness.judging.device import UNANSWERED, KernelFault, KilledFromOutside
from fitness.sandbox.channel import receive_frame, send_frame
from fitness.sandbox.disk import KILLED
from fitness.sandbox.processes import ended, kill_group, start_child
from operators.errors import DeviceError

ANSWER_BYTES = 1 << 20
START_TIMEOUT_S = 60.0
SETUP_TIMEOUT_S = 30.0


class Remapping(NamedTuple):
    """Blocks that a process is to map and to forget."""

    new: list[tuple[int, bool, int, int]]
    """Those to map: number, whether it may only read it, bytes, address to map it at."""
    descriptors: list[int]
    """Their file descriptors."""
    drop: list[int]
    """Numbers of those to forget."""


class GpuProcess:
    """One process. Where a request has no answer only `close` may follow. Not thread-safe."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        environment: Mapping[str, str],
        file_bytes: int,
        quiet: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """The process runs a module with a socket's descriptor and these arguments, and touches no device before
        `begin`.

        The context that `quiet` makes is entered while the process makes its own: nothing may be timed meanwhile. A
        thread that has the machine alone, and is let in, never waits in `ready` for one that is not.
        """
        ours, theirs = socket.socketpair()
        self._socket = ours
        self._mapped: dict[int, int] = {}
        """Numbers of the blocks that it has mapped, with their bytes; the last bound ones last."""
        self._bound: dict[int, set[int]] = {}
        """Numbers of the blocks that each slot uses."""
        everything = {**environment, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", module, str(theirs.fileno()), *arguments]
        self._process = start_child(
            command, theirs, environment=everything, stderr=subprocess.PIPE, file_bytes=file_bytes
        )
        self._quiet = quiet
        self._talking = threading.Lock()
        """Held by the thread that has the process take a step of its start."""
        self._taken: list[Callable[[], None]] = []
        self._failure: Exception | None = None
        """The reason why it cannot be used, where a step failed."""
        self._begun = threading.Event()
        self._closed = False
        threading.Thread(target=self._start, name="gpu-process", daemon=True).start()

    def _start(self) -> None:
        """Beside all else, load at once, and make the context when it is wanted and nothing is timed."""
        self._take(self._load)
        self._begun.wait()
        if not self._closed:
            with self._quiet():
                self._take(self._set_up)

    def _take(self, step: Callable[[], None]) -> None:
        """Take a step of the start, unless another thread has, or has failed before."""
        with self._talking:
            if step in self._taken or self._failure or self._closed:
                return
            try:
                step()
            except (*UNANSWERED, OSError) as failure:
                self._failure = failure
            self._taken.append(step)

    def _load(self) -> None:
        self._answer(START_TIMEOUT_S, "while it started")

    def _set_up(self) -> None:
        self._request("begin")
        self._answer(START_TIMEOUT_S, "while it started")

    @property
    def alive(self) -> bool:
        """Whether the process has not ended."""
        return not ended(self._process)

    @property
    def failed(self) -> bool:
        """Whether it did not start; false while it still may."""
        return self._failure is not None

    def begin(self) -> None:
        """Let it make its context, without waiting for that. Safe to call twice."""
        self._begun.set()

    def ready(self) -> None:
        """Wait until it can be used. Raises DeviceError where it does not start on this machine."""
        self.begin()
        self._take(self._load)
        with self._quiet():
            self._take(self._set_up)
        if self._failure is None:
            return
        said = self.close().splitlines()[-1:]
        why = " ".join(said)[:300] or self._failure
        raise DeviceError(f"a process on the GPU does not start: {why}") from self._failure

    def close(self) -> str:
        """End the process; what it wrote to stderr."""
        kill_group(self._process)
        self._closed = True
        self._begun.set()
        with self._talking:
            self._socket.close()
        assert self._process.stderr
        if self._process.stderr.closed:
            return ""
        with self._process.stderr as stream:
            return stream.read().decode(errors="replace").strip()

    def _remap(self, slot: int, blocks: Iterable[MemoryBlock], *, kept_bytes: int, kept: int) -> Remapping:
        """Note that a slot uses these blocks, and return what the process is to be told of that.

        It keeps so many blocks that no slot uses, of so many bytes together.
        """
        wanted = {block.number: block for block in blocks}
        self._bound[slot] = set(wanted)
        new = [block for block in wanted.values() if block.number not in self._mapped]
        for block in wanted.values():
            self._mapped.pop(block.number, None)
            self._mapped[block.number] = block.bytes
        told = [(block.number, block.readonly, block.bytes, block.place) for block in new]
        return Remapping(told, [block.descriptor for block in new], self._idle(kept_bytes, kept))

    def _idle(self, kept_bytes: int, kept: int) -> list[int]:
        """Mapped blocks to be forgotten: those unused for longest, until the others are few and small."""
        used: set[int] = set().union(*self._bound.values())
        idle = {number: size for number, size in self._mapped.items() if number not in used}
        drop = []
        while len(idle) > kept or sum(idle.values()) > kept_bytes:
            drop.append(next(iter(idle)))
            del idle[drop[-1]], self._mapped[drop[-1]]
        return drop

    def _request(self, method: str, *arguments: Any, fds: Iterable[int] = ()) -> None:
        try:
            send_frame(self._socket, pickle.dumps((method, *arguments)), list(fds))
        except OSError:
            raise self._death("before it could be asked") from None

    def _answer(self, timeout_s: float, when: str) -> dict[str, Any]:
        try:
            answer = json.loads(receive_frame(self._socket, time.monotonic() + timeout_s, most_bytes=ANSWER_BYTES))
        except TimeoutError:
            raise KernelFault(Status.TIMEOUT, f"it did not finish within {timeout_s:.2f} s {when}") from None
        except EOFError:
            raise self._death(when) from None
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise KernelFault(Status.RUNTIME_ERROR, f"its process's answer is no answer {when}")
        return answer

    def _death(self, when: str) -> KernelFault | KilledFromOutside:
        if not ended(self._process, 2.0):
            return KernelFault(Status.RUNTIME_ERROR, f"its process closed the channel {when}")
        kill_group(self._process)
        code = self._process.returncode
        # A kernel makes no system calls, and we read nothing from a process that we have ended.
        said = f"its process ended with code {code} {when}"
        return KilledFromOutside(said) if code in KILLED else KernelFault(Status.RUNTIME_ERROR, said)


def whole(answer: Mapping[str, Any], name: str) -> int:
    """A number of an answer. Raises KernelFault where there is none."""
    value = answer.get(name)
    if type(value) is not int:
        raise KernelFault(Status.RUNTIME_ERROR, f"its process's answer has no {name}")
    return value
