"""The CUDA driver through cuda.bindings: calls that raise, and what there is to know of a device. Imports no torch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fitness.cuda.compile.line import fitting_extra
from fitness.install import installing
from fitness.judging.base import DeviceInfo
from operators.errors import DeviceError, UserError

ENVIRONMENT = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")
"""Environment variables that the driver goes by, and that processes which use it are given."""
FLUSH_L2_SIZES = 2.4
"""Size of what is written and read before a call from cold caches, a candidate's or a vendor's."""


class CudaError(Exception):
    """A driver call failed."""

    def __init__(self, function: str, name: str, text: str) -> None:
        super().__init__(f"{function}: {name}: {text}")
        self.name = name
        """CUDA_ERROR_ILLEGAL_ADDRESS and the like."""
        self.text = text


@lru_cache
def driver() -> Any:
    """The bindings, initialised. Raises DeviceError where there is no driver or no device."""
    try:
        from cuda.bindings import driver as bindings
    except ImportError as error:
        what = f"no CUDA device can be used here: cuda.bindings is not installed ({error})"
        raise DeviceError(f"{what}: {installing(fitting_extra())}") from error
    try:
        (result,) = bindings.cuInit(0)
        reason = result.name
    except RuntimeError as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if reason != "CUDA_SUCCESS":
        raise DeviceError(
            f"no CUDA device can be used here ({reason}): the cuda target needs an NVIDIA GPU and its driver; "
            "without one there is --target cpu"
        )
    return bindings


def call(function: str, *arguments: Any) -> Any:
    """`cu<function>`; what it returns besides the result. Raises CudaError."""
    cu = driver()
    result, *values = getattr(cu, f"cu{function}")(*arguments)
    if result != cu.CUresult.CUDA_SUCCESS:
        _, text = cu.cuGetErrorString(result)
        raise CudaError(f"cu{function}", result.name, text.decode() if text else "")
    return values[0] if len(values) == 1 else values


@dataclass(frozen=True)
class DeviceFacts:
    """Facts that the driver tells of one GPU."""

    ordinal: int
    """Among those that CUDA_VISIBLE_DEVICES shows."""
    name: str
    uuid: str
    """Hexadecimal."""
    capability: tuple[int, int]
    memory_bytes: int
    sm_count: int
    warp_size: int
    max_shared_bytes: int
    """Most shared memory of one block that asks for it."""
    l2_bytes: int
    memory_gb_s: float
    """Rate of the data sheet: clock x width x 2; 0 where the driver does not tell."""
    max_clock_ghz: float
    sm_registers: int = 0
    """Registers of 32 bits of one multiprocessor; 0: not known, like those below."""
    sm_shared_bytes: int = 0
    sm_threads: int = 0

    @property
    def arch(self) -> str:
        """The architecture that NVRTC compiles for: with the features of just this architecture, where there are
        such."""
        major, minor = self.capability
        return f"sm_{major}{minor}{'a' if major >= 9 else ''}"

    @property
    def plan_facts(self) -> dict[str, int]:
        """Facts that a plan's expressions may know."""
        return {
            "sm_count": self.sm_count,
            "warp_size": self.warp_size,
            "max_shared_bytes": self.max_shared_bytes,
            "l2_bytes": self.l2_bytes,
        }

    @property
    def info(self) -> DeviceInfo:
        """The facts that prompts and plans know of it."""
        major, minor = self.capability
        cache = f"{self.l2_bytes >> 20} MiB of L2 cache"
        bandwidth = f", {self.memory_gb_s:.0f} GB/s of memory bandwidth" if self.memory_gb_s else ""
        name = (
            f"an {self.name} (compute capability {major}.{minor}, {self.sm_count} SMs, at most "
            f"{self.max_shared_bytes} bytes of shared memory per block, {cache}{bandwidth})"
        )
        return DeviceInfo(name, self.plan_facts, tuple(self._details()))

    def _details(self) -> Iterator[str]:
        if self.sm_registers:
            yield (
                f"each SM has {self.sm_registers} registers of 32 bits (255 per thread at most), "
                f"{self.sm_shared_bytes >> 10} KiB of shared memory (of which a block may have "
                f"{self.max_shared_bytes >> 10} KiB) and room for {self.sm_threads} threads"
            )
        yield f"compiled for {self.arch}: {_instructions(self.capability)}"


