"""Nsight Compute's report on a kernel: metrics with their units, what holds it back, and why that is believed; and a
profile from that, the roofline with measured times, and ptxas."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fitness.cuda.compile.program import KernelCall
from fitness.cuda.profiling.solo import Solo
from fitness.cuda.profiling.stalls import Sampled, parse_source
from fitness.cuda.profiling.tools import find_tool, tell, watch, write_solo
from fitness.evaluation import Timing
from fitness.profiling.counters import (
    ACTIVE,
    ADDED,
    COALESCED,
    COMPUTE,
    CONFLICTS,
    COUNTED,
    DRAM,
    ELAPSED,
    GRID,
    INSTRUCTIONS,
    ISSUE,
    L1_HITS,
    L2_HITS,
    LIMITS,
    LOCAL,
    MEMORY,
    OCCUPANCY,
    READ,
    REGISTERS,
    SAMPLES,
    STALLS,
    TENSOR,
    TIME,
    UNIFORM,
    WAVES,
    WRITTEN,
)
from fitness.profiling.profiles import AT_ROOFLINE, LAUNCH_SHARE, Bottleneck, Metric, Profile, classify
from fitness.profiling.roofline import Peaks, Roofline, roofline
from operators.definition.spec import Operator, Workload

TIMEOUT_S = 60.0
LAUNCHES = 8
"""Most launches of one call that are counted: those that stand for most of the time."""
REPORT = "counted.ncu-rep"
MOST_TIMED = 1024
"""Launches of one call whose times are asked for, to choose among them."""

NOT_INSTALLED = "Nsight Compute (ncu) is not installed; it comes with the CUDA toolkit"

NEGLIGIBLE = 0.01
"""Part of a call's time that is not worth telling of."""
BUSY, FULL, LOW = 60.0, 90.0, 5.0
"""Percent: of a unit that is the bottleneck, that can hardly do more, that is not used."""


class NcuFailure(Exception):
    """It told nothing, and why."""

    def __init__(self, reason: str, *, lasting: bool) -> None:
        super().__init__(reason)
        self.lasting = lasting
        """It will not tell anything of other kernels either."""


@dataclass(frozen=True)
class Part:
    """Launches of one call that are alike, and what was counted during one of them."""

    kernel: str
    values: Mapping[str, float]
    launches: int
    """Number of launches that are alike: the same kernel with the same geometry."""
    time_ns: float
    """Time of all of them."""
    number: int = 0
    """Number of the counted launch among those that were counted."""
    place: int = 0
    """Its place among those of the call."""
    sampled: Sampled | None = None
    """Stalls of its warps; None where they are not known."""

    def get(self, name: str, default: float = 0.0) -> float:
        """A metric's value; `default` where the device has none."""
        return self.values.get(name, default)


