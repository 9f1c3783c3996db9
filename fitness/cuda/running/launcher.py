"""Launches a plan's kernels, for the processes that run candidates. Imports no torch."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from fitness.cuda.compile.program import KernelCall, Program, Table
from fitness.cuda.running import launching
from fitness.cuda.running.driver import CudaError, allocation, call, device_facts, driver, granularity
from fitness.cuda.running.launching import Placed, pointer


class Launcher:
    """One CUDA context with one stream, and the kernels of one candidate. Every method raises CudaError."""

    def __init__(self, ordinal: int) -> None:
        self.cu = driver()
        self.facts = device_facts(ordinal)
        call("CtxSetCurrent", call("DevicePrimaryCtxRetain", call("DeviceGet", ordinal)))
        self.stream = call("StreamCreate", self.cu.CUstream_flags.CU_STREAM_NON_BLOCKING)
        self.functions: dict[str, Any] = {}
        self._module: Any = None
        self._tables: ReadonlyMemory | None = None

    def load_kernels(self, cubin: bytes, lowered: Mapping[str, str], tables: Sequence[Table]) -> None:
        """`lowered` are the kernels' symbols by name expression."""
        if tables:
            self._tables = ReadonlyMemory(self.facts.ordinal, [table.data for table in tables])
            image = bytearray(cubin)
            for table, address in zip(tables, self._tables.addresses, strict=True):
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
        if self._tables is not None:
            self._tables.free()
        self._module = self._tables = None

    def enqueue(self, program: Program, addresses: Mapping[str, int], sizes: Mapping[str, int]) -> None:
        """One call of the candidate into the stream, on buffers at these addresses, of these sizes in bytes."""

        def start(number: int, launch: KernelCall, values: list[bytes]) -> None:
            try:
                self.start(self.functions[launch.kernel], launch, values)
            except CudaError as error:
                raise CudaError(f"launch {number}, {_in_words(launch)}", error.name, error.text) from None

        launching.enqueue(
            program,
            addresses,
            sizes,
            encode=lambda declared, address: launching.tensor_map(self.cu, call, declared, address),
            clear=lambda address, size: call("MemsetD8Async", address, 0, size, self.stream),
            start=start,
        )

    def start(self, function: Any, launch: KernelCall, values: Sequence[bytes]) -> None:
        """Into our stream; the driver copies the arguments before it returns."""
        config, placed = launching.configuration(self.cu, launch, self.stream), Placed(values)
        call("LaunchKernelEx", config, function, placed.address, 0)

    def allow_shared(self, function: Any) -> None:
        """It allows a kernel as much dynamic shared memory as the device has beside the static."""
        launching.allow_shared(self.cu, call, function, self.facts.max_shared_bytes)


class ReadonlyMemory:
    """Memory of the device that kernels can only read."""

    def __init__(self, ordinal: int, parts: Sequence[bytes]) -> None:
        """It holds `parts`, each from a multiple of 256 bytes on. It raises CudaError."""
        cu = driver()
        data = b"".join(part + bytes(-len(part) % 256) for part in parts)
        granule = granularity(ordinal)
        self._bytes = max(-(-len(data) // granule), 1) * granule
        self._handle = call("MemCreate", self._bytes, allocation(ordinal), 0)
        self._address = int(call("MemAddressReserve", self._bytes, 0, 0, 0))
        call("MemMap", self._address, self._bytes, 0, self._handle, 0)
        access, flags = cu.CUmemAccessDesc(), cu.CUmemAccess_flags
        access.location = allocation(ordinal).location
        access.flags = flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        call("MemSetAccess", self._address, self._bytes, [access], 1)
        call("MemcpyHtoD", self._address, data, len(data))
        call("CtxSynchronize")  # a small copy returns before its last part is written, and would be refused
        access.flags = flags.CU_MEM_ACCESS_FLAGS_PROT_READ
        call("MemSetAccess", self._address, self._bytes, [access], 1)
        self.addresses = []
        """Of the parts."""
        at = self._address
        for part in parts:
            self.addresses.append(at)
            at += -(-len(part) // 256) * 256

    def free(self) -> None:
        """It gives the memory back, which nothing may use any more."""
        call("MemUnmap", self._address, self._bytes)
        call("MemRelease", self._handle)
        call("MemAddressFree", self._address, self._bytes)


class Arguments:
    """Where a launch's arguments lie that is made again and again; the driver copies them before it returns."""

    def __init__(self, values: Sequence[bytes]) -> None:
        self._memory = [ctypes.create_string_buffer(value, len(value)) for value in values]
        self._pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, self._memory))

    def placed(self, values: Sequence[bytes]) -> int:
        """What the driver is given to find them."""
        for memory, value in zip(self._memory, values, strict=True):
            memory.raw = value
        return ctypes.addressof(self._pointers)


def _in_words(launch: KernelCall) -> str:
    text = f"`{launch.kernel}` with grid {list(launch.grid)}, block {list(launch.block)}"
    if launch.cluster:
        text += f", cluster {list(launch.cluster)}"
    return text + f", {launch.shared_bytes} bytes of dynamic shared memory"
