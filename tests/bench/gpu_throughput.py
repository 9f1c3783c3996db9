"""Candidates per minute on GPUs, of a real search without language models, and of the usual way to judge a kernel.

    python -m tests.bench.gpu_throughput --operators softmax --seconds 60 [--gpus 1 2 4] [--rivals 8] [--ray]

For each number of GPUs a search of so many seconds is run as a user would run it; its own database tells how many
candidates were judged, how they ended, and the milliseconds of every stage; nvidia-smi tells the share of time that
kernels ran. Neither duplicates nor requests that led to no kernel count as candidates. `--rivals` candidates of the
last search are then judged as KernelBench does it, all at once so that builds use every core: a fresh process each,
torch's load_inline, 5 trials against torch, 100 timings. Prints JSON lines.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitness.targets import devices

EVO = (sys.executable, "-m", "evo.cli")
STAGES = ("build", "verify", "time", "confirm")
JUDGED = f"select status, level, epoch(created_at) as at, {', '.join(f'{s}_ms' for s in STAGES)} from evaluations"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", nargs="+", default=["softmax"])
    parser.add_argument("--workloads", default="cpu", help="the operators' small sizes by default")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--gpus", nargs="+", type=int, default=[1])
    parser.add_argument("--rivals", type=int, default=0)
    parser.add_argument("--ray", action="store_true")
    options = parser.parse_args()
    visible = devices("cuda")
    with tempfile.TemporaryDirectory() as runs:
        for count in options.gpus:
            row = _searched(options, visible[:count], Path(runs))
            print(json.dumps(row), flush=True)
        if options.rivals:
            print(json.dumps(_rivals(options, Path(runs))), flush=True)


@dataclass(frozen=True)
class Watched:
    """A search that was run as a user runs it."""

    began_at: float
    wall_s: float
    busy_percent: float | None
    """Share of the time that kernels ran, by nvidia-smi, mean over GPUs."""
    exit_code: int
    said: str


def watched(arguments: Sequence[str], environment: Mapping[str, str], gpus: Sequence[str]) -> Watched:
    """Run `evo run` with these arguments on these GPUs. Ends the program where nothing was searched."""
    query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "200"]
    sampler = subprocess.Popen([*query, "-i", ",".join(gpus)], stdout=subprocess.PIPE, text=True)
    begin, began_at = time.monotonic(), time.time()
    try:
        done = subprocess.run([*EVO, "run", *arguments], env=dict(environment), capture_output=True, text=True)
    finally:
        sampler.terminate()
        busy = [int(line) for line in (sampler.communicate()[0] or "").split() if line.isdigit()]
    if done.returncode not in (0, 1):  # 1: a task failed, which is a figure too
        raise SystemExit(f"the search failed: {done.stderr[-2000:]}")
    busy_percent = round(statistics.mean(busy), 1) if busy else None
    return Watched(began_at, time.monotonic() - begin, busy_percent, done.returncode, done.stderr.strip()[-500:])


def stage_costs(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Milliseconds by level and stage, of what JUDGED tells."""
    stages = {
        f"{level}.{stage}": [row[f"{stage}_ms"] for row in rows if row["level"] == level and row[f"{stage}_ms"]]
        for level in ("screen", "full", "confirmed")
        for stage in STAGES
    }
    return {stage: values for stage, values in stages.items() if values}


def _searched(options: argparse.Namespace, gpus: Sequence[str], runs: Path) -> dict[str, Any]:
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ",".join(gpus), "EVO_RUNS": str(runs)}
    settings = ["--budget", f"{options.seconds}s", "--set", f"workload_set={options.workloads}"]
    arguments = [*options.operators, "--target", "cuda", *settings, *(["--ray"] if options.ray else [])]
    search = watched(arguments, environment, gpus)
    rows = asked(environment, JUDGED)
    screened = [row for row in rows if row["level"] == "screen"]
    statuses = [row["status"] for row in screened]
    judged = [row for row in screened if row["status"] != "duplicate"]
    times = sorted(row["at"] for row in judged)
    return {
        "gpus": len(gpus),
        "ray": options.ray,
        "operators": options.operators,
        "wall_s": round(search.wall_s, 1),
        "candidates": len(judged),
        "per_minute": round(60 * len(judged) / options.seconds, 1),
        "steady_per_minute": round(60 * (len(times) - 1) / (times[-1] - times[0]), 1) if len(times) > 1 else None,
        "first_verdict_s": round(times[0] - search.began_at, 1) if times else None,
        "statuses": {status: statuses.count(status) for status in sorted(set(statuses))},
        "busy_percent": search.busy_percent,
        "median_ms": {stage: round(statistics.median(values), 1) for stage, values in stage_costs(rows).items()},
        "said": search.said,
    }


def asked(environment: Mapping[str, str], sql: str) -> list[dict[str, Any]]:
    command = [*EVO, "sql", "last", sql, "--json"]
    answer = subprocess.run(command, env=dict(environment), capture_output=True, text=True, check=True)
    rows: list[dict[str, Any]] = json.loads(answer.stdout)
    return rows


def _rivals(options: argparse.Namespace, runs: Path) -> dict[str, Any]:
    sql = (
        "select operator, source, values_json from kernels join evaluations using (kernel_id) "
        f"where status = 'correct' and level = 'screen' order by kernel_id limit {options.rivals}"
    )
    jobs = asked(os.environ | {"EVO_RUNS": str(runs)}, sql)

    def judge(job: Mapping[str, Any]) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "job.json").write_text(json.dumps({**job, "workloads": options.workloads}))
            environment = os.environ | {"TORCH_EXTENSIONS_DIR": folder, "MAX_JOBS": "2"}
            begin = time.monotonic()
            command = [sys.executable, "-m", "tests.bench.gpu_rival", str(Path(folder, "job.json"))]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            lines = (done.stdout + done.stderr).splitlines()
            errors = [line for line in lines if "error:" in line] or [line for line in lines if "rror" in line]
            said = done.stdout.strip().splitlines()[-1:] if done.returncode == 0 else []
            said = said or [json.dumps({"error": " / ".join(errors[:3])[:600]})]
            return {"wall_s": time.monotonic() - begin, **json.loads(said[0])}

    begin = time.monotonic()
    with ThreadPoolExecutor(max(len(jobs), 1)) as threads:
        found = list(threads.map(judge, jobs))
    wall_s = time.monotonic() - begin
    done = [row for row in found if "error" not in row]
    return {
        "rivals": len(jobs),
        "judged": len(done),
        "right": sum(row["right"] for row in done),
        "cores": len(os.sched_getaffinity(0)),
        "wall_s": round(wall_s, 1),
        "per_minute": round(60 * len(done) / wall_s, 1),
        "median_process_s": round(statistics.median([row["wall_s"] for row in done]), 1) if done else None,
        "median_build_s": round(statistics.median([row["build_s"] for row in done]), 1) if done else None,
        "errors": [row["error"] for row in found if "error" in row][:2],
    }


if __name__ == "__main__":
    main()
