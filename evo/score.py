"""The score of MSKernelBench: speedups weighted by how much work a size is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from evo.config import RunConfig
from evo.report.queries import quoted
from evo.store import query
from fitness.evaluation import Evaluation
from operators.definition.spec import Operator

PUBLISHED = "published"
NOTE = (
    "P = sum T(N) S(N) / sum T(N), with MSKernelBench's weights T, S over our baseline. That is not the paper's P: its "
    "baselines allocate memory in every call and often use a single block; ours do neither."
)


def score(operator: Operator, speedups: Mapping[str, float]) -> float | None:
    """The weighted mean of speedups over the baseline, by workload name; None unless every published size has one."""
    published = [w for w in operator.workloads if w.set == PUBLISHED]
    if not published or any(w.name not in speedups for w in published):
        return None
    return sum(w.weight * speedups[w.name] for w in published) / sum(w.weight for w in published)


def evaluation_score(operator: Operator, evaluation: Evaluation) -> float | None:
    """The score of a kernel that was timed in pairs with the baseline itself."""
    return score(operator, {t.workload: math.exp(t.log_ratio) for t in evaluation.timings})


def run_scores(folder: Path) -> dict[str, float]:
    """Scores by task of confirmed best kernels, which were timed beside the baseline, in runs of the published set."""
    found: dict[str, float] = {}
    rows = query(folder, "select config_json from runs").to_pylist()
    if not rows:
        return found  # it was stopped before it began
    config = RunConfig.from_json(rows[0]["config_json"])
    for operator, task in config.tasks() if config.workload_set == PUBLISHED else ():
        timings = query(
            folder,
            "select t.workload, t.log_ratio from best b join timings t using (evaluation_id) "
            f"where b.level = 'confirmed' and b.task = {quoted(str(task))}",
        ).to_pylist()
        value = score(operator, {row["workload"]: math.exp(row["log_ratio"]) for row in timings})
        if value is not None:
            found[str(task)] = value
    return found
