"""Peak rates of a GPU: memory as measured and as its data sheet has it, arithmetic by its architecture.

Measured once, kept in the user's cache folder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fitness.cuda.running.driver import device_facts
from fitness.profiling.roofline import Peaks, keep_peaks, kept_peaks, ways
from fitness.sandbox.native import cache_folder
from operators.identity import digest

BYTES = 1 << 30
FLOPS_PER_CLOCK: dict[tuple[int, int], dict[str, int]] = {
    (8, 0): {"fp64": 128, "fp32": 128, "fp16": 2048, "bf16": 2048, "tf32": 1024, "int8": 4096},
    (8, 6): {"fp64": 4, "fp32": 256, "fp16": 1024, "bf16": 1024, "tf32": 512, "int8": 2048},
    (8, 9): {"fp64": 4, "fp32": 256, "fp16": 1024, "bf16": 1024, "tf32": 512, "int8": 2048},
    (9, 0): {"fp64": 256, "fp32": 256, "fp16": 4096, "bf16": 4096, "tf32": 2048, "int8": 8192},
    (10, 0): {"fp64": 256, "fp32": 256, "fp16": 8192, "bf16": 8192, "tf32": 4096, "int8": 16384},
    (12, 0): {"fp64": 4, "fp32": 256, "fp16": 1024, "bf16": 1024, "tf32": 512, "int8": 2048},
}
"""Per multiprocessor, dense; of the fastest instructions that multiply numbers of a type."""
TASKS = ("fp64", "fp32", "fp16", "bf16")


def known(ordinal: int) -> Peaks | None:
    """The peaks of one GPU where they were measured before, else None."""
    return kept_peaks(_path(ordinal))


def peaks(ordinal: int) -> Peaks:
    """The peaks of one GPU, measured in some 50 ms where they never were; nothing else should run on it meanwhile."""
    return known(ordinal) or keep_peaks(_path(ordinal), _measured(ordinal))


def remeasure(ordinal: int) -> Peaks:
    """Measure again and keep the better of each figure: what a kernel that seems too fast is held against."""
    found, kept = _measured(ordinal), known(ordinal)
    if kept:
        read_gb_s = max(found.read_gb_s, kept.read_gb_s)
        found = replace(
            found,
            read_gb_s=read_gb_s,
            copy_gb_s=max(found.copy_gb_s, kept.copy_gb_s),
            empty_us=min(found.empty_us, kept.empty_us),
            ceiling_gb_s=max(read_gb_s, found.ceiling_gb_s, kept.ceiling_gb_s),
        )
    return keep_peaks(_path(ordinal), found)


def _path(ordinal: int) -> Path:
    """Another file where what is measured, or what is known of architectures, changes."""
    facts = device_facts(ordinal)
    return cache_folder() / f"gpu-peaks-{facts.uuid}-{digest(Path(__file__).read_text(encoding='utf-8'))[:16]}.json"


def _measured(ordinal: int) -> Peaks:
    """An architecture that is not known has no peak of arithmetic."""
    import torch  # what was measured before is read without it

    cuda: Any = torch.cuda
    facts = device_facts(ordinal)
    source, target = (torch.empty(BYTES // 4, device=f"cuda:{ordinal}").fill_(1.0) for _ in range(2))
    read_us = _best_us(cuda, lambda: torch.sum(source))
    copy_us = _best_us(cuda, lambda: target.copy_(source))
    empty_us = _best_us(cuda, lambda: cuda._sleep(0))
    read_gb_s = BYTES / read_us / 1e3
    per_clock = FLOPS_PER_CLOCK.get(facts.capability, {})
    rates = {unit: rate * facts.sm_count * facts.max_clock_ghz for unit, rate in per_clock.items()}
    return Peaks(
        device=facts.name,
        read_gb_s=read_gb_s,
        copy_gb_s=2 * BYTES / copy_us / 1e3,
        gflop_s={dtype: rates[dtype] for dtype in TASKS if dtype in rates},
        empty_us=empty_us,
        written_cache_bytes=float(facts.l2_bytes),
        ceiling_gb_s=max(read_gb_s, facts.memory_gb_s),
        ways_gflop_s=ways(rates),
    )


def _best_us(cuda: Any, work: Callable[[], Any], repeats: int = 10) -> float:
    best = float("inf")
    for _ in range(repeats):
        begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
        cuda._sleep(100_000)  # the work is queued before the clock starts
        begin.record()
        work()
        end.record()
        end.synchronize()
        best = min(best, 1e3 * begin.elapsed_time(end))
    return best


if __name__ == "__main__":
    peaks(0)
