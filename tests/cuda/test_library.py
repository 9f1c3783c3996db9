"""The vendor's library on a GPU, as far as no GPU is needed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from socket import socket
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest
import torch

from fitness.cuda.oracle import CudaOracle
from fitness.cuda.running import library_process
from fitness.cuda.running.driver import CudaError
from fitness.cuda.running.library import LibraryRunner
from fitness.cuda.running.library_process import (
    AHEAD_CYCLES,
    KEPT_BYTES,
    KEPT_SESSIONS,
    MOST_AHEAD_CYCLES,
    CallSession,
    LibraryProcess,
    QueuedCall,
    RivalCode,
)
from fitness.cuda.running.memory import NO_MEMORY, MemoryBlock
from fitness.cuda.session import LibrarySession, enough_memory
from fitness.evaluation import Status
from fitness.judging.device import KernelFault, KilledFromOutside, ProcessEnded
from operators.catalog import functions
from operators.errors import MachineError, OperatorError
from operators.libraries import call, compiled, own
from tests.conftest import DATA

OF_VERIFIER = (
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    CudaError("cuMemCreate", "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
)
SHORT = (
    *OF_VERIFIER,
    OperatorError("libraries.py:9: torch.softmax() raised OutOfMemoryError: CUDA out of memory. Tried to allocate"),
    OperatorError("libraries.py:9: torch.mm() raised RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED"),
)
OTHERS = (
    CudaError("cuMemMap", "CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    OperatorError("libraries.py:9: attention() raised RuntimeError: No available kernel. Aborting execution."),
)


@pytest.mark.parametrize("error", OF_VERIFIER, ids=str)
def test_memory_that_a_call_lacks_may_be_the_machines_fault(error: Exception) -> None:
    with pytest.raises(KernelFault, match=NO_MEMORY), enough_memory():
        raise error


@pytest.mark.parametrize("error", OTHERS, ids=str)
def test_other_errors_stay_what_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, enough_memory():
        raise error
    assert caught.value is error


class SlowHost:
    """A device of one cycle a nanosecond, and a host that is slow to queue: what `QueuedCall` uses of CUDA.

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
    monkeypatch.setattr("fitness.cuda.running.library_process._cuda", machine)
    launch = QueuedCall(machine.call, None)
    times = [_timed(machine, launch) for _ in range(5)]
    assert times == [SlowHost.CALL_NS] * 5
    assert max(machine.waits) > 10 * AHEAD_CYCLES
    assert machine.waits[-1] == AHEAD_CYCLES  # the host has time again


def test_a_call_that_waits_for_the_device_itself_is_timed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = SlowHost([2 * MOST_AHEAD_CYCLES])
    monkeypatch.setattr("fitness.cuda.running.library_process._cuda", machine)
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
    monkeypatch.setattr("fitness.cuda.running.library_process.forget_compiled", lambda: forgotten.append(True))
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


