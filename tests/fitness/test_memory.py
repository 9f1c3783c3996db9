"""Shared regions: placement, patterns, and who may write."""

from __future__ import annotations

import mmap

import pytest

from fitness.sandbox.memory import ALIGNMENT, PAGE, Region


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("size", [0, 1, 15, 16, 4096, 5000])
def test_a_buffer_touches_the_chosen_end_of_its_pages(size: int, at_end: bool) -> None:
    extent = Region({"x": size}, at_end=at_end).extents["x"]
    assert extent.data_offset % ALIGNMENT == 0
    assert extent.map_bytes % PAGE == 0
    if at_end:
        assert 0 <= extent.map_bytes - extent.data_offset - size <= ALIGNMENT
    else:
        assert extent.data_offset == 0


@pytest.mark.parametrize("poison", [0xFF, 0x7B, 0xF1])
@pytest.mark.parametrize("at_end", [False, True])
def test_a_write_beside_data_is_noticed_and_gone_for_the_next_call(at_end: bool, poison: int) -> None:
    region = Region({"x": 10, "y": 4096}, at_end=at_end)
    region.prepare(poison)
    assert bytes(region.view("x")) == bytes([poison]) * 10
    assert region.touched() is None
    extent, whole = region.extents["x"], memoryview(region._map)
    behind = extent.offset + extent.data_offset + 10
    assert whole[behind] != poison  # else a copy from beyond the data to beyond it could not be told
    whole[behind] ^= 1
    assert region.touched() == "x"
    region.fill(1)
    assert region.touched() == "x"
    region.prepare(poison)
    assert region.touched() is None


def test_what_is_handed_out_read_only_cannot_be_mapped_for_writing() -> None:
    region = Region({"x": 100}, at_end=False, readonly_for_others=True)
    region.fill(7)
    with mmap.mmap(region.fd, region.bytes, prot=mmap.PROT_READ) as seen:
        assert seen[region.extents["x"].data_offset] == 7
    with pytest.raises(PermissionError):
        mmap.mmap(region.fd, region.bytes, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    with pytest.raises(PermissionError), open(f"/proc/self/fd/{region.fd}", "r+b") as again:  # noqa: PTH123
        mmap.mmap(again.fileno(), region.bytes)
