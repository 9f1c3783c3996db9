"""Questions that models are asked: the first ones of searches.

    python -m tests.bench.questions --worlds 100
    python -m tests.bench.questions --operators softmax spmv_csr prefix_sum --budget 240s
    python -m tests.bench.questions --runs runs/ID ...

With `--worlds`, so many searches of the strategy `islands` are played in a simulated world, in seconds: a child's speed
on each of three workloads is its parent's, changed by chance; models change more than transforms, one child in four
fails, and whatever is asked is told in random order. Otherwise each search is one of `evo run` on the cpu target, with
a scripted model (`tests.bench.model_searches`) that answers with the kernel of the question after two random
transforms. `--runs` looks at runs that there are. For the first `--count`
questions of each task, all searches together, it prints:

- of questions about a judged kernel (no repairs): the share whose kernel was, when it was asked about, at least 80 % as
  fast as the fastest told by then, and the share that was no faster than the naive kernel although there was a faster
  one;
- of crossovers: how many there are, the share whose partner was faster on some workload (beyond noise), and the share
  where one kernel was made from the other;
- of repairs: the median of questions asked between a failure and its repair;
- of all: the share that was sent in the same words before; and of those that were told, how many led to a kernel, to
  one that compiled, to one that is right, to a new program, and to one that is faster than the kernel of the question
  by what counts as a gain.

With `--api-base` and `--llm` a real model answers, such as a small one on loopback.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from evo import rows as records
from evo.api import Run
from evo.individual import Individual
from evo.lineage import Lineage
from evo.store import query
from evo.strategies.base import StrategyContext
from evo.strategies.islands import Islands
from evo.strategies.population import MARGIN, NEAR
from fitness.evaluation import Evaluation, Level, Status, Timing
from mutators.base import Kind, Request
from mutators.registry import asks_model
from operators.catalog import load
from operators.definition.spec import Task
from operators.identity import digest
from operators.kernel import Kernel
from tests.bench.model_searches import MODEL
from tests.evo.worlds import World

WORKLOADS = 3
IN_FLIGHT = 6
"""Requests at a time in a simulated search."""
ABOUT_NAIVE = 0.02
"""Log speedup up to which a kernel counts as no faster than the naive one."""


@dataclass
class Counts:
    """Counts of some questions."""

    near: list[bool] = field(default_factory=list)
    no_faster: list[bool] = field(default_factory=list)
    partner_wins: list[bool] = field(default_factory=list)
    related: list[bool] = field(default_factory=list)
    waited: list[int] = field(default_factory=list)
    repeated: list[bool] = field(default_factory=list)
    kernels: list[bool] = field(default_factory=list)
    compiled: list[bool] = field(default_factory=list)
    right: list[bool] = field(default_factory=list)
    new: list[bool] = field(default_factory=list)
    gained: list[bool] = field(default_factory=list)

    def add(self, other: Counts) -> None:
        """Take in those of another task."""
        for name, values in vars(other).items():
            getattr(self, name).extend(values)

    @property
    def row(self) -> dict[str, float | int | None]:
        """Shares in percent."""
        return {
            "about_a_judged_kernel": len(self.near),
            "near_best_percent": _percent(self.near),
            "no_faster_than_naive_percent": _percent(self.no_faster),
            "crossovers": len(self.partner_wins),
            "partner_wins_percent": _percent(self.partner_wins),
            "partner_related_percent": _percent(self.related),
            "repairs": len(self.waited),
            "questions_before_repair": statistics.median(self.waited) if self.waited else None,
            "repeated_percent": _percent(self.repeated),
            "told": len(self.kernels),
            "kernel_percent": _percent(self.kernels),
            "compiled_percent": _percent(self.compiled),
            "right_percent": _percent(self.right),
            "new_percent": _percent(self.new),
            "gained_percent": _percent(self.gained),
        }


def _percent(seen: list[bool]) -> float | None:
    return round(100 * sum(seen) / len(seen), 1) if seen else None


class _Watcher:
    """Follows one task's history, and looks at its first questions."""

    def __init__(self, messages: Mapping[str, str]) -> None:
        self.counts = Counts()
        self._messages = messages
        self._sent: set[str] = set()
        self._lineage = Lineage()
        self._told: dict[str, Individual] = {}
        self._log_speedups: dict[str, float] = {}
        self._failed_at: dict[str, int] = {}
        self._open: set[str] = set()
        """Ids of the questions that are looked at and not told yet."""

    def asked(self, request: Request) -> None:
        counts, words = self.counts, self._messages.get(request.id, request.id)
        counts.repeated.append(words in self._sent)
        self._sent.add(words)
        self._open.add(request.id)
        if request.mutator == "repair":
            counts.waited.append(len(counts.repeated) - 1 - self._failed_at.get(request.parents[0], 0))
            return
        first, best = self._log_speedups.get(request.parents[0]), max(self._log_speedups.values(), default=0.0)
        if first is not None:
            counts.near.append(first >= best + math.log(NEAR))
            counts.no_faster.append(first <= ABOUT_NAIVE < best)
        if request.mutator == "crossover":
            kernels = [individual.kernel for name in request.parents[:2] if (individual := self._told.get(name))]
            mine, other = (kernel for kernel in kernels if kernel)
            counts.partner_wins.append(bool(self._lineage.wins(other, mine)))
            counts.related.append(self._lineage.related(other, mine))

    def told(self, individual: Individual) -> None:
        self._lineage.told(individual)
        kernel, evaluation = individual.kernel, individual.evaluation
        if individual.id in self._open:
            self._open.remove(individual.id)
            self._answered(individual)
        if kernel is None or evaluation is None:
            return
        self._told.setdefault(kernel.id, individual)
        if evaluation.log_speedup is not None:
            self._log_speedups.setdefault(kernel.id, evaluation.log_speedup)
        self._failed_at.setdefault(kernel.id, len(self.counts.repeated))

    def _answered(self, individual: Individual) -> None:
        counts, evaluation = self.counts, individual.evaluation
        known = [self._log_speedups[name] for name in individual.request.parents if name in self._log_speedups]
        log_speedup = evaluation.log_speedup if evaluation and individual.fresh else None
        counts.kernels.append(individual.kernel is not None)
        counts.compiled.append(individual.built)
        counts.right.append(bool(evaluation and evaluation.verdict in (Status.CORRECT, Status.SLOWER)))
        counts.new.append(individual.fresh)
        counts.gained.append(log_speedup is not None and log_speedup > max(known, default=0.0) + MARGIN)


