"""The load of this machine's GPUs, as `nvidia-smi` tells it: rarely, so that it disturbs no timing."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Event, Thread
from typing import IO

EVERY_S = 30
"""Seconds between two samples, which one process takes for the whole session: each asks the driver, which also times
kernels."""
PROGRAM = "nvidia-smi"
FIELDS = ("index", "utilization.gpu", "memory.used", "memory.total")


@dataclass(frozen=True)
class GpuLoad:
    """One GPU as it was seen last."""

    index: str
    busy: int | None
    """Percent of the sample's moment in which some kernel ran, of any process; None where the device does not tell."""
    used_mib: int | None
    total_mib: int | None

    def __str__(self) -> str:
        busy = "busy ?" if self.busy is None else f"{self.busy} % busy"
        if self.used_mib is None or self.total_mib is None:
            return f"GPU {self.index} {busy}"
        return f"GPU {self.index} {busy}, {self.used_mib / 1024:.1f} of {self.total_mib / 1024:.0f} GiB"


NAMED = 3
"""The most GPUs that are named one by one; of more the least and the most are told."""


def loads(gpus: Sequence[GpuLoad]) -> str:
    """GPUs in few words."""
    if len(gpus) <= NAMED:
        return "; ".join(map(str, gpus))
    busy = [gpu.busy for gpu in gpus if gpu.busy is not None]
    used = [gpu.used_mib / 1024 for gpu in gpus if gpu.used_mib is not None]
    parts = [
        f"{min(busy)}-{max(busy)} % busy" if busy else "busy ?",
        f"{min(used):.1f}-{max(used):.1f} GiB used" if used else "",
    ]
    return f"{len(gpus)} GPUs {', '.join(filter(None, parts))}"


def load_of(line: str) -> GpuLoad | None:
    """The load that a line of `nvidia-smi` tells; None for one that is something else."""
    cells = [cell.strip() for cell in next(csv.reader([line]), [])]
    if len(cells) != len(FIELDS) or not cells[0].isdigit():
        return None
    busy, used, total = (int(cell) if cell.isdigit() else None for cell in cells[1:])
    return GpuLoad(cells[0], busy, used, total)


class GpuWatch:
    """The GPUs that this process may use, as they were at the last sample; none before the first one."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        visible = environment.get("CUDA_VISIBLE_DEVICES", "")
        self._visible = set(visible.split(",")) if visible.replace(",", "").isdigit() else None
        self._process: subprocess.Popen[str] | None = None
        self._loads: dict[str, GpuLoad] = {}
        self._asked = False
        self.ended = Event()
        """Set once the program says no more."""

    def start(self) -> None:
        """Begin to sample, once, if this machine has the program."""
        if self._asked:
            return
        self._asked = True
        program = shutil.which(PROGRAM)
        if not program:
            return
        command = [program, f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits", f"--loop={EVERY_S}"]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        except OSError:
            return
        assert self._process.stdout
        Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    @property
    def loads(self) -> Sequence[GpuLoad]:
        """The GPUs in their order."""
        return sorted(self._loads.copy().values(), key=lambda load: int(load.index))

    def close(self) -> None:
        """End the program."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _read(self, lines: IO[str]) -> None:
        with lines:
            for line in lines:
                load = load_of(line)
                if load and (self._visible is None or load.index in self._visible):
                    self._loads[load.index] = load
        self.ended.set()
