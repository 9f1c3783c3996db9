"""A driver that launches nothing and writes down what it is told, and arrays without memory."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cuda.bindings import driver as cu

FACTS = {"sm_count": 132, "warp_size": 32, "max_shared_bytes": 232448, "l2_bytes": 50 << 20}
STREAM, COPIES = 77, 78
MEMORY = 1 << 60


class FakeDriver:
    """A stand-in for `call` of a launcher's module.

    Arguments that point to what was copied to the device are noted as that.
    """

    def __init__(self, params: Mapping[str, Sequence[Any]] | None = None) -> None:
        """`params` are the parameters of the kernels that are launched."""
        self.told: list[tuple[Any, ...]] = []
        self.copied: dict[int, bytes] = {}
        self._params = params or {}
        self._end = MEMORY
        self.mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
        self._copies_wait = False

    def call(self, function: str, *arguments: Any) -> Any:
        if function == "LaunchKernelEx":
            config, kernel, address, _ = arguments
            grid = config.gridDimX, config.gridDimY, config.gridDimZ
            block = config.blockDimX, config.blockDimY, config.blockDimZ
            attributes = tuple(_attribute(each) for each in config.attrs)
            values = [self.copied.get(int.from_bytes(each, "little"), each) for each in self.values(kernel, address)]
            assert not self._copies_wait and not self._relaxed()
            self.told.append((kernel, grid, block, config.sharedMemBytes, int(config.hStream), attributes, values))
        elif function == "MemsetD8Async":
            self.told.append((function, *map(int, arguments)))
        elif function == "TensorMapEncodeTiled":
            self.told.append((function, *map(_plain, arguments)))
            return _Encoded(_encoded(self.told[-1]))
        elif function == "OccupancyMaxActiveBlocksPerMultiprocessor":
            return 1 + arguments[1] % 3
        elif function == "ThreadExchangeStreamCaptureMode":
            before, self.mode = self.mode, arguments[0]
            return before
        elif function == "StreamCreate":
            assert arguments == (cu.CUstream_flags.CU_STREAM_NON_BLOCKING,)
            return COPIES
        elif function == "MemAlloc":
            assert self._relaxed()
            self._end += arguments[0]
            return cu.CUdeviceptr(self._end - arguments[0])
        elif function == "MemcpyHtoDAsync":
            to, data, size, stream = arguments
            assert self._relaxed() and stream == COPIES and to >= MEMORY and to + size <= self._end
            self._copies_wait = True
            self._keep(to, data[:size])
        elif function == "StreamSynchronize" and arguments == (COPIES,):
            self._copies_wait = False
        return None

    def readonly(self, parts: Sequence[bytes]) -> list[int]:
        """A stand-in for `Launcher.readonly`."""
        made = []
        for part in parts:
            self._keep(self._end, part)
            made.append(self._end)
            self._end += 256
        return made

    def _relaxed(self) -> bool:
        return bool(self.mode == cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)

    def _keep(self, at: int, data: bytes) -> None:
        assert at % 64 == 0 and at not in self.copied
        self.copied[at] = data

    def values(self, kernel: str, address: int) -> list[bytes]:
        """The arguments that stand at an address."""
        params = self._params[kernel]
        pointers = (ctypes.c_void_p * len(params)).from_address(address)
        return [ctypes.string_at(at or 0, param.size) for at, param in zip(pointers, params, strict=True)]


def _encoded(said: tuple[Any, ...]) -> bytes:
    """A stand-in for the tensor map that the driver was told to make."""
    return hashlib.sha512(repr(said).encode()).digest() * 2


class _Encoded:
    def __init__(self, data: bytes) -> None:
        self._memory = ctypes.create_string_buffer(data, 128)

    def getPtr(self) -> int:
        return ctypes.addressof(self._memory)


def printed_like_cpp(told: Sequence[tuple[Any, ...]], symbols: Mapping[str, str]) -> list[str]:
    """The lines that fake_driver.cpp prints of what a FakeDriver was told."""
    lines, maps = [], {}
    for each in told:
        if each[0] == "TensorMapEncodeTiled":
            _, kind, rank, address, shape, strides, box, steps, *modes = each
            axes = [number for triple in zip(shape, box, steps, strict=True) for number in triple]
            words = " ".join(map(str, (kind, rank, address, *axes, *strides[: rank - 1], *modes)))
            lines.append(f"map {words}")
            maps[_encoded(each)] = words.encode()[:128].ljust(128, b"\0")
        elif each[0] == "MemsetD8Async":
            lines.append(f"memset {' '.join(map(str, each[1:]))}")
        else:
            kernel, grid, block, shared_bytes, stream, attributes, values = each
            words = [symbols[kernel], *grid, *block, shared_bytes, stream]
            words += [word for name, *rest in attributes for word in (name.rpartition("_")[2].lower(), *rest)]
            lines.append(" ".join(map(str, ("launch", *words, *(maps.get(value, value).hex() for value in values)))))
    return lines


def _attribute(attribute: Any) -> tuple[Any, ...]:
    if attribute.id == cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        dim = attribute.value.clusterDim
        return "cluster", dim.x, dim.y, dim.z
    if attribute.id == cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        return attribute.id.name, attribute.value.cooperative
    return attribute.id.name, attribute.value.programmaticStreamSerializationAllowed


def _plain(value: Any) -> Any:
    return [int(each) for each in value] if isinstance(value, list) else int(value)


@dataclass(frozen=True)
class FakeArray:
    """An array at an address."""

    dtype: str
    shape: tuple[int, ...]
    address: int
    contiguous: bool = True


class FakeLibrary:
    """`evo.packaging.runtime.loading.Torch` for arrays without memory; new ones lie far apart."""

    name = "fake"

    def __init__(self, form: type) -> None:
        self._form = form
        self.made = 0

    def form(self, array: FakeArray) -> Any:
        return self._form(array.dtype, array.shape, array.contiguous, 0)

    def told(self, form: Any) -> Any:
        return form

    def address(self, array: FakeArray) -> int:
        return array.address

    def may_be_written(self, array: FakeArray) -> bool:
        return True

    def maker(self, shape: tuple[int, ...], dtype: str, device: int | str) -> Any:
        def make() -> FakeArray:
            self.made += 1
            return FakeArray(dtype, shape, (1 << 50) + (self.made << 40))

        return make

    def stream(self, device: int) -> int:
        return STREAM
