"""Coverage of speedups' intervals where some pairs are timed in bad seconds, before and after they are fitted jointly.

    python -m tests.bench.bad_seconds [--runs 300] [--kernels 120] [--bad 0.0 0.03 0.1] [--moment 0.01]
    python -m tests.bench.bad_seconds --of FOLDER...

Simulates searches: kernels are screened beside an elite, those that seem faster are measured again in full, and one
that promises much more than the best is confirmed, as is the leader in the end. A pair's noise is as its standard error
says, but for its moment (`--moment`, a standard deviation), which all of its calls share, a confirmation's too; a share
of pairs (`--bad`) is timed in bad seconds and is off by a factor besides (ln: normal, 0.5), whatever its error says.
Prints JSON, by share of bad pairs, of kernels that are not confirmed: the share of 95 % intervals that hold
the true speedup, their median width as a factor, how many stand above the truly best kernel that was confirmed, and the
rank of the truly best one by what is certain; each for verdicts by themselves (`alone`) and fitted (`joint`).

With `--of` it looks at real runs instead: of the kernels that were judged in full and confirmed, how many have 95 %
intervals that overlap, the earlier one as all pairs before the confirmation have it.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from evo.store import query
from fitness.evaluation import Z95, Level
from fitness.joint import Pair, Position, fitted
from fitness.judging.levels import LEAST_GAIN, NEW_BEST

SCREEN_SE, FULL_SE, CONFIRM_SE = 0.03, 0.015, 0.008
BAD_LOG = 0.5
ELITES = 6


PAIRS = """
    select task, kernel_id, anchor_id, level, log_ratio, log_ratio_se
    from evaluations where status = 'correct' and anchor_id <> kernel_id order by created_at
"""
"""Paired ratios of a run in the order of their measurement."""


@dataclass
class Simulated:
    """One search: what is true, what its verdicts say, and the pairs that they were made of."""

    true: dict[str, float] = field(default_factory=dict)
    alone: dict[str, Position] = field(default_factory=dict)
    pairs: list[Pair] = field(default_factory=list)
    confirmed: set[str] = field(default_factory=set)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--kernels", type=int, default=120)
    parser.add_argument("--bad", type=float, nargs="+", default=[0.0, 0.03, 0.1])
    parser.add_argument("--moment", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--of", type=Path, nargs="+", metavar="FOLDER")
    options = parser.parse_args()
    if options.of:
        print(json.dumps(overlaps(options.of), indent=1))
        return
    found = {}
    for share in options.bad:
        rng = np.random.default_rng(options.seed)
        runs = [simulated(options.kernels, share, options.moment, rng) for _ in range(options.runs)]
        found[str(share)] = {
            "alone": told(runs, [run.alone for run in runs]),
            "joint": told(runs, [{**run.alone, **fitted("naive", run.pairs)} for run in runs]),
        }
    print(json.dumps(found, indent=1))


def overlaps(folders: Sequence[Path]) -> dict[str, Any]:
    """Return how many kernels of these runs have overlapping intervals before and after their confirmation."""
    rows = [{"run": folder.name, **row} for folder in folders for row in _confirmed(folder)]
    apart = [row for row in rows if abs(row["before"] - row["after"]) > Z95 * (row["before_se"] + row["after_se"])]
    return {"kernels": len(rows), "overlap": len(rows) - len(apart), "apart": apart}


def _confirmed(folder: Path) -> Iterator[dict[str, Any]]:
    """Log speedups of a run's kernels that were judged in full, by all pairs before their confirmation, and by it."""
    pairs: dict[str, list[Pair]] = defaultdict(list)
    for row in query(folder, PAIRS).to_pylist():
        earlier = pairs[row.pop("task")]
        pair = Pair(**row | {"level": Level(row["level"])})
        levels = {each.level for each in earlier if each.kernel_id == pair.kernel_id}
        if pair.level is Level.CONFIRMED and Level.FULL in levels and Level.CONFIRMED not in levels:
            before = fitted(pair.anchor_id, earlier)[pair.kernel_id]
            yield {
                "kernel_id": pair.kernel_id, "before": before.log_speedup, "before_se": before.se,
                "after": pair.log_ratio, "after_se": pair.log_ratio_se,
            }  # fmt: skip
        earlier.append(pair)


