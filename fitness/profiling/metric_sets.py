"""Choices among a profile's metrics for a prompt, as published systems do it and as we do.

Systems: CUDAMaster (arXiv:2603.07169) classifies a kernel by three shares of peak and keeps the metrics of its class;
CudaForge (arXiv:2511.01884) shows one list of 24 metrics, which were chosen for their correlation with run time;
CuTeGen (arXiv:2604.01489) shows what Nsight Compute's basic set has, with rules that read it, late in a search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from fitness.profiling.counters import (
    COALESCED,
    COMPUTE,
    CONFLICTS,
    DRAM,
    GRID,
    INSTRUCTIONS,
    ISSUE,
    L1_HITS,
    L2_HITS,
    LOCAL,
    MEMORY,
    OCCUPANCY,
    READ,
    REGISTERS,
    TENSOR,
    TIME,
    UNIFORM,
    WRITTEN,
)  # fmt: skip
from fitness.profiling.profiles import Profile

# --- CUDAMaster -----------------------------------------------------------------------------------------------------

CUDAMASTER_CUT = 30.0
"""Percent of peak, the threshold between its classes."""
CUDAMASTER: Mapping[str, Mapping[str, str]] = {
    "compute-bound": {
        "SM Throughput": COMPUTE,
        "Issue Slots Busy": "sm__inst_issued.avg.pct_of_peak_sustained_active",
        "Executed IPC Active": "sm__inst_executed.avg.per_cycle_active",
        "SM Busy": "sm__instruction_throughput.avg.pct_of_peak_sustained_active",
    },
    "memory-latency-bound": {
        "L2 Hit Rate": L2_HITS,
        "L1/TEX Hit Rate": L1_HITS,
        "Executed IPC Elapsed": "sm__inst_executed.avg.per_cycle_elapsed",
        "Mem Busy": "gpu__compute_memory_access_throughput.avg.pct_of_peak_sustained_elapsed",
    },
    "memory-bandwidth-bound": {
        "DRAM Throughput": DRAM,
        "Memory Throughput": MEMORY,
        "Max Bandwidth": "gpu__compute_memory_request_throughput.avg.pct_of_peak_sustained_elapsed",
        "Mem Pipes Busy": "sm__memory_throughput.avg.pct_of_peak_sustained_elapsed",
    },
}
"""By class, its metrics: their names in Nsight Compute's sections, and as counters."""


def cudamaster_class(values: Mapping[str, float]) -> str:
    """Return the class of a kernel by its shares of peak, in percent."""
    if values.get(COMPUTE, 0.0) > CUDAMASTER_CUT:
        return "compute-bound"
    memory = max(values.get(DRAM, 0.0), values.get(MEMORY, 0.0))
    return "memory-bandwidth-bound" if memory > CUDAMASTER_CUT else "memory-latency-bound"


def _cudamaster(profile: Profile) -> Iterable[str]:
    values = profile.values
    if COMPUTE not in values:
        return
    found = cudamaster_class(values)
    yield f"the kernel is {found}"
    for title, name in CUDAMASTER[found].items():
        if name in values:
            yield f"{title}: {_figure(profile, name)}"


# --- CudaForge ------------------------------------------------------------------------------------------------------

CUDAFORGE = (
    "sm__cycles_active.avg",
    OCCUPANCY,
    "launch__occupancy_limit_blocks",
    "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem",
    REGISTERS,
    INSTRUCTIONS,
    "sm__inst_executed_pipe_fp32.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
    READ,
    WRITTEN,
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__bytes.sum.per_second",
    DRAM,
    L1_HITS,
    "l1tex__throughput.avg.pct_of_peak_sustained_active",
    L2_HITS,
    "lts__throughput.avg.pct_of_peak_sustained_active",
    "smsp__warp_issue_stalled_memory_dependency_per_warp_active.pct",
    "smsp__warp_issue_stalled_short_scoreboard_per_warp_active.pct",
    "smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct",
    "smsp__warp_issue_stalled_barrier_per_warp_active.pct",
    "smsp__warp_issue_stalled_branch_resolving_per_warp_active.pct",
    UNIFORM,
)
"""Its 24 metrics; those that a device does not have are left out."""


def _cudaforge(profile: Profile) -> Iterable[str]:
    return (f"{name}: {_figure(profile, name)}" for name in CUDAFORGE if name in profile.values)


# --- CuTeGen --------------------------------------------------------------------------------------------------------

CUTEGEN: Mapping[str, str] = {
    "Grid Size": GRID,
    "Block Size": "launch__block_size",
    "Registers Per Thread": REGISTERS,
    "Static Shared Memory Per Block": "launch__shared_mem_per_block_static",
    "Dynamic Shared Memory Per Block": "launch__shared_mem_per_block_dynamic",
    "Duration": TIME,
    "Compute (SM) Throughput": COMPUTE,
    "Memory Throughput": MEMORY,
    "DRAM Throughput": DRAM,
    "Theoretical Occupancy": "sm__maximum_warps_per_active_cycle_pct",
    "Achieved Occupancy": OCCUPANCY,
}
"""Its block: names in Nsight Compute's sections, and as counters."""


