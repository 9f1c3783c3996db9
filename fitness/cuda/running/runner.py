"""The verifier's handle on a runner: a process that runs candidates on the GPU and may die of them."""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from fitness.cuda.compile.program import Program, ReadOnlyTable
from fitness.cuda.running.driver import ENVIRONMENT
from fitness.cuda.running.memory import MemoryBlock
from fitness.evaluation import Status
from fitness.judging.device import UNANSWERED, KernelFault, KilledFromOutside
from fitness.sandbox.channel import receive_frame, send_frame
from fitness.sandbox.disk import KILLED
from fitness.sandbox.native import built
from fitness.sandbox.processes import ended, kill_group, start_child
from operators.errors import DeviceError

ANSWER_BYTES = 1 << 20
START_TIMEOUT_S = 60.0
SETUP_TIMEOUT_S = 30.0
GRACE_S = 5.0
"""Time beyond the kernel's limit that the runner may take to say that it did not finish."""
IDLE_BLOCKS = 32
"""Most blocks that a runner keeps mapped though no slot uses them: the next check's are likely among them."""
IDLE_BYTES = 1 << 30
"""Most bytes in them, which the device cannot have back meanwhile."""
KEPT_IDLE_BYTES = 256 << 20
"""The same of a runner that waits for its next candidate."""
READABLE = ":".join(("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/proc", "/sys", "/dev/null"))
"""Paths that a runner may still open once it has made its context: the driver loads from them late."""
TOUCHED = "it writes to the driver's memory around the grid's barrier; declare scratch memory as a [[buffer]]"
NO_MEMORY = "the device has no memory left"
IN_WORDS = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": (
        "an illegal memory access: it reads or writes outside its buffers, or writes to an input, which is read-only"
    ),
    "CUDA_ERROR_MISALIGNED_ADDRESS": (
        "a misaligned access: buffers begin at multiples of 16 bytes, rows of them wherever their length puts them"
    ),
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "it needs more registers or shared memory than a block can have",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": "an illegal instruction, or a trap",
    "CUDA_ERROR_LAUNCH_FAILED": "the launch failed; perhaps a trap, or an access to shared memory out of bounds",
    "CUDA_ERROR_OUT_OF_MEMORY": f"{NO_MEMORY} for it",
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE": (
        "a cooperative launch with more blocks than the device holds at a time; use sm_count * blocks_per_sm"
    ),
}