@dataclass(frozen=True)
class CallCounters:
    """Counters of one call of a plan."""

    values: Mapping[str, float]
    units: Mapping[str, str]
    parts: tuple[Part, ...]
    """Groups of launches, the slowest first."""
    uncounted_ns: float = 0.0
    """The time of launches that no part stands for."""
    counted: int = 0
    """Launches that were counted."""
    unsampled: str = ""
    """Why it is not known where warps waited; empty where it is."""

    @property
    def launches(self) -> int:
        """The number of launches that the parts stand for."""
        return sum(part.launches for part in self.parts)

    @property
    def whole_ns(self) -> float:
        """The time of all launches."""
        return sum(part.time_ns for part in self.parts) + self.uncounted_ns

    @property
    def is_partial(self) -> bool:
        """Whether launches were not counted that matter: sums are then too small for the call."""
        return self.uncounted_ns > NEGLIGIBLE * self.whole_ns

    @property
    def longest(self) -> str:
        """The kernel that took most of the time."""
        return self.parts[0].kernel

    def get(self, name: str, default: float = 0.0) -> float:
        """A metric's value; `default` where the device has none."""
        return self.values.get(name, default)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The values with their units, as a profile has them."""
        return tuple(Metric(name, value, self.units[name]) for name, value in self.values.items())


def measure(solo: Solo, scratch: Path, alone: Callable[[], AbstractContextManager[None]] = nullcontext) -> CallCounters:
    """Profile the program of a solo with one run; while it runs, `alone` is entered. Raises NcuFailure.

    Where it makes more than LAUNCHES launches, all are timed first; then those are counted that stand for most of the
    time, each for all that are like it. Samples of where warps wait are taken beside.
    """
    tool = find_tool("ncu")
    if tool is None:
        raise NcuFailure(NOT_INSTALLED, lasting=True)
    ncu = _Ncu(tool, scratch, alone)
    calls = solo.runs[0].program.calls
    counts = (*COUNTED, *SAMPLES)
    if len(calls) <= LAUNCHES:
        groups = [[number] for number in range(len(calls))]
        return ncu.with_samples(figures(ncu.counted(solo, counts, LAUNCHES), groups))
    timed = ncu.counted(solo, (TIME,), MOST_TIMED)
    times_ns = [_number(launch.get(TIME, "")) or 0.0 for launch in timed.launches]
    groups = alike(calls[: len(times_ns)], times_ns)[:LAUNCHES]
    chosen = replace(solo, counted=frozenset(group[0] for group in groups))
    counted = ncu.counted(chosen, counts, LAUNCHES, "--profile-from-start", "off")
    # The tool tells of launches in the order in which they were made.
    groups.sort(key=lambda group: group[0])
    return ncu.with_samples(figures(counted, groups, times_ns))


def alike(calls: Sequence[KernelCall], times_ns: Sequence[float]) -> list[list[int]]:
    """Return the places of launches that are alike, together: those first that take longest altogether.

    In each group the launch comes first whose time is in the middle, as it stands for the others.
    """
    found: dict[tuple[object, ...], list[int]] = {}
    for number, (each, _) in enumerate(zip(calls, times_ns, strict=True)):
        key = each.kernel, each.grid, each.block, each.cluster, each.shared_bytes
        found.setdefault(key, []).append(number)
    groups = sorted(found.values(), key=lambda group: -sum(times_ns[number] for number in group))
    for group in groups:
        group.sort(key=lambda number: (times_ns[number], number))
        middle = group.pop(len(group) // 2)
        group.insert(0, middle)
    return groups


_absent: set[str] = set()
"""Metrics that this machine's GPUs do not have."""


@dataclass
class _Ncu:
    """The tool, with a folder for its report."""

    tool: str
    scratch: Path
    alone: Callable[[], AbstractContextManager[None]]
    samples: bool = True
    """Whether the report tells where warps waited."""

    def counted(self, solo: Solo, metrics: Sequence[str], launches: int, *more: str) -> NcuReport:
        """The report on the launches of a solo's only run. Raises NcuFailure."""
        file = write_solo(solo, self.scratch)
        wanted = [name for name in metrics if name not in _absent]
        found, said = self._run(file, wanted, launches, *more)
        lacking = absent = [name for name in re.findall(r"Failed to find metric (\S+)", said) if name in wanted]
        samples = [name for name in wanted if name in SAMPLES]
        if found is None and not absent and samples and not _explained(said).lasting:
            lacking = samples  # a machine may count and yet not sample
        if lacking:
            _absent.update(absent)
            wanted = [name for name in wanted if name not in lacking]
            found, said = self._run(file, wanted, launches, *more)
        if found is None:
            raise _explained(said)
        self.samples = any(name in SAMPLES for name in wanted)
        return found

    def _run(self, solo: Path, metrics: Sequence[str], launches: int, *more: str) -> tuple[NcuReport | None, str]:
        """Its report, None without one, and its output. Raises NcuFailure where its time is up."""
        log, report = self.scratch / "ncu.log", self.scratch / REPORT
        for file in (log, report):
            file.unlink(missing_ok=True)
        options = ("--export", str(report), "--force-overwrite", "--log-file", str(log))
        replay = ("--clock-control", "none", "--cache-control", "all", "--replay-mode", "kernel")
        count = ("--launch-count", str(launches), "--target-processes", "all", "--metrics", ",".join(metrics))
        command = [self.tool, *options, *replay, *more, *count]
        with self.alone():
            outcome = watch(command, solo, scratch=self.scratch, timeout_s=TIMEOUT_S)
        if outcome.timed_out:
            raise NcuFailure(f"Nsight Compute did not finish within {TIMEOUT_S:.0f} s", lasting=False)
        said = (log.read_text(encoding="utf-8", errors="replace") if log.exists() else "") + outcome.output
        if not report.exists():
            return None, said
        told = self._told("raw", "--print-units", "base")
        return parse(told), said + told

    def with_samples(self, found: CallCounters) -> CallCounters:
        """The figures with where warps waited; without it, and why, where the report does not tell."""
        if not self.samples:
            return replace(found, unsampled="Nsight Compute takes no samples on this machine")
        said = self._told("source", "--print-source", "sass")
        sampled = parse_source(said)
        if len(sampled) > found.counted:  # it was seen to print the table of a launch twice
            sampled = [each for each, before in zip(sampled, (None, *sampled), strict=False) if each != before]
        if len(sampled) != found.counted:
            head = " ".join(said.split())[:200]
            lack = f"Nsight Compute tells of instructions of {len(sampled)} launches, not {found.counted}: {head}"
            return replace(found, unsampled=lack)
        return replace(found, parts=tuple(replace(part, sampled=sampled[part.number]) for part in found.parts))

    def _told(self, page: str, *options: str) -> str:
        """A page of its report."""
        command = [self.tool, "--import", str(self.scratch / REPORT), "--csv", "--page", page, *options]
        return tell(command, scratch=self.scratch, timeout_s=TIMEOUT_S).output


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


