"""Profiles of kernels on a machine without hardware counters, as most virtual ones are.

Three sources: the roofline model with the measured times, the compiler's own words about every loop, and, where
valgrind is installed, a simulation of instructions, caches and branches line by line on a small shape. The last two
come from builds of their own; nothing of them is ever timed.
"""

from __future__ import annotations

import math
import platform
import re
import shutil
import signal
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from fitness.cpu.build import FLAGS, LIBRARIES, LINK_FLAGS, BuiltKernel, read_at_most, translation_unit
from fitness.cpu.image import MAX_FILE_BYTES, Image, Refused, image
from fitness.cpu.runner import RUNNER_FLAGS, plan_words
from fitness.evaluation import Timing
from fitness.oracle.inputs import draw
from fitness.profiling.profiles import Bottleneck, Metric, Profile, classify
from fitness.profiling.roofline import Peaks, roofline, traffic
from fitness.sandbox.memory import Region
from fitness.sandbox.native import CXX, built, toolchain_folders
from fitness.sandbox.processes import ProcessOutcome, run_confined
from operators.catalog import functions
from operators.definition.spec import Operator, Workload
from operators.dtypes import resolve_dtype
from operators.errors import PlanError

SIMULATED_WORK = 2e7
"""Operations plus bytes of the shape that is simulated, some 50 times slower than it runs."""
COMPILE_TIMEOUT_S = 20.0
SIMULATE_TIMEOUT_S = 30.0
SIMULATE_BYTES = 512 << 20
"""All buffers together of a simulated run, at most."""
HOT_LINES = 5
HOT_SHARE = 0.05
LINE_BYTES = 64
SIMULATED_VECTORS = ("-mavx2", "-mfma") if platform.machine() == "x86_64" else ()
"""Flags in place of -march=native: valgrind knows no AVX-512."""
LIBRARY = "kernel.so"
SOURCE = "kernel.cpp"
KERNEL = "kernel"
"""Name of the kernel's file for the compiler, apart from the lines that stand before it."""
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


# --- callgrind's counts of one run on a small shape -------------------------------------------------------------------


@dataclass
class LineCost:
    """Events of one source line of the kernel's functions, with those of library functions that it called."""

    instructions: int = 0
    l1_misses: int = 0
    callees: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Simulation:
    """Callgrind's counts while the plan's launches ran once, on one thread, from cold caches."""

    shape: str
    flops: int
    plain_bytes: int
    events: Mapping[str, int]
    lines: Mapping[tuple[str, int], LineCost] = field(default_factory=dict)
    """By file and line: `kernel`, or the header that an inlined function came from."""

    def total(self, *names: str) -> int:
        """The sum of some of callgrind's events, by their names."""
        return sum(self.events.get(name, 0) for name in names)

    @property
    def accesses(self) -> int:
        """Reads and writes of data."""
        return self.total("Dr", "Dw")

    @property
    def l1_misses(self) -> int:
        """Reads and writes that the first cache does not serve."""
        return self.total("D1mr", "D1mw")

    @property
    def memory_waste(self) -> float:
        """Bytes that came from memory, as a multiple of what a plain algorithm moves."""
        return self._per_least_line(self.total("DLmr", "DLmw"))

    @property
    def l1_waste(self) -> float:
        """The same for the first cache."""
        return self._per_least_line(self.l1_misses)

    def _per_least_line(self, misses: int) -> float:
        return misses * LINE_BYTES / self.plain_bytes if self.plain_bytes else 1.0

    @property
    def branch_miss_rate(self) -> float:
        """Percent of the branches, indirect ones included, that were predicted wrongly."""
        return 100 * self.total("Bcm", "Bim") / max(self.total("Bc", "Bi"), 1)

    @property
    def metrics(self) -> list[Metric]:
        """The counts and rates that a profile tells of."""
        metrics = [
            Metric("instructions", self.total("Ir"), ""),
            Metric("l1_miss_rate", 100 * self.l1_misses / max(self.accesses, 1), "%"),
            Metric("l1_waste", self.l1_waste, ""),
            Metric("memory_waste", self.memory_waste, ""),
            Metric("branch_miss_rate", self.branch_miss_rate, "%"),
        ]
        if self.flops:
            metrics.append(Metric("instructions_per_flop", self.total("Ir") / self.flops, ""))
        return metrics

    def notes(self, source: str) -> list[str]:
        """The whole in one line, then the hottest lines."""
        per_flop = f", {self.total('Ir') / self.flops:.3g} per operation" if self.flops else ""
        summary = (
            f"simulated on {self.shape}, one thread, 32-byte vectors at most: {self.total('Ir'):,} instructions"
            f"{per_flop}; traffic into the first cache is {self.l1_waste:.3g} times the least, "
            f"from memory {self.memory_waste:.3g} times; {self.branch_miss_rate:.3g} % of branches are mispredicted"
        )
        return [summary, *self._hot_lines(source.splitlines())]

    def _hot_lines(self, source: Sequence[str]) -> Iterator[str]:
        total, misses = max(self.total("Ir"), 1), max(self.l1_misses, 1)
        hottest = sorted(self.lines.items(), key=lambda item: -item[1].instructions)[:HOT_LINES]
        for (file, line), cost in hottest:
            if max(cost.instructions / total, cost.l1_misses / misses) < HOT_SHARE:
                continue
            own = file == KERNEL and line <= len(source)
            where, text = (
                (f"line {line}", f": {source[line - 1].strip()[:100]}") if own else (f"inlined from {file}", "")
            )
            calls = f" (calls {', '.join(sorted(cost.callees))})" if cost.callees else ""
            yield (
                f"{where}: {100 * cost.instructions / total:.0f} % of instructions, "
                f"{100 * cost.l1_misses / misses:.0f} % of first-cache misses{calls}{text}"
            )


