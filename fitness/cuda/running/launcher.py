"""Launches a plan's kernels, for the processes that run candidates. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from fitness.cuda.compile.program import KernelCall, Program, ReadOnlyTable
from fitness.cuda.running import launching
from fitness.cuda.running.driver import CudaError, allocation, call, device_facts, driver, granularity
from fitness.cuda.running.launching import Launches, ReadyLaunch, pointer


class Launcher:
    """One CUDA context with one stream, and the kernels of one candidate. Every method raises CudaError."""

    def __init__(self, ordinal: int) -> None:
        self.cu = driver()
        self.facts = device_facts(ordinal)
        call("CtxSetCurrent", call("DevicePrimaryCtxRetain", call("DeviceGet", ordinal)))
        self.stream = call("StreamCreate", self.cu.CUstream_flags.CU_STREAM_NON_BLOCKING)
        self.functions: dict[str, Any] = {}
        self._module: Any = None
        self._readonly: list[ReadonlyMemory] = []
        """Memory that holds the candidate's tables and descriptors."""

    def load_kernels(self, cubin: bytes, lowered: Mapping[str, str], tables: Sequence[ReadOnlyTable]) -> None:
        """`lowered` are the kernels' symbols by name expression."""
        if tables:
            image = bytearray(cubin)
            for table, address in zip(tables, self.readonly([table.data for table in tables]), strict=True):
                image[table.offset : table.offset + 8] = pointer(address)
            cubin = bytes(image)
        self._module = call("ModuleLoadData", cubin)
        for name, symbol in lowered.items():
            self.functions[name] = call("ModuleGetFunction", self._module, symbol.encode())
            self.allow_shared(self.functions[name])

    def unload_kernels(self) -> None:
        """Forget the candidate."""
        self.functions.clear()
        if self._module is not None:
            call("ModuleUnload", self._module)
        self._module = None
        while self._readonly:
            self._readonly.pop().free()

    def readonly(self, parts: Sequence[bytes]) -> list[int]:
        """Addresses of copies of `parts` that kernels can only read, until the candidate is forgotten.

        Nothing of the candidate may run meanwhile.
        """
        wanted = sum(map(_placed_bytes, parts))
        if not self._readonly or self._readonly[-1].left_bytes < wanted:
            self._readonly.append(ReadonlyMemory(self.facts.ordinal, wanted))
        return self._readonly[-1].add(parts)

    def tensor_maps(self, program: Program, addresses: Mapping[str, int]) -> dict[str, int]:
        """Addresses of the descriptors of a program's tensor maps, on buffers at these addresses.

        No two calls share a descriptor, and none is ever overwritten: the device may keep a copy of what it has read.
        """
        if not program.maps:
            return {}
        made = [launching.tensor_map(self.cu, call, each, addresses[each.tensor]) for each in program.maps]
        return dict(zip((each.name for each in program.maps), self.readonly(made), strict=True))

    def enqueue(
        self, program: Program, addresses: Mapping[str, int], sizes: Mapping[str, int], maps: Mapping[str, int]
    ) -> None:
        """One call of the candidate into the stream, on buffers at these addresses, of these sizes in bytes.

        `maps` is what `tensor_maps` made for it.
        """

        def start(number: int, launch: ReadyLaunch) -> None:
            try:
                self.start(self.functions[launch.of.kernel], launch)
            except CudaError as error:
                raise CudaError(f"launch {number}, {_in_words(launch.of)}", error.name, error.text) from None

        Launches(self.cu, program, sizes).enqueue(
            addresses,
            maps,
            self.stream,
            clear=lambda address, size, stream: call("MemsetD8Async", address, 0, size, stream),
            start=start,
        )

    def start(self, function: Any, launch: ReadyLaunch) -> None:
        """Into the stream for which it was made ready."""
        call("LaunchKernelEx", launch.config, function, launch.arguments.address, 0)

    def allow_shared(self, function: Any) -> None:
        """It allows a kernel as much dynamic shared memory as the device has beside the static."""
        launching.allow_shared(self.cu, call, function, self.facts.max_shared_bytes)


class ReadonlyMemory:
    """Memory of the device that kernels can only read; we write to it while none runs."""

    def __init__(self, ordinal: int, least_bytes: int) -> None:
        """It has room for so many bytes, and for what is left of its last granule. It raises CudaError."""
        granule = granularity(ordinal)
        self._bytes = max(-(-least_bytes // granule), 1) * granule
        self._used = 0
        self._access = driver().CUmemAccessDesc()
        self._access.location = allocation(ordinal).location
        self._handle = call("MemCreate", self._bytes, allocation(ordinal), 0)
        self._address = int(call("MemAddressReserve", self._bytes, 0, 0, 0))
        call("MemMap", self._address, self._bytes, 0, self._handle, 0)

    @property
    def left_bytes(self) -> int:
        """Bytes that can still be added."""
        return self._bytes - self._used

    def add(self, parts: Sequence[bytes]) -> list[int]:
        """Addresses of copies of `parts`, each from a multiple of 256 bytes on. It raises CudaError."""
        flags = driver().CUmemAccess_flags
        data = b"".join(part + bytes(_placed_bytes(part) - len(part)) for part in parts)
        begin = self._address + self._used
        self._allow(flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        call("MemcpyHtoD", begin, data, len(data))
        call("CtxSynchronize")  # a small copy returns before its last part is written, and would be refused
        self._allow(flags.CU_MEM_ACCESS_FLAGS_PROT_READ)
        self._used += len(data)
        ends = accumulate(map(_placed_bytes, parts), initial=begin)
        return [at for at, _ in zip(ends, parts, strict=False)]

    def free(self) -> None:
        """It gives the memory back, which nothing may use any more."""
        call("MemUnmap", self._address, self._bytes)
        call("MemRelease", self._handle)
        call("MemAddressFree", self._address, self._bytes)

    def _allow(self, flag: Any) -> None:
        self._access.flags = flag
        call("MemSetAccess", self._address, self._bytes, [self._access], 1)


def _placed_bytes(part: bytes) -> int:
    """Bytes that a part takes of such memory."""
    return -(-len(part) // 256) * 256


def _in_words(launch: KernelCall) -> str:
    text = f"`{launch.kernel}` with grid {list(launch.grid)}, block {list(launch.block)}"
    if launch.cluster:
        text += f", cluster {list(launch.cluster)}"
    return text + f", {launch.shared_bytes} bytes of dynamic shared memory"
