"""The library calls of operators on this machine: which are right, what they take, and which is the baseline.

    python -m tests.bench.libraries [--operators softmax spmv_csr ...] [--dtypes fp32 bf16] [--target cuda] [--set NAME]

Prints a JSON line for each operator and dtype: every call with its kind, the microseconds of its calls from cold caches
by workload and their geometric mean, or why it was left out, and where. The choice is by workload: its call
(`library`), what the next one takes over it (`next_over_best`), the geometric mean of the chosen calls' times
(`mean_us`), and what the one best call of all workloads takes over that (`one_call_over_best`). The calls are tried as
a first confirmation tries them, and the choice is kept as it keeps it; `--kept` measures nothing where it is there
already.
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
from fitness.judging.library import BaselineChoice
from fitness.judging.pipeline import Pipeline
from fitness.targets import fitness, present_target
from operators.catalog import folders, load
from operators.definition.spec import Task
from operators.errors import UserError


def told(choice: BaselineChoice) -> dict[str, Any]:
    """One line's object."""
    best = choice.best
    least_us = {workload: t.us[workload] for workload, t in best.items()}
    next_us = {
        workload: min((t.us[workload] for t in choice.tried if t is not chosen and workload in t.us), default=math.inf)
        for workload, chosen in best.items()
    }
    one_call_us = min((t.mean_us for t in choice.tried), default=math.inf)
    return {
        **asdict(choice.place),
        "library": {workload: t.name for workload, t in best.items()},
        "kind": {workload: t.kind for workload, t in best.items()},
        "lack": choice.lack,
        "mean_us": _rounded(choice.mean_us),
        "next_over_best": {workload: _rounded(next_us[workload] / us) for workload, us in least_us.items()},
        "one_call_over_best": None if choice.lack else _rounded(one_call_us / choice.mean_us),
        "tried": [
            {"call": t.name, "kind": t.kind}
            | ({"mean_us": _rounded(t.mean_us), "us": {w: _rounded(us) for w, us in t.us.items()}} if t.us else {})
            | ({"left_out": t.left_out} if t.left_out else {})
            for t in choice.tried
        ],
    }


def _rounded(value: float) -> float | None:
    """None for what is infinite: there is no such thing."""
    return round(value, 2) if math.isfinite(value) else None


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
                    yield told(stage.bench.library.choice(compiles=True, again=again))
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
