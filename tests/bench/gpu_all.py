"""Tests and benchmarks that need a GPU, one after the other, with one command.

    python -m tests.bench.gpu_all FOLDER [--only tests throughput ...]

Each one's output goes to FOLDER/NAME.txt; a line tells how it ended and how long it took. Exits with 1 when something
failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

BENCH = (sys.executable, "-m")
PARTS: dict[str, tuple[str, ...]] = {
    "doctor": (*BENCH, "evo.cli", "doctor"),
    "tests": (*BENCH, "pytest", "-q", "-p", "no:benchmark", "--tb=short", "tests/gpu"),
    "stages": (*BENCH, "tests.bench.gpu_stages", "--operators", "softmax", "gelu"),
    "throughput": (
        *BENCH,
        "tests.bench.gpu_throughput",
        "--operators",
        "softmax",
        "--seconds",
        "150",
        "--rivals",
        "16",
    ),
    "recovery": (*BENCH, "tests.bench.gpu_recovery"),
    "comparisons": (*BENCH, "tests.bench.gpu_comparisons"),
    "search": (*BENCH, "tests.bench.gpu_search", "--budget", "300s"),
    "search-bf16": (*BENCH, "tests.bench.gpu_search", "--budget", "300s", "--dtype", "bf16"),
    "operators": (*BENCH, "tests.bench.gpu_operators", "--limit", "500", "--results"),
    "champions": (*BENCH, "tests.bench.champions", "--limit-s", "500", "--results"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    failed = False
    for name in options.only:
        keeps = PARTS[name][-1] == "--results"
        command = [*PARTS[name], *([str(options.folder / f"{name}.jsonl")] if keeps else [])]
        begin = time.monotonic()
        with (options.folder / f"{name}.txt").open("w", encoding="utf-8") as output:
            code = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT).returncode
        failed |= code != 0
        print(f"{name}: {'ok' if code == 0 else f'exit code {code}'}, {time.monotonic() - begin:.0f} s", flush=True)
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