def _instructions(capability: tuple[int, int]) -> str:
    """Instructions of an architecture beyond plain CUDA C++, in words."""
    if capability < (8, 0):
        return "mma.sync with fp16"
    ampere = "cp.async, mbarrier, ldmatrix and mma.sync with fp16, bf16, TF32 and int8"
    if capability[0] == 9:
        return f"TMA (cp.async.bulk), mbarrier, wgmma, thread-block clusters, setmaxnreg; also {ampere}"
    if capability[0] == 10:
        return f"TMA (cp.async.bulk), mbarrier, tcgen05, thread-block clusters, setmaxnreg, but no wgmma; also {ampere}"
    if capability[0] == 12:
        return f"TMA (cp.async.bulk), mbarrier, thread-block clusters, but neither wgmma nor tcgen05; also {ampere}"
    return ampere


def visible_devices() -> list[str]:
    """The name in CUDA_VISIBLE_DEVICES of each device that this process sees. Raises DeviceError where there is none.

    Timings of devices that differ cannot be compared: raises UserError for those.
    """
    count = device_count()
    names = sorted({device_facts(ordinal).name for ordinal in range(count)})
    if len(names) > 1:
        raise UserError(f"the GPUs differ ({', '.join(names)}): name those of one kind in CUDA_VISIBLE_DEVICES")
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return named[:count] or [str(ordinal) for ordinal in range(count)]


def device_count() -> int:
    """The number of devices that CUDA_VISIBLE_DEVICES shows. It raises DeviceError where no driver or no device is."""
    driver()
    return int(call("DeviceGetCount"))


def driver_version() -> str:
    """The version of the kernel module where it tells, such as 580.65.06, else the CUDA version of the driver."""
    try:
        said = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        said = ""
    if found := re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", said):
        return found[0]
    version = int(call("DriverGetVersion"))
    return f"CUDA {version // 1000}.{version % 1000 // 10}"


@lru_cache
def device_facts(ordinal: int = 0) -> DeviceFacts:
    """The facts of one device. It raises DeviceError where there is none of this number."""
    cu = driver()
    try:
        device = call("DeviceGet", ordinal)
    except CudaError as error:
        raise DeviceError(f"there is no GPU {ordinal}: {error.text}") from None

    def attribute(name: str) -> int:
        return int(call("DeviceGetAttribute", getattr(cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), device))

    return DeviceFacts(
        ordinal=ordinal,
        name=call("DeviceGetName", 256, device).split(b"\0")[0].decode(),
        uuid=bytes(call("DeviceGetUuid", device).bytes).hex(),
        capability=(attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")),
        memory_bytes=int(call("DeviceTotalMem", device)),
        sm_count=attribute("MULTIPROCESSOR_COUNT"),
        warp_size=attribute("WARP_SIZE"),
        max_shared_bytes=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        l2_bytes=attribute("L2_CACHE_SIZE"),
        memory_gb_s=2 * attribute("MEMORY_CLOCK_RATE") * attribute("GLOBAL_MEMORY_BUS_WIDTH") / 8 / 1e6,
        max_clock_ghz=attribute("CLOCK_RATE") / 1e6,
        sm_registers=attribute("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        sm_shared_bytes=attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        sm_threads=attribute("MAX_THREADS_PER_MULTIPROCESSOR"),
    )


def present_arch(otherwise: str) -> str:
    """The architecture that NVRTC compiles for on this machine: its first GPU's architecture, or the one that is named
    without a GPU."""
    try:
        return device_facts().arch
    except DeviceError:
        return otherwise


def granularity(ordinal: int) -> int:
    """Bytes that blocks are multiples of. Needs no context."""
    option = driver().CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    return int(call("MemGetAllocationGranularity", allocation(ordinal), option))


def allocation(ordinal: int) -> Any:
    """The properties of memory on the device that other processes can be handed."""
    cu = driver()
    properties = cu.CUmemAllocationProp()
    properties.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = ordinal
    properties.requestedHandleTypes = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    return properties
