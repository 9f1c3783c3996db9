"""Yield of an overnight search on GPUs: new programs judged a minute, gains, and where the time goes.

    python -m tests.bench.gpu_suite --seconds 480 [--gpus 4] [--operators softmax gelu ...] [--dtypes bf16 fp32] [--ray]

Runs one search over all operators (or those named) at realistic sizes, as a user would, and asks its own database: how
many programs that are no ancestors got a verdict after the last ancestor had one, a minute and GPU, those that ended
early apart; how many are faster than their parents beyond doubt, a GPU-hour; the share of time that kernels ran,
by nvidia-smi; the seconds of every stage, and what they are of the judges' time. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fitness.targets import devices
from operators.catalog import folders
from tests.bench.gpu_throughput import JUDGED, Watched, asked, stage_costs, watched

NEW = """
select e.level, e.status, epoch(e.created_at) as at, a.mutator = 'ancestor' as is_ancestor
from evaluations e left join asks a using (request_id)
where e.request_id is not null and e.status not in ('duplicate', 'invalid', 'compile_error', 'unsupported')
"""
GAINS = """
select count(*) as gains from offspring o join evaluations e using (request_id)
where o.is_new and not o.is_duplicate and e.is_verdict and o.parent_status = 'correct'
  and o.gain > greatest(0.01, 1.96 * e.log_ratio_se)
"""
BEST = "select count(*) as tasks, count(*) filter (where level = 'confirmed') as confirmed from best"


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=480)
    parser.add_argument("--gpus", type=int, help="how many of those that are visible; default: all")
    parser.add_argument("--operators", nargs="+", default=sorted(folders()))
    parser.add_argument("--dtypes", nargs="+", default=["bf16", "fp32"])
    parser.add_argument("--ancestors", default="all")
    parser.add_argument("--workloads", help="the set that is judged; default: that of `evo run`")
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--runs", type=Path, help="folder to keep the run in")
    options = parser.parse_args()
    gpus = devices("cuda")[: options.gpus]
    with tempfile.TemporaryDirectory() as scratch:
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": ",".join(gpus), "EVO_RUNS": str(options.runs or scratch)}
        arguments = [*options.operators, "--target", "cuda", "--budget", f"{options.seconds}s"]
        arguments += ["--ancestors", options.ancestors, *(["--ray"] if options.ray else [])]
        arguments += ["--set", f"workload_set={options.workloads}"] if options.workloads else []
        arguments += [part for dtype in options.dtypes for part in ("--dtype", dtype)]
        search = watched(arguments, environment, gpus)
        rows = {name: asked(environment, sql) for name, sql in (("new", NEW), ("all", JUDGED))}
        found = {name: asked(environment, sql)[0] for name, sql in (("gains", GAINS), ("best", BEST))}
    print(json.dumps(summary(search, rows, found, len(gpus)), indent=1))


def summary(
    search: Watched, rows: Mapping[str, Sequence[Mapping[str, Any]]], found: Mapping[str, Mapping[str, Any]], gpus: int
) -> dict[str, Any]:
    """The figures of a search on so many GPUs."""
    last_ancestor_at = max((row["at"] for row in rows["new"] if row["is_ancestor"]), default=search.began_at)
    later = [row for row in rows["new"] if row["at"] > last_ancestor_at and not row["is_ancestor"]]
    last_at = max((row["at"] for row in later), default=last_ancestor_at)
    minutes = max((last_at - last_ancestor_at) / 60, 1e-9) * gpus
    screened = [row for row in later if row["level"] == "screen"]
    judges_s = {stage: sum(values) / 1e3 for stage, values in stage_costs(rows["all"]).items()}
    return {
        "gpus": gpus,
        "wall_s": round(search.wall_s, 1),
        "exit_code": search.exit_code,
        "tasks": found["best"]["tasks"],
        "confirmed": found["best"]["confirmed"],
        "last_ancestor_s": round(last_ancestor_at - search.began_at, 1),
        "new_programs": len(screened),
        "per_minute_and_gpu": round(len(screened) / minutes, 1) if screened else 0.0,
        "of_these_slower": sum(row["status"] == "slower" for row in screened),
        "of_these_full": sum(row["level"] == "full" for row in later),
        "gains": found["gains"]["gains"],
        "gains_per_gpu_hour": round(found["gains"]["gains"] / (gpus * search.wall_s / 3600), 1),
        "busy_percent": search.busy_percent,
        "seconds_by_stage": {stage: round(seconds, 1) for stage, seconds in judges_s.items()},
        "judges_busy_percent": round(
            100 * sum(s for stage, s in judges_s.items() if not stage.endswith("build")) / (gpus * search.wall_s), 1
        ),
        "said": search.said,
    }


if __name__ == "__main__":
    main()
