"""Launches a plan's kernels, for the processes that run candidates. Imports no torch."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from fitness.cuda.driver import CudaError, allocation, call, device_facts, driver, granularity
from fitness.cuda.program import KernelCall, Program, Table
from operators.tensor_map import DATA_TYPES, TENSOR_MAP_BYTES, ResolvedTensorMap


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
        maps = {m.name: self._tensor_map(m, addresses[m.tensor]) for m in program.maps}
        for name in program.zero:
            if sizes[name]:
                call("MemsetD8Async", addresses[name], 0, sizes[name], self.stream)
        for number, launch in enumerate(program.calls, 1):
            try:
                self._launch(launch, addresses, maps)
            except CudaError as error:
                raise CudaError(f"launch {number}, {_in_words(launch)}", error.name, error.text) from None

    def _launch(self, launch: KernelCall, addresses: Mapping[str, int], maps: Mapping[str, bytes]) -> None:
        values = []
        for value in launch.args:
            if isinstance(value, bytes):
                values.append(value)
            else:
                kind, name = value
                values.append(maps[name] if kind == "map" else pointer(addresses[name]))
        self.start(self.functions[launch.kernel], launch, values)

    def start(self, function: Any, launch: KernelCall, values: Sequence[bytes]) -> None:
        """Into our stream; the driver copies the arguments before it returns."""
        # Tensor maps must lie on 64 bytes.
        memory = ctypes.create_string_buffer(64 + sum(-(-len(value) // 64) * 64 for value in values))
        at = -(-ctypes.addressof(memory) // 64) * 64
        pointers = (ctypes.c_void_p * max(len(values), 1))()
        for number, value in enumerate(values):
            ctypes.memmove(at, value, len(value))
            pointers[number] = at
            at += -(-len(value) // 64) * 64
        cu, config = self.cu, self.cu.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
        config.sharedMemBytes = launch.shared_bytes
        config.hStream = self.stream
        attributes = []
        if launch.cluster:
            attribute = cu.CUlaunchAttribute()
            attribute.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            dim = attribute.value.clusterDim
            dim.x, dim.y, dim.z = launch.cluster
            attributes.append(attribute)
        if launch.cooperative:
            attribute = cu.CUlaunchAttribute()
            attribute.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            attribute.value.cooperative = 1
            attributes.append(attribute)
        config.numAttrs = len(attributes)
        config.attrs = attributes
        call("LaunchKernelEx", config, function, ctypes.addressof(pointers), 0)

    def allow_shared(self, function: Any) -> None:
        """It allows a kernel as much dynamic shared memory as the device has beside the static."""
        names = self.cu.CUfunction_attribute
        static = int(call("FuncGetAttribute", names.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function))
        most = max(self.facts.max_shared_bytes - static, 0)
        call("FuncSetAttribute", function, names.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most)

    def _tensor_map(self, declared: ResolvedTensorMap, address: int) -> bytes:
        cu, rank = self.cu, len(declared.shape)

        def wide(values: Sequence[int]) -> list[Any]:
            return [cu.cuuint64_t(value) for value in values]

        def narrow(values: Sequence[int]) -> list[Any]:
            return [cu.cuuint32_t(value) for value in values]

        made = call(
            "TensorMapEncodeTiled",
            getattr(cu.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{DATA_TYPES[declared.dtype]}"),
            rank,
            address,
            wide(declared.shape),
            wide(declared.strides_bytes or (0,)),
            narrow(declared.box),
            narrow(declared.element_strides),
            cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            getattr(cu.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{declared.swizzle}"),
            getattr(cu.CUtensorMapL2promotion, f"CU_TENSOR_MAP_L2_PROMOTION_{declared.l2_promotion}"),
            getattr(cu.CUtensorMapFloatOOBfill, f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{declared.oob_fill}"),
        )
        return ctypes.string_at(made.getPtr(), TENSOR_MAP_BYTES)


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


def pointer(address: int) -> bytes:
    """A kernel's argument."""
    return struct.pack("<Q", address)


def _in_words(launch: KernelCall) -> str:
    text = f"`{launch.kernel}` with grid {list(launch.grid)}, block {list(launch.block)}"
    if launch.cluster:
        text += f", cluster {list(launch.cluster)}"
    return text + f", {launch.shared_bytes} bytes of dynamic shared memory"
