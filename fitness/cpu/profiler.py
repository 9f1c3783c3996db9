"""Profiles of kernels on a machine without hardware counters, as most virtual ones are.

Three sources: the roofline model with the measured times, the compiler's own words about every loop, and, where
valgrind is installed, a simulation of instructions, caches and branches line by line on a small shape. The last two
come from builds of their own; nothing of them is ever timed.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fitness.cpu.build import FLAGS, BuiltKernel
from fitness.cpu.simulation import KERNEL, SOURCE, Simulation, compiled, simulate_smaller, write_source
from fitness.evaluation import Timing
from fitness.profiling.profiles import Bottleneck, Metric, Profile, classify
from fitness.profiling.roofline import Peaks, roofline
from fitness.sandbox.native import CXX
from operators.definition.spec import Workload

REMARKS = 20
MANY_MISPREDICTIONS = 5.0
"""Percent of branches."""
MUCH_L1_WASTE = 4.0


def profile(
    subject: BuiltKernel,
    *,
    shapes: Mapping[Workload, Mapping[str, int]],
    timings: Sequence[Timing],
    peaks: Peaks,
    facts: Mapping[str, int],
    folder: Path,
) -> Profile:
    """Everything there is to say about a verified kernel.

    `shapes` are workloads and hidden shapes with all their dims, data-dependent ones included; the largest one that is
    small enough is simulated. `timings` name some of them. `facts` are those that the plan was resolved with. Scratch
    files go below `folder`. Never raises because of the kernel: what fails is said in the notes. Takes seconds of one
    core, so not while anything is timed.
    """
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        remarks = vectorizer_remarks(subject, Path(scratch))
        simulated = simulate_smaller(subject, shapes, facts, Path(scratch))
    measured = [(d, t) for t in timings if (d := _dims_of(t.workload, shapes)) is not None]
    simulation = simulated if isinstance(simulated, Simulation) else None
    placed = _placed(subject, measured, peaks, simulation, _suspects(subject, remarks, simulation, peaks))
    metrics = [*placed.metrics, *_loop_metrics(remarks)]
    notes = [*placed.notes, *(f"compiler: {remark.text}" for remark in remarks[:REMARKS])]
    if len(remarks) > REMARKS:
        notes.append(f"compiler: ... {len(remarks) - REMARKS} more remarks")
    if simulation is None:
        notes.append(str(simulated))
    else:
        metrics += simulation.metrics
        notes += simulation.notes(subject.kernel.source)
    return Profile(placed.bottleneck, tuple(metrics), tuple(notes))


def _dims_of(name: str, shapes: Mapping[Workload, Mapping[str, int]]) -> Mapping[str, int] | None:
    return next((dims for workload, dims in shapes.items() if workload.name == name), None)


# --- roofline -------------------------------------------------------------------------------------------------------


def _placed(
    subject: BuiltKernel,
    measured: Sequence[tuple[Mapping[str, int], Timing]],
    peaks: Peaks,
    simulation: Simulation | None,
    suspects: Sequence[str],
) -> Profile:
    """The roofline's part; the workload furthest below it names the bottleneck, since it has most to gain."""
    if not measured:
        return Profile(None, (), ("roofline: nothing was timed",))
    models = [(roofline(subject.operator, dims, subject.dtype, peaks), timing) for dims, timing in measured]
    model, timing = min(models, key=lambda pair: pair[0].efficiency(pair[1].latency_us))
    waste = simulation.memory_waste if simulation else 1.0
    found = classify(model, timing.latency_us, empty_us=peaks.empty_us, waste=waste)
    logs = [math.log(max(m.efficiency(t.latency_us), 1e-12)) for m, t in models]
    metrics = (
        Metric("roofline_efficiency", math.exp(sum(logs) / len(logs)), ""),
        Metric("worst_roofline_efficiency", model.efficiency(timing.latency_us), ""),
        Metric("worst_memory_gb_s", model.bytes / timing.latency_us / 1e3, "GB/s"),
        Metric("worst_compute_gflop_s", model.flops / timing.latency_us / 1e3, "GFLOP/s"),
    )
    seen = f" Seen: {'; '.join(suspects)}." if suspects and found is Bottleneck.LATENCY else ""
    notes = [f"bottleneck: {found} on {timing.workload}. {_ADVICE[found]}{seen}"]
    notes += [f"roofline: {t.workload}: {m.placed(t.latency_us, subject.dtype, peaks)}" for m, t in models]
    return Profile(found, metrics, tuple(notes))


