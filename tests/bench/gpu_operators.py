"""Every operator's own kernels and the vendor's library on a GPU: verified, timed in turns, placed under the roofline.

    python -m tests.bench.gpu_operators --results FILE.jsonl --limit 500    # a slice; again to go on where it ended
    python -m tests.bench.gpu_operators --results FILE.jsonl --table        # what is there so far; needs no GPU

A JSON line for each operator, dtype and size of the sets `published` and `realistic`: the verdict on each kernel file
(naive, tunable with its defaults, the library call) and its microseconds, medians of cold calls that take turns; the
roofline's. A line `hidden` for each operator and dtype: the same kernels on a few hidden shapes, with two poisons.

Kernels are our own, so that they run in a child of this process beside the verifier, not in a jail; one that kills the
child costs it that size. What the archive asks of a naive kernel is asked by tests/gpu.
"""

from __future__ import annotations

import argparse
import json
import math
import pickle
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fitness.cuda.compile.build import CudaBuild, compile_cuda
from fitness.cuda.compile.compiler import Compiler
from fitness.cuda.running.arguments import program
from fitness.cuda.running.driver import FLUSH_L2_SIZES, call, device_facts
from fitness.evaluation import Rejection
from fitness.judging.device import LARGE, NAN, UNANSWERED
from fitness.judging.signature import check_arguments
from fitness.profiling.roofline import roofline
from operators.catalog import folders, functions, load
from operators.definition.spec import Operator, Workload
from operators.errors import OperatorError, PlanError
from operators.kernel import Kernel
from operators.plan.reading import parse_plan

SETS = ("realistic", "published")
LIBRARY = "library"
HIDDEN_SHAPES = 4
SILENCE_S = 60.0
"""Time after which a silent child is taken to hang."""
SAMPLES, SAMPLES_S, LEAST_SAMPLES = 9, 0.15, 3
"""Timed calls of each kernel on one size, the seconds after which fewer are enough, and the fewest."""
CHECKED_ELEMENTS = 1 << 24
"""Every timed output is looked at if it is smaller; of larger ones the first."""
NEAREST = 5
"""Number of sizes that are told, those whose errors come nearest to what is allowed."""
SLOW_US = 200_000.0
"""A naive kernel that takes longer needs a smaller size."""

Key = tuple[str, str, str, str]
NAMES = ("operator", "dtype", "set", "workload")
"""The parts of a key; `hidden` as the set has no workload."""


