"""Errors of timing on a GPU: how often it calls a kernel different from itself, and what it would have seen.

    python -m tests.bench.gpu_comparisons --operator gelu --count 300 [--schedules screen confirm] [--limit 300]
                                          [--results FILE]

Each comparison is what a verdict does: fresh processes for both, the same input sets, random order, cold caches, every
output checked. Prints JSON: for each schedule the share of false calls with its 95 % interval (Wilson), the median of
the smallest difference that a single measurement would have seen, pairs and seconds. `--results` keeps every comparison
in a file, and those that it already holds count.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from pathlib import Path

from fitness.cuda.running.driver import device_facts
from fitness.cuda.target import CudaFitness
from fitness.evaluation import Rejection
from operators.catalog import load
from operators.definition.spec import Task
from tests.bench.comparisons import SCHEDULES, Comparison, compare, kept, recorded, summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operator", default="gelu")
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--set", default="cpu", help="of workloads; the operator's small sizes by default")
    parser.add_argument("--workloads", type=int, help="so many of the set, from its beginning")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--schedules", nargs="+", default=["screen", "confirm"], choices=SCHEDULES)
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds after which no comparison begins")
    parser.add_argument("--results", type=Path, help="JSON lines, one for each comparison; appended to")
    options = parser.parse_args()
    deadline = time.monotonic() + options.limit
    earlier = kept(options.results)
    found = {name: [c for c in earlier if c.schedule == name] for name in options.schedules}
    with tempfile.TemporaryDirectory() as folder:
        task = Task(options.operator, options.dtype, "cuda")
        stage = CudaFitness(load(options.operator), task, workload_set=options.set, folder=Path(folder))
        stage.workloads = stage.workloads[: options.workloads]
        try:
            prepared = stage.device.prepare(stage.baseline)
            if isinstance(prepared, Rejection):
                raise SystemExit(prepared.message)
            for name in options.schedules * (options.count - min(map(len, found.values()))):
                begin = time.monotonic()
                if begin > deadline:
                    break
                measured = compare(stage, prepared, prepared, SCHEDULES[name])
                found[name].append(Comparison.of("itself", name, measured, time.monotonic() - begin))
                recorded(options.results, found[name][-1])
        finally:
            stage.close()
    result: dict[str, object] = {"device": device_facts().name, "task": str(task)}
    result |= {name: summary(of) for name, of in found.items() if of}
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