_ADVICE = {
    Bottleneck.LAUNCH: "Starting threads takes as long as the work: start fewer on small shapes, merge launches.",
    Bottleneck.ROOFLINE: "As fast as a plain algorithm can be here: only another algorithm or less traffic helps.",
    Bottleneck.BANDWIDTH: "Memory is busy: touch every byte once, in order; block for the caches; fuse passes.",
    Bottleneck.COMPUTE: "Arithmetic is busy: fewer operations, fused multiply-adds, cheaper functions.",
    Bottleneck.LATENCY: (
        "Neither memory nor arithmetic is busy: use vectors and all threads, more independent work per iteration, "
        "accesses in order, fewer branches."
    ),
}


def _suspects(
    subject: BuiltKernel, remarks: Sequence[Remark], simulation: Simulation | None, peaks: Peaks
) -> list[str]:
    """Causes that may keep both memory and arithmetic waiting."""
    found = []
    if peaks.threads > 1 and not subject.build.facts.get("threads"):
        found.append(f"one thread of {peaks.threads} works")
    if remarks and not any(remark.vector_bytes for remark in remarks):
        found.append("nothing is vectorized")
    if simulation and simulation.branch_miss_rate > MANY_MISPREDICTIONS:
        found.append(f"{simulation.branch_miss_rate:.2g} % of branches are mispredicted")
    if simulation and simulation.l1_waste > MUCH_L1_WASTE:
        found.append(f"the first cache is filled with {simulation.l1_waste:.2g} times the least traffic")
    return found


# --- the compiler's words -------------------------------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class Remark:
    """The compiler's remark on one loop or block of the kernel."""

    line: int
    text: str
    vector_bytes: int = 0
    """0: not vectorized."""
    is_loop: bool = True


_REMARK = re.compile(rf"{KERNEL}:(\d+):\d+: (missed|optimized): +(.*)")
_WIDTH = re.compile(r"vectorized using (\d+) byte vectors")


def vectorizer_remarks(subject: BuiltKernel, scratch: Path) -> list[Remark]:
    """One remark per line of the kernel that the vectorizer had something to say of; empty when it does not compile."""
    write_source(subject, scratch)
    options = ("-fopt-info-vec-optimized", "-fopt-info-vec-missed", "-o", "/dev/null")
    outcome = compiled([CXX, *FLAGS, *options, "-c", SOURCE], scratch)
    return parse_remarks(outcome.output) if outcome.returncode == 0 else []


def parse_remarks(log: str) -> list[Remark]:
    """Read what g++ prints, in the order of lines; of a loop that was tried several times, the best outcome."""
    found: dict[int, Remark] = {}
    versioned: set[int] = set()
    pending: int | None = None
    for match in _REMARK.finditer(log):
        line, kind, text = int(match[1]), match[2], match[3].strip()
        if width := _WIDTH.search(text):
            size, is_loop = int(width[1]), text.startswith("loop")
            if found.get(line, Remark(line, "")).vector_bytes < size:
                what = "loop" if is_loop else "straight code"
                found[line] = Remark(line, f"line {line}: {what} vectorized, {size} bytes", size, is_loop)
        elif text.startswith("loop versioned for vectorization because of possible aliasing"):
            versioned.add(line)
        elif text == "couldn't vectorize loop":
            pending = line
        elif kind == "missed" and pending is not None:
            reason = text.removeprefix("not vectorized: ").rstrip(". ")
            known = found.get(pending)
            if known is None or (not known.vector_bytes and "nest" in known.text):
                found[pending] = Remark(pending, f"line {pending}: loop not vectorized: {reason}")
            pending = None
    note = ", behind a check that its pointers do not overlap"
    return sorted(replace(r, text=r.text + note) if r.line in versioned else r for r in found.values())


def _loop_metrics(remarks: Sequence[Remark]) -> list[Metric]:
    loops = [remark for remark in remarks if remark.is_loop]
    vectorized = [remark for remark in loops if remark.vector_bytes]
    return [
        Metric("loops_vectorized", len(vectorized), ""),
        Metric("loops_not_vectorized", len(loops) - len(vectorized), ""),
    ]
