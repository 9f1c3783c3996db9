"""Error of chained ratios: three kernels timed in pairs, each beside each, whose log ratios add up to 0 but for noise.

    python -m tests.bench.triangles RUN... [--count 10]

A kernel runs a little faster or slower by what is called beside it, which takes caches and clock rates with it: a
constant of the pair, that no repetition averages out and no pair's standard error knows. Judges in full the two kernels
of each task of these runs that stand highest and the naive one, each beside each, `--count` times in turns. Prints
JSON, by run and task: `sum`, the log ratios around the triangle, and `se`, by the scatter of the repetitions; and
`beside_se`, the standard deviation of one pair's constant that all of them make likely.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np

import evo
from evo.rows import kernel_from
from evo.store import query
from fitness.judging.base import Anchor, Fitness
from fitness.targets import fitness
from operators.catalog import load
from operators.definition.spec import Task
from operators.kernel import Kernel

FASTEST = """
select v.task, k.* from verdicts v join kernels k using (kernel_id)
where v.status = 'correct' and v.stands_at > 0 and v.duplicate_of is null
qualify row_number() over (partition by v.task order by v.stands_at desc) <= 2 order by v.task, v.stands_at desc
"""


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="their folders")
    parser.add_argument("--count", type=int, default=10)
    options = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    for run in options.runs:
        pairs: dict[str, list[Kernel]] = defaultdict(list)
        for row in query(run, FASTEST).to_pylist():
            pairs[row["task"]].append(kernel_from(row))
        workload_set = str(evo.open(str(run)).config["workload_set"])
        for task, kernels in pairs.items():
            if len(kernels) == 2:
                found[f"{run.name} {task}"] = triangle(Task.parse(task), kernels, workload_set, options.count)
                print(json.dumps({task: found[f"{run.name} {task}"]}), flush=True)
    excess = [each["sum"] ** 2 - each["se"] ** 2 for each in found.values()]
    print(json.dumps(found | {"beside_se": math.sqrt(max(sum(excess), 0.0) / (3 * len(excess)))}, indent=1))


def triangle(task: Task, kernels: list[Kernel], workload_set: str, count: int) -> dict[str, float]:
    """Return the sum around a triangle of two kernels and the naive one, with its standard error."""
    first, second = kernels
    with tempfile.TemporaryDirectory() as folder:
        stage = fitness(load(task.operator), task, workload_set=workload_set, folder=Path(folder))
        try:
            for kernel in kernels:
                stage.build(kernel)
            naive = stage.baseline
            sums = [
                _ratio(stage, first, second) + _ratio(stage, second, naive) - _ratio(stage, first, naive)
                for _ in range(count)
            ]
        finally:
            stage.close()
    return {"sum": float(np.mean(sums)), "se": float(np.std(sums, ddof=1) / math.sqrt(count))}


def _ratio(stage: Fitness, kernel: Kernel, beside: Kernel) -> float:
    measured = stage.full(kernel, Anchor(beside, 0.0, 0.0)).log_ratio
    assert measured is not None, f"kernel {kernel.id} was judged before, and is not right now"
    return measured


if __name__ == "__main__":
    main()
