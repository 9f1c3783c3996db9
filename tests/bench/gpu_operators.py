"""Naive kernels and the vendor's library on a GPU: verified, timed side by side, placed under the roofline.

    python -m tests.bench.gpu_operators [--operators softmax ...] [--dtypes fp32 bf16] [--workloads realistic]

Prints a JSON line for each operator, dtype and workload (three of a set at most): whether the naive kernel passed the
archive's checks, microseconds of both, the share of what the roofline allows that each reaches.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from fitness.base import Anchor
from fitness.cuda.target import CudaFitness
from fitness.roofline import roofline
from operators.catalog import folders, load
from operators.spec import Task

SIZES = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", nargs="+", default=sorted(folders()))
    parser.add_argument("--dtypes", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--workloads", default="realistic")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in options.operators:
            for dtype in options.dtypes:
                if dtype in load(name).dtypes.get("cuda", ()):
                    _measure(Task(name, dtype, "cuda"), options.workloads, Path(folder))


def _measure(task: Task, workload_set: str, folder: Path) -> None:
    begin = time.monotonic()
    stage = CudaFitness(load(task.operator), task, workload_set=workload_set, folder=folder)
    try:
        stage.workloads = stage.workloads[:SIZES]
        verdict = stage.judge(stage.baseline, Anchor(stage.baseline, 0.0, 0.0), race=False, best=float("inf"))[-1]
        references = stage.references()
        peaks = stage.device.peaks()
        dims = {w.name: sets[0].dims for w, sets in zip(stage.workloads, stage._cases(), strict=True)}
        for workload, values in dims.items():
            model = roofline(stage.operator, values, task.dtype, peaks)
            times = {r.kind: r.latency_us for r in references if r.workload == workload}
            row = {"task": str(task), "workload": workload, "verdict": verdict.status, "level": verdict.level}
            row |= {f"{kind}_us": round(us, 2) for kind, us in times.items()}
            row |= {f"{kind}_of_roofline": round(model.efficiency(us), 4) for kind, us in times.items()}
            print(json.dumps({**row, "bound": model.bound, "message": verdict.message[:200]}), flush=True)
    finally:
        stage.close()
        print(json.dumps({"task": str(task), "seconds": round(time.monotonic() - begin, 1)}), flush=True)


if __name__ == "__main__":
    main()
