"""How often the timing calls equal kernels different, and misses a kernel that is slower by a known amount.

    python -m tests.bench.comparisons --operator gelu --count 300 --slower 0.02

Each comparison is what a verdict does: two processes, the same input sets, random order, cold caches, every output
checked. The slower kernel computes a share of its elements twice; by how much that really makes it slower is told by
all of its samples together. A false call is a difference between equals; a missed one is a slower kernel that is called
equal or faster by a measurement which says that it could tell; `open` is neither: the measurement says that it could
not. The schedule `patient` is the confirmation's without its limit of seconds. Prints JSON: for each schedule the share
of false and of missed calls with 95 % intervals (Wilson), the median of the smallest difference that a single
measurement would have seen, samples and seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from fitness.cpu.target import CpuFitness
from fitness.evaluation import Rejection
from fitness.measure import Measurement, Pairing
from fitness.session import Prepared
from fitness.timing import CONFIRM, SCREEN, Schedule, Verdict, smallest_detectable
from operators.catalog import load
from operators.kernel import Kernel
from operators.spec import Task

PATIENT = replace(CONFIRM, looks=(20, 80, 320, 640, 1280), budget_s=math.inf)
SCHEDULES = {"screen": SCREEN, "confirm": CONFIRM, "patient": PATIENT}


def slowed(source: str, share: float) -> str:
    """A kernel file that does all its work and then a share of its last outermost loop again, by one machine code."""
    loops = list(re.finditer(r"^    for \((?:int|long long) (\w+) = 0; \1 < (\w+); ", source, re.MULTILINE))
    head = re.search(r'extern "C" void (\w+)\(([^)]*)\) \{', source)
    names = [parameter.split()[-1].lstrip("*") for parameter in head[2].split(",")] if head else []
    if not loops or loops[-1][2] not in names:
        raise SystemExit("this naive kernel has no plain outermost loop over one of its parameters")
    assert head
    end = loops[-1][2]
    again = [f"static_cast<decltype({end})>({end} * {share} + 0.5)" if name == end else name for name in names]
    body = source.replace(head[0], f"static __attribute__((noinline)) void work({head[2]}) {{")
    return (
        body
        + f"""
{head[0]}
    work({", ".join(names)});
    work({", ".join(again)});
}}
"""
    )


def compare(stage: CpuFitness, candidate: Prepared, anchor: Prepared, schedule: Schedule) -> Measurement:
    """One comparison, in as many processes as the pipeline takes at that level."""
    processes = 1 if schedule is SCREEN else stage.device.processes
    with ExitStack() as opened:
        sessions = [
            [stage._bound(opened.enter_context(stage._session(kernel))) for _ in range(processes)]
            for kernel in (candidate, anchor)
        ]
        pairing = Pairing(*sessions, stage._cases(), stage._accept, np.random.default_rng())
        with stage.device.machine(exclusive=True):
            return pairing.measure(schedule, race=False)


def wilson(hits: int, count: int) -> tuple[float, float]:
    """95 % interval of a share (Wilson, 1927)."""
    z, share = 1.96, hits / count
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return max(centre - half, 0.0), min(centre + half, 1.0)


def summary(
    found: Sequence[Measurement], wrong: Sequence[Verdict], schedule: Schedule, seconds: float
) -> dict[str, object]:
    hits = sum(m.verdict in wrong for m in found)
    ratios = [m.ratio.value for m in found]
    return {
        "comparisons": len(found),
        "wrong_calls": hits,
        "share": round(hits / len(found), 4),
        "share_95": [round(x, 4) for x in wilson(hits, len(found))],
        "verdicts": {str(v): sum(m.verdict is v for m in found) for v in Verdict},
        "median_change": round(math.expm1(float(np.median(ratios))), 5),
        "sd_of_log_ratio": round(float(np.std(ratios)), 5),
        "median_se": round(float(np.median([m.ratio.se for m in found])), 5),
        "median_detectable": round(
            math.expm1(float(np.median([smallest_detectable(m.ratio.se, schedule) for m in found]))), 5
        ),
        "median_pairs": float(np.median([t.pairs for m in found for t in m.timings])),
        "seconds_each": round(seconds / len(found), 3),
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
    """On the monotonic clock; no comparison begins after it."""


def compared(work: Work) -> dict[tuple[str, str], list[tuple[Measurement, float]]]:
    """By kind and schedule; each measurement with the seconds that it took."""
    os.sched_setaffinity(0, work.cores)
    operator = load(work.operator)
    found: dict[tuple[str, str], list[tuple[Measurement, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        stage = CpuFitness(operator, Task(operator.name, "fp32", "cpu"), workload_set="cpu", folder=Path(folder))
        stage.workloads = stage.workloads[: work.workloads]
        itself, slower = (
            Kernel(operator.name, "cpu", slowed(stage.baseline.source, share)) for share in (0.0, work.share)
        )
        prepared = {kind: stage.device.prepare(kernel) for kind, kernel in (("itself", itself), ("slower", slower))}
        for _, kind, name in product(range(work.count), prepared, work.schedules):
            candidate, anchor = prepared[kind], prepared["itself"]
            if isinstance(candidate, Rejection) or isinstance(anchor, Rejection):
                raise SystemExit("these kernels do not build")
            begin = time.monotonic()
            if begin > work.deadline:
                break
            measured = compare(stage, candidate, anchor, SCHEDULES[name])
            found.setdefault((kind, name), []).append((measured, time.monotonic() - begin))
        stage.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operator", default="gelu")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--slower", type=float, default=0.02)
    parser.add_argument("--workloads", type=int, help="so many of the operator's, the smallest; default all")
    parser.add_argument("--schedules", nargs="+", default=["screen", "confirm"], choices=SCHEDULES)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time, each on cores of its own")
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds after which no comparison begins")
    arguments = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    each = len(cores) // arguments.jobs
    if not each:
        parser.error(f"--jobs {arguments.jobs}: there are {len(cores)} cores")
    works = [
        Work(
            arguments.operator,
            arguments.slower,
            arguments.workloads,
            tuple(arguments.schedules),
            len(range(job, arguments.count, arguments.jobs)),
            tuple(cores[job * each : (job + 1) * each]),
            time.monotonic() + arguments.limit,
        )
        for job in range(arguments.jobs)
    ]
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool:
        parts = list(pool.map(compared, works))
    result: dict[str, object] = {"machine": platform.processor() or platform.machine(), "cores_each": each}
    for kind, name in parts[0]:
        wrong = (Verdict.FASTER, Verdict.SLOWER) if kind == "itself" else (Verdict.FASTER, Verdict.EQUAL)
        found = [one for part in parts for one in part[kind, name]]
        seconds = sum(taken for _, taken in found)
        result[f"{kind}/{name}"] = summary([m for m, _ in found], wrong, SCHEDULES[name], seconds)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
