"""How often the timing calls equal kernels different, and misses a kernel that is slower by a known amount.

    python -m tests.bench.comparisons --operator gelu --count 300 --slower 0.02

Each comparison is what a verdict does: two processes, the same input sets, random order, cold caches, every output
checked. The slower kernel computes a share of its elements twice; by how much that really makes it slower is told by
all of its samples together. Prints JSON: for each schedule the share of false and of missed calls with 95 % intervals
(Wilson), the median of the smallest difference that a single measurement would have seen, samples and seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fitness.cpu.target import CpuFitness
from fitness.evaluation import Rejection
from fitness.measure import Measurement, Pairing
from fitness.session import Session
from fitness.timing import CONFIRM, SCREEN, Schedule, Verdict, smallest_detectable
from operators.catalog import load
from operators.kernel import Kernel
from operators.spec import Task

SCHEDULES = {"screen": SCREEN, "confirm": CONFIRM}


def slowed(source: str, share: float) -> str:
    """A kernel file whose last outermost loop goes over a share of its range again."""
    loops = list(
        re.finditer(r"^    for \((int|long long) (\w+) = 0; \2 < (\w+); (?:\2\+\+|\+\+\2)\) ", source, re.MULTILINE)
    )
    if not loops:
        raise SystemExit("this naive kernel has no plain outermost loop to go over twice")
    kind, name, end = loops[-1].groups()
    head = f"    for ({kind} again_ = 0; again_ < {end} + static_cast<{kind}>({end} * {share}); ++again_) {{\n"
    index = f"        const {kind} {name} = again_ < {end} ? again_ : again_ - {end};\n"
    body_begin = loops[-1].end()
    body_end = _statement_end(source, body_begin)
    return source[: loops[-1].start()] + head + index + source[body_begin:body_end] + "\n    }" + source[body_end:]


def _statement_end(source: str, begin: int) -> int:
    depth = 0
    for position in range(begin, len(source)):
        depth += {"{": 1, "}": -1, "(": 1, ")": -1}.get(source[position], 0)
        if depth == 0 and source[position] in ";}":
            return position + 1
    raise SystemExit("unbalanced braces")


def compare(stage: CpuFitness, candidate: Session, anchor: Session, schedule: Schedule, *, race: bool) -> Measurement:
    """One comparison of two bound sessions."""
    pairing = Pairing(candidate, anchor, stage._cases(), stage._accept, np.random.default_rng())
    with stage.device.machine(exclusive=True):
        return pairing.measure(schedule, race=race)


def wilson(hits: int, count: int) -> tuple[float, float]:
    """95 % interval of a share (Wilson, 1927)."""
    z, share = 1.96, hits / count
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return max(centre - half, 0.0), min(centre + half, 1.0)


def summary(
    found: Sequence[Measurement], wrong: Sequence[Verdict], schedule: Schedule, seconds: float
) -> dict[str, object]:
    hits = sum(m.verdict in wrong for m in found)
    ratios = [m.ratio.value for m in found]
    return {
        "comparisons": len(found),
        "wrong_calls": hits,
        "share": round(hits / len(found), 4),
        "share_95": [round(x, 4) for x in wilson(hits, len(found))],
        "verdicts": {str(v): sum(m.verdict is v for m in found) for v in Verdict},
        "median_change": round(math.expm1(float(np.median(ratios))), 5),
        "sd_of_log_ratio": round(float(np.std(ratios)), 5),
        "median_se": round(float(np.median([m.ratio.se for m in found])), 5),
        "median_detectable": round(
            math.expm1(float(np.median([smallest_detectable(m.ratio.se, schedule) for m in found]))), 5
        ),
        "median_pairs": float(np.median([t.pairs for m in found for t in m.timings])),
        "seconds_each": round(seconds / len(found), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operator", default="gelu")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--slower", type=float, default=0.02)
    parser.add_argument("--schedules", nargs="+", default=list(SCHEDULES), choices=SCHEDULES)
    arguments = parser.parse_args()
    operator = load(arguments.operator)
    with tempfile.TemporaryDirectory() as folder:
        stage = CpuFitness(operator, Task(operator.name, "fp32", "cpu"), workload_set="cpu", folder=Path(folder))
        other = Kernel(operator.name, "cpu", slowed(stage.baseline.source, arguments.slower))
        kernels = {"itself": stage.baseline, "slower": other}
        result: dict[str, object] = {}
        for kind, kernel in kernels.items():
            prepared = stage.device.prepare(kernel)
            if isinstance(prepared, Rejection):
                raise SystemExit(prepared.message)
            wrong = (
                (Verdict.FASTER, Verdict.SLOWER) if kind == "itself" else (Verdict.FASTER, Verdict.EQUAL, Verdict.OPEN)
            )
            for name in arguments.schedules:
                begin, found = time.monotonic(), []
                for _ in range(arguments.count):
                    with stage._session(prepared) as candidate:
                        stage._bound(candidate)
                        anchor = stage._anchor_session(stage.baseline)
                        found.append(compare(stage, candidate, anchor, SCHEDULES[name], race=False))
                result[f"{kind}/{name}"] = summary(found, wrong, SCHEDULES[name], time.monotonic() - begin)
                print(kind, name, result[f"{kind}/{name}"], file=sys.stderr)
        stage.close()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
