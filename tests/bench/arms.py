"""Gain by evolution: strategies at equal numbers of candidates, on the same operators with the same seeds.

    python -m tests.bench.arms --operators softmax gelu rms_norm --seeds 3 --candidates 100 --results arms.jsonl

A candidate counts when it reached the compiler and was no known program, tuning trials included. Each strategy searches
alone on the machine, or with `--cores` on so many of its cores, in turns with the others, and is stopped once so many
candidates were told. Its champion is the
fastest kernel among exactly the first so many; its speedup over the naive kernel is then measured anew, verified as
severely as a new best, by another process than the search's. A champion that is refuted gives way to the next (at most
ATTEMPTS times; after that the score is that of the naive kernel, 1). So a lucky measurement helps no strategy.

Prints JSON: for each strategy the geometric mean speedup over operators and seeds, `geomean_by` after a quarter and
half of the candidates (as the search measured them), and how many times as fast as each other strategy's champions
those of the first strategy are. Intervals are 95 %, percentiles of a bootstrap that draws seeds within each operator,
and `interval_operators` of one that draws operators too: what to expect of other operators. `--results` keeps every
finished search in a file and skips those that it already holds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np

from evo import folders, session
from evo.config import RunConfig
from evo.search.driver import STOPPED, Search
from evo.store import query
from fitness.judging.base import Anchor
from fitness.judging.levels import judge
from fitness.targets import fitness
from operators.catalog import load
from operators.definition.spec import Task
from operators.kernel import Kernel
from tests.bench.cores import groups_of_cores

STRATEGIES = ("islands", "best_of_n", "random", "tune_only")
SETTINGS: Mapping[str, Mapping[str, Any]] = {"best_of_n": {"n": 10**6}}
"""best_of_n goes on beginning attempts until the candidates are used up."""
ATTEMPTS = 5
RESAMPLES = 10_000
UNCOUNTED = ("duplicate", "no_child", "invalid", "unsupported")

Score = dict[str, Any]
"""One search: operator, strategy, seed, log_speedup and what else is known of it."""


def search(operator: str, strategy: str, seed: int, candidates: int, limit_s: float) -> Score:
    """One search and the measurement of its champion."""
    settings = dict(SETTINGS.get(strategy, {}))
    made = RunConfig(
        operators=[operator], target="cpu", strategy=strategy, seed=seed, settings=settings, budget={"wall_s": limit_s}
    ).resolved()

    complete: list[bool] = []

    def on_change(running: Search) -> None:
        (state,) = running.states.values()
        if sum(n for status, n in state.statuses.items() if status not in UNCOUNTED) >= candidates:
            complete.append(True)
            running.stop()

    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as work:
        folder = folders.new_folder(Path(work), made)
        if session.start(made, folder, on_change) == STOPPED and not complete:
            raise KeyboardInterrupt  # which the search took for its own
        seconds = time.monotonic() - begin
        told = query(
            folder,
            "select t.kernel_id, t.status, t.log_speedup, k.source, k.values_json from tells t"
            f" left join kernels k using (kernel_id) where t.status not in {UNCOUNTED} order by t.seq",
        ).to_pylist()[:candidates]
    if not told:
        raise SystemExit(f"{operator}: the search of {strategy} with seed {seed} judged nothing")
    so_far = np.maximum.accumulate([0.0] + [t["log_speedup"] or 0.0 for t in told])
    score: Score = {"operator": operator, "strategy": strategy, "seed": seed}
    score |= {"wanted": candidates, "candidates": len(told)}
    curve = [round(float(so_far[min(n, len(told))]), 4) for n in (candidates // 4, candidates // 2, candidates)]
    return score | {"seconds": round(seconds, 1), "curve": curve} | champion(operator, told)


def champion(operator: str, told: Sequence[Mapping[str, Any]]) -> Score:
    """The fastest of these kernels that passes a new, severe examination, and its new measurement."""
    spec = load(operator)
    task = Task(spec.name, spec.dtypes["cpu"][0], "cpu")
    correct = [t for t in told if t["status"] == "correct"]
    ranked = sorted(correct, key=lambda t: -t["log_speedup"])[:ATTEMPTS]
    with tempfile.TemporaryDirectory() as work:
        stage = fitness(spec, task, workload_set="cpu", folder=Path(work))
        try:
            baseline = Kernel(spec.name, "cpu", spec.ancestor("naive", "cpu").read_text(encoding="utf-8"))
            for attempt, entry in enumerate(ranked):
                kernel = Kernel(spec.name, "cpu", entry["source"], json.loads(entry["values_json"]))
                if kernel.id == baseline.id:
                    return {"log_speedup": 0.0, "log_speedup_se": 0.0, "as_told": 0.0, "refuted": attempt}
                last = judge(stage, kernel, Anchor(baseline, 0.0, 0.0), race=False)[-1]
                if last.correct and last.log_speedup is not None:
                    return {
                        "log_speedup": last.log_speedup,
                        "log_speedup_se": last.log_speedup_se,
                        "as_told": entry["log_speedup"],
                        "refuted": attempt,
                    }
        finally:
            stage.close()
    return {"log_speedup": 0.0, "log_speedup_se": 0.0, "as_told": 0.0, "refuted": len(ranked)}


def bootstrap(values: Sequence[Sequence[float]], rng: np.random.Generator, *, operators: bool) -> tuple[float, float]:
    """95 % interval of the mean over operators of the mean over seeds, as a factor; `values` by operator, then seed."""
    table = np.array(values)
    count, seeds = table.shape
    rows = rng.integers(count, size=(RESAMPLES, count)) if operators else np.tile(np.arange(count), (RESAMPLES, 1))
    columns = rng.integers(seeds, size=(RESAMPLES, count, seeds))
    means = table[rows[:, :, None], columns].mean(axis=(1, 2))
    low, high = np.percentile(means, [2.5, 97.5])
    return math.exp(low), math.exp(high)


def estimate(values: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The geometric mean of logs with its intervals; a fixed generator, so that the same scores give the same text."""

    def interval(operators: bool) -> list[float]:
        return [round(x, 4) for x in bootstrap(values, np.random.default_rng(0), operators=operators)]

    return {
        "geomean": round(math.exp(float(np.mean(np.array(values)))), 4),
        "interval": interval(False),
        "interval_operators": interval(True),
    }