def simulate_smaller(
    subject: BuiltKernel, shapes: Mapping[Workload, Mapping[str, int]], facts: Mapping[str, int], scratch: Path
) -> Simulation | str:
    """A simulation, or one line that says why there is none."""
    if shutil.which("valgrind") is None:
        return "no simulation: valgrind is not installed (Debian, Ubuntu: apt-get install valgrind)"
    supports, values = subject.plan.supports, subject.kernel.values
    try:
        usable = {w: d for w, d in shapes.items() if supports(subject.operator, d, values, facts, subject.dtype)}
        workload = simulated_shape(subject.operator, subject.dtype, usable)
        return simulate(subject, workload, facts, scratch) if workload else "no simulation: no shape is small enough"
    except PlanError as error:
        return f"no simulation: {error}"


def simulated_shape(operator: Operator, dtype: str, shapes: Mapping[Workload, Mapping[str, int]]) -> Workload | None:
    """The shape with the most work that can still be simulated in a second or so."""
    work = {}
    for workload, dims in shapes.items():
        moved = traffic(operator, dims, dtype).total
        work[workload] = moved + operator.flops.evaluate(operator.cost_environment(dims, dtype))
    small = [workload for workload, amount in work.items() if amount <= SIMULATED_WORK]
    return max(small, key=work.__getitem__, default=None)


def simulate(subject: BuiltKernel, workload: Workload, facts: Mapping[str, int], scratch: Path) -> Simulation | str:
    """Run the plan once under callgrind, on nominal inputs; a line that says why not where it cannot be.

    Raises PlanError where the plan does not resolve.
    """
    write_source(subject, scratch)
    unit = _unit_that_runs(subject.kernel.source, scratch)
    command = [CXX, *_simulated_flags(), "-g", unit, *LINK_FLAGS, "-o", LIBRARY, *LIBRARIES]
    if compiled(command, scratch).returncode != 0:
        vectors = " ".join(SIMULATED_VECTORS) or "plain flags"
        own = "; an #if of the kernel takes code for more than that, and the other branch never runs here"
        return (
            f"no simulation: it does not compile with {vectors}, all that valgrind knows{own if unit != SOURCE else ''}"
        )
    try:
        mapped = image(read_at_most(scratch / LIBRARY, MAX_FILE_BYTES), len(subject.build.launches))
    except Refused as error:
        return f"no simulation: {error}"
    dims = _write_task(subject, mapped, workload, facts, scratch / "task")
    if dims is None:
        return f"no simulation: {workload.name} needs more than {SIMULATE_BYTES >> 20} MiB"
    outcome = _callgrind(scratch)
    if outcome.timed_out:
        return f"no simulation: {workload.name} did not finish within {SIMULATE_TIMEOUT_S:.0f} s"
    if outcome.returncode < 0:
        name = signal.Signals(-outcome.returncode).name
        why = ", an instruction that valgrind does not know (AVX-512)" if name == "SIGILL" else ""
        return f"no simulation: on {workload.name} it ended with {name} under valgrind{why}"
    if outcome.returncode > 0:
        last = outcome.output.strip().splitlines()[-1:] or ["no message"]
        return f"no simulation: valgrind ended with code {outcome.returncode}: {last[0][:200]}"
    events, lines = parse_callgrind((scratch / "callgrind.out").read_text(encoding="utf-8", errors="replace"))
    operator = subject.operator
    flops = operator.flops.evaluate(operator.cost_environment(dims, subject.dtype))
    return Simulation(workload.name, flops, traffic(operator, dims, subject.dtype).total, events, lines)


