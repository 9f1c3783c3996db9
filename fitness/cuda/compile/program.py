"""The orders to a runner. Imports next to nothing: a runner starts in a fraction of a second."""

from __future__ import annotations

from dataclasses import dataclass

from operators.plan.tensor_map import ResolvedTensorMap

Value = tuple[str, str] | bytes
"""("buffer", name), ("map", name), or the bytes of a number."""
LOCAL_SIZES = (2048, 4096, 8192, 17408)
"""Bytes of local memory per thread that kernels of harness.cu fill, each in a kernel of its own."""
OWN_KERNELS = (
    "flush_write", "flush_read", "scribble", "hold", "stamp", "find_barriers", "copy_words", "find_change",
    *(f"scribble_local_{n}" for n in LOCAL_SIZES),
)  # fmt: skip
"""Kernels of harness.cu, which the verifier compiles and a runner loads first."""


@dataclass(frozen=True)
class KernelCall:
    """One kernel launch, in numbers."""

    kernel: str
    """The plan's name expression."""
    args: tuple[Value, ...]
    grid: tuple[int, ...]
    """x, y, z in blocks."""
    block: tuple[int, ...]
    cluster: tuple[int, ...]
    """Empty without clusters."""
    shared_bytes: int
    cooperative: bool
    overlap: bool = False
    """Whether it may begin before the launch ahead of it has ended."""


@dataclass(frozen=True)
class Program:
    """The steps of one call of a kernel file, as the runner gets them."""

    zero: tuple[str, ...]
    calls: tuple[KernelCall, ...]
    maps: tuple[ResolvedTensorMap, ...]


@dataclass(frozen=True)
class ReadOnlyTable:
    """Data that a kernel only reads, by its address: the loader of the cubin keeps it where nothing can write to it."""

    offset: int
    """Offset in the cubin; the eight bytes there take the table's address."""
    data: bytes
