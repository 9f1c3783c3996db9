"""The library calls of operators on this machine: which are right, what they take, and which is the baseline.

    python -m tests.bench.libraries [--operators softmax spmv_csr ...] [--dtypes fp32 bf16] [--target cuda] [--set NAME]

Prints a JSON line for each operator and dtype: every call with its kind, the microseconds of its calls from cold caches
by workload and their geometric mean, or why it was left out; and the choice, with what the next one takes over it. The
calls are tried as a first confirmation tries them, and the choice is kept as it keeps it; `--kept` measures nothing
where it is there already.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evo.config import DEFAULT_SETS
from fitness.library import Choice
from fitness.pipeline import Pipeline
from fitness.targets import fitness, present_target
from operators.catalog import folders, load
from operators.errors import UserError
from operators.spec import Task


def told(choice: Choice) -> dict[str, Any]:
    """One line's object."""
    best = choice.best
    others = [t.mean_us for t in choice.tried if t is not best and t.mean_us < math.inf]
    return {
        **asdict(choice.place),
        "library": best.name if best else None,
        "kind": best.kind if best else None,
        "mean_us": round(best.mean_us, 2) if best else None,
        "next_over_best": round(min(others) / best.mean_us, 2) if best and others else None,
        "tried": [
            {"call": t.name, "kind": t.kind}
            | ({"left_out": t.lack} if t.lack else {"mean_us": round(t.mean_us, 2), "us": _rounded(t.us)})
            for t in choice.tried
        ],
    }


def _rounded(us: Any) -> dict[str, float]:
    return {workload: round(each, 2) for workload, each in us.items()}


def tried(name: str, dtypes: Sequence[str], target: str, workload_set: str, *, again: bool) -> Iterator[dict[str, Any]]:
    """The lines of one operator; of a task that cannot be judged here, why."""
    operator = load(name)
    served = operator.dtypes.get(target, ())
    for dtype in (d for d in served if not dtypes or d in dtypes):
        with tempfile.TemporaryDirectory() as folder:
            try:
                stage = fitness(
                    operator, Task(operator.name, dtype, target), workload_set=workload_set, folder=Path(folder)
                )
                assert isinstance(stage, Pipeline)
                try:
                    yield told(stage.stand.libraries(again=again))
                finally:
                    stage.close()
            except UserError as error:
                yield {"operator": operator.name, "dtype": dtype, "target": target, "problem": str(error)}


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", nargs="*", default=[], help="names, or folders; default: all of the package")
    parser.add_argument("--dtypes", nargs="*", default=[], help="default: all that the operator has on the target")
    parser.add_argument("--target", choices=("cpu", "cuda"), help="default: cuda where there is a GPU")
    parser.add_argument("--set", default="", help="the workload set; default: the target's own")
    parser.add_argument("--kept", action="store_true", help="tell what is kept, where it is")
    options = parser.parse_args()
    target = options.target or present_target(("cpu", "cuda"))
    for name in options.operators or folders():
        workload_set = options.set or DEFAULT_SETS[target]
        for line in tried(name, options.dtypes, target, workload_set, again=not options.kept):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
