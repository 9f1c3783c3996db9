"""Conclusions of whole comparisons where the truth is known: loops of scripted models, searched, judged and concluded.

    python -m tests.bench.truth --tokens 60000

A model's kernels have speedups by chance, whatever it is asked, so that loops of one model draw from one pool: they
differ in how many kernels their tokens buy, and `better` has a model whose kernels are twice as fast. Eight operators,
two seeds; the device is scripted, all else is as in any comparison. Prints JSON: of each arm what its cells spent of
their budgets, how many kernels they bought, its ratio to the reference, and the verdict.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from evo.compare.cells import cell_results, spent, stored
from evo.compare.conclusions import conclusions
from evo.compare.judgement import judged_cells
from evo.config import RunConfig
from evo.workers.worker import RunContext
from operators.definition.spec import Task
from operators.identity import digest
from operators.kernel import Kernel
from tests.evo.comparisons import ScriptedBackend, ScriptedPool, Stages, comparison, judge_on, run, serving
from tests.evo.model_runs import FENCE, TimedFitness, source_in
from tests.inline import InlinePool
from tests.mutators.llm_server import Reply

OPERATORS = ("relu", "softmax", "matrix_mul", "mse_loss", "prefix_sum", "matrix_copy", "conv_1d", "spmv_csr")
"""Operators of eight families, as chance is over families."""
ADVANTAGE = math.log(2.0)
"""Logarithm of the ratio of the better model's pool to the other one's."""
SPREAD = 0.15
"""Standard deviation of log speedups within a pool."""
MARK = re.compile(r"// speedup (-?[0-9.]+)")
ARMS: Mapping[str, Mapping[str, Any]] = {
    "best_of_n": {},
    "refine": {},
    "astra": {},
    "cudamaster": {},
    "cutegen": {},
    "cudaforge": {},
    "better": {"strategy": "best_of_n", "models": ["openai/better"]},
}


def answer(request: Mapping[str, Any], number: int) -> Reply:
    """Words where they are asked for; else a kernel whose speedup is drawn by the conversation."""
    messages = request["messages"]
    rng = Random(digest("truth", json.dumps(messages), request["model"], str(request.get("seed"))))
    thoughts = "word " * rng.randint(100, 700)
    if "# Your answer" not in messages[0]["content"]:
        return Reply(thoughts)
    log = rng.gauss(0.5 + (ADVANTAGE if request["model"].endswith("better") else 0.0), SPREAD)
    mark = f"// speedup {log:.6f}"
    if lines := re.findall(r"^ *(\d+)\| ", messages[-1]["content"], re.MULTILINE):
        edit = {"op": "insert", "after": int(lines[-1]), "text": f"{mark} {rng.random()}"}
        return Reply(f"CHANGE: {mark}\n\n{json.dumps({'edits': [edit]})}\n\n{thoughts}")
    asked = [str(message["content"]) for message in messages if message["role"] == "user"]
    source = next(filter(None, map(source_in, reversed(asked))))
    return Reply(f"CHANGE: {mark}\n\n{FENCE}{source}\n{mark} {rng.random()}\n```\n{thoughts}")


def told(kernel: Kernel) -> float:
    """The log speedup that the last mark of a kernel says."""
    marks = MARK.findall(kernel.source)
    return float(marks[-1]) if marks else 0.0


class Honest(Stages):
    """Scripted stages that find what kernels say."""

    def __missing__(self, task: Task) -> TimedFitness:
        made = super().__missing__(task)
        assert isinstance(made, TimedFitness)
        made.script = told
        return made


class Pool(ScriptedPool):
    """A pool of such stages."""

    def for_run(self, context: RunContext) -> InlinePool:
        return InlinePool(Honest(dict(context.operators)))


class Backend(ScriptedBackend):
    """A scripted device."""

    def pool(self, config: RunConfig, folder: Path) -> ScriptedPool:
        return Pool()


def found(folder: Path, tokens: float, seeds: int) -> dict[str, Any]:
    """Search, judge and conclude in `folder`."""
    began = time.monotonic()
    arms = {name: {"settings": {"n": 1000}, **arm} for name, arm in ARMS.items()}
    with serving(answer) as server:
        llm = {"models": ["openai/scripted"], "api_base": server.url, "backoff_s": 0.01, "seeds": True}
        made = comparison(
            operators=list(OPERATORS), seeds=[*range(1, seeds + 1)], budget={"tokens": tokens}, arms=arms, llm=llm,
            at_once=4, reference="best_of_n",
        )  # fmt: skip
        place, _, _ = run(folder, made, backend=Backend())
    judge_on(Backend(), place, lambda _: None)
    results = cell_results(place)
    shares, rows = spent(results), {row["arm"]: row for row in conclusions(stored(place), judged_cells(place)).rows()}
    cells = len(results) // len(ARMS)
    table = {
        arm: {
            "spent": str(shares[arm]),
            "kernels_a_cell": round(sum(each.used.evaluations for each in results if each.arm == arm) / cells, 1),
            "calls_a_cell": round(sum(each.used.calls for each in results if each.arm == arm) / cells, 1),
            **{key: rows[arm][key] for key in ("speedup", "ratio", "ratio_95", "p", "verdict")},
        }
        for arm in ARMS
    }
    return {"cells": len(results), "seconds": round(time.monotonic() - began), "arms": table}


def main() -> None:
    """Print it all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=float, default=60_000, help="of every cell; words, as the server counts them")
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(found(Path(folder), options.tokens, options.seeds), indent=1))


if __name__ == "__main__":
    main()
