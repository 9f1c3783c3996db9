"""GPU memory that the verifier owns and runners map: blocks of the driver's virtual memory, regions of blocks."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from fitness.cuda.compile.line import fitting_extra
from fitness.cuda.running.driver import CudaError, allocation, call, driver, granularity
from fitness.install import reinstalling_torch
from fitness.sandbox.memory import ALIGNMENT, SLACK_PATTERNS, Extent, around
from operators.errors import UserError

FIRST_ADDRESS = 1 << 46
"""Address of the first block, far from where the driver itself puts things. Blocks follow each other from here on, in
every runner alike: by where buffers lie in the address space alone a kernel can be half as fast again."""
KEPT_FREE_BYTES = 4 << 30
"""Most memory of unused blocks that stay allocated: making one takes as long as a small check."""
KEPT_FREE = 256
"""Most blocks that are kept, since each holds a file open."""
WIPED = 0xA5
"""Byte that unused blocks are filled with."""
NO_MEMORY = "the device has no memory left"


def is_short(text: str) -> bool:
    """Whether it speaks of memory that the device has not."""
    return any(words in text for words in ("out of memory", "OUT_OF_MEMORY", "ALLOC_FAILED", NO_MEMORY))


class MemoryBlock:
    """Some granules of GPU memory, mapped into this process; others get a file descriptor and map it themselves."""

    def __init__(self, number: int, ordinal: int, map_bytes: int, place: int, *, readonly: bool) -> None:
        cu = driver()
        self.readonly = readonly
        """Whether runners map it so."""
        self.place = place
        """The address that runners map it at."""
        self.number = number
        """Number that no other block ever has."""
        self.bytes = map_bytes
        access = cu.CUmemAccessDesc()
        access.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = ordinal
        access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        with ExitStack() as undone:
            self._handle = call("MemCreate", map_bytes, allocation(ordinal), 0)
            undone.callback(call, "MemRelease", self._handle)
            self.address = int(call("MemAddressReserve", map_bytes, 0, 0, 0))
            undone.callback(call, "MemAddressFree", self.address, map_bytes)
            call("MemMap", self.address, map_bytes, 0, self._handle, 0)
            undone.callback(call, "MemUnmap", self.address, map_bytes)
            call("MemSetAccess", self.address, map_bytes, [access], 1)
            undone.pop_all()
        self.tensor = seen_as_tensor(self.address, map_bytes, ordinal)
        """All of it, as bytes."""
        self._descriptor: int | None = None

    @property
    def descriptor(self) -> int:
        """The file descriptor that others map it by; ours, and open until the block is freed: making one takes a
        millisecond."""
        if self._descriptor is None:
            kind = driver().CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
            self._descriptor = int(call("MemExportToShareableHandle", self._handle, kind, 0))
        return self._descriptor

    def free(self) -> None:
        """Give it back to the device, once no other process has it mapped."""
        torch.cuda.synchronize()
        if self._descriptor is not None:
            os.close(self._descriptor)
        call("MemUnmap", self.address, self.bytes)
        call("MemRelease", self._handle)
        call("MemAddressFree", self.address, self.bytes)


@dataclass(frozen=True)
class _Array:
    """Attributes that torch needs to look at memory that is not its own."""

    address: int
    bytes: int

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.bytes,), "typestr": "|u1", "data": (self.address, False), "version": 3, "strides": None}


def seen_as_tensor(address: int, size: int, ordinal: int) -> torch.Tensor:
    """Return so many bytes of a GPU's memory at an address as a flat tensor, which does not keep them."""
    return torch.as_tensor(_Array(address, size), device=f"cuda:{ordinal}")


def check_torch() -> None:
    """Raise UserError where torch has no CUDA."""
    if not torch.cuda.is_available():
        raise UserError(
            f"torch {torch.__version__} cannot use the GPU, where references are computed; see nvidia-smi, or "
            f"install a build for this driver: {reinstalling_torch(fitting_extra())}"
        )


