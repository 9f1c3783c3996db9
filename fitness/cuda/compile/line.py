"""CUDA's lines, 12 and 13, whose packages do not mix: which of them this machine's driver can use."""

from __future__ import annotations

import ctypes

from fitness.install import CUPY, MissingPackage, installed, reinstalling_toolchain

LINES = (12, 13)


def driver_cuda() -> tuple[int, int] | None:
    """The newest CUDA that the driver supports, as (12, 4); None where there is no driver."""
    number = ctypes.c_int()
    try:
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number)):
            return None
    except OSError:
        return None
    return number.value // 1000, number.value % 1000 // 10


def fitting_extra() -> str:
    """The extra for this machine: of the driver's line, without a driver that of an installed CuPy, or the compiler."""
    if driver := driver_cuda():
        return f"cuda{min(max(driver[0], LINES[0]), LINES[-1])}"
    lines = {CUPY[name] for name in CUPY if installed(name)} & {*LINES}
    return f"cuda{lines.pop()}" if len(lines) == 1 else "nvrtc"


def check_driver(nvrtc_version: str) -> None:
    """Raise MissingPackage unless the driver can load what this NVRTC compiles: of its own line, or an older one."""
    driver = driver_cuda()
    if driver is not None and driver[0] < int(nvrtc_version.partition(".")[0]):
        told = f"the driver is for CUDA {driver[0]}.{driver[1]} and cannot load kernels of NVRTC {nvrtc_version}"
        raise MissingPackage(told, reinstalling_toolchain(fitting_extra()))
