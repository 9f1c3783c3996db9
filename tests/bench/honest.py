"""Share of draws of inputs, not of kernels, on which kernels that are right are rejected.

    python -m tests.bench.honest                              # the cpu target, here
    python -m tests.bench.honest --target cuda                # on a GPU
    python -m tests.bench.honest --target emulated            # CUDA kernels that can be emulated, without one

Takes the unusual but right kernels of tests/redteam/right, the operators' own (`--own`) and the best ones known
(`--champions`), and puts each to `--draws` inputs of every family, on hidden shapes that are drawn for every one of
them: the verdict's own check, two poisons and both gates. All kernels of an operator see the same inputs. Prints, for
each kernel and dtype, its rejections and the largest error and rms of a family as multiples of what is allowed, with
the family; then some rejections in their own words. Exits with 1 where there is one.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fitness.cpu.target import CpuFitness
from fitness.evaluation import CheckError, Evaluation, Level, Rejection, Status
from fitness.judging.checks import agreed_at_both_ends
from fitness.judging.device import KernelFault, KernelSession, Prepared
from fitness.judging.pipeline import Pipeline
from fitness.oracle.cases import Case
from operators.catalog import folders, load
from operators.champions import offered
from operators.definition.spec import Operator, Task, Workload
from operators.errors import DeviceError
from operators.kernel import Kernel
from tests.bench.champions import climb

RIGHT = Path(__file__).parent.parent / "redteam" / "right"
SUFFIX = {"cpu": ".cpp", "cuda": ".cu", "emulated": ".cu"}
AT_ONCE = 12
"""Kernels of an operator that are kept ready side by side, each in a process."""


MESSAGES = 3
"""Number of rejections of a kernel that the table tells; all are in the results."""


@dataclass(frozen=True)
class Entry:
    """One kernel file with one dtype."""

    operator: str
    dtype: str
    name: str
    source: str


@dataclass
class Tally:
    """Outcomes of one entry."""

    entry: Entry
    checks: int = 0
    rejections: list[str] = field(default_factory=list)
    """Their families and messages."""
    refused: str = ""
    """Why it never ran."""
    error: tuple[float, str] = (0.0, "-")
    """The largest one, as a multiple of its bound, and the family."""
    rms: tuple[float, str] = (0.0, "-")

    def add(self, case: Case, errors: Iterable[CheckError], problem: str) -> None:
        """Count one check, which `problem` was found by unless it is empty."""
        self.checks += 1
        if problem:
            self.rejections.append(f"{case.family}: {problem}")
        for found in errors:
            self.error = max(self.error, (found.max_ratio, case.family))
            self.rms = max(self.rms, (found.rms_ratio, case.family))

    def row(self) -> dict[str, Any]:
        """For a line of JSON."""
        e = self.entry
        return {
            "operator": e.operator, "dtype": e.dtype, "kernel": e.name, "checks": self.checks,
            "rejected": len(self.rejections), "error": self.error[0], "error_family": self.error[1],
            "rms": self.rms[0], "rms_family": self.rms[1], "refused": self.refused,
            "messages": dict(Counter(text[:600] for text in self.rejections)),
        }  # fmt: skip


class Bench(Protocol):
    """One operator and dtype on a target."""

    def case(self, workload: Workload, family: str) -> Case:
        """It draws inputs and answers them."""
        ...

    def open(self, entry: Entry, opened: ExitStack) -> Any:
        """A kernel in a process of its own; a text where it is refused."""
        ...

    def supports(self, kernel: Any, workload: Workload) -> bool:
        """Whether the kernel declares support for a shape."""
        ...

    def check(self, kernel: Any, case: Case) -> tuple[list[CheckError], str] | None:
        """Errors of a kernel on a case, and what is wrong with it, in words; None where it cannot be run here."""
        ...


class OnDevice:
    """`Bench` on the cpu target, or on a GPU."""

    def __init__(self, operator: Operator, dtype: str, target: str, folder: Path) -> None:
        task, chosen = Task(operator.name, dtype, target), "cpu"
        if target == "cpu":
            self._stage: Pipeline = CpuFitness(operator, task, workload_set=chosen, folder=folder)
        else:
            from fitness.cuda.target import CudaFitness

            self._stage = CudaFitness(operator, task, workload_set=chosen, folder=folder)

    def case(self, workload: Workload, family: str) -> Case:
        with self._stage.device.machine(exclusive=False):
            return self._stage.bench.checks.case(workload, family, at_end=True)

    def open(self, entry: Entry, opened: ExitStack) -> Any:
        target = self._stage.task.target
        prepared = self._stage.device.prepare(Kernel(entry.operator, target, entry.source))
        if isinstance(prepared, Rejection):
            return f"{prepared.status}: {prepared.message}"
        try:
            return prepared, opened.enter_context(self._stage.bench.session(prepared))
        except KernelFault as fault:
            return str(fault)

    def supports(self, kernel: tuple[Prepared, KernelSession], workload: Workload) -> bool:
        return kernel[0].supports(workload)

    def check(self, kernel: tuple[Prepared, KernelSession], case: Case) -> tuple[list[CheckError], str]:
        prepared, session = kernel
        self._stage.bench.checks.begin()  # each as if a level began: the limit to the calls of one does not add up here
        with self._stage.device.machine(exclusive=False):
            try:
                return self._stage.bench.checks.check(session, prepared, case), ""
            except KernelFault as fault:
                return list(self._stage.oracle.errors(case, session.work(0))), str(fault)

    def climbed(self, entry: Entry) -> Evaluation:
        """The verdict that a search would have, on small workloads; timings and floors included."""
        return climb(self._stage, Kernel(entry.operator, self._stage.task.target, entry.source), Level.CONFIRMED)

    def close(self) -> None:
        """End the processes that it keeps."""
        self._stage.close()


class Emulated:
    """`Bench` of CUDA kernels on this machine's processor; the naive kernel is emulated too, where the cpu has none."""

    def __init__(self, operator: Operator, dtype: str, folder: Path) -> None:
        from fitness.emulator.target import Emulation

        self._emulation = Emulation(operator, dtype, folder=folder, seed=int(np.random.default_rng().integers(1 << 31)))
        self._rng = np.random.default_rng()
        self._kept = ExitStack()
        naive = Entry(operator.name, dtype, "naive", operator.naive("cuda"))
        self._naive = self.open(naive, self._kept)

    def case(self, workload: Workload, family: str) -> Case:
        def trusted(question: Any) -> list[dict[str, Any]]:
            _, call = self._naive
            return [self._emulation.oracle.outputs(question, call(question, True, 0xFF))]

        return self._emulation.oracle.case(workload, family, self._rng, at_end=True, trusted=trusted)

    def open(self, entry: Entry, opened: ExitStack) -> Any:
        prepared = self._emulation.prepare(Kernel(entry.operator, "cuda", entry.source))
        if isinstance(prepared, Rejection):
            return f"{prepared.status}: {prepared.message}"
        return prepared, opened.enter_context(self._emulation.opened(prepared))

    def supports(self, kernel: Any, workload: Workload) -> bool:
        return workload.name in kernel[0].supported

    def check(self, kernel: Any, case: Case) -> tuple[list[CheckError], str] | None:
        prepared, call = kernel
        try:
            return agreed_at_both_ends(
                self._emulation.oracle, case, call, self._rng, deterministic=prepared.plan.deterministic
            ), ""
        except KernelFault as fault:
            return None if fault.rejection.status is Status.UNSUPPORTED else ([], str(fault))

    def close(self) -> None:
        """End the processes that it keeps."""
        self._kept.close()


