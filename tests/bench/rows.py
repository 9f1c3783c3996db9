"""Time that objects take to become rows of the store, and to come back: what the driver and a resume do for each.

    python -m tests.bench.rows [--rounds 5]

Prints a line of JSON for each object: `write_us` and `read_us` of the processor's time, the shortest of some rounds.
The evaluation has eight workloads, timed with the anchor and with a library, and as many errors.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

from evo import rows
from evo.individual import Individual
from fitness.evaluation import CheckError, Evaluation, Level, LibraryTiming, Status, Timing
from mutators.base import Call, CallStatus, Kind, Proposal, Request, ToolCall
from operators.definition.spec import Task
from operators.kernel import Kernel

TASK = Task("softmax", "fp32", "cpu")
TIMES = 500
"""Objects of one round."""
WORKLOADS = [f"workload {n}" for n in range(8)]
KERNEL = Kernel("softmax", "cpu", "// a kernel\n" * 200, {"TILE": 4})
REQUEST = Request(TASK, 7, "rewrite", ("parent",), 1, kind=Kind.CHILD)
EVALUATION = Evaluation(
    KERNEL.id, str(TASK), Level.CONFIRMED, Status.CORRECT, log_speedup=0.5, log_speedup_se=0.01, anchor_id="anchor",
    anchor_log_speedup=0.2, log_ratio=0.3, log_ratio_se=0.01, cell=("vector", "tile"), facts={"registers": 32},
    timings=tuple(Timing(name, 10.0, 13.5, 0.3, 0.01, 40) for name in WORKLOADS),
    library_timings=tuple(LibraryTiming(name, 10.0, 13.5, 0.3, 0.01, 40, "softmax") for name in WORKLOADS),
    errors=tuple(CheckError(name, "y", "nominal", 0.1, 0) for name in WORKLOADS),
    stage_ms=dict.fromkeys(rows.STAGES, 10.0),
)  # fmt: skip
CALL = Call(
    REQUEST.id, "rewrite", "model", tuple({"role": "user", "content": "word " * 500} for _ in range(3)), 0, "key",
    CallStatus.ANSWERED, "word " * 500, tool_calls=(ToolCall("1", "build", "{}"),),
)  # fmt: skip
INDIVIDUAL = Individual(REQUEST, KERNEL, EVALUATION, 1.0, 0.1)


def told() -> rows.Row:
    """Return what a resume reads of the individual."""
    judged = written()
    measured = {table: judged[table] for table in rows.MEASURED}
    others = {"told": "correct", "seconds": 1.0, "cost_usd": 0.1, "description": "", "failure": "", "text": ""}
    kernel = rows.kernel_row(KERNEL)
    request = {"request_json": REQUEST.to_json(), "metrics_json": "{}"}
    return {**kernel, **judged["evaluations"][0], **measured, **others, **request}


def written() -> rows.Rows:
    """Return the rows of the evaluation."""
    return rows.evaluation_rows(EVALUATION, evaluation_id="1", request_id=REQUEST.id, at=0.0)


def individual() -> object:
    """Return the rows of the individual's proposal and tell, as `deliver` makes them."""
    proposal = rows.proposal_row(REQUEST, Proposal(KERNEL, description="less work"), at=0.0)
    placed = rows.placed({"proposals": [proposal]}, generation=1, is_new=True)
    return rows.join(placed, rows.tell_rows(INDIVIDUAL, seq=1, at=0.0))


def shortest_us(work: Callable[[], object], rounds: int) -> float:
    """Return how long one call takes in the fastest round."""
    spent = []
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(TIMES):
            work()
        spent.append(time.process_time() - start)
    return round(1e6 * min(spent) / TIMES, 1)


def main(arguments: list[str]) -> int:
    """Time every object both ways."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.rows", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args(arguments).rounds
    kernel, call = rows.kernel_row(KERNEL), rows.call_row(CALL, call_id="1", at=0.0)
    outcome = told()
    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "evaluation": (written, lambda: rows.evaluation_from(outcome)),
        "call": (lambda: rows.call_row(CALL, call_id="1", at=0.0), lambda: rows.CALL.item(call)),
        "kernel": (lambda: rows.kernel_row(KERNEL), lambda: rows.kernel_from(kernel)),
        "individual": (individual, lambda: rows.individual_from(outcome)),
    }
    for name, (write, read) in pairs.items():
        figures = {"write_us": shortest_us(write, rounds), "read_us": shortest_us(read, rounds)}
        print(json.dumps({"object": name, **figures}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
