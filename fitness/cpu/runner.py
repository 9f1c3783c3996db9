"""The verifier's handle on a process that runs kernels: `runner.cpp`, or `library.py` for the vendor's call."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from fitness.cpu.build import LIBRARIES, CpuBuild
from fitness.cpu.image import Image
from fitness.evaluation import Status
from fitness.judging.device import KernelFault, KilledFromOutside, Sample
from fitness.judging.signature import packed
from fitness.sandbox.channel import receive, send
from fitness.sandbox.disk import KILLED
from fitness.sandbox.memory import Region
from fitness.sandbox.native import built
from fitness.sandbox.processes import GIB, ended, kill_group, start_child
from operators.definition.spec import Operator
from operators.plan.reading import ResolvedPlan

LOAD, BIND, PLAN, RUN, MAP = 1, 2, 3, 4, 5
OK, ERROR, SIGNAL, TIMEOUT, EXIT, FORGED, CLOCK_SET = range(7)
MEMORY_BYTES = 16 * GIB
"""Address space, guard ranges and shared buffers included."""
CPU_LIMIT_S = 600
COMPILED_BYTES = 1 << 30
"""Largest file that a library's call may write: torch.compile keeps what it makes."""
COMPILE_S = 120.0
"""Limit of time of a library's call to be prepared and compiled for one set of inputs."""
PATIENCE = 4
"""Multiple of its limit that a call may take which was not given that much time to compute, as in runner.cpp."""
GRACE_S = 5.0
"""Time beyond that which the runner may take to say that a call did not finish."""
STACK_BYTES = 8 << 20
STACK_POISONED, STACK_POISONED_DEEP = 64 << 10, 7 << 20
POISON_BYTES = 1 << 20
"""Size of the pattern that deep stacks are filled with copies of."""
SECRET_BYTES = 8
LEFT = {
    1: "settings of OpenMP, such as the number of threads",
    2: "the mode of the floating-point unit, such as its rounding or what becomes of subnormal numbers",
}
"""By the bits of runner.cpp's answer, what a kernel may leave changed behind it."""
RUNNER_FLAGS = (
    "-fopenmp", "-pie", "-fPIE", "-Wl,-z,relro,-z,now", "-Wl,-z,noexecstack", "-Wl,--no-as-needed", *LIBRARIES,
)  # fmt: skip
"""Flags that keep the addresses of the C library's functions out of a kernel's reach, and with all libraries that one
may call."""
FAULTS = {
    signal.SIGSEGV: "segmentation fault",
    signal.SIGBUS: "bus error",
    signal.SIGFPE: "division by zero or another arithmetic fault",
    signal.SIGILL: "illegal instruction",
    signal.SIGABRT: "abort",
    signal.SIGXCPU: "CPU time limit",
    signal.SIGSYS: "forbidden system call",
}


class _Overdue(Exception):
    """The child was killed at its deadline."""