class CudaRunner:
    """One process. After a KernelFault only `close` may follow. Not thread-safe."""

    def __init__(
        self, ordinal: int, harness: bytes, granularity: int, *, quiet: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """The process touches no device before `begin`.

        The context that `quiet` makes is entered while the process makes its own: nothing may be timed meanwhile. A
        thread that has the machine alone, and is let in, never waits in `ready` for one that is not.
        """
        ours, theirs = socket.socketpair()
        self._socket = ours
        self._harness, self._granularity = harness, granularity
        self._mapped: dict[int, int] = {}
        """Numbers of the blocks that it has mapped, with their bytes; the last bound ones last."""
        self._bound: dict[int, set[int]] = {}
        self.served = 0
        """Candidates so far."""
        library = str(built("cuda/confine.cpp", "-shared", "-fPIC"))
        environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent"}
        environment |= {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        command = [sys.executable, "-m", "fitness.cuda.running.runner_process", str(theirs.fileno()), str(ordinal)]
        devices = ":".join(sorted(map(str, Path("/dev").glob("nvidia*"))))
        command += [library, READABLE, devices]
        self._process = start_child(
            command, theirs, environment=environment, stderr=subprocess.PIPE, file_bytes=1 << 20
        )
        self._quiet = quiet
        self._talking = threading.Lock()
        """Held by the thread that has the process take a step of its start."""
        self._taken: list[Callable[[], None]] = []
        self._failure: Exception | None = None
        """The reason why it cannot be used, where a step failed."""
        self._begun = threading.Event()
        self._closed = False
        threading.Thread(target=self._start, name="runner", daemon=True).start()

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
        self._request("setup", self._harness, self._granularity)
        self._answer(SETUP_TIMEOUT_S, "while it started")

    @property
    def alive(self) -> bool:
        """Whether the process has not ended."""
        return not ended(self._process)

    def begin(self) -> None:
        """Let it make its context, without waiting for that. Safe to call twice."""
        self._begun.set()

    def ready(self) -> None:
        """Wait until it can be used. Raises DeviceError where runners do not start on this machine."""
        self.begin()
        self._take(self._load)
        with self._quiet():
            self._take(self._set_up)
        if self._failure is None:
            return
        said = self.close().splitlines()[-1:]
        raise DeviceError(f"a GPU runner does not start: {' '.join(said)[:300] or self._failure}") from self._failure

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

    def load(self, cubin: bytes, lowered: Mapping[str, str], tables: Sequence[ReadOnlyTable]) -> None:
        """Load a candidate."""
        self.served += 1
        self._do("load", cubin, dict(lowered), tuple(tables), when="while it was loaded")

    def unload(self) -> None:
        """Forget the candidate; small blocks stay mapped, for another one."""
        self._bound.clear()
        drop = self._idle(KEPT_IDLE_BYTES)
        self._do("unload", drop, when="while it was unloaded")

    def occupancy(self, kernel: str, threads: int, shared_bytes: int) -> int:
        """The number of blocks of a kernel that a multiprocessor holds at a time."""
        answer = self._do("occupancy", kernel, threads, shared_bytes, when="while its occupancy was asked for")
        return _whole(answer, "blocks")

    def bind(self, slot: int, buffers: Sequence[tuple[str, MemoryBlock, int, int]], *, timed: bool) -> None:
        """Give a slot its buffers: (name, block, offset in the block, bytes).

        Where calls are `timed` nothing else stays mapped but what other timed slots use: no call may find there what
        an earlier one left, or a right answer.
        """
        if timed:
            self._bound.pop(0, None)
        wanted = {block.number: block for _, block, _, _ in buffers}
        self._bound[slot] = set(wanted)
        new = [block for block in wanted.values() if block.number not in self._mapped]
        for block in wanted.values():
            self._mapped.pop(block.number, None)
            self._mapped[block.number] = block.bytes
        drop = self._idle(0, blocks=0) if timed else self._idle(IDLE_BYTES)
        self._do(
            "bind",
            slot,
            [(name, block.number, offset, size) for name, block, offset, size in buffers],
            [(block.number, block.readonly, block.bytes, block.place) for block in new],
            drop,
            fds=[block.descriptor for block in new],
            when="while its buffers were mapped",
        )

    def _idle(self, kept_bytes: int, blocks: int = IDLE_BLOCKS) -> list[int]:
        """Mapped blocks to be forgotten: those unused for longest, until the others are few and small."""
        used: set[int] = set().union(*self._bound.values())
        idle = {number: size for number, size in self._mapped.items() if number not in used}
        drop = []
        while len(idle) > blocks or sum(idle.values()) > kept_bytes:
            drop.append(next(iter(idle)))
            del idle[drop[-1]], self._mapped[drop[-1]]
        return drop

    def define(self, slot: int, program: Program) -> None:
        """Make what `run` runs."""
        self._do("define", slot, program, when="while its launches were set up")

    def run(self, slot: int, *, cold: bool, poison: int, timeout_s: float) -> tuple[int, int]:
        """Nanoseconds by the events around the kernels, and by the device's clock from before them until behind."""
        answer = self._do("run", slot, cold, poison, timeout_s, timeout_s=timeout_s + GRACE_S, when="while it ran")
        if answer.get("overdue"):
            raise KernelFault(Status.TIMEOUT, f"it did not finish within {timeout_s:.2f} s")
        if answer.get("touched"):
            raise KernelFault(Status.RUNTIME_ERROR, TOUCHED)
        return _whole(answer, "elapsed_ns"), _whole(answer, "seen_ns")

    def _do(
        self, method: str, *arguments: Any, when: str, timeout_s: float = SETUP_TIMEOUT_S, fds: Iterable[int] = ()
    ) -> dict[str, Any]:
        self._request(method, *arguments, fds=fds)
        answer = self._answer(timeout_s, when)
        if "error" in answer:
            name = str(answer["error"])
            text = IN_WORDS.get(name, str(answer["text"])[:500])
            where = str(answer["text"]).split(":")[0] + ": " if method == "define" else ""
            raise KernelFault(Status.RUNTIME_ERROR, f"{where}{text} ({name}, {when})")
        return answer

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
            raise KernelFault(Status.RUNTIME_ERROR, f"the runner's answer is no answer {when}")
        return answer

    def _death(self, when: str) -> KernelFault | KilledFromOutside:
        if not ended(self._process, 2.0):
            return KernelFault(Status.RUNTIME_ERROR, f"its process closed the channel {when}")
        kill_group(self._process)
        code = self._process.returncode
        # A kernel makes no system calls, and we read nothing from a process that we have ended.
        said = f"its process ended with code {code} {when}"
        return KilledFromOutside(said) if code in KILLED else KernelFault(Status.RUNTIME_ERROR, said)


def _whole(answer: Mapping[str, Any], name: str) -> int:
    """A number of an answer. Raises KernelFault where there is none."""
    value = answer.get(name)
    if type(value) is not int:
        raise KernelFault(Status.RUNTIME_ERROR, f"the runner's answer has no {name}")
    return value
