"""Physical limits of kernels: the time that none can go below, and how near to the machine's best one comes.

Two models for two uses. `floor_us` counts only what no algorithm can avoid and is held against measured times: below it
a clock lies or work was not done. `roofline` counts what a plain algorithm does and places a kernel for prompts and
reports (Williams, Waterman, Patterson, "Roofline", CACM 52, 2009); a cleverer algorithm may come out above 1 there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

from fitness.sandbox.native import publish
from fitness.words import time_us
from operators.definition.spec import Operator
from operators.dtypes import resolve_dtype

MARGIN = 1.05
"""Peaks are believed up to this factor; also a data sheet's figure may be beaten a little."""

Bound = Literal["memory", "compute"]


@dataclass(frozen=True)
class Peaks:
    """Peak rates of one device."""

    device: str
    """Name in words, for reports."""
    read_gb_s: float
    """Rate of reads from memory, with cold caches; 1e9 bytes per second, like all rates here."""
    copy_gb_s: float
    """Bytes read plus bytes written."""
    gflop_s: Mapping[str, float]
    """By a task's dtype, of the fastest instructions that such a task may use; a fused multiply-add counts as two."""
    empty_us: float
    """The least time in which work can be handed to the device and be waited for; 0 when not known."""
    written_cache_bytes: float = math.inf
    """Written bytes that may still lie in caches when the clock stops. The default counts no write at all."""
    ceiling_gb_s: float = 0.0
    """Faster reads are impossible; what floors go by where it is above `read_gb_s`, the best that was seen."""
    ways_gflop_s: Mapping[str, float] = field(default_factory=dict)
    """By a task's dtype, of the fastest way to its precision, products of numbers in parts among them (`ways`); what
    floors go by where it is above `gflop_s`."""
    threads: int = 1
    quiet: bool = True
    """False: others used the device while it was measured."""


SIGNIFICANT_BITS: Mapping[str, int] = {"fp64": 53, "fp32": 24, "tf32": 11, "fp16": 11, "bf16": 8, "int8": 7}
"""Significant bits of the numbers that units multiply, signs left aside."""
PARTS: Mapping[str, tuple[str, ...]] = {"fp32": ("tf32", "fp16", "bf16", "int8"), "fp64": ("int8",)}
"""Types that a product in a task's type may be made of: sums of its parts' products must be as precise as the task's,
which tensor cores keep for floating-point types in fp32, for integers exactly."""


