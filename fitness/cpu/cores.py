"""Choice of the cores that a kernel is timed on, so that neither the search nor another timing disturbs it.

A group of cores belongs to some workers: what they compile, verify and time stays on it, and its lock gives a timing
the whole group. One core is left to the search itself where there are enough.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path

from fitness.judging.base import DeviceInfo
from operators.identity import digest

INSTRUCTION_SETS = (
    "sse4_2", "avx", "f16c", "avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16", "avx512_fp16",
    "avx512_vnni", "avx_vnni", "asimd", "asimdhp", "sve", "sve2", "bf16", "i8mm",
)  # fmt: skip
"""Names of instruction sets as /proc/cpuinfo has them."""
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
SPARE_FROM = 4
"""Number of cores from which one is kept free of timings."""


def groups(threads: int, available: Sequence[int]) -> list[tuple[int, ...]]:
    """Disjoint groups of `threads` cores; 0 threads: one group of all, but for the one that is spared."""
    cores = sorted(available)
    spare = threads < len(cores) if threads else len(cores) >= SPARE_FROM
    usable = cores[1:] if spare else cores
    size = min(threads or len(usable), len(usable))
    return [tuple(usable[begin : begin + size]) for begin in range(0, len(usable) - size + 1, size)]


def stay_on(cores: Sequence[int]) -> None:
    """Keep this process, and whatever it starts, on these cores."""
    os.sched_setaffinity(0, cores)


def lock_name() -> str:
    """The name of the lock of the group that this process stays on."""
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    return f"timing-{digest(cores)[:12]}"


def processor() -> str:
    """The name that the kernel of the system has for this machine's processor."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return platform.processor()


def plan_facts(threads: int) -> dict[str, int]:
    """Return what plans of kernels that run on so many cores may know: `operators.plan.reading.FACTS` names them."""
    return {"cpu_count": threads, "l2_bytes": _l2_bytes()}


def device_info(threads: int) -> DeviceInfo:
    """Return what kernels run on: a group of `threads` cores, or all but the spared one for 0."""
    size = len(groups(threads, sorted(os.sched_getaffinity(0)))[0])
    facts = plan_facts(size)
    cores = f"{size} cores" if size > 1 else "one core"
    name = f"{cores} of an {processor()} ({facts['l2_bytes'] >> 10} KiB of L2 cache per core)"
    return DeviceInfo(name, facts, tuple(filter(None, (_instruction_sets(), _caches()))))


def _instruction_sets() -> str:
    """The processor's vector instruction sets that matter to a programmer of kernels; empty where the system does not
    tell."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))), [])
    found = [name for name in INSTRUCTION_SETS if name in flags]
    return f"{platform.machine()} with {', '.join(found)}" if found else ""


def _caches() -> str:
    """Sizes of the first core's caches for data, as the kernel of the system has them."""
    found = []
    for index in sorted(CACHES.glob("index*")):
        kind, level, size, shared = (_read(index / name) for name in ("type", "level", "size", "shared_cpu_list"))
        if kind != "Instruction" and level and size:
            of = f" (of cores {shared})" if level == "3" and shared else ""
            found.append(f"L{level} {size.removesuffix('K')} KiB{of}")
    return f"caches: {', '.join(found)}" if found else ""


def _l2_bytes() -> int:
    """The L2 cache of one core, in bytes, as the kernel of the system reports it; 1 MiB where it does not."""
    for index in CACHES.glob("index*"):
        if _read(index / "level") == "2" and (size := _read(index / "size")):
            return int(size.rstrip("KM")) * (1 << 20 if size.endswith("M") else 1 << 10)
    return 1 << 20


def _read(file: Path) -> str:
    """The text of a file of the system; empty where it has none, as many on Arm have no sizes of caches."""
    try:
        return file.read_text(encoding="ascii").strip()
    except OSError:
        return ""
