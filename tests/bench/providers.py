"""A search whose language models are slow and often fail: is every token accounted for, and what does the latency cost?

    python -m tests.bench.providers --requests 500 --latency 20

A scripted provider on loopback answers each request after so many seconds, about half of them with a fault: 429, 500,
503, dropped or cut connections, no answer at all, half answers, HTML, refusals, prose, wrong fences, broken plans. The
search is the real one with its ledger and store, and asks nothing but models; only compiler and clock are scripted.
Compares what the
server sent whole with the rows of `llm_calls` and with the ledger, and prints JSON: calls by status, tokens on either
side, how long nothing at all was told at most, and the time beside what the latency alone would take.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from evo.pool import InlinePool
from evo.search import Search
from evo.session import run_row
from evo.store import Store, query
from tests.evo.model_runs import FENCE, MODEL, config, stages
from tests.mutators.llm_server import LlmServer, Reply

FAULTS = (
    Reply(status=429, headers={"retry-after": "1"}), Reply(status=500), Reply(status=503), Reply(drop=True),
    Reply("w " * 500, cut=True), Reply(body=b"<html>"), Reply("late", delay_s=3600), Reply("half", finish="length"),
    Reply("", finish="content_filter"), Reply("I had rather not."), Reply("CHANGE: nothing\n```python\nprint()\n```"),
)  # fmt: skip


async def measured(requests: int, latency_s: float, concurrency: int, folder: Path) -> dict[str, Any]:
    """One search until so many requests were sent."""
    dice = Random(1)
    kinds: Counter[str] = Counter()

    def script(request: Mapping[str, Any], number: int) -> Reply:
        if dice.random() < 0.5:
            fault = dice.choice(FAULTS)
            kinds["fault"] += 1
            return replace(fault, delay_s=max(fault.delay_s, latency_s))
        kinds["answer"] += 1
        source = request["messages"][1]["content"].partition(FENCE)[2].partition("\n```")[0]
        return Reply(f"CHANGE: comment\n\n{FENCE}{source}\n// {number}\n```", delay_s=latency_s)

    moments: list[float] = []
    async with LlmServer(script) as server:
        made = config(
            server.url,
            budget={},
            llm={
                "models": [MODEL], "api_base": server.url, "backoff_s": 1.0, "concurrency": concurrency,
                "timeout_s": 2 * latency_s + 10,
            },
        )  # fmt: skip

        def on_change(running: Search) -> None:
            moments.append(time.monotonic())
            if running.budget.ledger.attempts >= requests:
                running.stop()

        begin = time.monotonic()
        with Store(folder, create=True) as store:
            store.commit({"runs": [run_row(made, folder)]}).result()
            search = Search(made, store, InlinePool(dict(stages(made))), on_change=on_change)
            reason = await search.run()
        seconds = time.monotonic() - begin
        ledger = search.budget.ledger
        (stored,) = query(
            folder,
            "select count(*) as calls, sum(attempts)::bigint as attempts, sum(tokens_in)::bigint as tokens_in,"
            " sum(tokens_out)::bigint as tokens_out, sum(lost_tokens)::bigint as lost_tokens from llm_calls",
        ).to_pylist()
        by_status = query(folder, "select status, count(*) as n from llm_calls group by 1 order by 1").to_pylist()
        told = query(folder, "select status, count(*) as n from tells group by 1 order by 1").to_pylist()
        return {
            "ended": reason,
            "requests_at_server": len(server.requests),
            "kinds": dict(kinds),
            "calls": {row["status"]: row["n"] for row in by_status},
            "tells": {row["status"]: row["n"] for row in told},
            "tokens_sent_whole": [server.tokens_in, server.tokens_out],
            "stored": stored,
            "ledger": {"tokens_in": ledger.tokens_in, "tokens_out": ledger.tokens_out, "lost": ledger.lost_tokens},
            "seconds": round(seconds, 1),
            "seconds_of_latency_one_by_one": round(len(server.requests) * latency_s),
            "most_at_once": server.most_at_once,
            "longest_silence_s": round(max((b - a for a, b in pairwise(moments)), default=0.0), 1),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--latency", type=float, default=20.0, help="seconds")
    parser.add_argument("--concurrency", type=int, default=64)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        found = asyncio.run(measured(arguments.requests, arguments.latency, arguments.concurrency, Path(work) / "run"))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