def main() -> None:
    options = _options()
    deadline = time.monotonic() + options.limit_s
    groups: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry in entries(options):
        groups[entry.operator, entry.dtype].append(entry)
    tallies: list[Tally] = []
    with tempfile.TemporaryDirectory() as folder:
        for (name, dtype), group in sorted(groups.items()):
            operator = load(name)
            for begin in range(0, len(group), AT_ONCE):
                if time.monotonic() > deadline:
                    print(f"no time left for {name} {dtype}", file=sys.stderr)
                    break
                tallies += _judged(operator, dtype, group[begin : begin + AT_ONCE], options, Path(folder))
    print(table(tallies))
    sys.exit(any(tally.rejections or tally.refused for tally in tallies))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=tuple(SUFFIX), default="cpu")
    parser.add_argument("--draws", type=int, default=10, help="inputs of every family")
    parser.add_argument("--shapes", type=int, default=2, help="hidden shapes of every draw")
    parser.add_argument("--operators", nargs="+", default=sorted(folders()))
    parser.add_argument("--dtypes", nargs="+", default=["fp32", "bf16", "fp64", "fp16"])
    parser.add_argument("--only", default="", help="kernels with this in their name")
    parser.add_argument("--families", nargs="+", default=[])
    parser.add_argument("--own", action="store_true", help="also the operators' naive and tunable kernels")
    parser.add_argument("--champions", action="store_true", help="also the best kernels known; cuda only")
    parser.add_argument("--climb", action="store_true", help="then every level once, up to `confirmed`; not emulated")
    parser.add_argument("--limit-s", type=float, default=math.inf, help="seconds after which no operator begins")
    parser.add_argument("--results", type=Path, help="JSON lines, one for each kernel and dtype as it is done")
    return parser.parse_args()


