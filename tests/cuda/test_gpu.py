"""Parts of a GPU that tasks of one process share, and which of them gives its memory back when little is left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from fitness.cuda import gpu
from fitness.cuda.gpu import Gpu, shared_gpu
from fitness.cuda.running.driver import CudaError
from fitness.cuda.running.memory import NO_MEMORY
from fitness.cuda.target import CudaFitness
from fitness.evaluation import Evaluation, Level, Status
from fitness.judging.base import Anchor
from fitness.judging.pipeline import Pipeline
from fitness.sandbox.room import Footprint
from operators.errors import DeviceError, OperatorError
from operators.kernel import Kernel
from tests.cuda.test_target import H100

TOTAL = 80 << 30


class Task:
    """Holds so many bytes while it is resident."""

    def __init__(self, memory: Memory, size: int) -> None:
        self._memory, self._size = memory, size
        self.resident = True
        self.footprint = Footprint(held_bytes=size, working_bytes=TOTAL // 20)
        memory.used += size

    def draw(self) -> None:
        """Draws its inputs as its first verdict does."""
        self.resident = True
        self._memory.used += self._size

    def forget(self) -> None:
        assert self.resident
        self.resident = False
        self._memory.leaving += self._size


class Memory:
    """Memory of the device. What a task gives back is there again once its processes are gone."""

    def __init__(self) -> None:
        self.used = self.leaving = 0
        self.trimmed = self.dispersed = 0

    def info(self, ordinal: int) -> tuple[int, int]:
        assert ordinal == H100.ordinal
        return TOTAL - self.used, TOTAL

    def trim(self) -> None:
        self.trimmed += 1

    def disperse(self) -> None:
        self.dispersed += 1

    def settle(self) -> None:
        self.used, self.leaving = self.used - self.leaving, 0


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
    monkeypatch.setattr(made.runners, "disperse", memory.disperse)
    monkeypatch.setattr(made.runners, "settle", memory.settle)
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


def had_turns(shared: Gpu, memory: Memory, *sizes: int) -> list[Any]:
    """Tasks that each had a verdict, in their order, while there was room for all of them."""
    made = tenants(shared, memory, *sizes)
    used, memory.used = memory.used, 0
    for task in made:
        shared.make_room(task)
    memory.used = used
    return made


def test_nobody_gives_way_while_there_is_room(shared: Gpu, memory: Memory) -> None:
    tasks = had_turns(shared, memory, *[TOTAL // 10] * 8)
    shared.make_room(tasks[0])
    assert all(task.resident for task in tasks)
    assert not memory.trimmed


def test_who_holds_its_inputs_needs_less_room_than_who_will_draw_them(shared: Gpu, memory: Memory) -> None:
    tasks = had_turns(shared, memory, *[TOTAL // 10] * 8)
    shared.make_room(tasks[0])
    assert all(task.resident for task in tasks)
    tasks[0].forget()
    memory.leaving = 0  # and another process takes it
    shared.make_room(tasks[0])
    assert sum(task.resident for task in tasks) == 6


def test_room_is_made_for_what_a_task_takes_before_it_draws(shared: Gpu, memory: Memory) -> None:
    tasks = had_turns(shared, memory, *[TOTAL // 10] * 8)
    large = Task(memory, 0)
    large.resident, large.footprint = False, Footprint(held_bytes=TOTAL // 2, working_bytes=TOTAL // 20)
    shared.join(large)
    shared.make_room(large)
    assert sum(task.resident for task in tasks) == 3


def test_the_task_whose_turn_ended_last_gives_way_but_for_the_very_last(shared: Gpu, memory: Memory) -> None:
    tasks = had_turns(shared, memory, *[TOTAL // 9] * 8)
    tasks[0].forget()
    memory.settle()
    memory.used += TOTAL // 9
    shared.make_room(tasks[0])
    assert [n for n, task in enumerate(tasks) if not task.resident] == [0, 6]
    assert not memory.dispersed


def test_tasks_that_take_turns_draw_their_inputs_less_often_than_turns_come(shared: Gpu, memory: Memory) -> None:
    tasks = [Task(memory, TOTAL // 10) for _ in range(12)]
    for task in tasks:
        shared.join(task)
        task.forget()
    memory.settle()
    drawn = 0
    for turn in range(120):
        task = tasks[turn % len(tasks)]
        shared.make_room(task)
        if not task.resident:
            drawn += turn >= len(tasks)
            task.draw()
        assert memory.used <= TOTAL
    assert drawn <= 108 / 2  # whose turn was longest ago giving way: every time


class LibraryProcess:
    """A process for vendors' calls that starts or does not; what `Gpu` uses of a `LibraryRunner`."""

    def __init__(self, *, failed: bool) -> None:
        self.failed = failed
        self.alive = not failed

    def close(self) -> None:
        self.alive = False


