"""Examines the machine: what works, what does not, and how to cure it."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fitness.cuda.compile.line import LINES, check_driver, driver_cuda, fitting_extra
from fitness.install import (
    CUPY,
    MissingPackage,
    installed,
    installing,
    pip,
    reinstalling_toolchain,
    reinstalling_torch,
)
from fitness.sandbox.native import CXX, ToolchainError, cache_folder, checks, compiler_version
from operators.errors import UserError
from operators.libraries import RIVALS

OPENMP_TEST = """
#include <cmath>
#include <omp.h>
#pragma omp declare simd notinbranch
extern "C" float expf(float) noexcept;
extern "C" int evo_test(float* x) {
    #pragma omp simd
    for (int i = 0; i < 64; i++) x[i] = expf(x[i]);
    return omp_get_max_threads();
}
"""
OURS = {
    "evo": "evo/cli/commands.py",
    "operators": "operators/definition/spec.py",
    "mutators": "mutators/base.py",
    "fitness": "fitness/judging/base.py",
}
COUNTED_APART = """
import ctypes, os
if os.geteuid() == 0:
    os.setresuid(0x70000000 | os.getpid(), 0x70000000 | os.getpid(), -1)
elif ctypes.CDLL(None).unshare(0x10000000):
    raise SystemExit(1)
"""
"""Fails where runner.cpp gets no user for a kernel's call of whose threads the system would keep a count of its own."""
NUMBERED_APART = """
import ctypes
if ctypes.CDLL(None).unshare(0x20000000) and ctypes.CDLL(None).unshare(0x30000000):
    raise SystemExit(1)
"""
"""Fails where jail.cpp gets no namespace of process numbers, with or without one of users."""
NAMESPACES = "allow user namespaces (sysctl user.max_user_namespaces, or your container's profile), or run as root"
LEAST_OF_PROMISED = 0.6
"""The smallest share of the data sheet's memory throughput that an undisturbed memory reaches."""
CLASHING = ("evo", "fitness", "runs", "operators", "mutators")
"""Distributions on PyPI whose modules would overwrite ours, or be overwritten."""


@dataclass(frozen=True)
class Finding:
    """One check: `ok`, `missing` (the cpu target cannot work, or packages clash) or `absent` (something optional)."""

    check: str
    state: str
    detail: str
    cure: str = ""


def examine() -> list[Finding]:
    """Every check, in the order of what depends on what."""
    checks_: tuple[Callable[[], Finding], ...] = (
        _python, _compiler, _openmp, _native, _cpus, _memory_files, _landlock, _seccomp, _processes, _threads, _disk,
        _packages, _driver, _nvrtc, _cupy, _cutlass, _rivals, _gpus, _torch, _peaks, _ncu, _sanitizer,
    )  # fmt: skip
    return [check() for check in checks_]


def _python() -> Finding:
    return Finding("python", "ok", f"{platform.python_version()} at {sys.executable}")


def _compiler() -> Finding:
    try:
        return Finding("compiler", "ok", compiler_version())
    except ToolchainError as error:
        return Finding(
            "compiler", "missing", str(error), "apt-get install g++ (Debian, Ubuntu), dnf install gcc-c++ (Fedora)"
        )


def _openmp() -> Finding:
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "test.cpp"), Path(folder, "test.so")
        source.write_text(OPENMP_TEST)
        command = [CXX, "-O3", "-fopenmp", "-shared", "-fPIC", str(source), "-o", str(library), "-lmvec", "-lm"]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=60)
            threads = ctypes.CDLL(str(library)).evo_test((ctypes.c_float * 64)())
        except (OSError, subprocess.SubprocessError) as error:
            return Finding("openmp", "missing", f"a test program fails: {error}", "install libgomp and glibc's libmvec")
    return Finding("openmp", "ok", f"{threads} threads, vector math from libmvec")


def _native() -> Finding:
    try:
        checks()
    except (ToolchainError, OSError) as error:
        return Finding("cache", "missing", str(error), "set XDG_CACHE_HOME to a folder that can be written to")
    return Finding("cache", "ok", str(cache_folder()))


def _cpus() -> Finding:
    usable = len(os.sched_getaffinity(0))
    if usable < 2:
        return Finding(
            "cpus", "absent", "1 usable", "timings share the only core with the search; expect wide intervals"
        )
    return Finding("cpus", "ok", f"{usable} usable")


def _memory_files() -> Finding:
    if not hasattr(os, "memfd_create"):
        return Finding("shared memory", "missing", "no memfd_create", "use Linux 3.17 or newer")
    return Finding("shared memory", "ok", "memfd with seals")