@dataclass(frozen=True)
class NcuReport:
    """Report of `ncu --csv --page raw`: text by column, of each launch, and of units."""

    launches: Sequence[Mapping[str, str]]
    units: Mapping[str, str]


def parse(text: str) -> NcuReport | None:
    """Read what `ncu --csv --page raw` prints, whatever stands around it; None where no launch was profiled."""
    rows = list(csv.reader(line for line in text.splitlines() if line.startswith('"')))
    start = next((i for i, row in enumerate(rows) if row[0] == "ID"), None)
    if start is None or len(rows) < start + 3:
        return None
    header, units = rows[start], rows[start + 1]
    launches = [dict(zip(header, row, strict=False)) for row in rows[start + 2 :] if len(row) == len(header)]
    return NcuReport(launches, dict(zip(header, units, strict=False))) if launches else None


def figures(report: NcuReport, groups: Sequence[Sequence[int]], times_ns: Sequence[float] = ()) -> CallCounters:
    """The counters of a call's launches, taken together.

    `groups` are the places of launches that are alike, one for each launch of the report, in its order; `times_ns` are
    the times of all launches, where more than those of the report are known.
    """
    parts = []
    for number, (launch, group) in enumerate(zip(report.launches, groups, strict=False)):
        values = {name: value for name in COUNTED if (value := _number(launch.get(name, ""))) is not None}
        own_ns = values.get(TIME, 1.0) or 1.0
        whole_ns = sum(times_ns[number] for number in group) if times_ns else own_ns
        kernel = re.sub(r"\(.*", "", launch.get("Kernel Name", ""))
        parts.append(Part(kernel, values, len(group), whole_ns, number, group[0]))
    parts.sort(key=lambda part: -part.time_ns)
    names = [name for name in COUNTED if any(name in part.values for part in parts)]
    values = {name: _together(name, parts) for name in names}
    uncounted_ns = max(sum(times_ns) - sum(part.time_ns for part in parts), 0.0)
    return CallCounters(
        values, {n: _unit(report.units[n]) for n in names}, tuple(_merged(parts)), uncounted_ns, len(report.launches)
    )


def _together(name: str, parts: Sequence[Part]) -> float:
    """A metric of all parts: the sum of what adds up, else the mean, weighted by time."""
    pairs = [(part, part.values[name]) for part in parts if name in part.values]
    if name in ADDED:
        return sum(value * part.launches for part, value in pairs)
    return sum(value * part.time_ns for part, value in pairs) / sum(part.time_ns for part, _ in pairs)


def _merged(parts: Iterable[Part]) -> list[Part]:
    """Parts of one kernel with one grid as one, with the figures of the longest."""
    found: dict[tuple[str, float], Part] = {}
    for part in parts:
        key = part.kernel, part.get(GRID)
        known = found.get(key)
        both = known and replace(known, launches=known.launches + part.launches, time_ns=known.time_ns + part.time_ns)
        found[key] = both or part
    return sorted(found.values(), key=lambda part: -part.time_ns)


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def _unit(text: str) -> str:
    return {"byte": "bytes", "byte/second": "bytes/s", "nsecond": "ns", "inst": "instructions"}.get(text, text)


# --- what it means --------------------------------------------------------------------------------------------------