# --- the process of the calls -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "works", "fault"),
    [
        *((error, True, "memory") for error in SHORT),
        *((error, True, "own") for error in OTHERS),
        (ValueError("a result of another shape"), True, "own"),
        (MachineError("no files are left"), True, "memory"),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False, "own"),
    ],
    ids=str,
)
def test_an_error_of_a_call_is_an_answer(
    monkeypatch: pytest.MonkeyPatch, error: Exception, works: bool, fault: str
) -> None:
    def synchronize() -> None:
        if not works:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def run(*_: object) -> dict[str, object]:
        raise error

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    process = LibraryProcess.__new__(LibraryProcess)
    monkeypatch.setattr(process, "run", run)
    monkeypatch.setattr(process, "_usable", True, raising=False)
    answer = process.answered("run", (1, 2, False, 0))
    assert (answer["fault"], answer["unusable"]) == (fault, not works) and str(error) in str(answer["reason"])


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> LibraryProcess:
    """One whose device is the host: block 7 has x, block 8 has b, block 9 has y, of four numbers each."""
    blocks = {7: torch.arange(4.0), 8: torch.ones(4), 9: torch.full((4,), torch.nan)}
    here = SimpleNamespace(
        change=lambda *_: None, forget=lambda _: None, address=lambda block: blocks[block].data_ptr()
    )
    of_address = {block.data_ptr(): block for block in blocks.values()}
    host, real = SlowHost([1_000]), torch.device
    monkeypatch.setattr(library_process, "_cuda", host)
    monkeypatch.setattr(library_process, "_C", SimpleNamespace(_cuda_clearCublasWorkspaces=lambda: None))
    monkeypatch.setattr(library_process, "Mappings", lambda _: here)
    monkeypatch.setattr(library_process, "device_facts", lambda _: SimpleNamespace(l2_bytes=100))
    monkeypatch.setattr(library_process, "seen_as_tensor", lambda address, *_: of_address[address].view(torch.uint8))
    monkeypatch.setattr(torch, "device", lambda *_: real("cpu"))
    for name in ("synchronize", "empty_cache", "graph_pool_handle"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    monkeypatch.setattr(CallSession, "_captured", lambda self, call: QueuedCall(call, call))
    made = LibraryProcess(0)
    monkeypatch.setattr(torch, "device", real)
    return made


def test_a_session_calls_the_library_on_the_tensors_that_it_is_handed(process: LibraryProcess) -> None:
    folder, name = str(DATA / "axpb"), functions(DATA / "axpb").libraries("cuda", "fp32")[0].name
    buffers = {"x": (7, 0), "b": (8, 0), "y": (9, 0)}
    for session in (1, 2):
        assert process.answered("open", (session, folder, "fp32", name)) == {}
        assert process.answered("bind", ([], session, 5, {"n": 4}, buffers, [], [])) == {}
    y = process._sessions[1]._slots[5][1]["y"]
    assert y.isnan().all()
    assert process.answered("run", (1, 5, True, 0)) == {"elapsed_ns": 0}
    alpha = functions(DATA / "axpb").operator.scalars[0].value
    assert torch.equal(y, torch.arange(4.0) * alpha + 1)
    assert process.answered("end", (1, [])) == {} and process._flush is not None
    assert "KeyError" in process.answered("run", (1, 5, True, 0))["reason"]
    assert process.answered("run", (2, 5, True, 0)) == {"elapsed_ns": 0}
    assert process.answered("end", (2, [])) == {} and process._flush is None


ANSWERS = """
import json, os, pickle, sys
from socket import socket
from fitness.sandbox.channel import receive_frame, send_frame
channel = socket(fileno=int(sys.argv[1]))
send_frame(channel, b"{}")
receive_frame(channel)
send_frame(channel, b"{}")
while True:
    fds = []
    method, *arguments = pickle.loads(receive_frame(channel, fds=fds))
    answer = {"elapsed_ns": 7}
    if method == "run" and (poison := arguments[3]):
        if poison < 3:
            os.kill(os.getpid(), (9, 11)[poison - 1])
        answer = {"fault": ("memory", "own", "own")[poison - 3], "reason": "so it is", "unusable": poison == 5}
    if method in ("bind", "end"):
        print(method, arguments[-2:] if method == "bind" else arguments[1], len(fds), file=sys.stderr, flush=True)
    send_frame(channel, json.dumps(answer).encode())
"""
KILLED, CRASHES, SHORT_OF_MEMORY, FAULTY, BROKEN = range(1, 6)


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Iterator[LibraryRunner]:
    """One whose process does what `poison` says."""

    def start(command: Sequence[str], theirs: socket, **_: object) -> subprocess.Popen[bytes]:
        with theirs:
            code = [sys.executable, "-c", ANSWERS, str(theirs.fileno())]
            return subprocess.Popen(code, pass_fds=(theirs.fileno(),), stderr=subprocess.PIPE, start_new_session=True)

    monkeypatch.setattr("fitness.cuda.running.process.start_child", start)
    made = LibraryRunner(0, quiet=nullcontext)
    yield made
    made.close()


def block(number: int) -> tuple[MemoryBlock, int]:
    """A block of memory, with standard output in the place of its descriptor."""
    return cast(MemoryBlock, SimpleNamespace(number=number, readonly=True, bytes=100, place=0, descriptor=1)), 0


@pytest.mark.parametrize(
    ("poison", "error", "lives"),
    [
        (KILLED, KilledFromOutside, False),
        (CRASHES, ProcessEnded, False),
        (SHORT_OF_MEMORY, KernelFault, True),
        (FAULTY, OperatorError, True),
        (BROKEN, ProcessEnded, False),
    ],
)
def test_what_a_call_does_to_its_process_is_told(
    runner: LibraryRunner, poison: int, error: type[Exception], lives: bool
) -> None:
    first, second = (runner.open("folder", "fp32", name) for name in ("torch.mm", "torch.add"))
    for session in (first, second):
        runner.bind(session, 1, {"n": 4}, {"x": block(session)})
    assert runner.run(first, 1, cold=True, poison=0) == 7
    with pytest.raises(error):
        runner.run(first, 1, cold=True, poison=poison)
    if lives:
        assert runner.run(second, 1, cold=True, poison=0) == 7
    else:
        assert not runner.alive
        with pytest.raises(KilledFromOutside):  # it is not the other one's fault
            runner.run(second, 1, cold=True, poison=0)
    for session in (first, second):
        runner.end(session)


def test_blocks_are_mapped_as_long_as_a_session_uses_them(runner: LibraryRunner) -> None:
    a, b, c = (block(number) for number in (11, 12, 13))
    first, second = (runner.open("folder", "fp32", name) for name in ("torch.mm", "torch.add"))
    runner.bind(first, 1, {}, {"x": a, "y": b})
    runner.bind(second, 1, {}, {"x": a})
    runner.bind(first, 1, {}, {"x": a, "y": c})
    runner.end(first)
    runner.end(second)
    told = runner.close().splitlines()
    new = [f"({number}, True, 100, 0)" for number in (11, 12, 13)]
    assert told == [
        f"bind [[{new[0]}, {new[1]}], []] 2",
        "bind [[], []] 0",
        f"bind [[{new[2]}], [12]] 1",
        "end [13] 0",
        "end [11] 0",
    ]


def test_a_call_has_so_many_seconds_to_be_prepared_on_all_inputs_of_a_session(
    runner: LibraryRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (runner.open("folder", "fp32", name) for name in ("torch.mm", "torch.add"))
    now = iter((0.0, 600.0, 600.0, 901.0, 901.0, 901.0, 902.0))
    monkeypatch.setattr("fitness.cuda.running.library.time", SimpleNamespace(monotonic=lambda: next(now)))
    runner.bind(first, 1, {}, {})
    runner.bind(first, 2, {}, {})
    with pytest.raises(KernelFault, match="it was not prepared on all inputs within 900 s") as caught:
        runner.bind(first, 3, {}, {})
    assert caught.value.rejection.status is Status.TIMEOUT
    assert runner.run(first, 1, cold=True, poison=0) == 7  # its process goes on
    runner.bind(second, 1, {}, {})


def test_a_process_that_does_not_start_costs_the_library_alone() -> None:
    runner = LibraryRunner(1000, quiet=nullcontext)
    operator = SimpleNamespace(tensors=(), folder=Path("/nonexistent"))
    oracle = SimpleNamespace(operator=operator, dtype="fp32")
    session = LibrarySession(cast(CudaOracle, oracle), runner, own("torch.mm"))
    with pytest.raises(KernelFault, match="a process on the GPU does not start"):
        session._begun()
    session.close()
    assert not runner.alive
