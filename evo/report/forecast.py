"""The reach of a budget, said before a run begins: by the pace of earlier runs here, else by the operators' sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evo.api import Run
from evo.config import RunConfig
from evo.folders import DATABASE
from evo.report.amounts import duration
from evo.report.health import settings, spent
from fitness.profiling.roofline import traffic
from operators.definition.spec import Operator, Task
from operators.errors import OperatorError, UserError

MOST_RUNS = 8
"""Earlier runs that are looked at, the newest first."""
LEAST_EVALUATIONS = 4
"""Evaluations of a run from which its pace says something."""
BEYOND_ANCESTORS = 8
"""Kernels that a search must judge for each task, besides those that it starts from, to have found anything."""
BASE_S = {"cpu": 2.0, "cuda": 5.0}
"""Assumed seconds of an evaluation of a small operator: to compile, to verify, and to time in pairs."""
GB_PER_S = 1.0
"""Assumed rate at which an evaluation works through the bytes of its workloads, all checks and repetitions together."""


@dataclass(frozen=True)
class Pace:
    """Seconds of wall time that a run takes for each kernel that it judges."""

    seconds: float
    source: str
    """Where that is from, in words."""


def too_small(config: RunConfig, runs: Path) -> str:
    """Return how far a budget that is too small for its tasks will reach; empty where it is not."""
    tasks = config.tasks()
    needed = {task: len(config.ancestor_names(operator, task)) + BEYOND_ANCESTORS for operator, task in tasks}
    wall_s, evaluations = (config.budget.get(kind, math.inf) for kind in ("wall_s", "evaluations"))
    pace = _pace(runs, config, tasks) if wall_s < math.inf else Pace(0.0, "")
    in_time = wall_s / pace.seconds if pace.seconds else math.inf
    reached, wanted = min(in_time, evaluations), sum(needed.values())
    if reached >= wanted:
        return ""
    each = f" for each of {len(tasks)} tasks" if len(tasks) > 1 else ""
    few = f"the budget suffices for about {reached / len(tasks):.2g} kernels{each}"
    little = f"below {wanted / len(tasks):.0f} a search finds little"
    if evaluations <= in_time:
        return f"{few}, and {little}: give {wanted}evals"
    fewer = ", or name fewer operators" if len(tasks) > 1 else ""
    why = f"at {pace.seconds:.2g} s a kernel, {pace.source}"
    return f"{few} ({why}), and {little}: give {duration(wanted * pace.seconds)}{fewer}"


def _pace(runs: Path, config: RunConfig, tasks: Sequence[tuple[Operator, Task]]) -> Pace:
    names = {operator.name for operator, _ in tasks}
    best: tuple[float, Pace] | None = None
    files = sorted(runs.glob(f"*/{DATABASE}"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in files[:MOST_RUNS]:
        try:
            (row,) = Run(file.parent).rows("health.use")
        except UserError:  # of another format, or being made
            continue
        told = settings(row["config_json"])
        seen = {task.partition("/")[0] for task in row["tasks"] or ()}
        if told.get("target", "cpu") != config.target or row["evaluations"] < LEAST_EVALUATIONS or not row["wall_s"]:
            continue
        alike = len(names & seen) / len(names | seen)
        if alike and (best is None or alike > best[0]):
            best = alike, Pace(spent(row)["wall_s"] / spent(row)["evaluations"], f"as in run {file.parent.name}")
    if best:
        return best[1]
    assumed = [BASE_S[config.target] + _gigabytes(config, *each) / GB_PER_S for each in tasks]
    return Pace(sum(assumed) / len(assumed), "assumed by the operators' sizes")


def _gigabytes(config: RunConfig, operator: Operator, task: Task) -> float:
    """The bytes that all workloads of a task move."""
    total = 0
    for workload in operator.workload_set(config.workload_set):
        try:
            total += traffic(operator, workload.dims, task.dtype).total
        except (OperatorError, KeyError):  # it hangs on the data
            continue
    return total / 1e9