def simulated(kernels: int, bad: float, moment: float, rng: np.random.Generator) -> Simulated:
    """A search whose pairs are timed in bad seconds with this probability."""
    run = Simulated()

    def measured(kernel: str, anchor: str, level: Level, se: float, share: float) -> Pair:
        ratio = run.true[kernel] - run.true.get(anchor, 0.0) + math.hypot(se, moment) * rng.standard_normal()
        off = (rng.random() < share) * BAD_LOG * rng.standard_normal()
        run.pairs.append(pair := Pair(kernel, anchor, level, ratio + off, se))
        return pair

    def confirm(kernel: str) -> None:
        pair = measured(kernel, "naive", Level.CONFIRMED, CONFIRM_SE, bad / 10)  # several processes, and longer
        run.alone[kernel] = Position(pair.log_ratio, pair.log_ratio_se)
        run.confirmed.add(kernel)

    for number in range(kernels):
        ranked = sorted(run.alone, key=lambda each: -run.alone[each].log_speedup)[:ELITES]
        anchor = ranked[min(int(rng.geometric(0.4)) - 1, len(ranked) - 1)] if ranked else "naive"
        start = run.alone.get(anchor, Position(0.0, 0.0))
        kernel = str(number)
        gain = abs(rng.normal(0, 0.25)) if rng.random() < 0.2 else -abs(rng.normal(0, 0.2))
        run.true[kernel] = run.true.get(anchor, 0.0) + gain
        pair = measured(kernel, anchor, Level.SCREEN, SCREEN_SE, bad)
        if pair.log_ratio > LEAST_GAIN:
            pair = measured(kernel, anchor, Level.FULL, FULL_SE, bad)
        best = max((each.log_speedup for each in run.alone.values()), default=0.0)
        se = math.hypot(start.se, pair.log_ratio_se)
        run.alone[kernel] = Position(start.log_speedup + pair.log_ratio, se)
        if run.alone[kernel].log_speedup > best + max(NEW_BEST, Z95 * se):
            confirm(kernel)
    for _ in range(3):  # the leader, until one is confirmed
        leader = max(run.alone, key=lambda each: stands_at(run, run.alone, each))
        if leader in run.confirmed:
            break
        confirm(leader)
    return run


def stands_at(run: Simulated, positions: Mapping[str, Position], kernel: str) -> float:
    """The log speedup that a kernel certainly has."""
    found = run.alone[kernel] if kernel in run.confirmed else positions[kernel]
    return found.log_speedup - (0 if kernel in run.confirmed else Z95 * found.se)


def told(runs: list[Simulated], positions: list[dict[str, Position]]) -> dict[str, float]:
    """The figures of one way to make positions."""
    held, widths, above, ranks = [], [], [], []
    for run, known in zip(runs, positions, strict=True):
        for kernel, found in known.items():
            if kernel not in run.confirmed:
                held.append(abs(found.log_speedup - run.true[kernel]) <= Z95 * found.se)
                widths.append(math.exp(2 * Z95 * found.se))
        order = sorted(run.true, key=lambda each: -stands_at(run, known, each))
        best = max(run.confirmed, key=lambda each: run.true[each], default=order[0])
        above.append(sum(run.true[each] < run.true[best] - 0.05 for each in order[: order.index(best)]))
        ranks.append(order.index(max(run.true, key=lambda each: run.true[each])))
    return {
        "coverage_percent": round(100 * fmean(held), 1),
        "median_width": round(median(widths), 3),
        "unsound_above_best_confirmed": round(fmean(above), 2),
        "mean_rank_of_the_true_best": round(fmean(ranks), 1),
    }


if __name__ == "__main__":
    main()
