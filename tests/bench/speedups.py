"""Finds of a search from the naive kernel alone: speedup over it and over the library, median of several seeds.

    python -m tests.bench.speedups --operators softmax matrix_mul spmv_csr --seeds 3 --budget 90s

Each run is one operator with the machine, or with `--cores` so many of its cores, to itself. Prints a line a run and a
JSON summary.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

from tests.bench.cores import groups_of_cores

EVO = (sys.executable, "-m", "evo.cli")


def search(operator: str, *, seed: int, budget: str, strategy: str, runs: str, cores: Sequence[int]) -> dict[str, Any]:
    """The summary of one run."""
    pinned = ("taskset", "--cpu-list", ",".join(map(str, cores)))
    options = ("--seed", str(seed), "--budget", budget, "--strategy", strategy, "--runs", runs)
    command = [*pinned, *EVO, "run", operator, *options]
    done = subprocess.run([*command, "--json"], check=True, capture_output=True, text=True)
    summary: dict[str, Any] = json.loads(done.stdout)["tasks"][0]
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operators", nargs="+", default=["softmax", "matrix_mul", "spmv_csr"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", default="90s")
    parser.add_argument("--strategy", default="islands")
    parser.add_argument("--cores", type=int, help="of each run, as many runs at a time as there is room; default all")
    arguments = parser.parse_args()
    free = groups_of_cores(arguments.cores)
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as runs:

        def one(operator: str, seed: int) -> dict[str, Any]:
            mine = free.get()
            try:
                s = search(
                    operator, seed=seed, budget=arguments.budget, strategy=arguments.strategy, runs=runs, cores=mine
                )
            finally:
                free.put(mine)
            against = f"library {s['against_library']:.2f}x, " if s["against_library"] else ""
            print(
                f"{operator} seed {seed}: {s['speedup']:.2f}x ({s['speedup_low']:.2f}-{s['speedup_high']:.2f}), "
                f"{against}{s['candidates']} candidates, {s['failures']}",
                file=sys.stderr,
                flush=True,
            )
            return s

        with ThreadPoolExecutor(free.qsize()) as pool:
            runs_of = {o: [pool.submit(one, o, seed) for seed in range(arguments.seeds)] for o in arguments.operators}
        for operator, running in runs_of.items():
            found = [future.result() for future in running]
            result[operator] = {
                "speedup": median(s["speedup"] for s in found),
                "against_library": median(s["against_library"] or math.nan for s in found),
                "candidates": median(s["candidates"] for s in found),
            }
    mean = math.exp(sum(math.log(r["speedup"]) for r in result.values()) / len(result))
    print(json.dumps(result | {"geomean_speedup": mean}, indent=1))


if __name__ == "__main__":
    main()
