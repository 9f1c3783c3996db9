"""Errors of the timing: how often it calls equal kernels different, and misses a kernel that is slower by a known
amount.

    python -m tests.bench.comparisons --operator gelu --count 300 --slower 0.02

Each comparison is what a verdict does: two processes, the same input sets, random order, cold caches, every output
checked. The slower kernel ends with a chain of dependent multiply-adds, as long as that share of its time asks; all of
its samples together tell by how much it really was slower. A false call is a difference between equals; a missed one is
a slower kernel that is called equal or faster by a measurement which says that it could tell; `open` is neither: the
measurement says that it could not. (A screening's `equal` says that there is no gain, which is right of both.) The
schedule `patient` is the confirmation's without its limit of seconds. Prints JSON: for each schedule the share of false
and of missed calls with 95 % intervals (Wilson), the median of the smallest difference that a single measurement would
have seen, samples and seconds. `--results` keeps every comparison in a file, and those that it already holds count.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import product
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path

import numpy as np

from fitness.cpu.target import CpuFitness
from fitness.evaluation import Rejection
from fitness.judging.device import Prepared
from fitness.judging.paired import Measurement, Pairing
from fitness.judging.pipeline import Pipeline
from fitness.judging.timed_inputs import Seat
from fitness.judging.timing import CONFIRM, SCREEN, RaceResult, Schedule, smallest_detectable
from operators.catalog import load
from operators.definition.spec import Task
from operators.kernel import Kernel
from tests.bench.cores import groups_of_cores

PATIENT = replace(CONFIRM, looks=(20, 80, 320, 640, 1280), budget_s=math.inf)
KINDS = ("itself", "slower")
SCHEDULES = {"screen": SCREEN, "confirm": CONFIRM, "patient": PATIENT}


def slowed(source: str, rounds: int) -> str:
    """A kernel file that does its work and then so many dependent multiply-adds; one machine code for any number."""
    head = re.search(r'extern "C" void (\w+)\(([^)]*)\) \{', source)
    if not head:
        raise SystemExit("this naive kernel is no single function")
    names = [parameter.split()[-1].lstrip("*") for parameter in head[2].split(",")]
    return f"""{source.replace(head[0], f"static __attribute__((noinline)) void work({head[2]}) {{")}
{head[0]}
    work({", ".join(names)});
    volatile long long rounds = {rounds};
    volatile double end = rounds;  // so that the chain is neither computed by the compiler nor left out
    double value = end;
    for (long long i = rounds; i > 0; i--) value = value * 0.5 + 1.0;
    end = value;
}}
"""


def rounds_for(stage: CpuFitness, share: float) -> int:
    """The number of rounds that make the naive kernel slower by this share.

    A chain's time is proportional to its length, so a long one tells what a short one takes; lengthened until it takes
    at least as long as a quarter of the kernel, which a measurement sees to a percent or so of itself.
    """
    anchor = _prepared(stage, 0)
    rounds = 1000
    while True:
        slower = math.expm1(-compare(stage, _prepared(stage, rounds), anchor, CONFIRM).ratio.value)
        if slower > 0.25:
            return round(rounds * share / slower)
        rounds *= 4


def _prepared(stage: CpuFitness, rounds: int) -> Prepared:
    kernel = Kernel(stage.operator.name, "cpu", slowed(stage.baseline.source, rounds))
    prepared = stage.device.prepare(kernel)
    if isinstance(prepared, Rejection):
        raise SystemExit(f"this kernel does not build: {prepared}")
    return prepared


def compare(stage: Pipeline, candidate: Prepared, anchor: Prepared, schedule: Schedule) -> Measurement:
    """One comparison, in as many processes as the pipeline takes at that level."""
    processes = 1 if schedule is SCREEN else stage.device.processes
    bench = stage.bench
    with ExitStack() as opened:

        def seats(kernel: Prepared, *, disguised: bool) -> list[Seat]:
            opened_here = [opened.enter_context(bench.session(kernel)) for _ in range(processes)]
            return [bench.inputs.seated(session, disguised=disguised) for session in opened_here]

        both = seats(candidate, disguised=True), seats(anchor, disguised=False)
        pairing = Pairing(*both, bench.checks.accept, np.random.default_rng(), spread=stage.device.spread)
        with stage.device.machine(exclusive=True):
            return pairing.measure(schedule, race=False)


def wilson(hits: int, count: int) -> tuple[float, float]:
    """95 % interval of a share (Wilson, 1927)."""
    z, share = 1.96, hits / count
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return max(centre - half, 0.0), min(centre + half, 1.0)


@dataclass(frozen=True)
class Comparison:
    """A measurement's outcome, as `--results` keeps it."""

    kind: str
    """itself or slower"""
    schedule: str
    verdict: RaceResult
    log_ratio: float
    log_ratio_se: float
    pairs: float
    """Mean over the workloads."""
    seconds: float

    @classmethod
    def of(cls, kind: str, schedule: str, measured: Measurement, seconds: float) -> Comparison:
        pairs = float(np.mean([t.pairs for t in measured.timings]))
        return cls(kind, schedule, measured.result, measured.ratio.value, measured.ratio.se, pairs, seconds)

    @property
    def wrong(self) -> bool:
        if self.kind == "itself":
            return self.verdict in (RaceResult.FASTER, RaceResult.SLOWER)
        seeks_gains = SCHEDULES[self.schedule].least_gain > 0  # its `equal` only says that there is none
        return self.verdict is RaceResult.FASTER or (self.verdict is RaceResult.EQUAL and not seeks_gains)


