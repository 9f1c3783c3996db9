"""Time of a verdict on a GPU: wall milliseconds per stage of a confirmed kernel, first and again.

    python -m tests.bench.gpu_stages --operators softmax gelu --dtypes fp32 --workloads cpu [--profile]

`--profile` adds the functions that a confirmation spends most in (cProfile). Prints JSON lines.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import json
import pstats
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from fitness.cuda.target import CudaFitness
from fitness.judging.base import Anchor
from fitness.judging.levels import judge
from operators.catalog import load
from operators.definition.spec import Task


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--operators", nargs="+", default=["softmax"])
    arguments.add_argument("--dtypes", nargs="+", default=["fp32"])
    arguments.add_argument("--workloads", default="cpu")
    arguments.add_argument("--rounds", type=int, default=2)
    arguments.add_argument("--profile", action="store_true")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in options.operators:
            for dtype in options.dtypes:
                task = Task(name, dtype, "cuda")
                stage = CudaFitness(load(name), task, workload_set=options.workloads, folder=Path(folder))
                try:
                    for number in range(options.rounds):
                        row = {"task": str(task), "workloads": options.workloads, "round": number}
                        print(json.dumps(row | _confirmed(stage, options.profile and number > 0)), flush=True)
                finally:
                    stage.close()


def _confirmed(stage: CudaFitness, profiled: bool) -> dict[str, object]:
    """A copy of the naive kernel against that, through every level."""
    profiler, begin = cProfile.Profile(), time.perf_counter()
    if profiled:
        profiler.enable()
    copy = replace(stage.baseline, source=f"{stage.baseline.source}\n// another one\n")
    stage.build(copy)
    levels = judge(stage, copy, Anchor(stage.baseline, 0.0, 0.0), race=False)
    profiler.disable()
    wall_s = time.perf_counter() - begin
    if profiled:
        text = io.StringIO()
        pstats.Stats(profiler, stream=text).sort_stats("cumulative").print_stats(60)
        print(text.getvalue(), file=sys.stderr)
    last = levels[-1]
    stages = {f"{e.level}.{name}_ms": round(ms, 1) for e in levels for name, ms in e.stage_ms.items()}
    pairs = [t.pairs for t in last.timings]
    return {"wall_s": round(wall_s, 2), "status": last.status, "message": last.message, "pairs": pairs} | stages


if __name__ == "__main__":
    main()
