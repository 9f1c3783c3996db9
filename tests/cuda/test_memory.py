"""Regions on a pool that is only pretended: whose blocks they are, and what they notice."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fitness.cuda.running.driver import CudaError
from fitness.cuda.running.memory import WIPED, BlockPool, CudaRegion


def block() -> Any:
    return SimpleNamespace(bytes=4096, tensor=torch.zeros(4096, dtype=torch.uint8))


class Pool:
    """Has so many blocks, and no more."""

    def __init__(self, blocks: int) -> None:
        self.left = blocks
        self.back: list[Any] = []

    def take(self, size: int, *, readonly: bool = False) -> Any:
        if not self.left:
            raise CudaError("cuMemCreate", "CUDA_ERROR_OUT_OF_MEMORY", "out of memory")
        self.left -= 1
        return block()

    def give_back(self, blocks: Iterable[Any]) -> None:
        self.back += blocks


def test_a_region_that_the_device_has_no_memory_for_keeps_nothing() -> None:
    pool: Any = Pool(1)
    with pytest.raises(CudaError):
        CudaRegion(pool, {"y": 100, "scratch": 100}, at_end=True)
    gc.collect()
    assert len(pool.back) == 1


def test_a_region_gives_back_what_is_its_own() -> None:
    pool: Any = Pool(2)
    lent = {"y": block()}
    region = CudaRegion(pool, {"y": 100, "scratch": 100}, at_end=True, lent=lent)
    assert region.blocks["y"] is lent["y"]
    del region
    gc.collect()
    assert (len(pool.back), pool.left) == (1, 1)


def test_what_regions_gave_back_holds_no_answers() -> None:
    """A runner may have it mapped still, at an address that a kernel can work out."""
    pool = BlockPool.__new__(BlockPool)
    pool._free, pool._returned = [], deque()
    answers, inputs = (
        SimpleNamespace(bytes=8, tensor=torch.arange(8, dtype=torch.uint8), readonly=readonly)
        for readonly in (False, True)
    )
    pool.give_back([answers, inputs])  # type: ignore[list-item]
    pool.wipe()
    assert set(answers.tensor.tolist()) == {WIPED}
    assert inputs.tensor.tolist() == list(range(8))


@pytest.mark.parametrize("at_end", [False, True])
def test_a_write_beside_the_data_is_noticed(at_end: bool) -> None:
    pool: Any = Pool(1)
    region = CudaRegion(pool, {"y": 100}, at_end=at_end)
    region.prepare(0xFF)
    assert region.touched() is None
    extent = region.extents["y"]
    beside = region.blocks["y"].tensor[extent.data_offset + extent.bytes :]
    assert beside[0] != 0xFF
    beside[0] ^= 1
    assert region.touched() == "y"
    region.prepare(0x7B)
    assert region.touched() is None
