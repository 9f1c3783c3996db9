"""Cost of a build on the cpu target, from a kernel file to a library that a runner would map.

    python -m tests.bench.builds --rounds 9

Prints a line of JSON by operator: milliseconds of a build that nothing kept, the median and the best of the rounds, and
what of it are the compiler's own commands. Run it in two checkouts in turn to see what a rule costs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import median
from unittest.mock import patch

from fitness.cpu import build
from fitness.cpu.target import CpuFitness
from fitness.evaluation import Rejection
from operators.catalog import load
from operators.definition.spec import Task
from operators.kernel import Kernel

OPERATORS = ("tests/data/axpb", "softmax", "matrix_mul", "layer_norm", "prefix_sum")
WITH_HEADERS = "#include <cmath>\n#include <algorithm>\n#include <immintrin.h>\n"


def main() -> None:
    """Build the naive kernels, without and with headers that people use, and print what it costs."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.builds", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    for name in OPERATORS:
        for headers in ("", WITH_HEADERS):
            with tempfile.TemporaryDirectory() as folder:
                wall, inside = costs(name, headers, rounds, Path(folder))
            told = {"operator": Path(name).name, "headers": bool(headers), "build_ms": round(median(wall), 1)}
            told |= {"best_ms": round(min(wall), 1), "commands_ms": round(median(inside), 1)}
            print(json.dumps(told), flush=True)


def costs(name: str, headers: str, rounds: int, folder: Path) -> tuple[list[float], list[float]]:
    """Milliseconds of every build, and of the commands within it."""
    operator = load(f"./{name}" if "/" in name else name)
    stage = CpuFitness(operator, Task(operator.name, "fp32", "cpu"), workload_set="cpu", folder=folder)
    source, run = operator.naive("cpu"), build.run_confined
    wall: list[float] = []
    inside: list[float] = []

    def timed(*arguments: object, **options: object) -> object:
        begin = time.perf_counter()
        try:
            return run(*arguments, **options)  # type: ignore[arg-type]
        finally:
            inside[-1] += 1e3 * (time.perf_counter() - begin)

    with patch.object(build, "run_confined", timed):
        for number in range(rounds + 1):
            inside.append(0.0)
            begin = time.perf_counter()
            head, end, body = source.partition("*/\n")
            made = stage.device.prepare(Kernel(operator.name, "cpu", f"{head}{end}{headers}{body}// {number}\n"))
            assert not isinstance(made, Rejection), made
            wall.append(1e3 * (time.perf_counter() - begin))
    stage.close()
    return wall[1:], inside[1:]  # the first one made what all share


if __name__ == "__main__":
    main()
