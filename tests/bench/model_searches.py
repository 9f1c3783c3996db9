"""Searches with a language model, for what a user sees of them: when the first question is asked, and how they end.

    python -m tests.bench.model_searches --target cuda --budget 120s --runs 3 [--operators softmax ...] [--latency 8]

A server on loopback plays the model, in a process of its own: after about `--latency` seconds it answers with the
kernel of the question after one or two random transforms of its syntax tree, whole. Each run is one of `evo run`. Its
line tells how long the command took and why the search ended, when the first question was sent after the session
began (and after the command began), how many answers came, how many profiles were taken and their median seconds, the
longest time in which nothing was stored, the time between the last row and the end, and how many of the tasks have a
confirmed best. A run that does not end within three times its budget is interrupted, and said to hang.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from evo.store import query
from mutators.base import Parent, Request
from mutators.transforms.mutator import Transform
from operators.catalog import load
from operators.definition.spec import Task
from operators.kernel import Kernel
from tests.evo.model_runs import source_in
from tests.mutators.llm_server import LlmServer, Reply

SIX = ("softmax", "matrix_mul", "gelu", "rms_norm", "prefix_sum", "stencil_2d")
MODEL = "openai/scripted"
SIGNS = (("events", "created_at"), ("asks", "created_at"), ("tells", "created_at"), ("evaluations", "created_at"),
         ("llm_sent", "created_at"), ("llm_calls", "created_at"), ("profiles", "created_at"))  # fmt: skip
"""Tables whose rows are signs of life."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--operators", nargs="+", default=SIX)
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--latency", type=float, default=8.0, help="seconds per answer, within half and twice as many")
    parser.add_argument("--set", action="append", default=[], help="passed on to evo run")
    parser.add_argument("--serve", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        asyncio.run(_serve(options.serve))
        return
    with subprocess.Popen(
        [sys.executable, "-m", "tests.bench.model_searches", "--serve", str(options.latency)],
        stdout=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        assert server.stdout
        try:
            url = server.stdout.readline().strip()
            for _ in range(options.runs):
                print(json.dumps(_searched(options, url)), flush=True)
        finally:
            server.terminate()


async def _serve(latency_s: float) -> None:
    random = Random(0)

    def script(request: Mapping[str, Any], number: int) -> Reply:
        return Reply(answer_to(request, number), delay_s=latency_s * 2 ** random.uniform(-1, 1))

    async with LlmServer(script) as server:
        print(server.url, flush=True)
        await asyncio.Event().wait()


def answer_to(request: Mapping[str, Any], number: int) -> str:
    """An answer that a model might give: the question's kernel after one or two random transforms of its syntax tree,
    whole."""
    system, question = (message["content"] for message in request["messages"][:2])
    source = source_in(question)
    named = re.search(r"# The operator `(\w+)`", system)
    assert named
    operator = load(named[1])
    target = "cuda" if "CUDA" in system else "cpu"
    kernel = Kernel(operator.name, target, source)
    wish = Request(Task(operator.name, "fp32", target), number, "transform", (kernel.id,), number, {"count": 2})
    child = Transform().propose(wish, (Parent(kernel),), operator)
    if child.kernel is None:
        return f"I know nothing better: {child.failure}"
    return f"CHANGE: {child.description}\n\n```cpp\n{child.kernel.source}\n```\n"


def _searched(options: argparse.Namespace, url: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as runs:
        command = [
            sys.executable, "-m", "evo.cli", "run", *options.operators, "--target", options.target, "--budget",
            options.budget, "--llm", MODEL, "--set", f"llm.api_base={url}", "--json",
        ]  # fmt: skip
        command += [text for setting in options.set for text in ("--set", setting)]
        began = time.time()
        run = subprocess.Popen(command, env=os.environ | {"EVO_RUNS": runs}, stdout=subprocess.PIPE)
        limit_s = 3 * float(re.sub(r"\D", "", options.budget))
        hangs = False
        try:
            run.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            hangs = True
            run.send_signal(signal.SIGINT)
            run.communicate(timeout=120)
        ended = time.time()
        (folder,) = Path(runs).iterdir()
        return {"hangs": hangs, "exit_code": run.returncode, "seconds": round(ended - began, 1)} | _told(
            folder, began, ended
        )


def _told(folder: Path, began: float, ended: float) -> dict[str, Any]:
    """The result that the run's own store tells."""

    def rows(sql: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = query(folder, sql).to_pylist()
        return found

    signs = " union all ".join(f"select epoch({column}) as moment from {table}" for table, column in SIGNS)
    moments = [row["moment"] for row in rows(f"select moment from ({signs}) order by moment")]
    session = rows("select epoch(min(created_at)) as moment from events where kind = 'session'")[0]["moment"]
    asked = rows("select epoch(min(created_at)) as moment from llm_sent")[0]["moment"]
    calls = rows("select count(*) filter (where status = 'answered') as answers, count(*) as calls from llm_calls")[0]
    profiles = rows("select count(*) as profiles, median(seconds) as profile_s from profiles")[0]
    best = rows("select count(*) as tasks, count(*) filter (where level = 'confirmed') as confirmed from best")[0]
    finished = rows("select json_extract_string(detail_json, 'reason') as reason from events where kind = 'finished'")
    alarms = rows("select kind from events where kind in ('stalled', 'restart')")
    gaps = [late - early for early, late in pairwise(moments)]
    return {
        "reason": finished[-1]["reason"] if finished else "",
        "first_question_s": round(asked - session, 1) if asked else None,
        "first_question_after_command_s": round(asked - began, 1) if asked else None,
        "longest_silence_s": round(max(gaps), 1),
        "last_row_to_end_s": round(ended - moments[-1], 1),
        "alarms": len(alarms),
        **calls,
        "profiles": profiles["profiles"],
        "profile_s": profiles["profile_s"] and round(profiles["profile_s"], 1),
        **best,
        "candidates": rows("select count(*) as n from tells where status not in ('duplicate', 'no_child')")[0]["n"],
    }


if __name__ == "__main__":
    main()
