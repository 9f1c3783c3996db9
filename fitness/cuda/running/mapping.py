"""The verifier's blocks of GPU memory, as a process that runs what is not trusted has them mapped."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fitness.cuda.running.driver import call, driver, granularity


@dataclass
class _Mapping:
    """A block in our address space, between two ranges that nothing is mapped to."""

    reserved: int
    reserved_bytes: int
    address: int
    map_bytes: int
    handle: Any


class Mappings:
    """Blocks by their numbers, in the process's current context. Its methods raise CudaError."""

    def __init__(self, ordinal: int) -> None:
        self._ordinal = ordinal
        self._granularity = granularity(ordinal)
        self._known: dict[int, _Mapping] = {}

    def address(self, number: int) -> int:
        """Where a block begins."""
        return self._known[number].address

    def change(self, fds: Iterable[int], new: Sequence[tuple[int, bool, int, int]], drop: Iterable[int]) -> None:
        """Forget the blocks `drop`, and map the blocks `new`: number, whether it may only be read, bytes, address to
        map it at; `fds` are theirs, and are closed."""
        self.forget(drop)
        for fd, (number, readonly, map_bytes, place) in zip(fds, new, strict=True):
            self._known[number] = self._map(fd, map_bytes, place, readonly)

    def forget(self, numbers: Iterable[int]) -> None:
        """Unmap blocks, which must be mapped."""
        for number in numbers:
            mapping = self._known.pop(number)
            call("MemUnmap", mapping.address, mapping.map_bytes)
            call("MemRelease", mapping.handle)
            call("MemAddressFree", mapping.reserved, mapping.reserved_bytes)

    def _map(self, fd: int, map_bytes: int, place: int, readonly: bool) -> _Mapping:
        cu = driver()
        try:
            kind = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
            handle = call("MemImportFromShareableHandle", fd, kind)
        finally:
            os.close(fd)
        # Nothing is ever mapped next to the block, so that an access beyond its ends faults at full speed.
        size = map_bytes + 2 * self._granularity
        reserved = int(call("MemAddressReserve", size, 0, place - self._granularity, 0))
        address = reserved + self._granularity
        call("MemMap", address, map_bytes, 0, handle, 0)
        access = cu.CUmemAccessDesc()
        access.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = self._ordinal
        flags = cu.CUmemAccess_flags
        access.flags = flags.CU_MEM_ACCESS_FLAGS_PROT_READ if readonly else flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        call("MemSetAccess", address, map_bytes, [access], 1)
        return _Mapping(reserved, size, address, map_bytes, handle)
