"""Finds of the engine by itself, from the naive kernel: the share of the champion's log speedup that it reaches.

    python -m tests.bench.finding --target cuda --operators softmax sorting --results FILE.jsonl
    python -m tests.bench.finding --target cpu --operators matrix_mul --calls 12 50 --minutes 1 --results FILE.jsonl
    python -m tests.bench.finding --results FILE.jsonl --table

One run asks a model, until it has answered `--calls` times (or `--limit` is over), and one has none, for `--minutes`.
The model is a server on loopback that has the champion's ideas and tells them one at a time, in no order, and wrongly
now and then: see `tests.bench.pieces`. The champion is the last kernel of that chain, judged by `evo evaluate`
beforehand.

A share is ln(speedup of the run's best) / ln(speedup of the champion), both over the naive kernel; `at N calls` is what
was known when the answer after the N-th came. What is not confirmed in the end counts with the lower end of its
interval. Prints a JSON line for each task and arm, with every share, speedups with their 95 % interval, and the seconds
until a share of 0.9 stood; then a table. What was not reached is empty.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from evo.store import query
from fitness.evaluation import interval95
from operators.catalog import folders, load
from tests.bench.champions import read_rows
from tests.bench.gpu_throughput import EVO
from tests.bench.pieces import Chain, chain
from tests.evo.model_runs import source_in
from tests.mutators.llm_server import LlmServer, Reply

MODEL = "openai/pieces"
ENOUGH = 0.9
ANSWERS = """select epoch(c.created_at) - epoch(r.created_at) as at_s
from llm_calls as c, runs as r where c.status = 'answered' order by at_s"""
PROGRESS = """select epoch(e.created_at) - epoch(r.created_at) as elapsed_s,
    v.log_speedup - if(v.level = 'confirmed', 0, 1.96 * coalesce(v.log_speedup_se, 0)) as log
from evaluations as e join verdicts as v using (task, kernel_id), runs as r
where v.status = 'correct' and e.status = 'correct' order by elapsed_s"""
"""By the verdicts that count in the end; of many estimates the largest is the luckiest, so that what is not confirmed
counts with the lower end of its interval, as in the view `best`."""
BEST = "select level, log_speedup, log_speedup_se from best"
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", nargs="+", default=sorted(folders()))
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--workloads", default="", help="default: as of evo run")
    parser.add_argument("--calls", nargs="+", type=int, default=[12, 50, 200], help="answers; none with 0")
    parser.add_argument("--minutes", nargs="+", type=float, default=[5, 30], help="without a model; none with 0")
    parser.add_argument("--limit", default="30min", help="budget of a run that asks a model, as of evo run")
    parser.add_argument("--latency", type=float, default=4.0, help="seconds per answer, within half and twice as many")
    parser.add_argument("--wrong", type=float, default=0.3, help="share of answers that are blunders")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, required=True, help="JSON lines; what stands there is not done again")
    parser.add_argument("--table", action="store_true", help="only show what the results say")
    options = parser.parse_args()
    if not options.table:
        done = {(row["task"], row["arm"], row["seed"]) for row in read_rows(options.results)}
        for row in _rows(options, done):
            line = json.dumps(row)
            print(line, flush=True)
            with options.results.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
    print(table(read_rows(options.results)))


def _rows(options: argparse.Namespace, done: set[tuple[str, str, int]]) -> Iterator[Row]:
    for name in options.operators:
        operator, task = load(name), f"{name}/{options.dtype}/{options.target}"
        known = chain(operator, options.dtype, options.target)
        wanted = [arm for arm, marks in (("model", options.calls), ("alone", options.minutes)) if max(marks) > 0]
        left = [arm for arm in wanted if (task, arm, options.seed) not in done]
        if known is None or not left:
            continue
        best = _judged(name, known.sources[-1], options)
        for arm in left:
            row = {"task": task, "arm": arm, "seed": options.seed, "chain": len(known.ideas), "champion": best}
            if best is None or best[0] <= 1.0:
                yield row | {"lack": "the champion is not right here, or no faster than the naive kernel"}
                continue
            yield row | asyncio.run(_searched(name, arm, known, math.log(best[0]), options))


def _judged(name: str, source: str, options: argparse.Namespace) -> tuple[float, float, float] | None:
    """The champion's speedup over the naive kernel, with its interval; None where it is not right."""
    with tempfile.NamedTemporaryFile("w", suffix=".cu" if options.target == "cuda" else ".cpp") as file:
        file.write(source)
        file.flush()
        command = [*EVO, "evaluate", name, file.name, "--dtype", options.dtype, "--workloads", options.workloads]
        done = subprocess.run([*command, "--json"], stdout=subprocess.PIPE, text=True)
    last = json.loads(done.stdout)[-1] if done.stdout else {"log_speedup": None}
    return None if last["log_speedup"] is None else _interval(last["log_speedup"], last["log_speedup_se"])


