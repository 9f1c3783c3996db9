"""Runs one candidate alone, for tools that watch a process: `python -m fitness.cuda.profiling.solo SPEC`.

SPEC is a pickled `Solo`, which our own process wrote. Buffers are allocated one by one, inputs are copied in, outputs
and scratch stay as they come, and every run calls the candidate once. Neither judges nor times.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitness.cuda.compile.program import Program, ReadOnlyTable
from fitness.cuda.running.driver import CudaError, call
from fitness.cuda.running.launcher import Launcher
from fitness.cuda.running.launching import ReadyLaunch

FILL = 0x7B
"""Byte that follows an input up to the alignment: a large number."""
ALIGNMENT = 16
DONE = "evo: every call has ended"


@dataclass(frozen=True)
class SoloRun:
    """One call."""

    program: Program
    sizes: Mapping[str, int]
    """Bytes of every buffer."""
    data: Mapping[str, bytes]
    """Initial contents of some of them."""


@dataclass(frozen=True)
class Solo:
    """A candidate and what is done with it."""

    ordinal: int
    cubin: bytes
    lowered: Mapping[str, str]
    tables: tuple[ReadOnlyTable, ...]
    runs: tuple[SoloRun, ...]
    counted: frozenset[int] = frozenset()
    """Places (from 0) of the launches of each run that a profiler is told of; empty: it is told of none, and goes by
    its own options."""


class CountedLauncher(Launcher):
    """A launcher that tells a profiler, which waits to be told, when a launch begins that is to be counted."""

    def __init__(self, ordinal: int, counted: frozenset[int]) -> None:
        super().__init__(ordinal)
        self._counted = counted
        self.started = 0
        """Launches so far."""

    def start(self, function: Any, launch: ReadyLaunch) -> None:
        """See `Launcher.start`."""
        told = self.started in self._counted
        self.started += 1
        if told:
            call("StreamSynchronize", self.stream)
            call("ProfilerStart")
        super().start(function, launch)
        if told:
            call("StreamSynchronize", self.stream)
            call("ProfilerStop")


def run(solo: Solo) -> None:
    """It calls the candidate once for each run. It raises CudaError."""
    launcher = CountedLauncher(solo.ordinal, solo.counted)
    launcher.load_kernels(solo.cubin, solo.lowered, solo.tables)
    for run_ in solo.runs:
        addresses: dict[str, int] = {}
        launcher.started = 0
        for name, size in run_.sizes.items():
            rounded = max(-(-size // ALIGNMENT) * ALIGNMENT, ALIGNMENT)
            addresses[name] = int(call("MemAlloc", rounded))
            if name in run_.data:
                call("MemsetD8Async", addresses[name], FILL, rounded, launcher.stream)
                if size:
                    call("MemcpyHtoDAsync", addresses[name], run_.data[name], size, launcher.stream)
        call("StreamSynchronize", launcher.stream)
        launcher.enqueue(run_.program, addresses, run_.sizes, launcher.tensor_maps(run_.program, addresses))
        call("StreamSynchronize", launcher.stream)
        for address in addresses.values():
            call("MemFree", address)


def main() -> None:
    """Entry point of the process."""
    solo = pickle.loads(Path(sys.argv[1]).read_bytes())
    try:
        run(solo)
    except CudaError as error:
        sys.exit(f"evo: {error}")
    print(DONE)


if __name__ == "__main__":
    main()