def products(wanted: str, part: str) -> int:
    """The number of products of parts that make one of a wider type, the least ones left out.

    Every part but the first also has a sign to tell what rounding to nearest left. Three of TF32 or of fp16 make one of
    fp32 (Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores", IJHPCA 36, 2022), six of bf16; 28
    of 8-bit integers make one of fp64 (Ootomo, Ozaki and Yokota, "DGEMM on integer matrix multiplication unit", 2024).
    """
    parts = -(-(SIGNIFICANT_BITS[wanted] - 1) // (SIGNIFICANT_BITS[part] + 1))
    return parts * (parts + 1) // 2


def ways(rates: Mapping[str, float]) -> dict[str, float]:
    """By a task's dtype, the rate of the fastest way to its precision, given the rates of a device's units by type."""
    return {
        wanted: max(rates[wanted], *(rates[part] / products(wanted, part) for part in parts if part in rates), 0.0)
        for wanted, parts in PARTS.items()
        if wanted in rates
    }


def kept_peaks(path: Path) -> Peaks | None:
    """The peaks that were measured earlier; None: there are none, or the file was cut off or is of another version."""
    try:
        return Peaks(**json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def keep_peaks(path: Path, found: Peaks) -> Peaks:
    """Store what was measured, for later processes of this machine; it is returned as it is."""
    publish(path, json.dumps(asdict(found), indent=1).encode())
    return found


@dataclass(frozen=True)
class Traffic:
    """Bytes from and to memory on one setting of the dims."""

    read: int
    written: int

    @property
    def total(self) -> int:
        """Bytes read and written."""
        return self.read + self.written


def traffic(operator: Operator, dims: Mapping[str, int], dtype: str, *, least: bool = False) -> Traffic:
    """The operator's `bytes`, or with `least` its `min_bytes`, divided into what is read and what is written.

    What is written are the whole outputs; the rest is read. An inout tensor counts as read only as far as the formula
    counts it twice. `dims` include data-dependent ones where a shape of an output uses them.
    """
    env = operator.environment(dims)
    written = sum(resolve_dtype(t.dtype, dtype).size * math.prod(t.sizes(env)) for t in operator.outputs)
    formula = operator.min_bytes if least else operator.bytes
    total = formula.evaluate(operator.cost_environment(dims, dtype))
    return Traffic(max(total - written, 0), min(written, total))


def floor_us(operator: Operator, dims: Mapping[str, int], dtype: str, peaks: Peaks) -> float:
    """The time that no honest kernel goes below, from cold caches; 0 where nothing is known.

    Inputs must come from memory. Outputs need not have reached it when the clock stops, as far as caches hold them,
    and a store of whole cache lines reads none. Arithmetic goes by the fastest way to the precision that is asked for.
    A dtype without a peak has no floor of arithmetic.
    """
    moved = traffic(operator, dims, dtype, least=True)
    flops = operator.min_flops.evaluate(operator.cost_environment(dims, dtype))
    evicted = max(moved.written - peaks.written_cache_bytes, 0)
    rates = {d: max(rate, peaks.ways_gflop_s.get(d, 0.0)) for d, rate in peaks.gflop_s.items()}
    fastest = replace(peaks, read_gb_s=max(peaks.read_gb_s, peaks.ceiling_gb_s), gflop_s=rates)
    memory_us = _memory_us(moved.read, moved.read + evicted, fastest)
    return max(memory_us, _compute_us(flops, dtype, fastest)) / MARGIN


@dataclass(frozen=True)
class Roofline:
    """Position of an operator between memory and arithmetic on one device, for one setting of the dims."""

    bytes: int
    """Bytes that a plain algorithm moves, outputs included."""
    flops: int
    """Operations of a plain algorithm, whatever a kernel executes: wasted work must not look efficient."""
    memory_us: float
    """`bytes` at the memory's peak."""
    compute_us: float
    """`flops` at the arithmetic peak; 0 where that is not known."""

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / self.bytes if self.bytes else math.inf

    @property
    def attainable_us(self) -> float:
        """Microseconds of a kernel that does this work as fast as the machine can."""
        return max(self.memory_us, self.compute_us)

    @property
    def bound(self) -> Bound:
        """Which of the two limits is the higher one."""
        return "memory" if self.memory_us >= self.compute_us else "compute"

    def efficiency(self, latency_us: float) -> float:
        """Attainable over measured time: 1 is as fast as the plain algorithm can be."""
        return self.attainable_us / latency_us

    def placed(self, latency_us: float, dtype: str, peaks: Peaks) -> str:
        """Return what the model says of a measured time, in words."""
        rate = f"{self.bytes / latency_us / 1e3:.3g} of {peaks.read_gb_s:.3g} GB/s"
        if dtype in peaks.gflop_s:
            rate += f", {self.flops / latency_us / 1e3:.3g} of {peaks.gflop_s[dtype]:.3g} GFLOP/s"
        share = f"{100 * self.efficiency(latency_us):.3g} %"
        return (
            f"{time_us(latency_us)}, attainable {time_us(self.attainable_us)} ({share}), limited by {self.bound} at "
            f"{self.intensity:.3g} operations per byte; it reaches {rate}"
        )


def roofline(operator: Operator, dims: Mapping[str, int], dtype: str, peaks: Peaks) -> Roofline:
    """The model of one setting of the dims, data-dependent ones included where output shapes use them."""
    moved = traffic(operator, dims, dtype)
    flops = operator.flops.evaluate(operator.cost_environment(dims, dtype))
    memory_us = _memory_us(moved.read, moved.total, peaks)
    return Roofline(moved.total, flops, memory_us, _compute_us(flops, dtype, peaks))


def allowed_us(operator: Operator, dims: Mapping[str, int], dtype: str, peaks: Peaks) -> float:
    """Return microseconds of a kernel that does the plain algorithm's work as fast as the machine was measured to.

    It goes by the fastest way to the precision that is asked for, products in parts among them, and takes no less than
    an empty launch; 0 where nothing is known. It raises ExpressionError where a cost depends on what only data tell.
    """
    rates = {d: max(rate, peaks.ways_gflop_s.get(d, 0.0)) for d, rate in peaks.gflop_s.items()}
    return max(roofline(operator, dims, dtype, replace(peaks, gflop_s=rates)).attainable_us, peaks.empty_us)


def _memory_us(read_bytes: float, all_bytes: float, peaks: Peaks) -> float:
    """Reads go no faster than reads alone; both together no faster than the faster of the two peaks.

    Where reading and writing have channels of their own, copying moves more bytes than reading.
    """
    return max(read_bytes / peaks.read_gb_s, all_bytes / max(peaks.read_gb_s, peaks.copy_gb_s)) / 1e3


def _compute_us(flops: int, dtype: str, peaks: Peaks) -> float:
    return flops / peaks.gflop_s[dtype] / 1e3 if dtype in peaks.gflop_s else 0.0
