"""Peak rates of this machine's memory and arithmetic: measured once, kept in the user's cache folder."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from fitness.profiling.roofline import Peaks, keep_peaks, kept_peaks, ways
from fitness.sandbox.native import ToolchainError, built, cache_folder
from fitness.sandbox.processes import run_confined
from operators.identity import digest

MEASURE_MS = 1000
TIMEOUT_S = 30.0
RETRY_S = 60.0
QUIET = 0.02
"""Largest share of the time spent waiting for a processor in a measurement that is trusted to be the best."""
FEW_THREADS = 4
"""Number of threads that do not exhaust the memory that they share by much."""
FLAGS = ("-O3", "-ffp-contract=fast", "-fopenmp")
VECTOR_FLAGS = {"avx2": "-mavx2", "fma": "-mfma", "avx512f": "-mavx512f"}
"""By what /proc/cpuinfo calls it. Not -march=native: the compiled program is found again by its flags."""
UNITS: Mapping[str, tuple[str, int]] = {
    "avx512_fp16": ("fp16", 2), "fphp": ("fp16", 2), "avx512_bf16": ("bf16", 2), "bf16": ("bf16", 4),
    "avx_vnni": ("int8", 4), "avx512_vnni": ("int8", 4), "i8mm": ("int8", 8),
}  # fmt: skip
"""Types of narrower numbers and how many times faster than fp32 they are multiplied, by the flag in /proc/cpuinfo. AMX
is not among them: a process must ask the system for it first, which no kernel can."""


def peaks(threads: int) -> Peaks:
    """This machine's peaks with so many threads. Measured (about 1 s, all cores) when no one has measured them yet.

    Nothing else should run meanwhile: a process that shares the machine holds its lock. Where something did, they are
    measured again at the first call after `RETRY_S`.
    """
    kept = kept_peaks(_path(threads))
    if kept is None:
        return keep_peaks(_path(threads), _measure(threads))
    if kept.quiet or time.time() - _path(threads).stat().st_mtime < RETRY_S:
        return kept
    return remeasure(kept)


def remeasure(known: Peaks) -> Peaks:
    """Measure again and keep the better of each figure: what a kernel that seems too fast is held against.

    Clouds lend memory bandwidth that changes by the minute, so measure right after the kernel.
    """
    raised = _better(known, _measure(known.threads))
    path = _path(known.threads)
    kept = kept_peaks(path)
    return keep_peaks(path, _better(raised, kept) if kept else raised)


def _better(a: Peaks, b: Peaks) -> Peaks:
    read_gb_s = max(a.read_gb_s, b.read_gb_s)
    # What a busy machine only allows to bound, a quiet one tells.
    ceilings = [p.ceiling_gb_s for p in (a, b) if p.quiet or not (a.quiet or b.quiet)]
    return replace(
        a,
        read_gb_s=read_gb_s,
        copy_gb_s=max(a.copy_gb_s, b.copy_gb_s),
        gflop_s={dtype: max(rate, b.gflop_s.get(dtype, 0.0)) for dtype, rate in a.gflop_s.items()},
        ways_gflop_s={d: max(a.ways_gflop_s.get(d, 0.0), rate) for d, rate in b.ways_gflop_s.items()},
        empty_us=min((p.empty_us for p in (a, b) if p.empty_us), default=0.0),
        ceiling_gb_s=max(read_gb_s, *ceilings),
        quiet=a.quiet or b.quiet,
    )


def _measure(threads: int) -> Peaks:
    """Raises ToolchainError when the machine cannot build or run the measuring program."""
    program = _program()
    outcome = run_confined(
        ["env", "GOMP_SPINCOUNT=20000", str(program), str(threads), str(MEASURE_MS)],
        cwd=str(cache_folder()),
        timeout_s=TIMEOUT_S + 4 * threads,  # also the limit of what all threads compute together
        memory_bytes=0,
    )
    lines = [line.split() for line in outcome.output.splitlines()]
    if outcome.timed_out or outcome.returncode != 0 or any(len(line) != 2 for line in lines):
        raise ToolchainError(f"{program} does not run: {outcome.output.strip()[:200] or outcome.returncode}")
    found = {name: float(value) for name, value in lines}
    return _from_figures(found, threads)


def _from_figures(found: Mapping[str, float], threads: int) -> Peaks:
    """`ceiling_gb_s`: threads together read no faster than each of them alone.

    Many of them are held back by what they share; that they reach less is believed of a quiet machine. Few are hardly,
    and what seems to hold them back is as likely the machine's other tenants.
    """
    quiet = found["waiting"] < QUIET
    rates = {"fp32": found["fp32_gflop_s"], "fp64": found["fp64_gflop_s"]}
    read_gb_s = max(found["read_gb_s"], found["alone_gb_s"])
    return Peaks(
        device=f"{cpu_name()}, {threads} thread{'s' if threads > 1 else ''}",
        read_gb_s=read_gb_s,
        copy_gb_s=found["copy_gb_s"],
        gflop_s=rates,
        ways_gflop_s=ways(_units(rates["fp32"], _cpuinfo()) | rates),
        empty_us=found["empty_us"] if quiet else 0.0,
        ceiling_gb_s=max(read_gb_s, (min(threads, FEW_THREADS) if quiet else threads) * found["alone_gb_s"]),
        threads=threads,
        quiet=quiet,
    )


def _units(fp32_gflop_s: float, info: Mapping[str, str]) -> dict[str, float]:
    """Rates of units for narrower numbers."""
    has = (*info.get("flags", "").split(), *info.get("Features", "").split())
    found: dict[str, float] = {}
    for unit, times in (UNITS[flag] for flag in has if flag in UNITS):
        found[unit] = max(found.get(unit, 0.0), times * fp32_gflop_s)
    return found


def _path(threads: int) -> Path:
    key = digest("peaks", "ways", cpu_name(), str(os.cpu_count()), str(threads), _program().name)[:16]
    return cache_folder() / f"peaks-{key}.json"


def _program() -> Path:
    has = _cpuinfo().get("flags", "").split()
    return built("cpu/peaks.cpp", *FLAGS, *(flag for name, flag in VECTOR_FLAGS.items() if name in has))


def cpu_name() -> str:
    """The machine's name for its processor."""
    info = _cpuinfo()
    return info.get("model name") or info.get("CPU part") or platform.processor() or platform.machine()


@lru_cache
def _cpuinfo() -> dict[str, str]:
    """The first processor's entries."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}
