"""Time to read what comes from outside, hostile texts included: plans, expressions, answers, sources.

`python -m tests.bench.reading` prints the best of five for each, in milliseconds of CPU time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from random import Random

from fitness.cuda.compile.build import DIALECT
from fitness.sandbox.source import forbidden
from mutators.base import Parent, Request, Trial
from mutators.edits import AnswerError, child_source
from mutators.tuning.tune import Tune
from operators.catalog import load
from operators.definition.spec import Task
from operators.expression import ExpressionError, parse
from operators.kernel import Kernel
from operators.plan.reading import parse_plan

REPEATS = 5
EXPRESSIONS = ("(" * 500, "n(" * 250, "min(" * 100 + "1, 1" + ")" * 100, "1+" * 249 + "1", "9 ** 9 ** 9 ** 9")
SOURCES = ("#/*" * 80_000, "# " * 120_000, "/**/" * 60_000 + "#", "#" + " " * 250_000)
TUNABLES = {f"T{n}": [1, 2, 4, 8, 16, 32] for n in range(6)}


def best_ms(work: Callable[[], object]) -> float:
    """Return the least CPU time of a few attempts, in milliseconds."""
    times = []
    for _ in range(REPEATS):
        began = time.process_time()
        with suppress(ExpressionError, AnswerError):
            work()
        times.append(1e3 * (time.process_time() - began))
    return min(times)


def main() -> None:
    """Print the table."""
    operator = load("softmax")
    naive = operator.naive("cuda")
    lines = "\n".join(f"    y[{n}] = load(x[i]) * {n};" for n in range(4000))
    lost = "\n".join(f"    y[{n}] = load(x[i]) * {n + 1};" for n in range(2000))
    hostile = f"CHANGE: x\n\n<<<<<<< SEARCH\n{lost}\n=======\nx\n>>>>>>> REPLACE\n"
    tune = "\n".join(f"{name} = {values}" for name, values in TUNABLES.items())
    parent = Kernel("softmax", "cuda", naive.replace("[tune]", f"[tune]\n{tune}", 1))
    random = Random(0)
    assert Tune().applies(parent, operator)
    trials = tuple(
        Trial({name: random.choice(values) for name, values in TUNABLES.items()}, random.random()) for _ in range(60)
    )
    request = Request(Task("softmax", "fp32", "cuda"), 0, "tune", (parent.id,), 1, {}, trials)
    cases: dict[str, Callable[[], object]] = {
        "a plan": lambda: parse_plan(naive, operator, "cuda"),
        "worst expressions": lambda: [_evaluated(text) for text in EXPRESSIONS],
        "worst sources": lambda: [forbidden(text, "kernel.cu", DIALECT) for text in SOURCES],
        "an answer whose search is lost": lambda: child_source(naive + lines, hostile),
        "an answer full of markers": lambda: child_source(naive, "<<<<<<< SEARCH\n" * 50_000),
        "a setting after sixty trials": lambda: Tune().propose(request, (Parent(parent),), operator),
    }
    for name, work in cases.items():
        print(f"{best_ms(work):10.2f} ms  {name}")


def _evaluated(text: str) -> None:
    with suppress(ExpressionError):
        parse(text, ("n", "x")).evaluate({"n": 7, "x": 7})


if __name__ == "__main__":
    main()
