"""CuPy beside torch: its calls queue on torch's current stream and take memory from torch, within a capture too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def on_torchs_stream() -> Iterator[None]:
    """Have CuPy, in this thread, work on torch's current stream and in its memory."""
    import cupy

    with cupy.cuda.Stream.from_external(_TorchsStream()), cupy.cuda.using_allocator(_torchs_memory):
        yield


def keep_plans() -> None:
    """Have CuPy keep all plans of transforms that this thread makes; by default the 17th drops the first.

    A captured call goes on using its plan. Where that was dropped, its replay ended the process.
    """
    from cupy.fft.config import get_plan_cache

    get_plan_cache().set_size(-1)


def drop_plans() -> None:
    """Have CuPy give back this thread's plans with their memory, which no captured call may use any more."""
    from cupy.fft.config import get_plan_cache

    get_plan_cache().clear()


class _TorchsStream:
    """The stream that is torch's current one when CuPy asks, by the protocol of cuda.core, which torch has from 2.8."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, torch.cuda.current_stream().cuda_stream


def _torchs_memory(size: int) -> Any:
    """A block that torch gives back once CuPy has dropped it: what CuPy takes for an allocator."""
    import cupy

    block = torch.empty(max(size, 1), dtype=torch.uint8, device="cuda")
    memory = cupy.cuda.UnownedMemory(block.data_ptr(), size, block, torch.cuda.current_device())
    return cupy.cuda.MemoryPointer(memory, 0)