def _landlock() -> Finding:
    version = ctypes.CDLL(None, use_errno=True).syscall(444, None, 0, 1)  # landlock_create_ruleset: ABI version
    if version < 1:
        return Finding(
            "landlock",
            "absent",
            "the kernel has none: the compiler could read your files for a kernel, whose text is checked only",
            "use Linux 5.13 or newer with landlock among the lsm= of its command line",
        )
    return Finding("landlock", "ok", f"ABI {version}: the compiler and kernels reach no files of yours")


def _seccomp() -> Finding:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    if "Seccomp:" not in status:
        return Finding(
            "seccomp",
            "absent",
            "the kernel has none: machine code hidden in a kernel could make system calls",
            "use a Linux built with CONFIG_SECCOMP_FILTER; until then run no kernels of strangers",
        )
    return Finding("seccomp", "ok", "kernels make no system calls but those of memory and threads")


def _processes() -> Finding:
    if _runs(NUMBERED_APART):
        return Finding("processes", "ok", "kernels see no process but their own")
    lack = "kernels run among all other processes; the filter of system calls alone keeps their signals in"
    return Finding("processes", "absent", lack, f"{NAMESPACES} with CAP_SYS_ADMIN")


def _threads() -> Finding:
    if _runs(COUNTED_APART):
        return Finding("threads", "ok", "every call of a kernel has a limited number")
    lack = "nothing limits a kernel's threads: they could take all that this user, or the machine, may have"
    return Finding("threads", "absent", lack, f"{NAMESPACES}; until then run no kernels of strangers")


def _runs(code: str) -> bool:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60).returncode == 0


def _disk() -> Finding:
    free = shutil.disk_usage(".").free
    if free < 1 << 30:
        return Finding("disk", "absent", f"{free >> 20} MiB free here", "an overnight run wants 1 GiB")
    return Finding("disk", "ok", f"{free >> 30} GiB free here")


def _packages() -> Finding:
    alien = [name for name in CLASHING if installed(name)]
    found = [f"{name} {installed(name)}" for name in alien]
    for package, file in OURS.items():
        spec = importlib.util.find_spec(package)
        folder = Path(spec.origin).parent if spec and spec.origin else None
        if folder is None or not (folder.parent / file).exists():
            found.append(f"package {package} is not ours")
    if found:
        remove = [pip("uninstall", "-y", *alien)] if alien else []
        cure = " && ".join([*remove, installing("", "--force-reinstall", "--no-deps")])
        return Finding("package clashes", "missing", ", ".join(found), cure)
    return Finding("package clashes", "ok", "none")


def _driver() -> Finding:
    version = driver_cuda()
    if version is None:
        cure = "the cpu target needs none; for cuda install NVIDIA's driver"
        return Finding("cuda driver", "absent", "no libcuda.so.1", cure)
    number = ".".join(map(str, version))
    if version[0] < min(LINES):
        cure = f"install a driver for CUDA {min(LINES)} or newer"
        return Finding("cuda driver", "absent", f"for CUDA {number}, which is too old", cure)
    return Finding("cuda driver", "ok", f"for CUDA {number}")


def _nvrtc() -> Finding:
    from fitness.cuda.compile import nvrtc

    try:
        folders = nvrtc.include_folders()
    except MissingPackage as error:
        return Finding("nvrtc", "missing" if error.clash else "absent", error.what, error.cure)
    version = nvrtc.version()
    found = f"{version}, headers {nvrtc.headers_version(folders[0])} in {folders[0]}"
    try:
        check_driver(version)
    except MissingPackage as error:
        return Finding("nvrtc", "absent", error.what, error.cure)
    return Finding("nvrtc", "ok", found)


def _cupy() -> Finding:
    found = [f"{name} {installed(name)}" for name in CUPY if installed(name)]
    if not found:
        extra = fitting_extra()
        needed = extra != "nvrtc"
        cure = installing(extra) if needed else "the cpu target needs none"
        return Finding("cupy", "absent", "libraries of NVIDIA's that torch lacks cannot be called", cure)
    if len(found) > 1:
        clash = f"{' and '.join(found)} are one package in two builds"
        return Finding("cupy", "missing", clash, reinstalling_toolchain(fitting_extra()))
    (line,) = (CUPY[name] for name in CUPY if installed(name))
    bindings = installed("cuda-bindings")
    if line and bindings and int(bindings.partition(".")[0]) != line:
        clash = f"{found[0]} and cuda-bindings {bindings} are of different CUDA lines"
        return Finding("cupy", "missing", clash, reinstalling_toolchain(fitting_extra()))
    return Finding("cupy", "ok", found[0])


