"""Names of Nsight Compute's metrics, and what they mean."""

from __future__ import annotations

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
_STALLS = {
    "long_scoreboard": "loads from global or local memory: prefetch, copy asynchronously, load more at a time",
    "short_scoreboard": "shared memory or special functions: fewer or wider accesses, fewer expf and the like",
    "barrier": "barriers of the block: smaller groups that wait, two buffers in turns",
    "branch_resolving": "branches: unroll, or make them uniform",
    "math_pipe_throttle": "a busy arithmetic pipe: another mix of instructions",
    "mio_throttle": "the queue to shared memory and special functions: fewer, wider accesses",
    "lg_throttle": "the queue to global memory: fewer, wider accesses",
    "wait": "the fixed latency of the instruction before: more independent work per thread",
    "membar": "memory fences",
    "gmma": "tensor cores that still work",
}
STALLS = {f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio": text for name, text in _STALLS.items()}
"""Why warps wait, in warps per instruction that is issued, and what may help."""
ISSUED = "selected"
"""Said of a sampled warp that went on."""
WAITS = {name: text.partition(":")[0] for name, text in _STALLS.items()} | {
    "warpgroup_arrive": "tensor cores that still work",
    "no_instructions": "instructions that are fetched",
    "imc_miss": "constants that are fetched",
    "tex_throttle": "the queue to textures",
    "dispatch_stall": "the dispatcher",
    "drain": "stores at the kernel's end",
    "sleeping": "a nanosleep",
    "not_selected": "other warps, which went first",
    "misc": "other things",
}
"""Cause that a sampled warp waits for, by the reason's name."""
SAMPLED = "smsp__pcsamp_warps_issue_stalled_"
SAMPLES = tuple(f"{SAMPLED}{name}" for name in (ISSUED, *WAITS))
"""Why the warps that were looked at now and then could not go on, by instruction: one pass. They are asked for one by
one, as of their group the tool prints nothing but the sums of all reasons."""
WAITS_SHORT = {
    "branch_resolve": "branch_resolving", "dispatch": "dispatch_stall", "imc": "imc_miss", "lg": "lg_throttle",
    "long_sb": "long_scoreboard", "math": "math_pipe_throttle", "mio": "mio_throttle", "no_inst": "no_instructions",
    "no_instruction": "no_instructions", "short_sb": "short_scoreboard", "sleep": "sleeping", "tex": "tex_throttle",
}  # fmt: skip
"""Names by which Nsight Compute's source page calls some of them."""
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
COUNTED = (
    *METRICS,
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__compute_memory_access_throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__compute_memory_request_throughput.avg.pct_of_peak_sustained_elapsed",
    "launch__shared_mem_per_block_dynamic",
    "launch__shared_mem_per_block_static",
    "lts__throughput.avg.pct_of_peak_sustained_active",
    "sm__inst_executed.avg.per_cycle_active",
    "sm__inst_executed.avg.per_cycle_elapsed",
    "sm__inst_executed_pipe_fp32.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
    "sm__inst_issued.avg.pct_of_peak_sustained_active",
    "sm__instruction_throughput.avg.pct_of_peak_sustained_active",
    "sm__maximum_warps_per_active_cycle_pct",
    "sm__memory_throughput.avg.pct_of_peak_sustained_elapsed",
    *(
        f"smsp__warp_issue_stalled_{name}_per_warp_active.pct"
        for name in ("barrier", "branch_resolving", "long_scoreboard", "memory_dependency", "short_scoreboard")
    ),
)
"""Metrics that are counted: those that notes are made of, and those that published systems show
(`fitness.profiling.metric_sets`)."""
ADDED = frozenset({TIME, READ, WRITTEN, ACTIVE, ELAPSED, INSTRUCTIONS, CONFLICTS, LOCAL, GRID})
"""Metrics that are summed over several launches; of others the mean counts, weighted by time."""