async def _searched(name: str, arm: str, known: Chain, champion: float, options: argparse.Namespace) -> Row:
    """The result of one run; with a model, it ends when that has answered this many times."""
    random, most = Random(options.seed), max(options.calls)
    enough = asyncio.Event()

    def script(request: Mapping[str, Any], number: int) -> Reply:
        if number > most:
            enough.set()
        answer = known.answer(source_in(request["messages"][1]["content"]), random, wrong=options.wrong)
        return Reply(answer, delay_s=options.latency * 2 ** random.uniform(-1, 1))

    with tempfile.TemporaryDirectory() as runs:
        budget = options.limit if arm == "model" else f"{60 * max(options.minutes):g}s"
        command = [
            *EVO, "run", name, "--target", options.target, "--dtype", options.dtype, "--ancestors", "naive",
            "--runs", runs, "--seed", str(options.seed), "--budget", budget,
            "--set", f"workload_set={options.workloads}",
        ]  # fmt: skip
        async with LlmServer(script) as server:
            if arm == "model":
                command += ["--llm", MODEL, "--set", f"llm.api_base={server.url}", "--set", "llm.concurrency=4"]
            process = await asyncio.create_subprocess_exec(
                *command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            ended = asyncio.create_task(process.wait())
            answered = asyncio.create_task(enough.wait())
            await asyncio.wait({ended, answered}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                process.terminate()  # it ends in good order, and keeps what was judged
            await ended
            answered.cancel()
        (folder,) = Path(runs).iterdir()
        return reached(folder, champion, calls=options.calls if arm == "model" else (), minutes=options.minutes)


def reached(folder: Path, champion: float, *, calls: Sequence[int], minutes: Sequence[float]) -> Row:
    """The result that a run's own store tells; `champion` is the log speedup that shares are of.

    With `calls` shares are told by answers, else by minutes.
    """
    progress = query(folder, PROGRESS).to_pylist()
    answers = [row["at_s"] for row in query(folder, ANSWERS).to_pylist()]
    best = query(folder, BEST).to_pylist()

    def share(until_s: float) -> float | None:
        logs = [row["log"] for row in progress if row["elapsed_s"] <= until_s]
        return round(max(*logs, 0.0) / champion, 3) if logs else None

    by_calls = {str(count): share(answers[count]) for count in calls if count < len(answers)}
    by_minutes = {f"{m:g}": share(60 * m) for m in minutes if m > 0}
    enough = (row["elapsed_s"] for row in progress if row["log"] >= ENOUGH * champion)
    moment = next(enough, None)
    return {
        "shares": by_calls if calls else by_minutes,
        "answers": len(answers),
        "answers_to_90": None if moment is None or not calls else sum(at <= moment for at in answers),
        "seconds_to_90": None if moment is None else round(moment, 1),
        "best": _interval(best[0]["log_speedup"], best[0]["log_speedup_se"]) if best else None,
        "level": best[0]["level"] if best else None,
    }


def _interval(log: float, se: float | None) -> tuple[float, float, float]:
    """The speedup, and the ends of its 95 % interval."""
    value, low, high = (round(end, 3) for end in interval95(log, se or 0.0))
    return value, low, high


def table(rows: Sequence[Row]) -> str:
    """Markdown: a line for each task and arm, and the mean share of each arm at each mark."""
    lines = ["| task | arm | champion | best | shares | 90 % after | verdict |", "|---|---|---|---|---|---|---|"]
    means: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if "lack" in row:
            lines.append(f"| {row['task']} | {row['arm']} | - | - | {row['lack']} | - | - |")
            continue
        unit = "calls" if row["arm"] == "model" else "min"
        for mark, share in row["shares"].items():
            means.setdefault((row["arm"], f"{mark} {unit}"), []).append(share or 0.0)
        shares = ", ".join(f"{mark} {unit}: {_percent(share)}" for mark, share in row["shares"].items())
        moment = row["seconds_to_90"]
        after = (
            "-"
            if moment is None
            else f"{moment:.0f} s" + (f", {row['answers_to_90']} calls" if unit == "calls" else "")
        )
        cells = (
            row["task"],
            row["arm"],
            _speedup(row["champion"]),
            _speedup(row["best"]),
            shares or "-",
            after,
            row["level"],
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    told = [
        f"- {arm}, {mark}: {_percent(fmean(shares))} of {len(shares)} tasks" for (arm, mark), shares in means.items()
    ]
    return "\n".join([*lines, "", "Mean shares of the champion's log speedup:", *told])


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _speedup(interval: Sequence[float] | None) -> str:
    return f"{interval[0]:.3g}x ({interval[1]:.3g}-{interval[2]:.3g})" if interval else "-"


if __name__ == "__main__":
    main()