class BlockPool:
    """Makes blocks, and keeps those that regions no longer use."""

    def __init__(self, ordinal: int) -> None:
        """It raises UserError where torch has no CUDA."""
        self.ordinal = ordinal
        check_torch()
        torch.zeros(1, device=f"cuda:{ordinal}")  # the context that blocks are mapped in
        self.granularity = granularity(ordinal)
        self._free: list[MemoryBlock] = []
        self._returned: deque[MemoryBlock] = deque()
        """Blocks that regions gave back lately: regions are collected as garbage, in the midst of anything that happens
        here."""
        self._made = 0
        self._next_place = FIRST_ADDRESS

    def take(self, size: int, *, readonly: bool = False) -> MemoryBlock:
        """A block of at least one granule that holds `size` bytes; `readonly`: that runners will only read.

        Of those that are free the one last used, which a runner has likely mapped already, as it will be used now.
        """
        rounded = max(-(-size // self.granularity), 1) * self.granularity
        self._settle()
        for index in reversed(range(len(self._free))):
            if (self._free[index].bytes, self._free[index].readonly) == (rounded, readonly):
                return self._free.pop(index)
        self._made += 1
        self._next_place += self.granularity  # which stays unmapped, so that accesses beyond a block fault
        place, self._next_place = self._next_place, self._next_place + rounded + self.granularity
        try:
            return MemoryBlock(self._made, self.ordinal, rounded, place, readonly=readonly)
        except CudaError:
            self.trim()
            return MemoryBlock(self._made, self.ordinal, rounded, place, readonly=readonly)

    def trim(self) -> None:
        """Give back to the device what is not in use, torch's share included."""
        torch.cuda.empty_cache()
        self._settle()
        while self._free:
            self._free.pop().free()

    def give_back(self, blocks: Iterable[MemoryBlock]) -> None:
        """Blocks of the same size may be needed soon."""
        self._returned.extend(blocks)

    def wipe(self) -> None:
        """Overwrite what regions gave back: right answers are among it, and runners may have it mapped still."""
        self._settle()

    def _settle(self) -> None:
        """The oldest go when there are too many."""
        while self._returned:
            block = self._returned.popleft()
            if not block.readonly:
                block.tensor.fill_(WIPED)
            self._free.append(block)
        while len(self._free) > KEPT_FREE or sum(block.bytes for block in self._free) > KEPT_FREE_BYTES:
            self._free.pop(0).free()


class CudaRegion:
    """`fitness.sandbox.memory.Memory` on a GPU: every buffer has its own block, so that runners map nothing beside it.

    With `at_end`, data ends where its block ends (up to the alignment), so that an access past the end faults; else it
    begins where the block begins. What is left of the block is filled with a pattern that `touched` looks for.
    """

    def __init__(
        self,
        pool: BlockPool,
        sizes: Mapping[str, int],
        *,
        at_end: bool,
        readonly: bool = False,
        lent: Mapping[str, MemoryBlock] | None = None,
    ) -> None:
        """`readonly`: runners only read it.

        `lent` are blocks that some of the buffers take, which another process owns and may use between calls.
        """
        self.extents: dict[str, Extent] = {}
        self.blocks: dict[str, MemoryBlock] = {}
        self._pattern = SLACK_PATTERNS[at_end]
        own: list[MemoryBlock] = []
        self._close = weakref.finalize(self, pool.give_back, own)  # also where the device has no memory for the next
        for name, size in sizes.items():
            rounded = max(-(-size // ALIGNMENT) * ALIGNMENT, ALIGNMENT)
            if lent and name in lent:
                block = lent[name]
            else:
                block = pool.take(rounded, readonly=readonly)
                own.append(block)
            block.tensor.fill_(self._pattern)
            self.blocks[name] = block
            self.extents[name] = Extent(0, block.bytes, block.bytes - rounded if at_end else 0, size)

    def tensor(self, name: str, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
        """The buffer's data as it is now, flat."""
        extent = self.extents[name]
        return self.blocks[name].tensor[extent.data_offset : extent.data_offset + extent.bytes].view(dtype)

    def fill(self, value: int, names: Iterable[str] | None = None) -> None:
        """Set every byte of the named buffers (default: all), not of the slack."""
        for name in self.extents if names is None else names:
            self.tensor(name).fill_(value)

    def prepare(self, poison: int) -> None:
        """Fill every buffer with a byte, and what lies around the data with another, which `touched` looks for."""
        self._pattern = around(poison)
        for name in self.extents:
            for part in self._slack(name):
                part.fill_(self._pattern)
        self.fill(poison)

    def touched(self) -> str | None:
        """The first buffer around which something is no longer as it was."""
        names = [(name, part) for name in self.extents for part in self._slack(name)]
        if not names:
            return None
        # The device is waited for once, not once per buffer.
        found = torch.stack([(part != self._pattern).any() for _, part in names]).tolist()
        return next((name for (name, _), differs in zip(names, found, strict=True) if differs), None)

    def _slack(self, name: str) -> list[torch.Tensor]:
        """The parts of the block before and behind the buffer's data that are not empty."""
        extent, block = self.extents[name], self.blocks[name].tensor
        parts = block[: extent.data_offset], block[extent.data_offset + extent.bytes :]
        return [part for part in parts if len(part)]

    def contents(self, name: str) -> Contents:
        """A copy of the buffer's data."""
        return Contents(self.tensor(name).clone())


class Contents:
    """Bytes on the GPU that can be compared."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, data: torch.Tensor) -> None:
        self._data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Contents) and torch.equal(self._data, other._data)
