"""The steps of one call of a program, and the driver's configuration of a launch.

It imports nothing but what a program is made of: packages of kernels carry it as it stands (`evo.packaging.package`).
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fitness.cuda.compile.program import KernelCall, Program
from operators.plan.tensor_map import DATA_TYPES, TENSOR_MAP_BYTES, ResolvedTensorMap


def enqueue(
    program: Program,
    addresses: Mapping[str, int],
    sizes: Mapping[str, int],
    maps: Mapping[str, int],
    *,
    clear: Callable[[int, int], object],
    start: Callable[[int, KernelCall, list[bytes]], object],
) -> None:
    """Make one call of a program, on buffers at these addresses, of these sizes in bytes.

    `maps` are the addresses of the descriptors of its tensor maps, `clear` zeroes so many bytes at an address, `start`
    launches the kernel of this number, counted from 1, with the bytes of its arguments.
    """
    for name in program.zero:
        if sizes[name]:
            clear(addresses[name], sizes[name])
    for number, launch in enumerate(program.calls, 1):
        start(number, launch, [_bytes_of(value, addresses, maps) for value in launch.args])


def _bytes_of(value: tuple[str, str] | bytes, addresses: Mapping[str, int], maps: Mapping[str, int]) -> bytes:
    if isinstance(value, bytes):
        return value
    kind, name = value
    return pointer((maps if kind == "map" else addresses)[name])


def pointer(address: int) -> bytes:
    """A kernel's argument."""
    return struct.pack("<Q", address)


class LaunchArguments:
    """A launch's arguments in memory, as the driver is given them; it copies them before it returns."""

    def __init__(self, values: Sequence[bytes]) -> None:
        self._memory = [ctypes.create_string_buffer(value, len(value)) for value in values]
        self._pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, self._memory))

    @property
    def address(self) -> int:
        """The address of the list of pointers to them."""
        return ctypes.addressof(self._pointers)

    def placed(self, values: Sequence[bytes]) -> int:
        """Put other values of the same sizes in their place, for a launch that is made again; return `address`."""
        for memory, value in zip(self._memory, values, strict=True):
            memory.raw = value
        return self.address


def configuration(cu: Any, launch: KernelCall, stream: Any) -> Any:
    """The configuration that `cuLaunchKernelEx` gets besides arguments; `cu` are the driver's bindings."""
    config = cu.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
    config.sharedMemBytes = launch.shared_bytes
    config.hStream = stream
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
    if launch.overlap:
        attribute = cu.CUlaunchAttribute()
        attribute.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attribute.value.programmaticStreamSerializationAllowed = 1
        attributes.append(attribute)
    config.numAttrs = len(attributes)
    config.attrs = attributes
    return config


def tensor_map(cu: Any, call: Callable[..., Any], declared: ResolvedTensorMap, address: int) -> bytes:
    """The descriptor of a tensor map; `call` calls a function of the driver, and raises where it fails."""

    def wide(values: Sequence[int]) -> list[Any]:
        return [cu.cuuint64_t(value) for value in values]

    def narrow(values: Sequence[int]) -> list[Any]:
        return [cu.cuuint32_t(value) for value in values]

    made = call(
        "TensorMapEncodeTiled",
        getattr(cu.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{DATA_TYPES[declared.dtype]}"),
        len(declared.shape),
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


def allow_shared(cu: Any, call: Callable[..., Any], function: Any, most_bytes: int) -> None:
    """It allows a kernel as much dynamic shared memory as a block may have (`most_bytes`) beside the static."""
    names = cu.CUfunction_attribute
    static = int(call("FuncGetAttribute", names.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function))
    call(
        "FuncSetAttribute",
        function,
        names.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
        max(most_bytes - static, 0),
    )
