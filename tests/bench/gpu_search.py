"""Finds of one search without language models on a GPU, from the naive kernels alone, for several operators at once.

    python -m tests.bench.gpu_search --budget 300s [--operators softmax gelu ...] [--dtype fp32] [--runs FOLDER]

Prints a line for each operator: speedup over the naive kernel with its 95 % interval, against the vendor's library, the
share of what the roofline allows that the best kernel and the naive one reach (geometric mean over the workloads whose
dims need no data), candidates and failures by kind; at last the geometric mean of the speedups.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from evo.report.reference import workloads
from operators.catalog import load
from tests.bench.gpu_throughput import EVO, asked

EIGHT = ("softmax", "matrix_mul", "spmv_csr", "rms_norm", "gelu", "stencil_2d", "prefix_sum", "cross_entropy_loss")
TIMES = "select task, workload, latency_us, anchor_latency_us from best join timings using (evaluation_id)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", nargs="+", default=EIGHT)
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--budget", default="300s")
    parser.add_argument("--workloads", default="realistic")
    parser.add_argument("--runs", help="folder to keep the run in")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        environment = os.environ | {"EVO_RUNS": options.runs or scratch}
        settings = ["--target", "cuda", "--dtype", options.dtype, "--ancestors", "naive", "--budget", options.budget]
        command = [*EVO, "run", *options.operators, *settings, "--set", f"workload_set={options.workloads}", "--json"]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"the search failed: exit code {done.returncode}")
        times = asked(environment, TIMES)
    tasks = json.loads(done.stdout)["tasks"]
    for task in tasks:
        mine = [row for row in times if row["task"] == task["task"]]
        print(json.dumps(_row(task, mine, options.dtype, options.workloads)), flush=True)
    gains = [math.log(task["speedup"]) for task in tasks if task["speedup"]]
    print(json.dumps({"operators": len(gains), "geomean_speedup": round(math.exp(sum(gains) / len(gains)), 2)}))


def _row(task: Mapping[str, Any], times: Sequence[Mapping[str, Any]], dtype: str, of_set: str) -> dict[str, object]:
    name = task["task"].split("/")[0]
    models = workloads(load(name), "cuda")["workloads"]
    least_us = {
        row["workload"]: row["roofline"][dtype]["us"]
        for row in models
        if row["set"] == of_set and dtype in row["roofline"]
    }

    def share(key: str) -> float | None:
        logs = [math.log(least_us[t["workload"]] / t[key]) for t in times if least_us.get(t["workload"])]
        return round(math.exp(sum(logs) / len(logs)), 3) if logs else None

    kept = ("speedup", "speedup_low", "speedup_high", "against_library")
    row: dict[str, object] = {"task": task["task"]}
    row |= {key: task[key] and round(task[key], 2) for key in kept}
    row |= {
        "level": task["level"],
        "of_roofline": share("latency_us"),
        "anchor_of_roofline": share("anchor_latency_us"),
    }
    return row | {"candidates": task["candidates"], "failures": task["failures"]}


if __name__ == "__main__":
    main()
