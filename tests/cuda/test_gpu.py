"""What tasks of one process share of a GPU, and who gives way when its memory is nearly full."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fitness.cuda import gpu
from fitness.cuda.gpu import SPARE_SHARE, SPARE_SHARE_RESIDENT, Gpu, shared_gpu
from tests.cuda.test_target import H100

TOTAL = 80 << 30


class Task:
    """Holds so many bytes while it is resident."""

    def __init__(self, memory: Memory, size: int) -> None:
        self._memory, self._size = memory, size
        self.resident = True
        memory.used += size

    def forget(self) -> None:
        assert self.resident
        self.resident = False
        self._memory.used -= self._size


class Memory:
    """Of the device."""

    def __init__(self) -> None:
        self.used = 0
        self.trimmed = self.dispersed = 0

    def info(self, ordinal: int) -> tuple[int, int]:
        assert ordinal == H100.ordinal
        return TOTAL - self.used, TOTAL

    def trim(self) -> None:
        self.trimmed += 1

    def disperse(self) -> None:
        self.dispersed += 1


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    made = Memory()
    monkeypatch.setattr(gpu, "device_facts", lambda: H100)
    monkeypatch.setattr("torch.cuda.mem_get_info", made.info)
    return made


@pytest.fixture
def shared(memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    made = shared_gpu(tmp_path)
    monkeypatch.setitem(made.__dict__, "pool", memory)
    monkeypatch.setattr(made.workers, "disperse", memory.disperse)
    yield made


def tenants(shared: Gpu, memory: Memory, *sizes: int) -> list[Any]:
    made = [Task(memory, size) for size in sizes]
    for task in made:
        shared.join(task)
    return made


def test_tasks_of_one_folder_share_a_gpu_until_the_last_one_leaves(memory: Memory, tmp_path: Path) -> None:
    first = shared_gpu(tmp_path)
    assert shared_gpu(tmp_path) is first
    assert shared_gpu(tmp_path / "other") is not first
    (task,) = tenants(first, memory, 1)
    first.join(None)
    first.leave(task)
    assert shared_gpu(tmp_path) is first
    first.leave(None)
    assert shared_gpu(tmp_path) is not first


def test_nobody_gives_way_while_there_is_room(shared: Gpu, memory: Memory) -> None:
    tasks = tenants(shared, memory, *[TOTAL // 10] * 7)
    shared.make_room(tasks[0])
    assert all(task.resident for task in tasks)
    assert not memory.trimmed


def test_who_holds_its_inputs_needs_less_room_than_who_will_draw_them(shared: Gpu, memory: Memory) -> None:
    tasks = tenants(shared, memory, *[TOTAL // 10] * 8)
    assert 1 - SPARE_SHARE < 0.8 < 1 - SPARE_SHARE_RESIDENT
    shared.make_room(tasks[0])
    assert all(task.resident for task in tasks)
    tasks[0].forget()
    memory.used += TOTAL // 10  # somebody else's
    shared.make_room(tasks[0])
    assert sum(task.resident for task in tasks) == 6


def test_no_more_tasks_give_way_than_must_and_not_always_the_same(shared: Gpu, memory: Memory) -> None:
    gone = set()
    for _ in range(60):
        memory.used = 0
        tasks = [Task(memory, TOTAL // 8) for _ in range(8)]
        for task in tasks:
            shared.join(task)
        shared.make_room(tasks[3])
        left = [n for n, task in enumerate(tasks) if not task.resident]
        assert len(left) == 1 and 3 not in left
        gone.update(left)
        for task in tasks:
            shared.join(None)  # keeps it open for the next round
            shared.leave(task)
    assert len(gone) > 3
    assert not memory.dispersed


def test_workers_go_last(shared: Gpu, memory: Memory) -> None:
    small, other = tenants(shared, memory, 0, TOTAL // 100)
    memory.used += int(0.95 * TOTAL)
    shared.make_room(small)
    assert not other.resident
    assert (memory.trimmed, memory.dispersed) == (1, 1)
