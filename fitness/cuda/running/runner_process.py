"""Runs candidates on the GPU: `python -m fitness.cuda.running.runner_process SOCKET_FD ORDINAL [CONFINING_LIBRARY]`.

A disposable process without torch. It maps memory that the verifier owns, loads one cubin at a time, makes a CUDA graph
of each plan and launches it when asked. It never holds an expected value and gives no verdict; the first error of the
device ends its use. Requests are pickled tuples (method, arguments...), file descriptors beside them; answers are JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fitness.cuda.compile.program import LOCAL_SIZES, OWN_KERNELS, KernelCall, Program, ReadOnlyTable
from fitness.cuda.running.driver import FLUSH_L2_SIZES, CudaError, call
from fitness.cuda.running.launcher import Launcher
from fitness.cuda.running.launching import LaunchArguments, ReadyLaunch, pointer
from fitness.cuda.running.mapping import Mappings
from fitness.cuda.running.serving import begin, serve

HOLD_NS = 50_000_000
"""Longest time for which the stream is held while work is handed in."""
NOTICE_NS = 30_000
"""Time before it goes on at which it tells when that will be."""
SCRIBBLE_THREADS = 1024
LOCAL_REACH = 1024
"""Bytes beyond its own local memory, counted from the first, that a thread may reach before it faults: on an H100 fewer
than that."""
BARRIERS_BYTES = 2 << 20
"""Size of the driver's memory around the barrier words of cooperative launches: a page."""
UNCHANGED = 2**32 - 1
NOT_STICKY = frozenset(
    f"CUDA_ERROR_{name}"
    for name in (
        "INVALID_VALUE", "LAUNCH_OUT_OF_RESOURCES", "OUT_OF_MEMORY", "INVALID_IMAGE", "NOT_FOUND", "NOT_SUPPORTED",
        "COOPERATIVE_LAUNCH_TOO_LARGE", "INVALID_CLUSTER_SIZE", "NO_BINARY_FOR_GPU", "INVALID_SOURCE",
    )
)  # fmt: skip
"""Errors that leave the process usable."""


class _Overdue(Exception):
    """A launch did not end in time."""


@dataclass
class _Slot:
    addresses: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    graph: Any = None
    """Executable; None until there is a plan."""
    cooperative: bool = False
    """Whether any of its launches is, so that its kernels may know where the driver keeps barriers."""


