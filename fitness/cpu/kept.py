"""Compiled kernels on disk, as many as were used last; several processes share one folder without a lock."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fitness.cpu.build import CpuBuild
from fitness.sandbox.native import publish

KEPT = 64 + 4 * (os.cpu_count() or 1)
"""More than are waited for, or compared with, at one time; what comes back later is compiled again."""
METADATA = ".build"


class Kept:
    """A build is a shared object and, written last and removed first, a pickle of `CpuBuild` beside it.

    What was kept as `.pickle` had no image, and was never held against what image.py allows: it is built again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, name: str) -> CpuBuild | None:
        """The build of this name, as used just now; None where it is not kept."""
        metadata = self._metadata(name)
        try:
            os.utime(metadata)
            build: CpuBuild = pickle.loads(metadata.read_bytes())
        except FileNotFoundError:
            return None
        return build

    def add(self, name: str, build: CpuBuild) -> None:
        """Keep a build; what was not used for the longest time is evicted where there are too many."""
        publish(self._metadata(name), pickle.dumps(build))
        used: list[tuple[int, Path]] = []
        for path in self._folder.glob(f"*{METADATA}"):
            with suppress(FileNotFoundError):  # evicted by another process
                used.append((path.stat().st_mtime_ns, path))
        for _, path in sorted(used)[:-KEPT]:
            for evicted in (path, path.with_suffix(".so")):
                evicted.unlink(missing_ok=True)

    def _metadata(self, name: str) -> Path:
        return self._folder / f"{name}{METADATA}"


@contextmanager
def held(library: Path) -> Iterator[Path]:
    """A second name of a shared object, which is never evicted. Raises FileNotFoundError where it was evicted."""
    with tempfile.TemporaryDirectory(dir=library.parent, prefix="open-") as folder:
        second = Path(folder, library.name)
        os.link(library, second)
        yield second
