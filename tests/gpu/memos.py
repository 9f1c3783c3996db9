"""Tries each memo of `tests.gpu.marks` through all levels and against the raw clock: `python -m tests.gpu.memos`.

For each: the verdict, the speed that it was given, and the times of eight calls on one set of inputs in a row, which
tell whether what it keeps lasts from one call to the next on this driver. Prints JSON lines.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from fitness.cuda.target import CudaFitness
from fitness.evaluation import Rejection
from fitness.judging.base import Anchor
from fitness.judging.device import NAN, KernelFault
from fitness.judging.levels import judge
from operators.catalog import load
from operators.definition.spec import Task
from operators.kernel import Kernel
from tests.gpu.marks import MEMOS


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        task = Task("gelu", "fp32", "cuda")
        stage = CudaFitness(load("gelu"), task, workload_set="cpu", folder=Path(folder))
        for name, canary in MEMOS.items():
            kernel = Kernel("gelu", "cuda", canary.source)
            last = judge(stage, kernel, Anchor(stage.baseline, 0.0, 0.0), race=False)[-1]
            row = {"memo": name, "level": last.level, "status": last.status, "message": last.message}
            print(json.dumps(row | {"log_speedup": last.log_speedup, "calls_us": _series(stage, kernel)}), flush=True)
        stage.close()


def _series(stage: CudaFitness, kernel: Kernel) -> list[float] | str:
    prepared = stage.device.prepare(kernel)
    if isinstance(prepared, Rejection):
        return prepared.message
    try:
        with stage.bench.session(prepared) as session:
            slot, _ = stage.bench.seated(session).placed(0, 0)
            return [session.run(slot, poison=NAN, cold=True).elapsed_ns / 1e3 for _ in range(8)]
    except KernelFault as fault:
        return fault.rejection.message


if __name__ == "__main__":
    main()