def entries(options: argparse.Namespace) -> Iterator[Entry]:
    """Every kernel that the options ask for, in every dtype."""
    target = "cpu" if options.target == "cpu" else "cuda"
    for path in sorted(RIGHT.glob(f"*{SUFFIX[options.target]}")):
        about = header(path.read_text(encoding="utf-8"))
        if about["operator"] in options.operators and options.only in path.stem:
            operator = load(about["operator"])
            for dtype in about.get("dtypes", ["fp32"] if target == "cpu" else operator.dtypes[target]):
                if dtype in options.dtypes:
                    yield Entry(operator.name, dtype, path.stem, path.read_text(encoding="utf-8"))
    for name in options.operators:
        operator = load(name)
        for dtype in operator.dtypes.get(target, ()):
            own = operator.ancestors(target) if options.own else ()
            for ancestor in (*own, *(offered(operator, target, dtype) if options.champions else ())):
                if dtype in options.dtypes and options.only in ancestor:
                    source = operator.ancestor(ancestor, target).read_text(encoding="utf-8")
                    yield Entry(name, dtype, ancestor, source)


def header(source: str) -> dict[str, Any]:
    """The comment behind a kernel's plan that says what it is."""
    return tomllib.loads(source.partition("/* redteam\n")[2].partition("*/")[0])


def _judged(
    operator: Operator, dtype: str, group: Sequence[Entry], options: argparse.Namespace, folder: Path
) -> list[Tally]:
    tallies = [Tally(entry) for entry in group]
    if options.target == "emulated":
        bench: Any = Emulated(operator, dtype, folder)
    else:
        bench = OnDevice(operator, dtype, options.target, folder)
    with ExitStack() as opened:
        opened.callback(bench.close)
        kernels: dict[int, Any] = {}
        for number, tally in enumerate(tallies):
            found = bench.open(tally.entry, opened)
            if isinstance(found, str):
                tally.refused = found
            else:
                kernels[number] = found
        _draws(bench, operator, kernels, tallies, options)
        if options.climb and isinstance(bench, OnDevice):
            for tally in tallies:
                found = bench.climbed(tally.entry)
                if not found.correct:
                    tally.rejections.append(f"{found.level}: {found.status}: {found.message}")
    for tally in tallies:
        line = json.dumps(tally.row())
        print(line, flush=True)
        if options.results:
            with options.results.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
    return tallies


def _draws(
    bench: Bench,
    operator: Operator,
    kernels: Mapping[int, Any],
    tallies: Sequence[Tally],
    options: argparse.Namespace,
) -> None:
    """Every draw of every family on some shapes, for all kernels of an operator that support the shape."""
    from fitness.oracle.inputs import families
    from operators.catalog import functions

    rng = np.random.default_rng()
    shapes = [w for w in operator.hidden if any(bench.supports(kernel, w) for kernel in kernels.values())]
    for family in (options.families or families(functions(operator.folder))) * options.draws:
        for place in rng.permutation(len(shapes))[: options.shapes]:
            case = bench.case(shapes[place], family)
            for number, kernel in kernels.items():
                if bench.supports(kernel, shapes[place]) and (found := bench.check(kernel, case)) is not None:
                    tallies[number].add(case, *found)


def table(tallies: Sequence[Tally]) -> str:
    """Markdown: a line for each kernel and dtype, then what was not right, in its own words."""
    checks, rejected = sum(t.checks for t in tallies), sum(len(t.rejections) for t in tallies)
    refused = [t for t in tallies if t.refused]
    lines = [
        f"{len(tallies)} kernels (by dtype), {checks} checks: {rejected} rejected, in "
        f"{sum(bool(t.rejections) for t in tallies)} kernels; {len(refused)} kernels never ran",
        "",
        "| operator | dtype | kernel | checks | rejected | largest error / bound | family | rms / limit | family |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for t in tallies:
        cells = (
            t.entry.operator, t.entry.dtype, t.entry.name, t.checks, len(t.rejections), f"{t.error[0]:.3f}",
            t.error[1], f"{t.rms[0]:.3f}", t.rms[1],
        )  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    for t in tallies:
        lines += [f"- {t.entry.name} {t.entry.dtype}: {text[:400]}" for text in t.rejections[:MESSAGES]]
    return "\n".join([*lines, *(f"- {t.entry.name} {t.entry.dtype}: {t.refused[:300]}" for t in refused)])


if __name__ == "__main__":
    try:
        main()
    except DeviceError as error:
        sys.exit(str(error))
