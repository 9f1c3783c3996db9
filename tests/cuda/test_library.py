"""The vendor's library on a GPU, as far as no GPU is needed."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from fitness.cuda.running.driver import CudaError
from fitness.cuda.running.runner import NO_MEMORY
from fitness.cuda.session import (
    AHEAD_CYCLES,
    KEPT_BYTES,
    KEPT_SESSIONS,
    MOST_AHEAD_CYCLES,
    QueuedCall,
    RivalCode,
    enough_memory,
)
from fitness.judging.device import KernelFault
from operators.errors import OperatorError
from operators.libraries import call, compiled, own

SHORT = (
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    CudaError("cuMemCreate", "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
    OperatorError("libraries.py:9: torch.softmax() raised OutOfMemoryError: CUDA out of memory. Tried to allocate"),
    OperatorError("libraries.py:9: torch.mm() raised RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED"),
)
OTHERS = (
    CudaError("cuMemMap", "CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    OperatorError("libraries.py:9: attention() raised RuntimeError: No available kernel. Aborting execution."),
)


@pytest.mark.parametrize("error", SHORT, ids=str)
def test_memory_that_a_call_lacks_may_be_the_machines_fault(error: Exception) -> None:
    with pytest.raises(KernelFault, match=NO_MEMORY), enough_memory():
        raise error


@pytest.mark.parametrize("error", OTHERS, ids=str)
def test_other_errors_stay_what_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, enough_memory():
        raise error
    assert caught.value is error


class SlowHost:
    """A device of one cycle a nanosecond, and a host that is slow to queue: what `fitness.cuda.session` uses of CUDA.

    A call takes 5 us of the device, from when both the device and the host have come to it.
    """

    CALL_NS = 5_000

    def __init__(self, host_ns: list[int]) -> None:
        """`host_ns` is what the host takes to queue each call, the last of it for all further ones."""
        self._host_ns = host_ns
        self._host, self._device = 0, 0
        self.waits: list[int] = []

    def _sleep(self, cycles: int) -> None:
        self.waits.append(cycles)
        self._device = max(self._host, self._device) + cycles

    def call(self) -> str:
        self._host += self._host_ns.pop(0) if len(self._host_ns) > 1 else self._host_ns[0]
        self._device = max(self._host, self._device) + self.CALL_NS
        return "answer"

    def Event(self, enable_timing: bool) -> _Event:
        return _Event(self)


class _Event:
    def __init__(self, machine: SlowHost) -> None:
        self._machine = machine

    def record(self) -> None:
        self.at_ns = self._machine._device

    def query(self) -> bool:
        return self._machine._host >= self.at_ns

    def synchronize(self) -> None:
        self._machine._host = max(self._machine._host, self.at_ns)

    def elapsed_time(self, end: _Event) -> float:
        return 1e-6 * (end.at_ns - self.at_ns)


def _timed(machine: SlowHost, launch: QueuedCall) -> int:
    while True:
        answer, elapsed_ns = launch.timed()
        assert answer == "answer"
        if elapsed_ns is not None:
            return elapsed_ns


def test_a_call_that_a_busy_host_queues_late_is_timed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = SlowHost([1_000, 20 * AHEAD_CYCLES, 20 * AHEAD_CYCLES, 20 * AHEAD_CYCLES, 1_000])
    monkeypatch.setattr("fitness.cuda.session._cuda", machine)
    launch = QueuedCall(machine.call, None)
    times = [_timed(machine, launch) for _ in range(5)]
    assert times == [SlowHost.CALL_NS] * 5
    assert max(machine.waits) > 10 * AHEAD_CYCLES
    assert machine.waits[-1] == AHEAD_CYCLES  # the host has time again


def test_a_call_that_waits_for_the_device_itself_is_timed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = SlowHost([2 * MOST_AHEAD_CYCLES])
    monkeypatch.setattr("fitness.cuda.session._cuda", machine)
    launch = QueuedCall(machine.call, None)
    assert _timed(machine, launch) > SlowHost.CALL_NS
    waits = len(machine.waits)
    _timed(machine, launch)
    assert len(machine.waits) == waits + 1  # it is not tried with less again


@pytest.mark.parametrize(
    ("sessions", "held_bytes", "times"), [(3, 0, 0), (3, KEPT_BYTES + 1, 3), (KEPT_SESSIONS + 1, 0, 1)]
)
def test_compiled_code_stays_between_sessions_until_it_is_too_much(
    monkeypatch: pytest.MonkeyPatch, sessions: int, held_bytes: int, times: int
) -> None:
    forgotten: list[bool] = []
    monkeypatch.setattr("fitness.cuda.session.forget_compiled", lambda: forgotten.append(True))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: held_bytes)
    code = RivalCode()
    for _ in range(sessions):
        code.opened(compiled("torch.mm"))
        code.opened(own("torch.mm"))
        code.closed()  # the other one still has memory of its own
        code.closed()
    assert len(forgotten) == times


def test_plans_of_transforms_stay_as_long_as_a_captured_call_may_use_them(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    cache = SimpleNamespace(set_size=lambda size: done.append(f"keeps {size}"), clear=lambda: done.append("clears"))
    for name in ("cupy", "cupy.fft", "cupy.fft.config"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules["cupy.fft.config"], "get_plan_cache", lambda: cache, raising=False)
    code, transform = RivalCode(), call("cupy.fft.fft", lambda x: x)
    for each in (transform, own("torch.fft.fft"), transform):
        code.opened(each)
    code.closed()
    code.closed()
    assert done == ["keeps -1", "keeps -1"], "-1: without a limit"
    code.closed()
    assert done[2:] == ["clears"]
    code.opened(own("torch.fft.fft"))
    code.closed()
    assert len(done) == 3