def _simulated_flags() -> list[str]:
    return [*(flag for flag in FLAGS if flag != "-march=native"), *SIMULATED_VECTORS]


def _unit_that_runs(source: str, scratch: Path) -> str:
    """The file to simulate: with those branches of the kernel's #if that its own build has.

    As preprocessed for this processor, where they are others than for the one that valgrind knows; lines that never run
    would be annotated otherwise.
    """
    if not _switches().intersection(re.findall(r"\w+", source)):
        return SOURCE
    kept = []
    for name, flags in (("runs.ii", FLAGS), ("simulated.ii", _simulated_flags())):
        done = compiled([CXX, *flags, "-E", SOURCE, "-o", name], scratch)
        text = (scratch / name).read_text(encoding="utf-8", errors="replace") if done.returncode == 0 else ""
        kept.append(_own_lines(text))
    return SOURCE if kept[0] == kept[1] else "runs.ii"


@lru_cache
def _switches() -> frozenset[str]:
    """Names of what the compiler predefines differently for this processor and for the one that valgrind knows."""
    listed = []
    for flags in (FLAGS, _simulated_flags()):
        command = [CXX, *flags, "-dM", "-E", "-x", "c++", "/dev/null"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        listed.append(set(done.stdout.splitlines()))
    return frozenset(line.split()[1].partition("(")[0] for line in listed[0] ^ listed[1])


def _own_lines(preprocessed: str) -> dict[int, str]:
    """The kernel's lines as the preprocessor left them."""
    found: dict[int, list[str]] = {}
    file, line = "", 0
    for text in preprocessed.splitlines():
        if marker := re.match(r'# (\d+) "(.*?)"', text):
            file, line = marker[2], int(marker[1])
            continue
        if file == KERNEL and text.strip():
            found.setdefault(line, []).append(text)
        line += 1
    return {number: "".join(parts) for number, parts in found.items()}


def _callgrind(scratch: Path) -> ProcessOutcome:
    shutil.copy(built("cpu/profile_driver.cpp", *RUNNER_FLAGS), scratch / "driver")
    valgrind = shutil.which("valgrind")
    assert valgrind is not None
    options = (
        "--tool=callgrind", "--vgdb=no", "--toggle-collect=evo_launch_*", "--cache-sim=yes", "--branch-sim=yes",
        "--compress-strings=no", "--compress-pos=no", "--callgrind-out-file=callgrind.out",
    )  # fmt: skip
    return run_confined(
        [valgrind, *options, "./driver", f"./{LIBRARY}", "task"],
        cwd=str(scratch),
        timeout_s=SIMULATE_TIMEOUT_S,
        memory_bytes=0,  # the simulator reserves what it never uses
        readable=(*toolchain_folders(), str(Path(valgrind).resolve().parent), "/proc/self"),
        alone=True,
        environment={"OMP_NUM_THREADS": "1", "OMP_THREAD_LIMIT": "1"},
    )


def write_source(subject: BuiltKernel, scratch: Path) -> None:
    """The translation unit of the build, with a name of its own for what stands before the kernel's first line."""
    launches = subject.build.launches
    text = translation_unit(subject.kernel, subject.plan, subject.operator, dtype=subject.dtype, launches=launches)
    text = '#line 1 "prelude"\n' + text.replace("#line 1\n", f'#line 1 "{KERNEL}"\n', 1)
    (scratch / SOURCE).write_text(text, encoding="utf-8")


def compiled(command: list[str], scratch: Path) -> ProcessOutcome:
    """The outcome of a compiler's command, run confined in a scratch folder."""
    return run_confined(
        command,
        cwd=str(scratch),
        timeout_s=COMPILE_TIMEOUT_S,
        output_bytes=4 << 20,
        readable=toolchain_folders(),
    )


def _write_task(
    subject: BuiltKernel, mapped: Image, workload: Workload, facts: Mapping[str, int], path: Path
) -> Mapping[str, int] | None:
    """Writes what profile_driver.cpp reads and returns the dims with what the drawn inputs tell. None: too much
    memory."""
    operator, dtype = subject.operator, subject.dtype
    rng = np.random.default_rng(0)
    inputs = draw(operator, functions(operator.folder), dims=workload.dims, dtype=dtype, family="nominal", rng=rng)
    plan = subject.plan.resolve(operator, dtype=dtype, dims=inputs.dims, values=subject.kernel.values, facts=facts)
    data = {name: tensor.contiguous().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
            for name, tensor in inputs.tensors.items()}  # fmt: skip
    sizes = {t.name: resolve_dtype(t.dtype, dtype).size * math.prod(t.sizes(inputs.dims)) for t in operator.tensors} | {
        b.name: b.bytes for b in plan.buffers
    }
    if sum(sizes.values()) > SIMULATE_BYTES:
        return None
    order = tuple(sizes)
    orders = mapped.words()
    words = [len(orders), *orders, len(order)]
    for name in order:
        words += [sizes[name], len(data.get(name, b""))]
    words += plan_words(plan, subject.build, operator, order, Region(sizes, at_end=False))
    with path.open("wb") as task:
        task.write(struct.pack(f"<{len(words)}q", *words))
        for name in order:
            task.write(data.get(name, b""))
    return inputs.dims


def parse_callgrind(text: str) -> tuple[dict[str, int], dict[tuple[str, int], LineCost]]:
    """Totals by event, and costs by file and line of the kernel's functions; names and positions uncompressed.

    A call out of the library counts for the line that calls, except into the runtime of OpenMP, which calls back.
    """
    names: list[str] = []
    totals: dict[str, int] = {}
    lines: dict[tuple[str, int], LineCost] = {}
    for row in _cost_rows(text):
        names = names or row.events
        events = dict(zip(names, row.numbers[1:], strict=False))
        if not row.callee:
            for name, count in events.items():
                totals[name] = totals.get(name, 0) + count
        if row.object == LIBRARY and row.callee_object != LIBRARY and not row.callee.startswith("GOMP_"):
            cost = lines.setdefault((row.file, row.numbers[0]), LineCost())
            cost.instructions += events.get("Ir", 0)
            cost.l1_misses += events.get("D1mr", 0) + events.get("D1mw", 0)
            cost.callees |= {row.callee} - {""}
    return totals, lines


@dataclass
class _Row:
    """A line of costs with what the lines before it set."""

    events: list[str] = field(default_factory=list)
    object: str = ""
    """The library or program; names of files only, here and below."""
    file: str = ""
    callee_object: str = ""
    callee: str = ""
    """Empty for a line's own cost."""
    numbers: list[int] = field(default_factory=list)


def _cost_rows(text: str) -> Iterator[_Row]:
    now = _Row()
    callee, callee_object, is_call = "", "", False
    for row in text.splitlines():
        key, _, value = row.partition("=")
        match key:
            case "ob":
                now.object = Path(value).name
            case "fl" | "fi" | "fe":
                now.file = Path(value).name
            case "cob":
                callee_object = Path(value).name
            case "cfn":
                callee = value
            case "calls":
                is_call = True
            case _ if row.startswith("events:"):
                now.events = row.split()[1:]
            case _ if row[:1].isdigit():
                now.numbers = [int(number) for number in row.split()]
                now.callee, now.callee_object = (callee, callee_object or now.object) if is_call else ("", "")
                yield now
                callee_object, is_call = "", False