def _cutlass() -> Finding:
    from fitness.cuda.compile.nvrtc import cutlass_folders

    folders = cutlass_folders()
    if not folders:
        what = "kernels cannot include CUTLASS or CuTe, whose headers need no other package"
        return Finding("cutlass", "absent", what, pip("install", "--no-deps", "nvidia-cutlass"))
    return Finding("cutlass", "ok", f"headers in {folders[0]}")


def _rivals() -> Finding:
    packages = sorted(RIVALS.values())
    if lacks := [name for name in packages if not installed(name)]:
        what = f"kernels on a GPU are not compared with calls of {', '.join(lacks)}"
        return Finding("rivals", "absent", what, installing("rivals") if _has_gpu() else "the cpu target needs none")
    return Finding("rivals", "ok", ", ".join(f"{name} {installed(name)}" for name in packages))


def _gpus() -> Finding:
    from fitness.cuda.running.driver import device_count, device_facts

    try:
        found = [device_facts(ordinal) for ordinal in range(device_count())]
    except UserError as error:
        return Finding("gpu", "absent", str(error), "the cpu target needs none")
    names = ", ".join(f"{gpu.name} ({gpu.arch}, {gpu.memory_bytes >> 30} GiB)" for gpu in found)
    return Finding("gpu", "ok" if found else "absent", names or "CUDA_VISIBLE_DEVICES shows none")


def _torch() -> Finding:
    if not _has_gpu():
        return Finding("torch on the gpu", "absent", "there is no GPU for it", "the cpu target needs none")
    from fitness.targets import check_device

    try:
        check_device("cuda", computes=True)
    except UserError as error:
        cure = f"{reinstalling_torch(fitting_extra())}; see nvidia-smi"
        return Finding("torch on the gpu", "absent", str(error), cure)
    return Finding("torch on the gpu", "ok", "computes, where references will be computed")


def _peaks() -> Finding:
    if not _has_gpu():
        return Finding("gpu peaks", "absent", "there is no GPU to measure", "the cpu target needs none")
    from fitness.targets import peaks

    try:
        found = peaks("cuda")
    except (UserError, RuntimeError) as error:
        cure = "see the checks above; nvidia-smi tells whether others use the GPU"
        return Finding("gpu peaks", "absent", " ".join(str(error).split())[:200], cure)
    promised = f"{found.read_gb_s:.0f} GB/s read, {found.ceiling_gb_s:.0f} promised, {found.copy_gb_s:.0f} copied"
    if found.read_gb_s < LEAST_OF_PROMISED * found.ceiling_gb_s:
        cure = "end what else uses the GPU, see nvidia-smi; look at its power limit and temperature"
        return Finding("gpu peaks", "absent", f"the memory is slow: {promised}", cure)
    if not found.gflop_s:
        return Finding("gpu peaks", "absent", f"{promised}; arithmetic unknown", "floors and rooflines do without it")
    rates = ", ".join(f"{dtype} {gflop_s / 1e3:.0f}" for dtype, gflop_s in found.gflop_s.items())
    return Finding("gpu peaks", "ok", f"{promised}; Tflop/s at most: {rates}")


def _has_gpu() -> bool:
    from fitness.cuda.running.driver import device_count

    try:
        return device_count() > 0
    except UserError:
        return False


def _ncu() -> Finding:
    from fitness.cuda.profiling.tools import find_tool, profiling_is_for_root

    path = find_tool("ncu")
    if path is None:
        cure = "install the CUDA toolkit; until then prompts hold no counters"
        return Finding("nsight compute", "absent", "no ncu", cure)
    if profiling_is_for_root() and os.geteuid() != 0:
        cure = "run as root, or set NVreg_RestrictProfilingToAdminUsers=0 for the driver's module nvidia"
        return Finding("nsight compute", "absent", f"{path} may not read the GPU's counters", cure)
    return Finding("nsight compute", "ok", path)


def _sanitizer() -> Finding:
    from fitness.cuda.profiling.tools import find_tool

    path = find_tool("compute-sanitizer")
    if path is None:
        cure = "install the CUDA toolkit; until then confirmations do without its tools"
        return Finding("compute-sanitizer", "absent", "none", cure)
    return Finding("compute-sanitizer", "ok", path)
