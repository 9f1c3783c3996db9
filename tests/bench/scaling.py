"""Number of GPUs that one driver keeps busy: real mutators, strategy and store, and GPUs that only let time pass.

    python -m tests.bench.scaling --gpus 1 2 4 8 --seconds 20 [--operators softmax] [--judge-ms 230] [--build-ms 143]
        [--processes 8]

Needs no GPU. Every simulated GPU judges one candidate at a time and has three compilers, as in a search; verdicts come
from a script. Mutators work in `--processes` real worker processes, by default one for each core; 0 has them in the
driver's own. The default times are what `gpu_throughput` measured for softmax on an H100: 260 verdicts a minute.
Efficiency is candidates per minute over what as many GPUs would do that never wait; the rest is lost to the driver,
whose CPU time per candidate is given too. Prints JSON lines.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from pathlib import Path

from evo.config import RunConfig
from evo.search.driver import Search
from evo.session import run_context
from evo.store import Store
from evo.workers.dispatch import RunPool
from evo.workers.jobs import Found, Job, Propose, Screen
from evo.workers.local import LocalPool
from evo.workers.worker import BUILDERS_PER_GPU, WorkerSpec
from fitness.judging.base import Fitness
from fitness.testing import scripted
from operators.definition.spec import Task
from tests.inline import InlinePool


class WaitingPool(InlinePool):
    """Pool of this many judges and compilers, each busy for a given time with every job."""

    def __init__(
        self, stages: dict[Task, Fitness], gpus: int, *, judge_s: float, build_s: float, proposers: RunPool | None
    ) -> None:
        super().__init__(stages, slots=gpus * (1 + BUILDERS_PER_GPU))
        self._proposers = proposers
        self._judges, self._judge_s = asyncio.Semaphore(gpus), judge_s
        self._builders, self._build_s = asyncio.Semaphore(gpus * BUILDERS_PER_GPU), build_s
        self.judged = 0

    async def run(self, job: Job[Found]) -> Found:
        """A screening takes the time of a whole verdict, whose other levels take none here."""
        if isinstance(job, Propose) and self._proposers:
            return await self._proposers.run(job)
        if job.builds:
            async with self._builders:
                await asyncio.sleep(self._build_s)
        elif isinstance(job, Screen):
            async with self._judges:
                await asyncio.sleep(self._judge_s)
                self.judged += 1
        return await super().run(job)


def scaled(gpus: int, options: argparse.Namespace) -> dict[str, float]:
    limits = {"wall_s": float(options.seconds)}
    made = RunConfig(operators=options.operators, target="cpu", budget=limits, ancestors="naive", seed=1).resolved()
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder), create=True) as store:

        async def run() -> tuple[int, int]:
            stages = scripted(made.tasks())
            workers = LocalPool([WorkerSpec(folder)] * options.processes)
            proposers = workers.for_run(run_context(made, Path(folder))) if options.processes else None
            times = {"judge_s": options.judge_ms / 1e3, "build_s": options.build_ms / 1e3}
            pool = WaitingPool(dict(stages), gpus, proposers=proposers, **times)
            search = Search(made, store, pool)
            try:
                await search.run()
            finally:
                await workers.close()
            return pool.judged, sum(state.told for state in search.states.values())

        begin, cpu = time.perf_counter(), time.process_time()
        judged, told = asyncio.run(run())
        wall_s, cpu_s = time.perf_counter() - begin, time.process_time() - cpu
    ideal = gpus * wall_s / (options.judge_ms / 1e3)
    return {
        "gpus": gpus,
        "judged": judged,
        "told": told,
        "per_minute": round(60 * judged / wall_s, 1),
        "efficiency": round(judged / ideal, 3),
        "driver_cpu_ms_per_told": round(1e3 * cpu_s / told, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", nargs="+", default=["softmax"])
    parser.add_argument("--gpus", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--judge-ms", type=float, default=230.0)
    parser.add_argument("--build-ms", type=float, default=143.0)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    for count in options.gpus:
        print(json.dumps(scaled(count, options)), flush=True)


if __name__ == "__main__":
    main()
