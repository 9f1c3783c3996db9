"""The steps of one call of a program, and the driver's configuration of a launch.

It imports nothing but what a program is made of: packages of kernels carry it as it stands (`evo.packaging.package`).
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

from fitness.cuda.compile.program import KernelCall, Program
from operators.plan.tensor_map import DATA_TYPES, TENSOR_MAP_BYTES, ResolvedTensorMap


def pointer(address: int) -> bytes:
    """A kernel's argument."""
    return struct.pack("<Q", address)


class LaunchArguments:
    """A launch's arguments in memory, as the driver is given them; it copies them before it returns."""

    def __init__(self, values: Sequence[bytes | ctypes.c_uint64]) -> None:
        """Addresses that change from launch to launch are given as the memory in which they stand."""
        self._memory: list[Any] = [
            ctypes.create_string_buffer(v, len(v)) if isinstance(v, bytes) else v for v in values
        ]
        self._pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, self._memory))
        self.address = ctypes.addressof(self._pointers)
        """The address of the list of pointers to them."""

    def placed(self, values: Sequence[bytes]) -> int:
        """Put other values of the same sizes in their place, for a launch that is made again; return `address`."""
        for memory, value in zip(self._memory, values, strict=True):
            memory.raw = value
        return self.address


class ReadyLaunch:
    """One launch that is ready to be made: the configuration of a kernel's call, and its arguments in memory."""

    def __init__(self, cu: Any, of: KernelCall, values: Sequence[bytes | ctypes.c_uint64], stream: Any = 0) -> None:
        """`cu` are the driver's bindings."""
        self.of = of
        self.config = configuration(cu, of, stream)
        self.arguments = LaunchArguments(values)


class Launches:
    """The steps of a program, made ready once, and then enqueued for buffers at any addresses."""

    def __init__(self, cu: Any, program: Program, sizes: Mapping[str, int]) -> None:
        """`cu` are the driver's bindings, `sizes` those of the buffers in bytes."""
        self.maps = program.maps
        self._zero = [(name, sizes[name]) for name in program.zero if sizes[name]]
        self._places = {
            value: ctypes.c_uint64() for of in program.calls for value in of.args if not isinstance(value, bytes)
        }
        self._launches = [
            ReadyLaunch(cu, of, [value if isinstance(value, bytes) else self._places[value] for value in of.args])
            for of in program.calls
        ]
        self._lock = Lock()

    def enqueue(
        self,
        addresses: Mapping[str, int],
        maps: Mapping[str, int],
        stream: Any,
        *,
        clear: Callable[[int, int, Any], object],
        start: Callable[[int, ReadyLaunch], object],
    ) -> None:
        """Make one call of the program into a stream, on buffers at these addresses; threads take turns.

        `maps` are the addresses of the descriptors of its tensor maps, `clear` zeroes so many bytes at an address,
        `start` makes the launch of this number, counted from 1; the driver copies the arguments before it returns.
        """
        with self._lock:
            for (kind, name), place in self._places.items():
                place.value = (maps if kind == "map" else addresses)[name]
            for name, size in self._zero:
                clear(addresses[name], size, stream)
            for number, launch in enumerate(self._launches, 1):
                launch.config.hStream = stream
                start(number, launch)


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
