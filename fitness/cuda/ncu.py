"""What Nsight Compute says of a kernel: metrics with their units, what holds it back, and why that is believed."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fitness.cuda.tools import find_tool, watch
from fitness.profiling import AT_ROOFLINE, LAUNCH_SHARE, Bottleneck, Metric
from fitness.roofline import Roofline

TIMEOUT_S = 60.0
LAUNCHES = 8
"""Of one call of the plan are examined, the first ones."""

NOT_INSTALLED = "Nsight Compute (ncu) is not installed; it comes with the CUDA toolkit"

TIME = "gpu__time_duration.sum"
COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
L1_HITS, L2_HITS = "l1tex__t_sector_hit_rate.pct", "lts__t_sector_hit_rate.pct"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
ISSUE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
WAVES = "launch__waves_per_multiprocessor"
GRID = "launch__grid_size"
REGISTERS = "launch__registers_per_thread"
ACTIVE, ELAPSED = "sm__cycles_active.avg", "sm__cycles_elapsed.max"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
COALESCED = "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct"
UNIFORM = "smsp__sass_average_branch_targets_threads_uniform.pct"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
LOCAL = "smsp__sass_inst_executed_op_local.sum"
INSTRUCTIONS = "sm__inst_executed.sum"
LIMITS = {
    f"launch__occupancy_limit_{name}": text
    for name, text in (
        ("registers", "registers"),
        ("shared_mem", "shared memory"),
        ("blocks", "blocks per multiprocessor"),
        ("warps", "warps per multiprocessor"),
    )
}
STALLS = {
    f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio": text
    for name, text in (
        ("long_scoreboard", "loads from global or local memory: prefetch, copy asynchronously, load more at a time"),
        ("short_scoreboard", "shared memory or special functions: fewer or wider accesses, fewer expf and the like"),
        ("barrier", "barriers of the block: smaller groups that wait, two buffers in turns"),
        ("branch_resolving", "branches: unroll, or make them uniform"),
        ("math_pipe_throttle", "a busy arithmetic pipe: another mix of instructions"),
        ("mio_throttle", "the queue to shared memory and special functions: fewer, wider accesses"),
        ("lg_throttle", "the queue to global memory: fewer, wider accesses"),
        ("wait", "the fixed latency of the instruction before: more independent work per thread"),
        ("membar", "memory fences"),
        ("gmma", "tensor cores that still work"),
    )
}
"""Why warps wait, in warps per instruction that is issued, and what may help."""
METRICS = (
    TIME, COMPUTE, MEMORY, DRAM, READ, WRITTEN, "dram__bytes.sum.per_second",
    "l1tex__throughput.avg.pct_of_peak_sustained_active", L1_HITS,
    "lts__throughput.avg.pct_of_peak_sustained_elapsed", L2_HITS,
    OCCUPANCY, ISSUE, ACTIVE, ELAPSED, INSTRUCTIONS,
    REGISTERS, "launch__shared_mem_per_block_allocated", WAVES, GRID, "launch__block_size", *LIMITS,
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active", TENSOR,
    *STALLS, COALESCED, UNIFORM, CONFLICTS, LOCAL,
)  # fmt: skip
ADDED = frozenset({TIME, READ, WRITTEN, ACTIVE, ELAPSED, INSTRUCTIONS, CONFLICTS, LOCAL, GRID})
"""Of several launches the sum counts; of others the mean, weighted by time."""

BUSY, FULL, LOW = 60.0, 90.0, 5.0
"""Percent: of a unit that is the bottleneck, that can hardly do more, that is not used."""


class NcuFailure(Exception):
    """It told nothing, and why."""

    def __init__(self, reason: str, *, lasting: bool) -> None:
        super().__init__(reason)
        self.lasting = lasting
        """It will not tell anything of other kernels either."""


@dataclass(frozen=True)
class Figures:
    """What was counted during one call of a plan."""

    values: Mapping[str, float]
    units: Mapping[str, str]
    launches: int
    longest: str
    """The kernel of the launch that took longest."""

    def get(self, name: str, default: float = 0.0) -> float:
        """A metric's value; `default` where the device has none."""
        return self.values.get(name, default)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The values with their units, as a profile has them."""
        return tuple(Metric(name, value, self.units[name]) for name, value in self.values.items())


def measure(solo: Path, scratch: Path) -> Figures:
    """Profile the program of a solo file. Raises NcuFailure."""
    tool = find_tool("ncu")
    if tool is None:
        raise NcuFailure(NOT_INSTALLED, lasting=True)
    report = scratch / "ncu.csv"
    wanted = list(METRICS)
    for _ in range(2):
        options = ("--csv", "--page", "raw", "--print-units", "base", "--log-file", str(report))
        replay = ("--clock-control", "none", "--cache-control", "all", "--replay-mode", "kernel")
        count = ("--launch-count", str(LAUNCHES), "--target-processes", "all", "--metrics", ",".join(wanted))
        outcome = watch([tool, *options, *replay, *count], solo, scratch=scratch, timeout_s=TIMEOUT_S)
        text = (report.read_text(encoding="utf-8", errors="replace") if report.exists() else "") + outcome.output
        unknown = [name for name in re.findall(r"Failed to find metric (\S+)", text) if name in wanted]
        if not unknown:
            break
        wanted = [name for name in wanted if name not in unknown]
    if outcome.timed_out:
        raise NcuFailure(f"Nsight Compute did not finish within {TIMEOUT_S:.0f} s", lasting=False)
    figures = parse(text)
    if figures is None:
        raise _explained(text)
    return figures


def _explained(text: str) -> NcuFailure:
    if "ERR_NVGPUCTRPERM" in text:
        return NcuFailure(
            "Nsight Compute may not read the GPU's counters (ERR_NVGPUCTRPERM): run as root, or set the NVIDIA "
            "driver's option NVreg_RestrictProfilingToAdminUsers=0",
            lasting=True,
        )
    said = re.findall(r"^==ERROR== (.+)$", text, re.MULTILINE)
    reason = said[0] if said else " ".join(text.split())[-200:] or "it printed nothing"
    lasting = any(word in text for word in ("LibraryNotLoaded", "not supported", "Failed to initialize"))
    return NcuFailure(f"Nsight Compute failed: {reason}", lasting=lasting)


def parse(text: str) -> Figures | None:
    """Read what `ncu --csv --page raw` prints, whatever stands around it; None where no launch was profiled."""
    rows = list(csv.reader(line for line in text.splitlines() if line.startswith('"')))
    start = next((i for i, row in enumerate(rows) if row[0] == "ID"), None)
    if start is None or len(rows) < start + 3:
        return None
    header, units = rows[start], rows[start + 1]
    launches = [dict(zip(header, row, strict=False)) for row in rows[start + 2 :] if len(row) == len(header)]
    if not launches:
        return None
    unit_of = dict(zip(header, units, strict=False))
    numbers = [{n: v for n in METRICS if (v := _number(launch.get(n, ""))) is not None} for launch in launches]
    names = [name for name in METRICS if any(name in launch for launch in numbers)]
    weights = [launch.get(TIME, 1.0) or 1.0 for launch in numbers]
    values = {}
    for name in names:
        pairs = [(launch[name], weight) for launch, weight in zip(numbers, weights, strict=True) if name in launch]
        total = sum(value * (1 if name in ADDED else weight) for value, weight in pairs)
        values[name] = total if name in ADDED else total / sum(weight for _, weight in pairs)
    longest = max(range(len(launches)), key=weights.__getitem__)
    kernel = re.sub(r"\(.*", "", launches[longest].get("Kernel Name", ""))
    return Figures(values, {name: _unit(unit_of[name]) for name in names}, len(launches), kernel)


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def _unit(text: str) -> str:
    return {"byte": "bytes", "byte/second": "bytes/s", "nsecond": "ns", "inst": "instructions"}.get(text, text)


# --- what it means --------------------------------------------------------------------------------------------------


def classify_measured(
    figures: Figures, model: Roofline, latency_us: float, *, empty_us: float, sm_count: int
) -> Bottleneck:
    """Which class a kernel falls into that was timed and counted."""
    compute, memory = figures.get(COMPUTE), figures.get(MEMORY)
    underfilled = figures.get(WAVES, 1.0) < 0.5 and figures.get(GRID, sm_count) / figures.launches < sm_count
    if latency_us <= AT_ROOFLINE * model.attainable_us:
        return Bottleneck.ROOFLINE
    if latency_us < LAUNCH_SHARE * empty_us or (underfilled and max(compute, memory) < BUSY):
        return Bottleneck.LAUNCH
    if max(compute, memory) < BUSY:
        return Bottleneck.LATENCY
    return Bottleneck.BANDWIDTH if memory > compute else Bottleneck.COMPUTE


ADVICE = {
    Bottleneck.LAUNCH: "too little runs at a time, or for too short: more blocks, more work per launch, fewer launches",
    Bottleneck.ROOFLINE: "as fast as a plain algorithm can be: only another algorithm or fewer bytes help",
    Bottleneck.BANDWIDTH: "memory is busy: move fewer bytes, whole vectors, what is used again from nearer memory",
    Bottleneck.COMPUTE: "arithmetic is busy: fewer operations, cheaper functions, tensor cores where they are accurate",
    Bottleneck.LATENCY: "neither memory nor arithmetic is busy: more loads in flight, more warps, less waiting",
}


def notes(figures: Figures, bottleneck: Bottleneck, least_bytes: int) -> list[str]:
    """What the figures say, the most telling sentence first; `least_bytes` is traffic that no algorithm avoids."""
    compute, memory, dram = (figures.get(name) for name in (COMPUTE, MEMORY, DRAM))
    said = [
        f"bottleneck: {bottleneck}; {ADVICE[bottleneck]}. Nsight Compute: memory system {memory:.0f} % busy "
        f"(DRAM {dram:.0f} %), multiprocessors {compute:.0f} %"
        + (f", tensor cores {figures.get(TENSOR):.0f} %" if figures.get(TENSOR) > LOW else "")
    ]
    if figures.launches > 1:
        said.append(f"of {figures.launches} launches {figures.longest} takes longest")
    if max(compute, memory) >= FULL:
        said.append("one unit is at its limit: only less work for it helps")
    said += [*_traffic(figures, dram, memory, least_bytes), *_occupancy(figures), *_stalls(figures), *_habits(figures)]
    return said


def _traffic(figures: Figures, dram: float, memory: float, least_bytes: int) -> Iterable[str]:
    moved = figures.get(READ) + figures.get(WRITTEN)
    if moved and least_bytes:
        yield (
            f"DRAM: {figures.get(READ) / 1e6:.4g} MB read, {figures.get(WRITTEN) / 1e6:.4g} MB written, "
            f"{moved / least_bytes:.2g} times the least; hits in L1 {figures.get(L1_HITS):.0f} %, "
            f"in L2 {figures.get(L2_HITS):.0f} %"
        )
    if memory >= BUSY and dram < 0.8 * memory:
        yield "not DRAM but a cache is the busy part of memory: tiles, coalescing and bank conflicts are where to look"


def _occupancy(figures: Figures) -> Iterable[str]:
    if OCCUPANCY not in figures.values:
        return
    limits = [(figures.values[name], text) for name, text in LIMITS.items() if name in figures.values]
    by = f", limited by {min(limits)[1]}" if limits else ""
    yield (
        f"occupancy {figures.get(OCCUPANCY):.0f} %{by}; {figures.get(REGISTERS):.0f} registers per thread, "
        f"{figures.get(WAVES):.3g} waves of blocks"
    )
    active, elapsed = figures.get(ACTIVE), figures.get(ELAPSED)
    if elapsed and active < 0.8 * elapsed and figures.get(WAVES, 1.0) >= 0.5:
        yield (
            f"multiprocessors work {100 * active / elapsed:.0f} % of the time on average: uneven blocks, or a last "
            "wave that fills few of them"
        )


def _stalls(figures: Figures) -> Iterable[str]:
    waits = sorted(((figures.get(name), text) for name, text in STALLS.items()), reverse=True)
    total = sum(value for value, _ in waits)
    if figures.get(ISSUE, 100.0) < BUSY and total:
        top = [f"{100 * value / total:.0f} % for {text}" for value, text in waits[:2] if value > 0.1 * total]
        yield f"issue slots are busy {figures.get(ISSUE):.0f} % of the time; warps wait {'; '.join(top)}"


def _habits(figures: Figures) -> Iterable[str]:
    """What is wrong however fast it is."""
    if 0 < figures.get(COALESCED, 100.0) < BUSY:
        yield f"global loads use {figures.get(COALESCED):.0f} % of the sectors that they fetch: not coalesced"
    if 0 < figures.get(UNIFORM, 100.0) < FULL:
        yield f"threads of a warp agree on {figures.get(UNIFORM):.0f} % of branches"
    if figures.get(CONFLICTS) > 0.05 * figures.get(INSTRUCTIONS, 1.0):
        yield f"{figures.get(CONFLICTS):.3g} conflicts of shared-memory banks"
    if figures.get(LOCAL):
        yield f"{figures.get(LOCAL):.3g} accesses to local memory: registers spill, or arrays are indexed"
