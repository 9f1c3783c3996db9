"""Runner processes come and go beside the clock, never under it, and no job waits for one that could have begun."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from socket import socket
from typing import Any, cast

import pytest

from fitness.cuda.gpu import SERVES, SPARES, Runners
from fitness.cuda.running import process as running
from fitness.cuda.running.runner import CudaRunner
from fitness.evaluation import Status
from fitness.judging.device import KernelFault
from fitness.sandbox.lock import FairLock
from operators.errors import DeviceError


class Fake:
    """A runner's life, written down."""

    def __init__(self) -> None:
        self.begun = self.closed = False
        self.alive = True
        self.served = 0
        self.broken = False
        self.dying = False
        """Killed, and not yet seen to be dead."""

    def begin(self) -> None:
        self.begun = True

    def ready(self) -> None:
        assert self.begun
        if self.dying:
            raise DeviceError("it ended")

    def unload(self) -> None:
        if self.broken:
            raise KernelFault(Status.RUNTIME_ERROR, "it does not answer")

    def close(self) -> str:
        self.closed = True
        return ""


class Machine:
    """Lends itself to one at a time."""

    def __init__(self) -> None:
        self.made: list[Fake] = []
        self._lock = threading.Lock()
        self.runners = Runners(self._start, self.quiet)

    def _start(self) -> CudaRunner:
        self.made.append(Fake())
        return cast(CudaRunner, self.made[-1])

    @contextmanager
    def quiet(self) -> Iterator[None]:
        with self._lock:
            yield


def test_fresh_ones_that_are_expected_begin_before_they_are_hired() -> None:
    machine = Machine()
    first: Any = machine.runners.hire(fresh=True)
    machine.runners.expect(4)
    expected = [made for made in machine.made if made is not first]
    assert len(expected) == 4 and all(made.begun for made in expected)
    assert [machine.runners.hire(fresh=True) for _ in range(4)] == expected


def test_spares_wait_until_nothing_is_timed() -> None:
    machine = Machine()
    first: Any = machine.runners.hire()
    spares = machine.made[1:]
    assert first.begun and len(spares) == SPARES
    assert not any(spare.begun for spare in spares)
    machine.runners.refresh()
    assert all(spare.begun for spare in spares)
    assert machine.runners.hire() is spares[0]
    assert [runner.begun for runner in machine.made[1:]] == [True] * SPARES + [False]


def test_who_ran_a_sound_kernel_serves_again_but_never_two_times_in_a_row() -> None:
    machine = Machine()
    first: Any = machine.runners.hire()
    machine.runners.release(first)
    second: Any = machine.runners.hire()
    assert second is not first
    machine.runners.release(second)
    assert machine.runners.hire(fresh=True) not in (first, second)
    for runner in (first, second, first):
        assert machine.runners.hire() is runner
        machine.runners.release(runner)


def test_who_is_worn_out_broken_or_dead_serves_nobody() -> None:
    machine = Machine()
    worn, broken, dead = (cast(Any, machine.runners.hire()) for _ in range(3))
    worn.served, broken.broken = SERVES, True
    for runner in (worn, broken, dead):
        machine.runners.release(runner)
    dead.alive = False
    assert machine.runners.hire() not in (worn, broken, dead)
    machine.runners.close()
    assert all(fake.closed for fake in (worn, broken, dead))


def test_who_is_dismissed_leaves_when_nothing_is_timed() -> None:
    machine = Machine()
    runner: Any = machine.runners.hire()
    with machine.quiet():
        machine.runners.dismiss(runner)
        assert not runner.closed
    machine.runners.settle()
    assert runner.closed
    machine.runners.close()
    assert all(fake.closed for fake in machine.made)


def test_a_spare_that_somebody_killed_is_handed_to_nobody() -> None:
    machine = Machine()
    machine.runners.hire()
    machine.made[1].alive = False
    assert machine.runners.hire() is machine.made[2]
    assert machine.made[1].closed


def test_who_waits_leaves_when_memory_is_wanted() -> None:
    machine = Machine()
    idle: Any = machine.runners.hire()
    machine.runners.release(idle)
    machine.runners.disperse()
    machine.runners.close()
    assert all(fake.closed for fake in machine.made)


def test_spares_that_die_when_they_are_needed_are_replaced_until_the_machine_has_shown_that_none_starts() -> None:
    machine = Machine()
    machine.runners.hire()
    for spare in machine.made[1:]:
        spare.dying = True
    assert machine.runners.hire() is machine.made[1 + SPARES]
    made = machine._start
    machine.runners._start = lambda: _dying(made())
    with pytest.raises(DeviceError):
        for _ in range(2):  # the last spares that live
            machine.runners.hire()
        machine.runners.hire()


def _dying(runner: CudaRunner) -> CudaRunner:
    cast(Any, runner).dying = True
    return runner


STARTS = """
import sys
from socket import socket
from fitness.sandbox.channel import receive_frame, send_frame
channel = socket(fileno=int(sys.argv[1]))
while True:
    send_frame(channel, b"{}")
    receive_frame(channel)
"""


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FairLock:
    """A machine's lock, where runners start without a GPU."""

    def start(command: Sequence[str], theirs: socket, **_: Any) -> subprocess.Popen[bytes]:
        with theirs:
            code = [sys.executable, "-c", STARTS, str(theirs.fileno())]
            return subprocess.Popen(code, pass_fds=(theirs.fileno(),), stderr=subprocess.PIPE, start_new_session=True)

    monkeypatch.setattr(running, "start_child", start)
    return FairLock(tmp_path, "machine")


def test_who_has_the_machine_alone_never_waits_for_a_runner_that_waits_for_the_machine(lock: FairLock) -> None:
    with lock.alone():
        spare = CudaRunner(0, b"", quiet=lock.shared)
        spare.begin()
        asker = CudaRunner(0, b"", quiet=lock.shared)
        asker.ready()  # this thread lends the machine
    spare.ready()
    assert spare.alive and asker.alive
    for runner in (spare, asker):
        runner.close()
        assert not runner.alive


def test_a_runner_makes_no_context_while_another_thread_has_the_machine_alone(lock: FairLock) -> None:
    with ThreadPoolExecutor(1) as others:
        with lock.alone():
            runner = CudaRunner(0, b"", quiet=lock.shared)
            waits = others.submit(runner.ready)
            with pytest.raises(TimeoutError):
                waits.result(1.0)
        waits.result(60.0)
    runner.close()


def test_a_runner_that_waits_for_the_machine_is_ended_by_who_has_it(lock: FairLock) -> None:
    with lock.alone():
        runner = CudaRunner(0, b"", quiet=lock.shared)
        runner.begin()
        runner.close()
        assert not runner.alive
