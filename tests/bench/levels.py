"""Cost of a verdict, and how often it calls a kernel faster or slower than its own copy.

    python -m tests.bench.levels --target cpu --operators softmax matrix_mul gelu spmv_csr --count 10 [--confirms 3]

Judges each operator's naive kernel against a copy, so that every level runs to its end, as often as asked, and prints
JSON: by operator and level the median milliseconds of each stage, and of the whole; `failures`; `told_apart`, how many
verdicts' 95 % intervals leave out that both are equally fast, and `decided`, how many call one of them faster.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from fitness.evaluation import Z95, Evaluation
from fitness.judging.base import Anchor
from fitness.judging.timing import CONFIRM, FULL, POCOCK, SCREEN, Schedule
from fitness.targets import fitness
from operators.catalog import load
from operators.definition.spec import Task
from operators.kernel import Kernel


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--operators", nargs="+", default=["softmax", "matrix_mul", "gelu", "spmv_csr"])
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--set", default="cpu", help="of workloads; the operators' small sizes by default")
    parser.add_argument("--count", type=int, default=10, help="screenings and full evaluations of each operator")
    parser.add_argument("--confirms", type=int, default=3)
    arguments = parser.parse_args()
    found = {}
    for name in arguments.operators:
        operator, task = load(name), Task(name, arguments.dtype, arguments.target)
        with tempfile.TemporaryDirectory() as folder:
            stage = fitness(operator, task, workload_set=arguments.set, folder=Path(folder))
            try:
                # Not the baseline itself, which is hardly timed beside itself.
                kernel = Kernel(name, arguments.target, operator.naive(arguments.target) + "\n// another one\n")
                stage.build(kernel)
                start = Anchor(stage.baseline, 0.0, 0.0)
                screen = partial(stage.screen, kernel, start, race=False)
                found[name] = {
                    "screen": _examined(screen, SCREEN, arguments.count),
                    "full": _examined(partial(stage.full, kernel, start), FULL, arguments.count),
                    "confirm": _examined(partial(stage.confirm, kernel), CONFIRM, arguments.confirms),
                }
            finally:
                stage.close()
        print(json.dumps({name: found[name]}), flush=True)


def _examined(examine: Callable[[], Evaluation], schedule: Schedule, count: int) -> dict[str, float]:
    """Median milliseconds by stage, and counts, after one evaluation that warms up."""
    stages: dict[str, list[float]] = defaultdict(list)
    counts = dict.fromkeys(("evaluations", "failures", "told_apart", "decided"), 0)
    for number in range(count + 1):
        begin = time.perf_counter()
        result = examine()
        whole_ms = 1e3 * (time.perf_counter() - begin)
        if number:
            counts["evaluations"] += 1
            counts["failures"] += not result.correct
            if result.correct and result.log_ratio is not None and result.log_ratio_se:
                errors = abs(result.log_ratio) / result.log_ratio_se
                counts["told_apart"] += errors > Z95
                counts["decided"] += errors > POCOCK[len(schedule.looks)]
            for stage, spent_ms in {**result.stage_ms, "whole": whole_ms}.items():
                stages[stage].append(spent_ms)
    return {name: round(float(np.median(values)), 1) for name, values in stages.items()} | counts


if __name__ == "__main__":
    main()