class CpuRunner:
    """One process that holds one kernel and forks a child for each call. Not thread-safe.

    A KernelFault of `run` is the child's, and the next call may follow; after one of anything else only `close` may.
    """

    def __init__(
        self, command: Sequence[str] | None = None, *, threads: int, environment: dict[str, str] | None = None
    ):
        ours, theirs = socket.socketpair()
        self._socket = ours
        self._addresses: dict[int, dict[str, tuple[int, int]]] = {}
        self._poison: Region | None = None
        self._seal: Region | None = None
        self._only_ours = command is None
        """Whether nothing runs in the process itself but `runner.cpp`: then what befalls it is no kernel's doing."""
        program = list(command or (str(built("cpu/runner.cpp", *RUNNER_FLAGS)),))
        env = {
            "PATH": "/usr/bin:/bin",
            "LC_ALL": "C",
            "OMP_NUM_THREADS": str(threads),
            "OMP_DYNAMIC": "false",
            "OMP_STACKSIZE": f"{STACK_BYTES}B",
            "OMP_THREAD_LIMIT": str(4 * threads),
            # Threads that spin long after a parallel region would disturb the kernel that is timed next.
            "GOMP_SPINCOUNT": "20000",
            # Nothing throws a thread out of the instructions by which it ends a call.
            "GLIBC_TUNABLES": "glibc.pthread.rseq=0",
        } | (environment or {})
        self._process = start_child(
            [*program, str(theirs.fileno())],
            theirs,
            environment=env,
            cpu_s=CPU_LIMIT_S,
            memory_bytes=MEMORY_BYTES,
            file_bytes=4096 if self._only_ours else COMPILED_BYTES,
            alone=True,
        )

    def __enter__(self) -> CpuRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The jail's process, below which are the program and its calls."""
        return self._process.pid

    def close(self) -> None:
        """End the process and everything it started."""
        self._socket.close()
        kill_group(self._process, alone=True)

    def map(self, image: Image, library: Path) -> None:
        """Have a candidate's shared object mapped, which is `library`, without running anything of it."""
        with library.open("rb") as stream:
            self._send(MAP, image.words(), fds=[stream.fileno()])
            self._receive(1, 20.0, "while it was mapped")

    def load(self, description: str, *, timeout_s: float = 20.0) -> None:
        """Have `library.py` prepare the vendor's call."""
        text = description.encode()
        self._send(LOAD, [len(text), *struct.unpack(f"<{-(-len(text) // 8)}q", text + bytes(-len(text) % 8))])
        self._receive(1, timeout_s, "while it was loaded")

    def bind(self, slot: int, inputs: Region, work: Region) -> tuple[str, ...]:
        """Map both regions, inputs read-only, as `slot`; returns the order in which plans number the buffers."""
        entries = [(0, name, extent) for name, extent in inputs.extents.items()]
        entries += [(1, name, extent) for name, extent in work.extents.items()]
        words = [slot, len(entries)]
        for writable, _, extent in entries:
            words += [writable, extent.offset, extent.map_bytes, extent.data_offset]
        self._send(BIND, words, fds=[inputs.fd, work.fd])
        limit_s = 20.0 if self._only_ours else COMPILE_S
        addresses = self._receive(len(entries), limit_s, "while its buffers were mapped")
        self._addresses[slot] = {
            name: (address, extent.bytes) for (_, name, extent), address in zip(entries, addresses, strict=True)
        }
        return tuple(name for _, name, _ in entries)

    def define(self, plan_id: int, words: Sequence[int]) -> None:
        """Give a plan, as `plan_words` makes it, a number."""
        self._send(PLAN, [plan_id, *words])
        self._receive(0, 20.0, "while its plan was set up")

    def run(
        self,
        plan_id: int,
        slot: int,
        *,
        timeout_s: float,
        poison: int = 0,
        deep: bool = False,
        sealed: bool = False,
        team: int = 0,
        looks: bool = False,
    ) -> Sample:
        """Run a plan once, on stacks full of the byte `poison`, at their upper end or (`deep`) nearly all of them.

        Where `team` is not 0, OpenMP has so many threads in place of one on each core. Where it `looks`, the kernel is
        to leave its process as it was: a program that calls it goes on in the same one. In a `sealed` call nothing that
        the kernel left to another thread is written any more once it says that it is done; such a call takes longer. It
        raises KernelFault: timeout, a fault (with the buffer it was near), or stamps that contradict our clock;
        KilledFromOutside where the machine's time was set meanwhile, which stamps are in, or what ran it was ended.
        """
        begin = time.monotonic_ns()
        words = [plan_id, slot, poison, STACK_POISONED, int(1e3 * timeout_s), STACK_POISONED_DEEP if deep else 0]
        words += [team, looks]
        with ExitStack() as pipe:
            secret = secrets.token_bytes(SECRET_BYTES)
            order = self._sealing(secret) if sealed else _telling(secret, pipe)
            self._send(RUN, words, fds=[order, self._full_of(poison).fd] if deep else [order])
            try:
                elapsed, outside, told, left = self._receive(4, PATIENCE * timeout_s + GRACE_S, "while it ran")
            except _Overdue:
                message = f"it did not finish within {timeout_s:.2f} s while it ran"
                raise KernelFault(Status.TIMEOUT, message) from None
        bracket = time.monotonic_ns() - begin
        if not 0 <= elapsed + outside <= bracket:
            raise KernelFault(Status.QUARANTINED, f"its clock reads {elapsed} ns within {bracket} ns of ours")
        if told != int.from_bytes(secret, sys.byteorder, signed=True):
            raise KernelFault(Status.QUARANTINED, "it said that it was done from a place where only the runner may")
        if changed := [words for bit, words in LEFT.items() if left & bit]:
            told_of = f"it leaves {' and '.join(changed)} changed for the program that calls it; put back what it sets"
            raise KernelFault(Status.RUNTIME_ERROR, told_of)
        return Sample(elapsed, outside)

    def _sealing(self, secret: bytes) -> int:
        """An order to give up all buffers, which is obeyed by mapping it over them; a reader stands at its end."""
        if self._seal is None:
            self._seal = Region({"secret": SECRET_BYTES}, at_end=False, readonly_for_others=True)
            os.lseek(self._seal.fd, 0, os.SEEK_END)
        self._seal.view("secret")[:] = secret
        return self._seal.fd

    def _full_of(self, poison: int) -> Region:
        """The region whose pages deep stacks are laid out with: read only to the process and whatever it starts."""
        if self._poison is None:
            self._poison = Region({"stack": POISON_BYTES}, at_end=False, readonly_for_others=True)
        self._poison.fill(poison)
        return self._poison

    def _send(self, what: int, words: Sequence[int], fds: Sequence[int] = ()) -> None:
        message = struct.pack(f"<{len(words) + 2}q", what, len(words), *words)
        try:
            send(self._socket, message, fds)
        except OSError:
            raise self._death("before it could be asked") from None

    def _receive(self, expected: int, timeout_s: float, when: str) -> list[int]:
        """The words of an answer, as many as expected; the kernel shares the process and may write what it likes."""
        deadline = time.monotonic() + timeout_s
        what, count = struct.unpack("<2q", self._read(16, deadline, timeout_s, when))
        if not 0 <= count <= 1 << 16:
            raise KernelFault(Status.RUNTIME_ERROR, f"the runner's answer was overwritten {when}")
        data = self._read(8 * count, deadline, timeout_s, when)
        words = list(struct.unpack(f"<{count}q", data))
        if what == SIGNAL and count == 2 and -words[0] in KILLED:
            raise KilledFromOutside(f"a call was ended by signal {words[0]} {when}")
        if what == SIGNAL and count == 2:
            raise KernelFault(Status.RUNTIME_ERROR, self._fault(words[0], words[1] % 2**64))
        if what == TIMEOUT:
            raise _Overdue
        if what == EXIT and count == 1:
            raise KernelFault(Status.RUNTIME_ERROR, f"it ended its process with code {words[0]} {when}")
        if what == FORGED:
            raise KernelFault(Status.QUARANTINED, f"its process said what no kernel has to say {when}")
        if what == CLOCK_SET:
            raise KilledFromOutside(f"the machine's time was set {when}")
        if what == ERROR and count >= 1:
            text = data[8 : 8 + words[0]].decode("utf-8", "replace")
            raise self._failed(f"{when}: {text}")
        if what != OK or count != expected:
            raise KernelFault(Status.RUNTIME_ERROR, f"the runner's answer was overwritten {when}")
        return words

    def _read(self, count: int, deadline: float, timeout_s: float, when: str) -> bytes:
        try:
            return receive(self._socket, count, deadline)
        except TimeoutError:
            raise KernelFault(Status.TIMEOUT, f"it did not finish within {timeout_s:.2f} s {when}") from None
        except EOFError:
            raise self._death(when) from None

    def _death(self, when: str) -> KernelFault | KilledFromOutside:
        if not ended(self._process, 2.0):
            return self._failed(f"its process closed the channel {when}")
        kill_group(self._process)  # what it started, too: its number is another's once it is reaped
        code = self._process.returncode
        if code in KILLED:
            return KilledFromOutside(f"its process was ended by signal {-code} {when}")
        if code < 0:
            reason = FAULTS.get(signal.Signals(-code), f"signal {-code}")
        else:
            reason = f"it ended its process with code {code}"
        return self._failed(f"{reason} {when}")

    def _failed(self, said: str) -> KernelFault | KilledFromOutside:
        """The process that calls are forked from has ended, or cannot do what it is asked."""
        return KilledFromOutside(said) if self._only_ours else KernelFault(Status.RUNTIME_ERROR, said)

    def _fault(self, number: int, address: int) -> str:
        """In words; `address` is the number of the call for SIGSYS, and 0 where no process was left to tell it."""
        text = FAULTS.get(signal.Signals(number), f"signal {number}")
        if number == signal.SIGSYS:
            return f"{text} {address}: a kernel computes on memory and threads, it reaches no files and no processes"
        if number not in (signal.SIGSEGV, signal.SIGBUS):
            return text
        if address == 0:
            return f"{text} at address 0, or beyond the end of a stack of {STACK_BYTES >> 20} MiB"
        nearest, distance = "", 1 << 22
        for buffers in self._addresses.values():
            for name, (begin, size) in buffers.items():
                if begin <= address < begin + size:
                    return f"{text}: it wrote to `{name}`, which is an input, or went on after its end"
                if address >= begin + size and address - begin - size < distance:
                    distance = address - begin - size
                    nearest = f": access {distance} bytes past the end of `{name}`"
                if address < begin and begin - address < distance:
                    distance = begin - address
                    nearest = f": access {distance} bytes before the beginning of `{name}`"
        return text + (
            nearest or f" at address {address:#x}, which belongs to no buffer; a stack has {STACK_BYTES >> 20} MiB"
        )


def _telling(secret: bytes, pipe: ExitStack) -> int:
    """An order that is obeyed by reading it from a pipe, which stays open, so that a second reader waits."""
    ours, theirs = os.pipe()
    pipe.callback(os.close, ours)
    pipe.callback(os.close, theirs)
    os.write(theirs, secret)
    return ours


def plan_words(
    plan: ResolvedPlan, build: CpuBuild, operator: Operator, order: Sequence[str], work: Region
) -> list[int]:
    """A resolved plan as the runner reads it; `order` numbers the buffers. Arguments must have been checked."""
    index = {name: number for number, name in enumerate(order)}
    words = [len(plan.zero)]
    for name in plan.zero:
        words += [index[name], work.extents[name].bytes]
    words.append(len(plan.steps))
    for step in plan.steps:
        words += [build.launches.index(step.kernel), len(step.args)]
        for argument, param in zip(step.args, build.params[step.kernel], strict=True):
            if argument.kind in ("tensor", "buffer"):
                words += [1, index[argument.name]]
            else:
                data = packed(argument, param, operator).ljust(8, b"\0")
                words += [0, int.from_bytes(data, "little", signed=True)]
    return words