def summary(scores: Sequence[Score], strategies: Sequence[str]) -> dict[str, Any]:
    """Over the operators and seeds that every strategy has finished."""
    by = {(s["strategy"], s["operator"], s["seed"]): s for s in scores}
    operators = sorted({s["operator"] for s in scores})
    done = {
        o: [n for n in sorted({s["seed"] for s in scores}) if all((a, o, n) in by for a in strategies)]
        for o in operators
    }
    least = min((len(seeds) for seeds in done.values()), default=0)
    if not least:
        return {"note": "no operator has a finished search of every strategy"}

    def log_speedups(strategy: str) -> list[list[float]]:
        return [[by[strategy, o, n]["log_speedup"] for n in done[o][:least]] for o in operators]

    result: dict[str, Any] = {"operators": operators, "seeds": least, "strategies": {}, "against": {}}
    for strategy in strategies:
        curve = [
            round(
                math.exp(float(np.mean([by[strategy, o, n]["curve"][at] for o in operators for n in done[o][:least]]))),
                4,
            )
            for at in range(3)
        ]
        entries = [by[strategy, o, n] for o in operators for n in done[o][:least]]
        result["strategies"][strategy] = estimate(log_speedups(strategy)) | {
            "geomean_by": dict(zip(("quarter", "half", "all"), curve, strict=True)),
            "by_operator": {
                o: round(math.exp(float(np.mean(row))), 3)
                for o, row in zip(operators, log_speedups(strategy), strict=True)
            },
            "candidates": sum(s["candidates"] for s in entries),
            "refuted": sum(s["refuted"] for s in entries),
            "seconds": round(sum(s["seconds"] for s in entries)),
        }
    first = strategies[0]
    for other in strategies[1:]:
        pairs = zip(log_speedups(first), log_speedups(other), strict=True)
        ratios = [[a - b for a, b in zip(mine, theirs, strict=True)] for mine, theirs in pairs]
        wins = [ratio > 0 for row in ratios for ratio in row]
        result["against"][other] = estimate(ratios) | {"wins": f"{sum(wins)} of {len(wins)}"}
    return result


@dataclass(frozen=True)
class Wish:
    """A search that is wanted."""

    operator: str
    strategy: str
    seed: int
    candidates: int
    limit_s: float

    def carry_out(self, cores: Sequence[int], results: Connection) -> None:
        os.sched_setaffinity(0, cores)
        results.send(search(self.operator, self.strategy, self.seed, self.candidates, self.limit_s))


def searched(wish: Wish, free: Queue[list[int]]) -> Score:
    """The score of a search in a process of its own, on cores that are free."""
    cores = free.get()
    try:
        ours, theirs = Pipe()
        process = get_context("spawn").Process(target=wish.carry_out, args=(cores, theirs))
        process.start()
        theirs.close()
        try:
            score: Score = ours.recv()
        except EOFError:
            raise SystemExit(f"the search {wish} ended without a score") from None
        process.join()
        return score
    finally:
        free.put(cores)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", nargs="+", default=["softmax", "matrix_mul", "spmv_csr"])
    parser.add_argument(
        "--strategies", nargs="+", default=list(STRATEGIES), help="the first is compared with the others"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds that one search may take at most")
    parser.add_argument("--cores", type=int, help="of each search, as many at a time as there is room; default all")
    parser.add_argument("--results", type=Path, help="JSON lines, one for each finished search; appended to")
    arguments = parser.parse_args()
    scores: list[Score] = []
    if arguments.results and arguments.results.exists():
        stored = [json.loads(line) for line in arguments.results.read_text().splitlines()]
        scores = [score for score in stored if score["wanted"] == arguments.candidates]
    finished = {(s["operator"], s["strategy"], s["seed"]) for s in scores}
    free = groups_of_cores(arguments.cores)
    wishes = [
        Wish(operator, strategy, seed, arguments.candidates, arguments.limit)
        for seed in range(arguments.seeds)
        for operator in arguments.operators
        for strategy in arguments.strategies
        if (operator, strategy, seed) not in finished
    ]
    with ThreadPoolExecutor(free.qsize()) as threads:
        for done in as_completed([threads.submit(searched, wish, free) for wish in wishes]):
            score = done.result()
            scores.append(score)
            print(json.dumps(score), file=sys.stderr, flush=True)
            if arguments.results:
                with arguments.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(score) + "\n")
    seeds, operators = range(arguments.seeds), arguments.operators
    wanted = [s for s in scores if s["operator"] in operators and s["seed"] in seeds]
    print(json.dumps(summary(wanted, arguments.strategies)))


if __name__ == "__main__":
    main()