def test_a_process_for_vendors_calls_that_never_starts_is_not_started_for_every_call(
    shared: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[LibraryProcess] = []

    def start(ordinal: int, quiet: object) -> LibraryProcess:
        begun.append(LibraryProcess(failed=len(begun) in (0, 2, 5, 6)))
        return begun[-1]

    monkeypatch.setattr(gpu, "LibraryRunner", start)
    monkeypatch.setattr(shared, "quiet", nullcontext)
    assert shared.library() is begun[0]
    assert shared.library() is shared.library() is begun[1]  # once may be the machine's fault
    begun[1].close()  # it served, and died
    assert shared.library() is begun[2]
    assert shared.library() is shared.library() is begun[3]
    shared.end_library()  # it served, and its memory was wanted
    assert shared.library() is shared.library() is begun[4]
    shared.end_library()
    assert shared.library() is begun[5]
    assert [shared.library() for _ in range(5)] == [begun[6]] * 5
    shared.end_library()  # there may be more memory now
    assert shared.library() is shared.library() is begun[7]


def test_runners_go_last(shared: Gpu, memory: Memory) -> None:
    other, small = had_turns(shared, memory, TOTAL // 100, 0)
    memory.used += int(0.95 * TOTAL)
    shared.make_room(small)
    assert not other.resident
    assert memory.dispersed == 1 and memory.trimmed
    shared.make_room(small)
    assert memory.dispersed == 1  # no other task is left


def test_who_lacks_memory_is_given_what_others_hold(shared: Gpu, memory: Memory) -> None:
    mine, *others = had_turns(shared, memory, 1, 2, 3)
    assert shared.relieve(mine)
    assert mine.resident and not any(other.resident for other in others)
    assert memory.used == 1 and memory.trimmed and memory.dispersed
    assert not shared.relieve(mine)


class Neighbours:
    """A GPU with so many other tasks that hold memory."""

    def __init__(self, others: int) -> None:
        self.others = others

    def make_room(self, tenant: object) -> None:
        pass

    def relieve(self, tenant: object) -> bool:
        had, self.others = self.others > 0, 0
        return had

    def end_library(self) -> None:
        pass


LACKS: dict[str, Exception] = {
    "the verifier": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    "a block": CudaError("cuMemCreate", "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
    "a new runner": DeviceError("a process on the GPU does not start: cuDevicePrimaryCtxRetain: out of memory"),
    "the naive kernel": OperatorError(f"naive.cu: the naive kernel fails: {NO_MEMORY} for it"),
}
KERNEL = Kernel("softmax", "cuda", "")
LACKING = Evaluation(KERNEL.id, "t", Level.SCREEN, Status.RUNTIME_ERROR, f"{NO_MEMORY} for it")
WRONG = Evaluation(KERNEL.id, "t", Level.SCREEN, Status.WRONG, "y[0] is 1")


class Spare:
    """A bench with so many sets of inputs to spare, and the oracle of its task."""

    def __init__(self, sets: int) -> None:
        self.sets = sets
        self.forgotten = 0

    def thin(self) -> bool:
        had, self.sets = self.sets > 0, max(self.sets - 1, 0)
        return had

    def forget(self) -> None:
        self.forgotten += 1


def judged(
    monkeypatch: pytest.MonkeyPatch, outcomes: list[Exception | Evaluation], others: int, spare: int = 0
) -> Evaluation:
    """The verdict of a task that meets these, one after the other."""

    def screen(*_: object, **__: object) -> Evaluation:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(Pipeline, "screen", screen)
    task: Any = CudaFitness.__new__(CudaFitness)
    task._gpu = Neighbours(others)
    task.bench = task._judging = Spare(spare)
    verdict = task.screen(KERNEL, Anchor(KERNEL, 0.0, 0.0), race=True)
    assert not outcomes
    return cast(Evaluation, verdict)


@pytest.mark.parametrize("lack", LACKS)
def test_a_verdict_that_memory_was_short_for_is_given_again_with_all_of_it(
    lack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert judged(monkeypatch, [LACKS[lack], WRONG], others=2) is WRONG
    with pytest.raises((DeviceError, OperatorError)):
        judged(monkeypatch, [LACKS[lack]], others=0)
    with pytest.raises((DeviceError, OperatorError)):
        judged(monkeypatch, [LACKS[lack], LACKS[lack]], others=2)


def test_a_kernel_is_only_blamed_for_lack_of_memory_when_others_hold_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(monkeypatch, [LACKING, WRONG], others=1) is WRONG
    assert judged(monkeypatch, [LACKING, LACKING], others=1) is LACKING
    assert judged(monkeypatch, [LACKING], others=0) is LACKING
    assert judged(monkeypatch, [WRONG], others=1) is WRONG


@pytest.mark.parametrize("others", [0, 2])
def test_a_task_that_is_alone_and_short_of_memory_keeps_fewer_sets(
    others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    short: list[Exception | Evaluation] = [*LACKS.values()]
    tries = (others > 0) + 2
    assert judged(monkeypatch, [*short[:tries], WRONG], others=others, spare=2) is WRONG
    assert judged(monkeypatch, [LACKING] * (tries + 1), others=others, spare=2) is LACKING
    with pytest.raises((DeviceError, OperatorError)):
        judged(monkeypatch, short[: tries + 1], others=others, spare=2)


def test_other_errors_are_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match="ILLEGAL"):
        judged(monkeypatch, [CudaError("cuCtxSynchronize", "CUDA_ERROR_ILLEGAL_ADDRESS", "illegal")], others=2)


def test_a_gpu_that_fails_while_others_give_memory_back_is_a_device_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def relieve(*_: object) -> bool:
        raise CudaError("cuMemUnmap", "CUDA_ERROR_ILLEGAL_ADDRESS", "illegal")

    monkeypatch.setattr(Neighbours, "relieve", relieve)
    with pytest.raises(DeviceError, match="ILLEGAL"):
        judged(monkeypatch, [LACKING], others=2)