def classify_measured(
    figures: CallCounters, model: Roofline, latency_us: float, *, empty_us: float, sm_count: int
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


def notes(figures: CallCounters, bottleneck: Bottleneck, plain_bytes: int) -> list[str]:
    """Sentences on the figures, the most telling first; `plain_bytes` is what a plain algorithm moves."""
    compute, memory, dram = (figures.get(name) for name in (COMPUTE, MEMORY, DRAM))
    said = [
        f"bottleneck: {bottleneck}; {ADVICE[bottleneck]}. Nsight Compute: memory system {memory:.0f} % busy "
        f"(DRAM {dram:.0f} %), multiprocessors {compute:.0f} %"
        + (f", tensor cores {figures.get(TENSOR):.0f} %" if figures.get(TENSOR) > LOW else "")
    ]
    said += _parts(figures)
    if max(compute, memory) >= FULL:
        said.append("one unit is at its limit: only less work for it helps")
    said += [*_traffic(figures, dram, memory, plain_bytes), *_occupancy(figures), *_stalls(figures), *_habits(figures)]
    return said


SHOWN_PARTS = 4
"""Kinds of launches that are told of."""


def _parts(figures: CallCounters) -> Iterable[str]:
    """Where the time goes, if there is more than one launch."""
    if figures.launches < 2:
        return
    whole_ns = figures.whole_ns
    for part in figures.parts[:SHOWN_PARTS]:
        times = f", {part.launches} launches" if part.launches > 1 else ""
        yield f"{part.kernel}{times}: {100 * part.time_ns / whole_ns:.0f} % of the time, limited by {limiter(part)}"
    rest_ns = sum(part.time_ns for part in figures.parts[SHOWN_PARTS:]) + figures.uncounted_ns
    if rest_ns > NEGLIGIBLE * whole_ns:
        yield f"all other launches: {100 * rest_ns / whole_ns:.0f} % of the time"


def limiter(part: Part) -> str:
    """The limiter of one launch, in a few words."""
    compute, memory, dram = part.get(COMPUTE), part.get(MEMORY), part.get(DRAM)
    if max(compute, memory) < BUSY:
        if part.get(WAVES, 1.0) < 0.5:
            return f"too few blocks ({part.get(WAVES):.2g} waves)"
        waits = max(((part.get(name), text) for name, text in STALLS.items()), default=(0.0, ""))
        return f"waiting for {waits[1].partition(':')[0]}" if waits[0] else "latency"
    if memory > compute:
        return f"DRAM ({dram:.0f} % busy)" if dram >= 0.8 * memory else f"caches ({memory:.0f} % busy)"
    tensor = part.get(TENSOR)
    return f"tensor cores ({tensor:.0f} % busy)" if tensor >= BUSY else f"arithmetic ({compute:.0f} % busy)"


def _traffic(figures: CallCounters, dram: float, memory: float, plain_bytes: int) -> Iterable[str]:
    moved = figures.get(READ) + figures.get(WRITTEN)
    if moved and plain_bytes:
        of_least = f"{moved / plain_bytes:.2g} times the least"
        told = "by the launches that were counted" if figures.is_partial else of_least  # the rest may move as much
        yield (
            f"DRAM: {figures.get(READ) / 1e6:.4g} MB read, {figures.get(WRITTEN) / 1e6:.4g} MB written, "
            f"{told}; hits in L1 {figures.get(L1_HITS):.0f} %, "
            f"in L2 {figures.get(L2_HITS):.0f} %"
        )
    if memory >= BUSY and dram < 0.8 * memory:
        yield "not DRAM but a cache is the busy part of memory: tiles, coalescing and bank conflicts are where to look"


def _occupancy(figures: CallCounters) -> Iterable[str]:
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


def _stalls(figures: CallCounters) -> Iterable[str]:
    waits = sorted(((figures.get(name), text) for name, text in STALLS.items()), reverse=True)
    total = sum(value for value, _ in waits)
    if figures.get(ISSUE, 100.0) < BUSY and total:
        top = [f"{100 * value / total:.0f} % for {text}" for value, text in waits[:2] if value > 0.1 * total]
        yield f"issue slots are busy {figures.get(ISSUE):.0f} % of the time; warps wait {'; '.join(top)}"


def _habits(figures: CallCounters) -> Iterable[str]:
    """Faults that hold however fast it is."""
    if 0 < figures.get(COALESCED, 100.0) < BUSY:
        yield f"global loads use {figures.get(COALESCED):.0f} % of the sectors that they fetch: not coalesced"
    if 0 < figures.get(UNIFORM, 100.0) < FULL:
        yield f"threads of a warp agree on {figures.get(UNIFORM):.0f} % of branches"
    if figures.get(CONFLICTS) > 0.05 * figures.get(INSTRUCTIONS, 1.0):
        yield f"{figures.get(CONFLICTS):.3g} conflicts of shared-memory banks"
    if figures.get(LOCAL):
        yield f"{figures.get(LOCAL):.3g} accesses to local memory: registers spill, or arrays are indexed"


FACTS: Mapping[str, str] = {
    "registers": "",
    "spill_bytes": "bytes",
    "static_shared_bytes": "bytes",
    "access_bytes": "bytes",
    "code_bytes": "bytes",
}
"""Facts of the build, with their units."""
COUNTABLE_US = 50_000.0
"""Counters take some forty runs, several of them a hundred times slower."""


@dataclass(frozen=True)
class RooflinePosition:
    """Position of the timings of one kernel under the roofline."""

    timings: tuple[tuple[Roofline, Timing], ...]
    dtype: str
    peaks: Peaks

    @property
    def worst(self) -> tuple[Roofline, Timing]:
        """Furthest below the roofline, where most is to be gained, of those that a profiler can run often enough."""
        countable = [pair for pair in self.timings if pair[1].latency_us <= COUNTABLE_US]
        return min(countable or self.timings, key=lambda pair: pair[0].efficiency(pair[1].latency_us))

    @property
    def countable(self) -> bool:
        """Whether the kernel is quick enough for counters, whose tool calls it many times."""
        return self.worst[1].latency_us <= COUNTABLE_US

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Metrics from the model and the times, without any counter."""
        model, timing = self.worst
        logs = [math.log(max(m.efficiency(t.latency_us), 1e-12)) for m, t in self.timings]
        return (
            Metric("roofline_efficiency", math.exp(sum(logs) / len(logs)), ""),
            Metric("worst_roofline_efficiency", model.efficiency(timing.latency_us), ""),
            Metric("worst_memory_gb_s", model.bytes / timing.latency_us / 1e3, "GB/s"),
            Metric("worst_compute_gflop_s", model.flops / timing.latency_us / 1e3, "GFLOP/s"),
        )

    @property
    def notes(self) -> list[str]:
        return [f"roofline: {t.workload}: {m.placed(t.latency_us, self.dtype, self.peaks)}" for m, t in self.timings]


def placed(
    operator: Operator,
    dtype: str,
    shapes: Mapping[Workload, Mapping[str, int]],
    timings: Sequence[Timing],
    peaks: Peaks,
) -> RooflinePosition | None:
    """The roofline of every timing whose workload is among `shapes`; None where there is none."""
    dims = {w.name: values for w, values in shapes.items()}
    found = tuple((roofline(operator, dims[t.workload], dtype, peaks), t) for t in timings if t.workload in dims)
    return RooflinePosition(found, dtype, peaks) if found else None


def assembled(
    place: RooflinePosition,
    facts: Mapping[str, Any],
    figures: CallCounters | None,
    *,
    sm_count: int,
    lack: str = "",
    stalled: Sequence[str] = (),
) -> Profile:
    """Everything there is to say; `lack` says why there are no `figures` of the worst workload.

    `stalled` are sentences on the lines of the kernel file at which warps wait.
    """
    model, timing = place.worst
    known = [Metric(name, float(facts[name]), unit) for name, unit in FACTS.items()]
    if figures is None:
        found = classify(model, timing.latency_us, empty_us=place.peaks.empty_us)
        said = [f"bottleneck: {found} on {timing.workload}, going by its time alone; {lack}"]
        return Profile(found, (*place.metrics, *known), (*said, *place.notes, *_of_build(facts)))
    found = classify_measured(figures, model, timing.latency_us, empty_us=place.peaks.empty_us, sm_count=sm_count)
    first, *rest = notes(figures, found, model.bytes)
    said = [f"{first}; on {timing.workload}", *stalled, *place.notes, *rest, *_of_build(facts)]
    return Profile(found, (*place.metrics, *known, *figures.metrics), tuple(said))


def _of_build(facts: Mapping[str, Any]) -> list[str]:
    said = [f"threads cooperate within: {facts['cooperation']}"]
    if facts.get("lower_precision", "none") != "none":
        said.append(f"it computes in a lower precision than the task's: {facts['lower_precision']}")
    return said