def kept(results: Path | None) -> list[Comparison]:
    """The comparisons that earlier calls left in this file."""
    if results is None or not results.exists():
        return []
    lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    return [Comparison(**line | {"verdict": RaceResult(line["verdict"])}) for line in lines]


def recorded(results: Path | None, one: Comparison) -> None:
    """Append it, where results are kept."""
    if results:
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(one)) + "\n")


def summary(found: Sequence[Comparison]) -> dict[str, object]:
    """The summary of comparisons of one kind by one schedule."""
    hits = sum(c.wrong for c in found)
    ratios = [c.log_ratio for c in found]
    schedule = SCHEDULES[found[0].schedule]
    detectable = float(np.median([smallest_detectable(c.log_ratio_se, schedule) for c in found]))
    return {
        "comparisons": len(found),
        "wrong_calls": hits,
        "share": round(hits / len(found), 4),
        "share_95": [round(x, 4) for x in wilson(hits, len(found))],
        "verdicts": {str(v): sum(c.verdict is v for c in found) for v in RaceResult},
        "median_change": round(math.expm1(float(np.median(ratios))), 5),
        "sd_of_log_ratio": round(float(np.std(ratios)), 5),
        "median_se": round(float(np.median([c.log_ratio_se for c in found])), 5),
        "median_detectable": round(math.expm1(detectable), 5),
        "median_pairs": float(np.median([c.pairs for c in found])),
        "seconds_each": round(float(np.mean([c.seconds for c in found])), 3),
    }


@dataclass(frozen=True)
class Work:
    """Comparisons for one process on cores of its own."""

    operator: str
    share: float
    workloads: int | None
    schedules: tuple[str, ...]
    count: int
    cores: tuple[int, ...]
    deadline: float
    """Deadline on the monotonic clock; no comparison begins after it."""

    def carry_out(self, results: Connection) -> None:
        os.sched_setaffinity(0, self.cores)
        operator = load(self.operator)
        with tempfile.TemporaryDirectory() as folder:
            stage = CpuFitness(operator, Task(operator.name, "fp32", "cpu"), workload_set="cpu", folder=Path(folder))
            stage.workloads = stage.workloads[: self.workloads]
            anchor = _prepared(stage, 0)
            candidates = {"itself": anchor, "slower": _prepared(stage, rounds_for(stage, self.share))}
            for _, kind, name in product(range(self.count), candidates, self.schedules):
                begin = time.monotonic()
                if begin > self.deadline:
                    break
                measured = compare(stage, candidates[kind], anchor, SCHEDULES[name])
                results.send(Comparison.of(kind, name, measured, time.monotonic() - begin))
            stage.close()
        results.close()


def comparisons(works: Sequence[Work]) -> Iterator[Comparison]:
    """Each in a process of its own; in the order in which they end."""
    processes, open_ends = [], []
    for work in works:
        ours, theirs = Pipe(duplex=False)
        process = get_context("spawn").Process(target=work.carry_out, args=(theirs,))
        process.start()
        theirs.close()
        processes.append(process)
        open_ends.append(ours)
    while open_ends:
        for end in wait(open_ends):
            assert isinstance(end, Connection)
            try:
                yield end.recv()
            except EOFError:
                open_ends.remove(end)
    for process in processes:
        process.join()
        if process.exitcode:
            raise SystemExit("a process with comparisons failed, see above")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operator", default="gelu")
    parser.add_argument("--count", type=int, default=300, help="of each kind and schedule, those in --results included")
    parser.add_argument("--slower", type=float, default=0.02)
    parser.add_argument("--workloads", type=int, help="so many of the operator's, the smallest; default all")
    parser.add_argument("--schedules", nargs="+", default=["screen", "confirm"], choices=SCHEDULES)
    parser.add_argument("--cores", type=int, help="of each process, as many at a time as there is room; default all")
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds after which no comparison begins")
    parser.add_argument("--results", type=Path, help="JSON lines, one for each comparison; appended to")
    arguments = parser.parse_args()
    found = kept(arguments.results)
    done = min(sum(c.kind == k and c.schedule == s for c in found) for k in KINDS for s in arguments.schedules)
    groups = groups_of_cores(arguments.cores)
    works = [
        Work(
            arguments.operator,
            arguments.slower,
            arguments.workloads,
            tuple(arguments.schedules),
            len(range(number, arguments.count - done, groups.qsize())),
            tuple(groups.queue[number]),
            time.monotonic() + arguments.limit,
        )
        for number in range(groups.qsize())
    ]
    for one in comparisons([work for work in works if work.count]):
        found.append(one)
        recorded(arguments.results, one)
    result: dict[str, object] = {"cores_each": len(groups.queue[0]), "slower": arguments.slower}
    for kind, name in product(KINDS, arguments.schedules):
        part = [c for c in found if c.kind == kind and c.schedule == name]
        if part:
            result[f"{kind}/{name}"] = summary(part)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