class RunnerProcess(Launcher):
    """One loaded candidate, memory by slots."""

    def __init__(self, ordinal: int) -> None:
        super().__init__(ordinal)
        with contextlib.suppress(CudaError):  # older devices cannot set aside any L2
            call("CtxSetLimit", self.cu.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0)
        self.begin, self.end = (call("EventCreate", 0) for _ in range(2))
        self.flush_bytes = int(FLUSH_L2_SIZES * self.facts.l2_bytes) // 4096 * 4096
        self.flush = int(call("MemAlloc", self.flush_bytes))
        self.sink = int(call("MemAlloc", 4096))
        call("MemsetD8", self.sink, 0, 4096)
        self.host = int(call("MemHostAlloc", 4096, self.cu.CU_MEMHOSTALLOC_DEVICEMAP))
        self.flag, self.holds, self.changed = (ctypes.c_uint32.from_address(self.host + at) for at in (0, 192, 256))
        self.clock, self.stamped = (ctypes.c_uint64.from_address(self.host + at) for at in (64, 128))
        self.host_address = int(call("MemHostGetDevicePointer", self.host, 0))
        self.ticket = 0
        name = self.cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK
        reserved = int(call("DeviceGetAttribute", name, call("DeviceGet", ordinal)))
        self.shared_words = (self.facts.max_shared_bytes + reserved) // 4
        self.local_size = 0
        """The one of LOCAL_SIZES that covers what the candidate has; 0 where it has none."""
        self.blocks_of_locals = 0
        """Number of blocks that came to fill local memory so far."""
        self.barriers = self.barriers_before = 0
        """The page that barriers lie in, and where it is copied to before a call."""
        self.harness: dict[str, Any] = {}
        self.arguments: dict[str, LaunchArguments] = {}
        self.mappings = Mappings(ordinal)
        self.slots: dict[int, _Slot] = {}

    # --- what the verifier asks for -----------------------------------------------------------------------------------

    def setup(self, cubin: bytes) -> dict[str, Any]:
        """Load our own kernels."""
        module = call("ModuleLoadData", cubin)
        for name in OWN_KERNELS:
            self.harness[name] = call("ModuleGetFunction", module, name.encode())
        self.allow_shared(self.harness["scribble"])
        self._scribble(0)
        self._flush()
        self._find_barriers()
        return {}

    def load(self, cubin: bytes, lowered: Mapping[str, str], tables: Sequence[ReadOnlyTable]) -> dict[str, Any]:
        """Load a candidate; `lowered` are its kernels' symbols by name expression."""
        self.load_kernels(cubin, lowered, tables)
        name = self.cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES
        most = max(int(call("FuncGetAttribute", name, function)) for function in self.functions.values())
        self.local_size = (
            next((size for size in LOCAL_SIZES if size >= most + LOCAL_REACH), LOCAL_SIZES[-1]) if most else 0
        )
        return {}

    def unload(self, drop: Sequence[int]) -> dict[str, Any]:
        """Forget the candidate, its slots and some blocks; the other blocks stay mapped for the next one."""
        for slot in self.slots.values():
            if slot.graph is not None:
                call("GraphExecDestroy", slot.graph)
        self.slots.clear()
        self.unload_kernels()
        self.mappings.forget(drop)
        return {}

    def occupancy(self, kernel: str, threads: int, shared_bytes: int) -> dict[str, Any]:
        """The number of blocks of one kernel that a multiprocessor holds at a time."""
        function = self.functions[kernel]
        return {"blocks": int(call("OccupancyMaxActiveBlocksPerMultiprocessor", function, threads, shared_bytes))}

    def bind(
        self,
        fds: Sequence[int],
        slot: int,
        buffers: Sequence[tuple[str, int, int, int]],
        new: Sequence[tuple[int, bool, int, int]],
        drop: Sequence[int],
    ) -> dict[str, Any]:
        """Give a slot its buffers: (name, block, offset, bytes).

        `new` are blocks to map first, (block, readonly, bytes, address to map it at), with `fds` in their order; `drop`
        are to be forgotten.
        """
        old = self.slots.pop(slot, None)
        if old and old.graph is not None:
            call("GraphExecDestroy", old.graph)
        self.mappings.change(fds, new, drop)
        made = _Slot()
        for name, block, offset, size in buffers:
            made.addresses[name] = self.mappings.address(block) + offset
            made.sizes[name] = size
        self.slots[slot] = made
        return {}

    def define(self, slot: int, program: Program) -> dict[str, Any]:
        """Make a graph of what one call does to a slot's buffers."""
        place = self.slots[slot]
        maps = self.tensor_maps(program, place.addresses)
        call("StreamBeginCapture", self.stream, self.cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
        try:
            self.enqueue(program, place.addresses, place.sizes, maps)
        except CudaError:
            with contextlib.suppress(CudaError):
                call("StreamEndCapture", self.stream)
            raise
        graph = call("StreamEndCapture", self.stream)
        try:
            if any(launch.overlap for launch in program.calls):
                _join(graph)
            place.graph = call("GraphInstantiate", graph, 0)
            place.cooperative = any(launch.cooperative for launch in program.calls)
            call("GraphUpload", place.graph, self.stream)
            call("StreamSynchronize", self.stream)
        finally:
            call("GraphDestroy", graph)
        return {}

    def run(self, slot: int, cold: bool, poison: int, timeout_s: float) -> dict[str, Any]:
        """One call: the time between two events, and that from when the stream went on until the kernel had ended.

        Events lie in memory that a kernel might reach. The second time, by the device's clock, does not: it begins with
        what is read here before the candidate runs, and ends with what is written when it has ended. It bounds what the
        first one may hide. Nothing between its two ends waits for the host's memory, which is nearer to some processes
        than to others.
        """
        graph = self.slots[slot].graph
        watched = self.slots[slot].cooperative
        if watched:
            self._around_barriers("copy_words", pointer(self.barriers_before))
        self._scribble(poison * 0x01010101)
        if cold:
            self._flush()
            with contextlib.suppress(CudaError):
                call("CtxResetPersistingL2Cache")
        self._hold()
        # What comes first behind a held stream takes longer to begin; this is not the candidate's to pay.
        self._own("stamp", 1, 1, 0, pointer(self.sink + 512))
        call("EventRecord", self.begin, self.stream)
        call("GraphLaunch", graph, self.stream)
        call("EventRecord", self.end, self.stream)
        self._own("stamp", 1, 1, 0, pointer(self.host_address + 128))
        if watched:
            self.changed.value = UNCHANGED
            before = pointer(self.barriers_before)
            self._around_barriers("find_change", before, last=pointer(self.host_address + 256))
        let_go = self._let_go()
        self._wait(time.monotonic() + timeout_s)
        elapsed_ns = round(1e6 * call("EventElapsedTime", self.begin, self.end))
        # Where the stream was held for too long it had gone on before; where its notice was read late, it is not known.
        seen_ns = self.stamped.value - let_go if let_go else elapsed_ns
        return {"elapsed_ns": elapsed_ns, "seen_ns": seen_ns, "touched": watched and self.changed.value != UNCHANGED}

    # --- parts ----------------------------------------------------------------------------------------------------

    def _wait(self, deadline: float) -> None:
        """Until the stream is idle, without ever blocking in the driver."""
        success, not_ready = self.cu.CUresult.CUDA_SUCCESS, self.cu.CUresult.CUDA_ERROR_NOT_READY
        begin = time.monotonic()
        while True:
            (result,) = self.cu.cuStreamQuery(self.stream)
            if result == success:
                return
            if result != not_ready:
                _, text = self.cu.cuGetErrorString(result)
                raise CudaError("the kernel", result.name, text.decode() if text else "")
            now = time.monotonic()
            if now > deadline:
                raise _Overdue
            if now - begin > 2e-3:
                time.sleep(100e-6)

    def _scribble(self, value: int) -> None:
        """Overwrite shared memory, registers and, where the candidate has any, local memory of the whole device."""
        words, poison = self.shared_words, struct.pack("<I", value)
        self._own("scribble", self.facts.sm_count, SCRIBBLE_THREADS, self.facts.max_shared_bytes, poison, _int(words))
        if self.local_size:
            blocks = 2 * self.facts.sm_count  # as many as there is room for
            self.blocks_of_locals = (self.blocks_of_locals + blocks) % 2**32
            arrived = pointer(self.sink), struct.pack("<I", self.blocks_of_locals)
            self._own(f"scribble_local_{self.local_size}", blocks, SCRIBBLE_THREADS, 0, poison, *arrived)

    def _flush(self) -> None:
        count = struct.pack("<q", self.flush_bytes // 16)
        blocks = 4 * self.facts.sm_count
        self._own("flush_write", blocks, 512, 0, pointer(self.flush), count, struct.pack("<f", self.ticket % 1024))
        self._own("flush_read", blocks, 512, 0, pointer(self.flush), count, pointer(self.sink + 256))

    def _find_barriers(self) -> None:
        """Learn where the driver keeps barriers, which it decides when the first cooperative launch is made."""
        launch = KernelCall("find_barriers", (), (1, 1, 1), (1, 1, 1), (), 0, cooperative=True)
        arguments = [pointer(self.host_address + 320)]
        self.start(self.harness[launch.kernel], ReadyLaunch(self.cu, launch, arguments, self.stream))
        call("StreamSynchronize", self.stream)
        found = ctypes.c_uint64.from_address(self.host + 320).value
        self.barriers = found // BARRIERS_BYTES * BARRIERS_BYTES
        self.barriers_before = int(call("MemAlloc", BARRIERS_BYTES))

    def _around_barriers(self, kernel: str, other: bytes, last: bytes | None = None) -> None:
        """Launch one of our kernels over the page that the driver keeps barriers in."""
        arguments = pointer(self.barriers), other, _int(BARRIERS_BYTES // 4), *(() if last is None else (last,))
        self._own(kernel, self.facts.sm_count, SCRIBBLE_THREADS, 0, *arguments)

    def _hold(self) -> None:
        self.ticket = (self.ticket + 1) % 2**32
        self.clock.value = self.holds.value = 0  # whatever a kernel wrote there
        limits = struct.pack("<I", self.ticket), struct.pack("<Q", HOLD_NS), struct.pack("<Q", NOTICE_NS)
        flag, holds, clock = (pointer(self.host_address + at) for at in (0, 192, 64))
        self._own("hold", 1, 1, 0, flag, holds, *limits, clock)

    def _let_go(self) -> int:
        """It lets the stream go on, and returns the device's time when it does; 0 where that was not told in time.

        The device knows of it after we did it, and waits NOTICE_NS from then: what is read sooner by our own clock was
        written before anything behind it ran.
        """
        deadline_ns = time.monotonic_ns() + 2 * HOLD_NS
        while self.holds.value != self.ticket and time.monotonic_ns() < deadline_ns:
            pass  # the stream is still at what precedes the call
        began_ns = time.monotonic_ns()
        self.flag.value = self.ticket
        while not (told := self.clock.value) and time.monotonic_ns() < deadline_ns:
            pass
        return told if time.monotonic_ns() - began_ns < NOTICE_NS else 0

    def _own(self, name: str, blocks: int, threads: int, shared_bytes: int, *arguments: bytes) -> None:
        """Launch one of our own kernels, six of which go around every call: no more is made anew than must be."""
        if name not in self.arguments:
            self.arguments[name] = LaunchArguments(arguments)
        sizes = blocks, 1, 1, threads, 1, 1, shared_bytes
        call("LaunchKernel", self.harness[name], *sizes, self.stream, self.arguments[name].placed(arguments), 0)


def _join(graph: Any) -> None:
    """Let a graph end only when every one of its nodes has ended.

    A launch that may begin early may end early, too, where it waits for nothing; what follows it alone would then
    follow while the launch ahead of it still runs, and with it the clock.
    """
    _, count = call("GraphGetNodes", graph)
    nodes, _ = call("GraphGetNodes", graph, count)
    call("GraphAddEmptyNode", graph, nodes, count)


def _int(value: int) -> bytes:
    """A kernel's argument."""
    return struct.pack("<i", value)


# --- the process ------------------------------------------------------------------------------------------------------


def main() -> None:
    """Entry point of the process."""
    fd, ordinal, *confine = sys.argv[1:]
    with socket.socket(fileno=int(fd)) as channel:
        importlib.import_module("cuda.bindings.driver")  # loads no driver yet
        begin(channel)
        runner = RunnerProcess(int(ordinal))
        if confine:
            library, readable, writable = confine
            ctypes.CDLL(library).evo_confine(readable.encode(), writable.encode())

        def answered(method: str, arguments: Sequence[Any]) -> dict[str, Any]:
            try:
                found: dict[str, Any] = getattr(runner, method)(*arguments)
            except _Overdue:
                return {"overdue": True}
            except CudaError as error:
                return {"error": error.name, "text": str(error), "sticky": error.name not in NOT_STICKY}
            return found

        serve(channel, answered)


if __name__ == "__main__":
    main()