@dataclass(frozen=True)
class Unit:
    """Work of one child before it looks for the next: an operator and dtype on one set."""

    operator: str
    dtype: str
    set: str

    def keys(self) -> Iterator[Key]:
        """The keys of the lines it makes."""
        if self.set == SETS[0]:
            yield (self.operator, self.dtype, "hidden", "")
        for workload in _workloads(load(self.operator), self.set):
            yield (self.operator, self.dtype, self.set, workload.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", nargs="+", default=sorted(folders()))
    parser.add_argument("--dtypes", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--results", type=Path, required=True, help="JSON lines; what stands there is not done again")
    parser.add_argument("--limit", type=float, default=530.0, metavar="SECONDS")
    parser.add_argument("--jobs", type=int, default=8, help="compilers at a time")
    parser.add_argument("--table", action="store_true", help="only show what the results say")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.table:
        print(table(read_rows(options.results)))
        return
    if options.child:
        _measure_all(options.child)
        return
    deadline = time.monotonic() + options.limit
    units = [
        Unit(name, dtype, chosen)
        for chosen in options.sets
        for dtype in options.dtypes
        for name in options.operators
        if dtype in load(name).dtypes.get("cuda", ())
    ]
    with options.results.open("a", encoding="utf-8") as file:
        left = still_left(units, read_rows(options.results))
        with tempfile.TemporaryDirectory() as folder:
            built = _build(left, Path(folder), jobs=options.jobs)
            print(f"{sum(map(len, left.values()))} sizes to do; {built}", file=sys.stderr)
            while left and time.monotonic() < deadline:
                before = left
                for row in _slice(left, Path(folder), deadline):
                    file.write(json.dumps(row) + "\n")
                    file.flush()
                left = still_left(units, read_rows(options.results))
                if left == before:
                    break  # it does not even begin
    rows = read_rows(options.results)
    print(f"{sum(map(len, left.values()))} sizes left, {len(rows)} done", file=sys.stderr)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of the results; a line that was cut off is left out."""
    rows: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def still_left(units: Iterable[Unit], rows: Sequence[Mapping[str, Any]]) -> dict[Unit, list[Key]]:
    """By unit, the keys that no row has; units in their order, those that are done left out."""
    done = {(row["operator"], row["dtype"], row["set"], row["workload"]) for row in rows}
    found = {unit: [key for key in unit.keys() if key not in done] for unit in units}  # noqa: SIM118
    return {unit: keys for unit, keys in found.items() if keys}


def _workloads(operator: Operator, name: str) -> list[Workload]:
    return [w for w in operator.workloads if w.set == name]


# --- builds ----------------------------------------------------------------------------------------------------------


def _build(left: Iterable[Unit], folder: Path, *, jobs: int) -> str:
    """Compile every kernel that will be needed, into pickles; says how long it took."""
    begin, arch, own = time.monotonic(), device_facts().arch, threading.local()
    wanted = {(unit.operator, unit.dtype, name) for unit in left for name in load(unit.operator).ancestors("cuda")}

    def compiled(one: tuple[str, str, str]) -> None:
        operator_name, dtype, name = one
        if not hasattr(own, "compiler"):
            own.compiler = Compiler()
            compilers.append(own.compiler)
        operator = load(operator_name)
        source = operator.ancestor(name, "cuda").read_text(encoding="utf-8")
        kernel = Kernel(operator_name, "cuda", source)
        made = compile_cuda(kernel, operator, dtype, arch=arch, compiler=own.compiler)
        _pickle(folder, *one).write_bytes(pickle.dumps(made))

    compilers: list[Compiler] = []
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(compiled, sorted(wanted)))
    for compiler in compilers:
        compiler.close()
    return f"{len(wanted)} kernels compiled in {time.monotonic() - begin:.0f} s"


def _pickle(folder: Path, operator: str, dtype: str, name: str) -> Path:
    return folder / f"{operator}-{dtype}-{name}.pickle"


# --- the parent: a child does the work and may die of it -------------------------------------------------------------


def _slice(left: Mapping[Unit, Sequence[Key]], folder: Path, deadline: float) -> Iterator[dict[str, Any]]:
    """Rows as a child tells them, until it has done everything, dies, hangs, or the time is over."""
    plan = folder / "plan.pickle"
    plan.write_bytes(pickle.dumps(dict(left)))
    command = [sys.executable, "-m", "tests.bench.gpu_operators", "--results", "-", "--child", str(plan)]
    lines: queue.Queue[str] = queue.Queue()
    begun: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        threading.Thread(target=_read, args=(child.stdout, lines), daemon=True).start()
        try:
            while True:
                try:
                    line = lines.get(timeout=max(min(SILENCE_S, deadline - time.monotonic()), 0.0))
                except queue.Empty:
                    late = time.monotonic() >= deadline
                    reason = "" if late else f"nothing for {SILENCE_S:.0f} s: it hangs"
                    break
                if not line:
                    reason = f"the process ended with code {child.wait()}"
                    break
                told = json.loads(line)
                begun = told.get("begun", [])
                if not begun:
                    yield told
        finally:
            child.kill()
    if begun and reason:
        yield dict(zip(NAMES, begun, strict=True)) | {"lost": reason}


def _read(stream: Iterable[str], lines: queue.Queue[str]) -> None:
    for line in stream:
        lines.put(line)
    lines.put("")


# --- the child -------------------------------------------------------------------------------------------------------


def _measure_all(plan: Path) -> None:
    """Every key of the plan, in its order, one line when it begins and one with what was found."""
    left: Mapping[Unit, Sequence[Key]] = pickle.loads(plan.read_bytes())
    from fitness.cuda.running.memory import BlockPool

    pool = BlockPool(0)
    for unit, keys in left.items():
        bench = _Bench(unit, pool, plan.parent)
        for key in keys:
            print(json.dumps({"begun": key}), flush=True)
            begin = time.monotonic()
            row: dict[str, Any] = dict(zip(NAMES, key, strict=True))
            try:
                row |= bench.hidden() if key[2] == "hidden" else bench.size(key[3])
            except Exception as error:  # whatever it is, the next child goes on with the next size
                reason = " ".join(f"{type(error).__name__}: {error}".split())[:400]
                print(json.dumps(row | {"lost": reason}), flush=True)
                raise
            print(json.dumps(row | {"seconds": round(time.monotonic() - begin, 3)}), flush=True)
        bench.close()


class _Bench:
    """One operator and dtype: its kernels and library call, loaded into this process."""

    def __init__(self, unit: Unit, pool: Any, folder: Path) -> None:
        import torch

        from fitness.cuda.oracle import CudaOracle
        from fitness.cuda.running.library import LibraryRunner
        from fitness.cuda.session import LibrarySession

        self._unit = unit
        self._operator = load(unit.operator)
        self._pool = pool
        self._oracle = CudaOracle(self._operator, functions(self._operator.folder), unit.dtype, pool)
        self._rng = np.random.default_rng()
        self._torch: Any = torch
        flush = torch.empty(int(FLUSH_L2_SIZES * device_facts().l2_bytes) // 4, device=self._oracle.device)
        self._kernels: dict[str, Any] = {}
        self._refused: dict[str, str] = {}
        self._library: Any = None
        self._worst: dict[int, float] = {}
        """By kernel, the largest error on this size in units of what is allowed."""
        for name in self._operator.ancestors("cuda"):
            made = pickle.loads(_pickle(folder, unit.operator, unit.dtype, name).read_bytes())
            if isinstance(made, Rejection):
                self._refused[name] = f"{made.status}: {made.message[:300]}"
            else:
                source = self._operator.ancestor(name, "cuda").read_text(encoding="utf-8")
                self._kernels[name] = _Local(self._oracle, made, source, unit.dtype, flush)
        if calls := self._oracle.functions.libraries("cuda", unit.dtype):
            self._library = LibraryRunner(device_facts().ordinal, quiet=nullcontext)
            self._kernels[LIBRARY] = LibrarySession(self._oracle, self._library, calls[0])

    def close(self) -> None:
        """Give the memory back."""
        self._kernels.clear()
        if self._library:
            self._library.close()
        self._pool.trim()

    def hidden(self) -> dict[str, Any]:
        """Verdicts on some hidden shapes, each with another family of inputs and two poisons."""
        hidden = self._operator.hidden
        verdicts = dict(self._refused)
        for index in self._rng.permutation(len(hidden))[:HIDDEN_SHAPES]:
            case = self._case(hidden[index], str(self._rng.choice(self._oracle.families)))
            for name, kernel in self._kernels.items():
                if name != LIBRARY and verdicts.get(name, "correct") == "correct":
                    verdicts[name] = self._judged(kernel, case, (NAN, int(self._rng.choice(LARGE[0]))))
        return {"verdicts": verdicts}

    def size(self, name: str) -> dict[str, Any]:
        """Verdicts and times of one size."""
        from fitness.targets import peaks

        workload = next(w for w in _workloads(self._operator, self._unit.set) if w.name == name)
        model = roofline(self._operator, workload.dims, self._unit.dtype, peaks("cuda"))
        row: dict[str, Any] = {
            "device": device_facts().name,
            "roofline_us": round(model.attainable_us, 3),
            "bound": model.bound,
        }
        try:
            case = self._case(workload, "nominal")
        except (OperatorError, self._torch.OutOfMemoryError) as error:
            return row | {"lost": " ".join(str(error).split())[:300]}
        verdicts = dict(self._refused)
        for kernel_name, kernel in self._kernels.items():
            self._worst[id(kernel)] = 0.0
            verdicts[kernel_name] = self._judged(kernel, case, (NAN,))
        right = {n: k for n, k in self._kernels.items() if verdicts[n] == "correct" or n == LIBRARY}
        right = {n: k for n, k in right.items() if not verdicts[n].startswith(("error", "unsupported"))}
        times = self._timed(right, case, verdicts)
        worst = {name: round(self._worst[id(kernel)], 3) for name, kernel in self._kernels.items()}
        return row | {"verdicts": verdicts, "us": {n: round(t, 3) for n, t in times.items()}, "worst": worst}

    def _case(self, workload: Workload, family: str) -> Any:
        naive = self._kernels.get("naive")

        def trusted(question: Any) -> list[dict[str, Any]]:
            if naive is None:
                return []
            naive.bind(0, question, at_end=False)
            naive.run(0, poison=NAN)
            return [dict(self._oracle.outputs(question, naive.work(0)))]

        return self._oracle.case(workload, family, self._rng, at_end=False, trusted=trusted)

    def _judged(self, kernel: Any, case: Any, poisons: Sequence[int]) -> str:
        """`correct`, or why not."""
        try:
            kernel.bind(0, case, at_end=False)
            for poison in poisons:
                kernel.run(0, poison=poison)
                if problem := self._problem(case, kernel):
                    return problem
        except _Unsupported as error:
            return f"unsupported: {error}"
        except (OperatorError, PlanError, *UNANSWERED, self._torch.OutOfMemoryError) as error:
            return f"error: {' '.join(str(error).split())[:300]}"
        except RuntimeError as error:  # of the library; the device works on
            if "CUDA error" in str(error):
                raise
            return f"error: {' '.join(str(error).split())[:300]}"
        return "correct"

    def _problem(self, case: Any, kernel: Any) -> str:
        work = kernel.work(0)
        for error in self._oracle.errors(case, work):
            self._worst[id(kernel)] = max(self._worst.get(id(kernel), 0.0), error.worst_ratio)
            if error.wrong:
                return f"wrong: {self._oracle.describe(error, case, work)[:400]}"
        touched = work.touched()
        return f"wrong: beyond the end of {touched}" if touched else ""

    def _timed(self, kernels: Mapping[str, Any], case: Any, verdicts: dict[str, str]) -> dict[str, float]:
        """Medians of cold calls in random order, microseconds; a wrong timed output becomes the kernel's verdict."""
        elements = sum(math.prod(t.sizes(case.dims)) for t in self._operator.outputs)
        spent_s = dict.fromkeys(kernels, 0.0)
        samples: dict[str, list[float]] = {name: [] for name in kernels}
        for number in range(SAMPLES):
            for index in self._rng.permutation(len(kernels)):
                name = list(kernels)[index]
                if spent_s[name] > (SAMPLES_S if number >= LEAST_SAMPLES else 4 * SAMPLES_S):
                    continue
                sample = kernels[name].run(0, poison=int(self._rng.integers(256)), cold=True)
                spent_s[name] += sample.elapsed_ns / 1e9
                samples[name].append(sample.elapsed_ns / 1e3)
                looked_at = elements < CHECKED_ELEMENTS or number == 0
                if looked_at and verdicts[name] == "correct" and (problem := self._problem(case, kernels[name])):
                    verdicts[name] = f"{problem} (timed)"
        return {name: statistics.median(found) for name, found in samples.items()}


class _Unsupported(Exception):
    """The kernel does not promise this size."""


class _Local:
    """A kernel in this process, with the part of `fitness.judging.device.KernelSession` that is needed here."""

    def __init__(self, oracle: Any, build: CudaBuild, source: str, dtype: str, flush: Any) -> None:
        import torch

        self._oracle, self._build, self._dtype = oracle, build, dtype
        self._plan = parse_plan(source, oracle.operator, "cuda")
        self._launcher = _launcher()
        self._torch: Any = torch
        self._stream = torch.cuda.ExternalStream(int(self._launcher.stream), device=oracle.device)
        module = call("ModuleLoadData", build.cubin)
        self._functions = {
            name: call("ModuleGetFunction", module, symbol.encode()) for name, symbol in build.lowered.items()
        }
        for function in self._functions.values():
            self._launcher.allow_shared(function)
        self._graph: Any = None
        self._question: Any = None
        self._work: Any = None
        self._flush = flush

    def bind(self, slot: int, question: Any, *, at_end: bool) -> None:
        """Memory for outputs and scratch, and a graph of what one call does. Raises _Unsupported and PlanError."""
        from fitness.cuda.running.memory import CudaRegion

        operator, facts = self._oracle.operator, device_facts().plan_facts
        if not self._plan.supports(operator, question.dims, {}, facts, self._dtype):
            raise _Unsupported(self._plan.requires.text)
        resolved = self._plan.resolve(
            operator, dtype=self._dtype, dims=question.dims, values={}, facts=facts, occupancy={}
        )
        if problem := check_arguments(resolved, self._build.params, operator, self._dtype):
            raise PlanError(problem)
        sizes = self._oracle.work_sizes(question.dims) | {b.name: b.bytes for b in resolved.buffers}
        self._release()
        self._work = CudaRegion(self._oracle.pool, sizes, at_end=at_end)
        self._question = question
        addresses = {
            name: region.tensor(name).data_ptr() or region.blocks[name].address
            for region in (question.region, self._work)
            for name in region.extents
        }
        launcher = self._launcher
        launcher.functions = self._functions
        made = program(resolved, self._build.params, operator)
        maps = launcher.tensor_maps(made, addresses)
        self._torch.cuda.synchronize()
        call("StreamBeginCapture", launcher.stream, launcher.cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
        launcher.enqueue(made, addresses, sizes, maps)
        graph = call("StreamEndCapture", launcher.stream)
        self._graph = call("GraphInstantiate", graph, 0)
        call("GraphDestroy", graph)

    def run(self, slot: int, *, poison: int, cold: bool = False, sealed: bool = False) -> Any:
        """One call, timed by events."""
        from fitness.judging.device import Sample

        torch = self._torch
        self._work.fill(poison)
        self._oracle.restore(self._question, self._work)
        if cold:
            self._flush.fill_(float(poison))
            self._flush.sum()
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(self._stream):
            torch.cuda._sleep(200_000)  # the call is queued before the clock starts
            begin.record()
            call("GraphLaunch", self._graph, self._launcher.stream)
            end.record()
        end.synchronize()
        return Sample(round(1e6 * begin.elapsed_time(end)), 0)

    def work(self, slot: int) -> Any:
        """Outputs and scratch as the last call left them."""
        return self._work

    def _release(self) -> None:
        if self._graph is not None:
            call("GraphExecDestroy", self._graph)
        self._graph = self._work = self._question = None


@cache
def _launcher() -> Any:
    """One stream for all kernels."""
    from fitness.cuda.running.launcher import Launcher

    return Launcher(0)


# --- the table -------------------------------------------------------------------------------------------------------


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: a line for each operator and dtype, then what was not right, too slow, or lost."""
    from evo.report.scoreboard import P_NOTE

    sizes = [row for row in rows if "us" in row]
    devices = ", ".join(sorted({row["device"] for row in sizes}))
    lines = [
        f"{devices}, {len(sizes)} sizes. Geometric means over them: the naive kernel's time, speedups over "
        "it of the tunable kernel (untuned) and the vendor's library, the fastest one's share of the roofline.",
        "",
        "| operator | dtype | set | sizes | naive | tunable | library | of the roofline | P |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for unit in dict.fromkeys((r["operator"], r["dtype"], r["set"]) for r in sizes):
        chosen = [r for r in sizes if (r["operator"], r["dtype"], r["set"]) == unit and "naive" in r["us"]]
        if chosen:
            lines.append(f"| {' | '.join((*unit, str(len(chosen)), *_cells(load(unit[0]), chosen)))} |")
    verdicts = [(row, name, text) for row in rows for name, text in row.get("verdicts", {}).items()]
    counts: dict[str, int] = {}
    for _, name, text in verdicts:
        kind = f"{name} {text.split(':')[0]}"
        counts[kind] = counts.get(kind, 0) + 1
    lines += ["", ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())) + "."]
    if any(row["set"] == "published" for row in sizes):
        lines += ["", P_NOTE]
    # Tunable kernels need not support every hidden shape.
    odd = [(r, n, t) for r, n, t in verdicts if t != "correct" and (r["set"] != "hidden" or "unsupported" not in t)]
    alike: dict[tuple[str, str, str, str], list[str]] = {}
    for row, name, text in odd:
        alike.setdefault((row["operator"], row["dtype"], name, text.partition(":")[0]), []).append(text)
    lines += [
        "",
        *(f"- {key[0]} {key[1]} {key[2]}, {len(texts)} times, the first: {texts[0]}" for key, texts in alike.items()),
    ]
    errors = sorted((row["worst"]["naive"], _name(row)) for row in sizes if "naive" in row.get("worst", {}))
    near = errors[: -1 - NEAREST : -1]
    lines += [f"- {size} naive: an error of {worst:.2f} of what is allowed" for worst, size in near]
    lines += [
        f"- {_name(row)}: the naive kernel takes {row['us']['naive'] / 1e3:.0f} ms"
        for row in sizes
        if row["us"].get("naive", 0.0) > SLOW_US
    ]
    lines += [f"- {_name(row)}: {row['lost']}" for row in rows if "lost" in row]
    return "\n".join(lines)


def _cells(operator: Operator, rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Geometric means over sizes: the naive time, speedups over it, the fastest kernel's share of the roofline; P."""
    from evo.report.scoreboard import p_score

    def over_naive(name: str) -> list[float]:
        return [r["us"]["naive"] / r["us"][name] for r in rows if name in r["us"]]

    def times(name: str) -> str:
        ratios = over_naive(name)
        return f"{_geomean(ratios):.2f}x" if ratios else "-"

    naive_us = _geomean([r["us"]["naive"] for r in rows])
    best = _geomean([r["roofline_us"] / min(r["us"].values()) for r in rows if r["roofline_us"] > 0] or [math.nan])
    speedups = {r["workload"]: r["us"]["naive"] / r["us"]["tunable"] for r in rows if "tunable" in r["us"]}
    scored = p_score(operator, speedups) if rows[0]["set"] == "published" else None
    return (
        f"{naive_us:.1f} us", times("tunable"), times(LIBRARY), f"{best:.0%}", f"{scored:.2f}" if scored else "-"
    )  # fmt: skip


def _geomean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def _name(row: Mapping[str, Any]) -> str:
    return " ".join(filter(None, (row["operator"], row["dtype"], row["set"], row["workload"])))


if __name__ == "__main__":
    main()
