"""The verifier's handle on a runner: a process that runs candidates on the GPU and may die of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from fitness.cuda.compile.program import Program, ReadOnlyTable
from fitness.cuda.running.driver import ENVIRONMENT
from fitness.cuda.running.memory import NO_MEMORY, MemoryBlock
from fitness.cuda.running.process import SETUP_TIMEOUT_S, GpuProcess, whole
from fitness.evaluation import Status
from fitness.judging.device import KernelFault
from fitness.sandbox.native import built

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


class CudaRunner(GpuProcess):
    """One process that runs candidates."""

    def __init__(self, ordinal: int, harness: bytes, *, quiet: Callable[[], AbstractContextManager[None]]) -> None:
        """See `GpuProcess`; `harness` are our own kernels."""
        self._harness = harness
        self.served = 0
        """Candidates so far."""
        library = str(built("cuda/confine.cpp", "-shared", "-fPIC"))
        environment = {"HOME": "/nonexistent"} | {n: os.environ[n] for n in ENVIRONMENT if n in os.environ}
        devices = ":".join(sorted(map(str, Path("/dev").glob("nvidia*"))))
        arguments = str(ordinal), library, READABLE, devices
        module = "fitness.cuda.running.runner_process"
        super().__init__(module, *arguments, environment=environment, file_bytes=1 << 20, quiet=quiet)

    def _set_up(self) -> None:
        super()._set_up()
        self._request("setup", self._harness)
        self._answer(SETUP_TIMEOUT_S, "while it started")

    def load(self, cubin: bytes, lowered: Mapping[str, str], tables: Sequence[ReadOnlyTable]) -> None:
        """Load a candidate."""
        self.served += 1
        self._do("load", cubin, dict(lowered), tuple(tables), when="while it was loaded")

    def unload(self) -> None:
        """Forget the candidate; small blocks stay mapped, for another one."""
        self._bound.clear()
        drop = self._idle(KEPT_IDLE_BYTES, IDLE_BLOCKS)
        self._do("unload", drop, when="while it was unloaded")

    def occupancy(self, kernel: str, threads: int, shared_bytes: int) -> int:
        """The number of blocks of a kernel that a multiprocessor holds at a time."""
        answer = self._do("occupancy", kernel, threads, shared_bytes, when="while its occupancy was asked for")
        return whole(answer, "blocks")

    def bind(self, slot: int, buffers: Sequence[tuple[str, MemoryBlock, int, int]], *, timed: bool) -> None:
        """Give a slot its buffers: (name, block, offset in the block, bytes).

        Where calls are `timed` nothing else stays mapped but what other timed slots use: no call may find there what
        an earlier one left, or a right answer.
        """
        if timed:
            self._bound.pop(0, None)
        change = self._remap(
            slot,
            [block for _, block, _, _ in buffers],
            kept_bytes=0 if timed else IDLE_BYTES,
            kept=0 if timed else IDLE_BLOCKS,
        )
        self._do(
            "bind",
            slot,
            [(name, block.number, offset, size) for name, block, offset, size in buffers],
            change.new,
            change.drop,
            fds=change.descriptors,
            when="while its buffers were mapped",
        )

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
        return whole(answer, "elapsed_ns"), whole(answer, "seen_ns")

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
