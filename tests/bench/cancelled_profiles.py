"""Workers that cancelled jobs cost a pool: profiles are cancelled while a worker is at them, then one is judged.

    python -m tests.bench.cancelled_profiles [--count 60] [--workers 2] [--operator softmax]

On the cpu target, with real worker processes. Each profile is cancelled after a random time below a second. Prints how
many were cancelled, how many workers had to be replaced because they did not come to an end within the grace, how many
workers there are afterwards, how long the judgement that follows took, and its verdict.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from evo.workers.jobs import Build, Screen, TakeProfile
from evo.workers.local import LocalPool
from evo.workers.worker import RunContext, WorkerSpec
from fitness.evaluation import Timing
from fitness.judging.base import Anchor
from operators.catalog import load
from operators.definition.spec import Task
from operators.kernel import Kernel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--operator", default="softmax")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asyncio.run(_cancelled(options, Path(folder)))))


async def _cancelled(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    operator, task = load(options.operator), Task(options.operator, "fp32", "cpu")
    kernel = Kernel(operator.name, "cpu", operator.naive("cpu"))
    timings = tuple(Timing(w.name, 1000.0, 1000.0, 0.0, 0.01, 20) for w in operator.workload_set("cpu"))
    spec = WorkerSpec(str(folder))
    context = RunContext(((operator.name, operator.name),), "cpu", str(folder))
    pool = LocalPool([replace(spec) for _ in range(options.workers)])
    mine = pool.for_run(context)
    started = set(pool._workers)
    random = Random(0)
    try:
        await mine.run(Build(task, kernel))
        cancelled = 0
        for _ in range(options.count):
            job = asyncio.ensure_future(mine.run(TakeProfile(task, kernel, timings)))
            await asyncio.sleep(random.random())
            cancelled += job.cancel()
            await asyncio.gather(job, return_exceptions=True)
        begin = time.monotonic()
        found = await mine.run(Screen(task, kernel, Anchor(kernel, 0.0, 0.0), race=False))
        return {
            "cancelled": cancelled,
            "replaced": len(set(pool._workers) - started),
            "workers": len(pool._workers),
            "judged_after_s": round(time.monotonic() - begin, 1),
            "status": found.status.value,
        }
    finally:
        await pool.close()


if __name__ == "__main__":
    main()
