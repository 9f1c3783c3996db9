"""Shared memory between the verifier, which owns and checks it, and the process that runs a candidate."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fitness.sandbox.native import checks

PAGE = mmap.PAGESIZE
ALIGNMENT = 16
"""Alignment that kernels may rely on; results"""
SLACK_PATTERNS = (0x7B, 0xFF)
"""Large numbers and NaN to their reader, like the poisons: they surround data that has no other surroundings yet, where
it begins its pages and where it ends them. See `around`."""
F_ADD_SEALS = 1033
F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE = 2, 4, 16


def around(poison: int) -> int:
    """The byte that surrounds data which is filled with `poison`: NaN, unless that is what it is filled with."""
    large, nan = SLACK_PATTERNS
    return large if poison == nan else nan


@dataclass(frozen=True)
class Extent:
    """Place of one buffer in its region's file."""

    offset: int
    """Offset of the first page, in bytes."""
    map_bytes: int
    data_offset: int
    """Offset of the data within its pages."""
    bytes: int


class Region:
    """An anonymous file that holds some named buffers, each on pages of its own.

    Mapped elsewhere, it can have unmapped pages around every buffer: with `at_end`, data ends where its pages end
    (up to the alignment), so that reading or writing past the end faults; else it begins where they begin. What is
    left of the pages is filled with a pattern that `touched` looks for.
    """

    def __init__(self, sizes: Mapping[str, int], *, at_end: bool, readonly_for_others: bool = False) -> None:
        self.extents: dict[str, Extent] = {}
        offset = 0
        for name, size in sizes.items():
            rounded = max(-(-size // ALIGNMENT) * ALIGNMENT, ALIGNMENT)
            map_bytes = -(-rounded // PAGE) * PAGE
            self.extents[name] = Extent(offset, map_bytes, map_bytes - rounded if at_end else 0, size)
            offset += map_bytes
        self.bytes = max(offset, PAGE)
        owned = os.memfd_create("evo", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(owned, self.bytes)
        self._map = mmap.mmap(owned, self.bytes)
        if readonly_for_others:
            fcntl.fcntl(owned, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE)
            self.fd = os.open(f"/proc/self/fd/{owned}", os.O_RDONLY | os.O_CLOEXEC)
            os.close(owned)
        else:
            fcntl.fcntl(owned, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)
            self.fd = owned
        self._close = weakref.finalize(self, os.close, self.fd)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._pattern = SLACK_PATTERNS[at_end]
        checks().evo_fill(self.address, self.bytes, self._pattern)

    def address_of(self, name: str) -> int:
        """The address of the buffer's data in this process."""
        extent = self.extents[name]
        return self.address + extent.offset + extent.data_offset

    def view(self, name: str) -> memoryview:
        """The buffer's bytes."""
        extent = self.extents[name]
        begin = extent.offset + extent.data_offset
        return memoryview(self._map)[begin : begin + extent.bytes]

    def contents(self, name: str) -> bytes:
        """A copy of the buffer's data."""
        return bytes(self.view(name))

    def fill(self, value: int, names: Iterable[str] | None = None) -> None:
        """Set every byte of the named buffers (default: all), not of the slack."""
        for name in self.extents if names is None else names:
            checks().evo_fill(self.address_of(name), self.extents[name].bytes, value)

    def prepare(self, poison: int) -> None:
        """Fill every buffer with a byte, and what lies around the data with another, which `touched` looks for."""
        self._pattern = around(poison)
        for name in self.extents:
            for begin, size in self._slack(name):
                checks().evo_fill(begin, size, self._pattern)
        self.fill(poison)

    def flush(self) -> None:
        """Drop the whole region from all caches."""
        checks().evo_flush(self.address, self.bytes)

    def touched(self) -> str | None:
        """The first buffer around which something is no longer as it was."""
        differs = checks().evo_differs
        for name in self.extents:
            if any(differs(begin, size, self._pattern) >= 0 for begin, size in self._slack(name)):
                return name
        return None

    def _slack(self, name: str) -> tuple[tuple[int, int], tuple[int, int]]:
        """Address and bytes of what lies before and behind the buffer's data on its pages."""
        extent = self.extents[name]
        begin, after = self.address + extent.offset, extent.data_offset + extent.bytes
        return (begin, extent.data_offset), (begin + after, extent.map_bytes - after)


class Memory(Protocol):
    """Named buffers that a verifier shares with the process that runs a candidate: a `Region`, or the same on a GPU."""

    @property
    def extents(self) -> Mapping[str, Extent]:
        """By name, where each buffer lies."""
        ...

    def fill(self, value: int, names: Iterable[str] | None = None) -> None:
        """Set every byte of the named buffers (default: all)."""
        ...

    def prepare(self, poison: int) -> None:
        """Fill every buffer with a byte, and what lies around the data with another, which `touched` looks for."""
        ...

    def touched(self) -> str | None:
        """The first buffer around which something is no longer as it was."""
        ...

    def contents(self, name: str) -> Any:
        """A copy of the buffer's data, to be compared with other copies by `==`."""
        ...
