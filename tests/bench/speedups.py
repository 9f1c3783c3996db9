"""What a search finds from the naive kernel alone: speedup over it and over the library, median of several seeds.

    python -m tests.bench.speedups --operators softmax matrix_mul spmv_csr --seeds 3 --budget 90s

Each run is one operator with the machine to itself. Prints a line a run and a JSON summary.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from statistics import median
from typing import Any

EVO = (sys.executable, "-m", "evo.cli")


def search(operator: str, *, seed: int, budget: str, strategy: str, runs: str) -> dict[str, Any]:
    """The summary of one run."""
    command = [*EVO, "run", operator, "--seed", str(seed), "--budget", budget, "--strategy", strategy, "--runs", runs]
    done = subprocess.run([*command, "--json"], check=True, capture_output=True, text=True)
    summary: dict[str, Any] = json.loads(done.stdout)["tasks"][0]
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operators", nargs="+", default=["softmax", "matrix_mul", "spmv_csr"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", default="90s")
    parser.add_argument("--strategy", default="islands")
    arguments = parser.parse_args()
    result = {}
    with tempfile.TemporaryDirectory() as runs:
        for operator in arguments.operators:
            found = []
            for seed in range(arguments.seeds):
                s = search(operator, seed=seed, budget=arguments.budget, strategy=arguments.strategy, runs=runs)
                found.append(s)
                print(
                    f"{operator} seed {seed}: {s['speedup']:.2f}x ({s['speedup_low']:.2f}-{s['speedup_high']:.2f}), "
                    f"library {s['against_library']:.2f}x, {s['candidates']} candidates, {s['failures']}",
                    file=sys.stderr,
                )
            result[operator] = {
                "speedup": median(s["speedup"] for s in found),
                "against_library": median(s["against_library"] for s in found),
                "candidates": median(s["candidates"] for s in found),
            }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