def _cutegen(profile: Profile) -> Iterable[str]:
    values = profile.values
    for title, name in CUTEGEN.items():
        if name in values:
            yield f"{title}: {_figure(profile, name)}"
    if COMPUTE not in values:
        return
    compute, memory = values[COMPUTE], values.get(MEMORY, 0.0)
    signals = {
        "register pressure": values.get(REGISTERS, 0.0) >= 96 and values.get(OCCUPANCY, 100.0) <= 40,
        "memory-bound": memory >= 70 and compute <= 50,
        "compute-bound": compute >= 70 and memory <= 50,
        "structural inefficiency": compute <= 40 and memory <= 40,
        "no static shared memory": values.get("launch__shared_mem_per_block_static", 1.0) == 0,
    }
    yield from (f"signal: {name}" for name, is_seen in signals.items() if is_seen)


# --- ours -----------------------------------------------------------------------------------------------------------


def _filtered(profile: Profile) -> Iterable[str]:
    return profile.notes


def _unfiltered(profile: Profile) -> Iterable[str]:
    return (*profile.notes, *(f"{metric.name}: {_figure(profile, metric.name)}" for metric in profile.metrics))


def _none(_: Profile) -> Iterable[str]:
    return ()


DELAYED_UNTIL = 3
"""Steps of lineage that a kernel must have behind it for `delayed` to show its profile (CuTeGen's first release: 3)."""
PROVIDER = "filtered"
"""The set that is chosen by default."""
PROVIDERS: Mapping[str, Callable[[Profile], Iterable[str]]] = {
    "filtered": _filtered,
    "none": _none,
    "unfiltered": _unfiltered,
    "delayed": _filtered,
    "cudamaster": _cudamaster,
    "cudaforge": _cudaforge,
    "cutegen": _cutegen,
}
"""By name, the lines that a prompt shows of a profile. `delayed` shows those of `filtered`, of late kernels alone."""


def shown(provider: str, profile: Profile, *, depth: int) -> tuple[str, ...]:
    """Return the lines of a profile that a prompt shows; `depth`: steps from the lineage's first kernel.

    Where the chosen metrics are not known, such as on the cpu target, these are the lines of `filtered`.
    """
    if provider == "delayed" and depth < DELAYED_UNTIL:
        return ()
    lines = tuple(PROVIDERS[provider](profile))
    return lines if lines or provider == "none" or not profile.notes else profile.notes


def _figure(profile: Profile, name: str) -> str:
    unit = next((metric.unit for metric in profile.metrics if metric.name == name), "")
    return f"{profile.values[name]:.4g} {unit}".strip()


# --- what a change did ----------------------------------------------------------------------------------------------

SHARES: Mapping[str, str] = {
    COMPUTE: "multiprocessors busy",
    MEMORY: "memory system busy",
    DRAM: "DRAM busy",
    OCCUPANCY: "occupancy",
    ISSUE: "issue slots busy",
    TENSOR: "tensor cores busy",
    L1_HITS: "hits in L1",
    L2_HITS: "hits in L2",
    COALESCED: "use of loaded sectors",
    UNIFORM: "uniform branches",
    "l1_miss_rate": "misses of the first cache",
    "branch_miss_rate": "mispredicted branches",
}
"""Metrics in percent whose change is told of, with words for them."""
AMOUNTS: Mapping[str, str] = {
    READ: "bytes read from DRAM",
    WRITTEN: "bytes written to DRAM",
    INSTRUCTIONS: "instructions of warps",
    REGISTERS: "registers per thread",
    "launch__shared_mem_per_block_allocated": "shared memory per block",
    GRID: "blocks",
    "launch__block_size": "threads per block",
    CONFLICTS: "bank conflicts",
    LOCAL: "accesses to local memory",
    "spill_bytes": "spilled bytes",
    "instructions": "instructions (simulated)",
    "memory_waste": "traffic from memory over the least",
    "loops_vectorized": "vectorized loops",
}
"""The same of counts, which are compared by their ratio."""
LEAST_POINTS, LEAST_RATIO = 5.0, 1.15
CHANGES_SHOWN = 6


def changes(before: Profile, after: Profile) -> list[str]:
    """Return what differs between the profiles of two kernels, `name old -> new`, the largest change first."""
    old, new = before.values, after.values
    found: list[tuple[float, str]] = []
    for name, words in SHARES.items():
        if name in old and name in new and abs(new[name] - old[name]) >= LEAST_POINTS:
            found.append((abs(new[name] - old[name]) / 100, f"{words} {old[name]:.0f} -> {new[name]:.0f} %"))
    for name, words in AMOUNTS.items():
        if name in old and name in new and (size := _log_ratio(old[name], new[name])) >= math.log(LEAST_RATIO):
            found.append((min(size, 3.0) / 3.0, f"{words} {old[name]:.4g} -> {new[name]:.4g}"))
    if before.bottleneck and after.bottleneck and before.bottleneck != after.bottleneck:
        found.append((1.0, f"bottleneck {before.bottleneck} -> {after.bottleneck}"))
    found.sort(key=lambda entry: -entry[0])
    return [text for _, text in found[:CHANGES_SHOWN]]


def _log_ratio(old: float, new: float) -> float:
    if old <= 0 or new <= 0:
        return 0.0 if old == new else math.inf
    return abs(math.log(new / old))


def compared(words: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Return one line with what changed, after `words`; none where nothing did."""
    return (f"{words}: {'; '.join(texts)}",) if texts else ()
