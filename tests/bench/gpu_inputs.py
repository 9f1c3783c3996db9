"""Inputs that are new in every timed call: what drawing them costs on a GPU beside the calls that they serve.

    python -m tests.bench.gpu_inputs [--operators softmax ...] [--dtypes fp32 bf16] [--workloads realistic] [--limit S]

For each task: milliseconds to draw and answer one set anew, and of one cold, checked call of the naive kernel, by
workload; then how many of the calls of a `full` verdict were on inputs that neither kernel had seen, whether the second
calls of the naive kernel on the same inputs look like first ones, and how often a right output needed a second look.
Prints JSON lines.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from fitness.cuda.target import CudaFitness
from fitness.judging.device import NAN, KernelFault
from fitness.judging.paired import Pairing
from fitness.judging.timing import FULL
from operators.catalog import folders, load
from operators.definition.spec import Task

ROUNDS = 5


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--operators", nargs="+", default=sorted(folders()))
    arguments.add_argument("--dtypes", nargs="+", default=["fp32", "bf16"])
    arguments.add_argument("--workloads", default="realistic")
    arguments.add_argument("--limit", default="400s", help="begin no task later")
    options = arguments.parse_args()
    end = time.monotonic() + float(options.limit.removesuffix("s"))
    with tempfile.TemporaryDirectory() as folder:
        for name in options.operators:
            operator = load(name)
            for dtype in options.dtypes:
                if dtype not in operator.dtypes.get("cuda", ()) or time.monotonic() > end:
                    continue
                task = Task(name, dtype, "cuda")
                stage = CudaFitness(operator, task, workload_set=options.workloads, folder=Path(folder))
                try:
                    row: dict[str, Any] = _costs(stage)
                except KernelFault as fault:
                    row = {"fault": fault.rejection.message}
                finally:
                    stage.close()
                print(json.dumps({"task": str(task)} | row), flush=True)


def _costs(stage: CudaFitness) -> dict[str, Any]:
    bench, inputs = stage.bench, stage.bench.inputs
    anchor, second = bench.anchor(stage.baseline), _counted(inputs)
    draws: dict[str, float] = {}
    calls: dict[str, float] = {}
    for number, sets in enumerate(inputs.nominal):
        _, timed = sets[0], sets[0]
        drawing, calling = [], []
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            timed.renew()
            drawing.append(1e3 * (time.perf_counter() - begin))
            begin = time.perf_counter()
            slot, case = anchor.placed(number, 0)
            anchor.session.run(slot, poison=NAN, cold=True)
            bench.checks.accept(case, anchor.session, slot)
            calling.append(1e3 * (time.perf_counter() - begin))
        name = timed.case.workload.name
        draws[name], calls[name] = round(median(drawing), 2), round(median(calling), 2)
    with bench.another(stage.baseline) as candidate:
        pairing = Pairing([candidate], [anchor], bench.checks.accept, bench.rng, spread=stage.device.spread)
        begin = time.perf_counter()
        with stage.device.machine(exclusive=True):
            found = pairing.measure(FULL, race=False)
            pairing.check_memory()
        took_s = time.perf_counter() - begin
    pairs = sum(t.pairs for t in found.timings)
    new = sum(map(len, pairing._first_ns))
    return {
        "draw_ms": draws, "call_ms": calls, "pairs": pairs, "new": new, "measure_s": round(took_s, 2),
        "second_looks": second[0],
    }  # fmt: skip


def _counted(inputs: Any) -> list[int]:
    """A counter of the cases of timed inputs that are looked at twice from now on."""
    count = [0]
    for sets in inputs.nominal:
        for timed in sets:
            renewed = timed._renewed

            def counted(case: Any, renewed: Any = renewed) -> Any:
                made = renewed(case)
                look = made.second_look
                if look is None:
                    return made

                def looked() -> Any:
                    count[0] += 1
                    return look()

                object.__setattr__(made, "second_look", looked)
                return made

            timed._renewed = counted
    return count


if __name__ == "__main__":
    main()
