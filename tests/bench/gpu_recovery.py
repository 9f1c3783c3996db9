"""Time for which each kind of fault holds up the evaluation of kernels on a GPU.

    python -m tests.bench.gpu_recovery [--rounds 3]

Kernels that fault are judged in turn with a right one; then runner processes are killed under a right kernel, and the
evaluation worker itself, the verifier, under a job of its pool. Prints a JSON line for each kind: what became of the
kernel in flight, seconds until that was known, seconds until the next right kernel had its verdict, and by how much
that is longer than usual (`delay_s`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch

from evo.workers.jobs import Build, Screen
from evo.workers.local import LocalPool
from evo.workers.pool import WorkerLost
from evo.workers.worker import RunContext, WorkerSpec, gpu_specs
from fitness.cuda.gpu import SPARES
from fitness.cuda.target import CudaFitness
from fitness.evaluation import Evaluation, Level
from fitness.judging.base import Anchor, Built
from fitness.judging.levels import judge
from fitness.targets import devices
from operators.catalog import load
from operators.definition.spec import Task
from operators.kernel import Kernel
from tests.gpu.kernels import FAULTS, REDUCE, ROWS, SOFTMAX, STORE
from tests.gpu.processes import kill, runners

TASK = Task("softmax", "fp32", "cuda")
KILL_AFTER_S = 0.05
HUGE = '[[buffer]]\nname = "huge"\ndtype = "int8"\nshape = ["2 ** 36"]\n'
LEFT_BYTES = 16 << 30
"""Free memory of the GPU when a kernel asks for more than there is: no plan may ask for more than 64 GiB."""
KINDS = {
    "illegal address": ROWS + FAULTS["reads far away"][0] + "}\n",
    "misaligned address": ROWS + "    *(float4*)(out + 1) = make_float4(1, 1, 1, 1);\n}\n",
    "trap": ROWS + FAULTS["traps"][0] + "}\n",
    "endless loop": ROWS + FAULTS["runs for seconds"][0] + "}\n",
    "out of memory": ROWS.replace("[[launch]]", f"{HUGE}[[launch]]") + REDUCE + STORE + "}\n",
    "wrong result": ROWS + FAULTS["does nothing"][0] + "}\n",
}


def right(number: int) -> Kernel:
    return Kernel("softmax", "cuda", f"{SOFTMAX}// {number}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stage = CudaFitness(load("softmax"), TASK, workload_set="cpu", folder=Path(folder))
        try:
            _in_one_process(stage, options.rounds)
        finally:
            stage.close()
        asyncio.run(_verifier_killed(Path(folder), options.rounds))


def _in_one_process(stage: CudaFitness, rounds: int) -> None:
    anchor, count = Anchor(stage.baseline, 0.0, 0.0), iter(range(10**6))

    def examined(kernel: Kernel) -> tuple[str, float]:
        """Its last status, and seconds of its verdict; it was compiled before."""
        built = stage.build(kernel)
        if isinstance(built, Evaluation):
            raise SystemExit(f"{built.status}: {built.message}")
        begin = time.perf_counter()
        last = judge(stage, kernel, anchor, race=True, until=Level.FULL)[-1]
        return last.status.value, time.perf_counter() - begin

    for _ in range(2):
        examined(right(next(count)))
    usual_s = statistics.median(examined(right(next(count)))[1] for _ in range(5))
    print(json.dumps({"fault": "none", "status": "correct", "verdict_s": round(usual_s, 2)}), flush=True)

    def measured(fault: str, faulty: Callable[[], tuple[str, float]]) -> None:
        seen, spent, after = [], [], []
        for _ in range(rounds):
            status, seconds = faulty()
            next_status, next_s = examined(right(next(count)))
            seen += [status, next_status]
            spent.append(seconds)
            after.append(next_s)
        print(json.dumps(_row(fault, seen[::2], seen[1::2], spent, after, usual_s)), flush=True)

    for fault, source in KINDS.items():

        def faulty(source: str = source) -> tuple[str, float]:
            taken = max(torch.cuda.mem_get_info()[0] - LEFT_BYTES, 0) if HUGE in source else 0
            ballast = torch.empty(taken, dtype=torch.uint8, device="cuda")
            try:
                return examined(Kernel("softmax", "cuda", f"{source}// {next(count)}\n"))
            finally:
                del ballast
                torch.cuda.empty_cache()

        measured(fault, faulty)

    def killed(some: slice) -> tuple[str, float]:
        """The verdict on a right kernel under which some of the runner processes are killed."""
        kernel = right(next(count))
        stage.build(kernel)
        timer = threading.Timer(KILL_AFTER_S, kill, [runners()[some]])
        timer.start()
        try:
            return examined(kernel)
        finally:
            timer.join()

    # The oldest spare is the next that is hired.
    measured("runner killed", lambda: killed(slice(-SPARES, 1 - SPARES)))
    measured("naive kernel's runners killed", lambda: killed(slice(0, -SPARES)))
    measured("all runners killed", lambda: killed(slice(None)))


async def _verifier_killed(folder: Path, rounds: int) -> None:
    """The evaluation worker dies under its job; its pool starts another, which first shows that the GPU computes."""
    base = WorkerSpec(str(folder))
    pool = LocalPool(gpu_specs(base, devices("cuda")[:1], builders=1, cores=2))
    mine = pool.for_run(RunContext((("softmax", "softmax"),), "cpu", str(folder)))
    anchor = Anchor(Kernel("softmax", "cuda", load("softmax").ancestor("naive", "cuda").read_text()), 0.0, 0.0)
    numbers = iter(range(10**6, 2 * 10**6))

    async def judged() -> tuple[str, float]:
        kernel = right(next(numbers))
        if not isinstance(await mine.run(Build(TASK, kernel)), Built):
            raise SystemExit("a right kernel does not build")
        begin = time.perf_counter()
        try:
            found = await mine.run(Screen(TASK, kernel, anchor, race=True))
            if found.correct:
                found = await mine.full(TASK, kernel, anchor)
            status = found.status.value
        except WorkerLost:
            status = "lost, to be asked again"
        return status, time.perf_counter() - begin

    try:
        for _ in range(2):
            await judged()
        usual_s = statistics.median([(await judged())[1] for _ in range(3)])
        lost, again, spent, after = [], [], [], []
        for _ in range(rounds):
            timing = next(w for w in pool._workers if "screen" in w.spec.jobs)
            pid = timing._process._process.pid  # type: ignore[attr-defined]
            asyncio.get_running_loop().call_later(KILL_AFTER_S, kill, [pid])
            status, seconds = await judged()
            next_status, next_s = await judged()
            lost.append(status)
            again.append(next_status)
            spent.append(seconds)
            after.append(next_s)
        print(json.dumps(_row("verifier killed", lost, again, spent, after, usual_s)), flush=True)
    finally:
        await pool.close()


def _row(
    fault: str, statuses: list[str], following: list[str], spent: list[float], after: list[float], usual_s: float
) -> dict[str, object]:
    return {
        "fault": fault,
        "status": sorted(set(statuses)),
        "next": sorted(set(following)),
        "verdict_s": round(statistics.median(spent), 2),
        "next_verdict_s": round(statistics.median(after), 2),
        "delay_s": round(statistics.median(after) - usual_s, 2),
        "longest_s": round(max(after), 2),
    }


if __name__ == "__main__":
    main()