def look_at(folder: Path, count: int) -> Counts:
    """Return what is seen of the first questions of each of its tasks."""

    def rows(sql: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = query(folder, sql).to_pylist()
        return found

    sent = rows("select request_id, min(messages_json) as messages from llm_calls where sample = 0 group by request_id")
    messages = {row["request_id"]: row["messages"] for row in sent}
    watchers: dict[str, _Watcher] = defaultdict(lambda: _Watcher(messages))
    for _, entry in records.history(Run(folder).rows):
        if isinstance(entry, records.Asked):
            for request in map(Request.from_json, (row["request_json"] for row in entry.rows)):
                watcher = watchers[str(request.task)]
                if asks_model(request) and request.kind is Kind.CHILD and len(watcher.counts.repeated) < count:
                    watcher.asked(request)
        elif isinstance(entry, records.TellRow):
            watchers[entry.row["task"]].told(records.individual_from(entry.row))
    total = Counts()
    for watcher in watchers.values():
        total.add(watcher.counts)
    return total


# --- simulated searches ---------------------------------------------------------------------------------------------


class Landscape(World):
    """A world where children are like their parents."""

    def __post_init__(self) -> None:
        self.logs: dict[str, tuple[float, ...]] = {}
        """By source id, the log speedup on each workload."""
        super().__post_init__()

    def _evaluation(self, request: Request, kernel: Kernel) -> Evaluation:
        task, chance = str(self.task), Random(digest("landscape", kernel.id))
        cell = (f"cell{chance.randrange(8)}",)
        if request.kind is not Kind.ANCESTOR and chance.random() < 0.25:
            return Evaluation(kernel.id, task, Level.SCREEN, Status.WRONG, "scripted", cell=cell, code_digest=kernel.id)
        parents = [self.kernels[name] for name in request.parents if name in self.kernels]
        base = next((self.logs[p.source_id] for p in reversed(parents) if p.source_id in self.logs), (0.0,) * WORKLOADS)
        step = 0.0 if request.kind is Kind.ANCESTOR else 0.35 if request.model else 0.15
        logs = tuple(log + chance.gauss(0.0, step) for log in base)
        self.logs.setdefault(kernel.source_id, logs)
        timings = tuple(Timing(f"w{n}", math.exp(-log), 1.0, log, 0.01, 20) for n, log in enumerate(logs))
        return Evaluation(
            kernel.id, task, Level.SCREEN, Status.CORRECT, cell=cell, code_digest=kernel.id, timings=timings,
            log_speedup=sum(logs) / len(logs), log_speedup_se=0.01,
        )  # fmt: skip


def played(seed: int, count: int) -> Counts:
    """Play one search until so many questions were asked; return what is seen of them."""
    operator = load("softmax")
    task = Task("softmax", "fp32", "cpu")
    strategy = Islands(StrategyContext(operator, task, seed, "cpu", ("m",)), {})
    world, order, watcher = (
        Landscape(operator, task, ancestor=f"{operator.naive('cpu')}// judged\n"),
        Random(seed),
        _Watcher({}),
    )
    flying: list[Request] = []
    while len(watcher.counts.repeated) < count:
        if len(flying) < IN_FLIGHT and (asked := strategy.ask(1)):
            flying += asked
            for request in asked:
                if asks_model(request):
                    watcher.asked(request)
        else:
            individual = world.answer(flying.pop(order.randrange(len(flying))))
            watcher.told(individual)
            strategy.tell(individual)
    watcher.counts.repeated.clear()  # no model writes any words here
    return watcher.counts


# --- real searches --------------------------------------------------------------------------------------------------


def searched(operator: str, budget: str, url: str, runs: Path, model: str = MODEL) -> Path:
    """Run one search; return its folder."""
    folder = runs / operator
    command = [
        sys.executable, "-m", "evo.cli", "run", operator, "--target", "cpu", "--budget", budget, "--llm", model,
        "--set", f"llm.api_base={url}", "--json",
    ]  # fmt: skip
    subprocess.run(command, env=os.environ | {"EVO_RUNS": str(folder)}, stdout=subprocess.PIPE, check=True)
    return next(folder.iterdir())


def searches(options: argparse.Namespace) -> Iterator[Path]:
    """Run every operator; yield the folders."""
    if options.api_base:
        with tempfile.TemporaryDirectory() as runs:
            for operator in options.operators:
                yield searched(operator, options.budget, options.api_base, Path(runs), options.llm)
        return
    server = [sys.executable, "-m", "tests.bench.model_searches", "--serve", str(options.latency)]
    with (
        tempfile.TemporaryDirectory() as runs,
        subprocess.Popen(server, stdout=subprocess.PIPE, text=True) as serving,
    ):
        assert serving.stdout
        try:
            url = serving.stdout.readline().strip()
            for operator in options.operators:
                yield searched(operator, options.budget, url, Path(runs))
        finally:
            serving.terminate()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", nargs="+", default=["softmax", "spmv_csr", "prefix_sum"])
    parser.add_argument("--budget", default="90s")
    parser.add_argument("--latency", type=float, default=2.0, help="seconds per answer, within half and twice as many")
    parser.add_argument("--count", type=int, default=30, help="first questions of each task that are looked at")
    parser.add_argument("--worlds", type=int, default=0, help="simulated searches")
    parser.add_argument("--runs", nargs="+", type=Path, default=[])
    parser.add_argument("--api-base", default="", help="of a server that answers; default: the scripted model")
    parser.add_argument("--llm", default=MODEL, help="the model that this server has")
    options = parser.parse_args()
    total = Counts()
    for seed in range(options.worlds):
        total.add(played(seed, options.count))
    for folder in options.runs or (() if options.worlds else searches(options)):
        counts = look_at(folder, options.count)
        total.add(counts)
        print(json.dumps({"run": folder.parent.name, **counts.row}), file=sys.stderr, flush=True)
    print(json.dumps(total.row))


if __name__ == "__main__":
    main()
