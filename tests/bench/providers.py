"""A search whose language models are slow, faulty and false: is every token accounted for, and does it go on?

    python -m tests.bench.providers --requests 1000 --latency 2

A scripted provider of two models on loopback answers each request after so many seconds, about half of them with a
fault: 429, 500, 503, dropped or cut connections, no answer at all, half answers, HTML, refusals, prose, wrong fences,
10 MB of prose, a usage that is negative, huge, no number, text, nested or missing; and from time to time one of them is
gone for a while with 401, 402, 403, 404 or a used-up quota. The search is the real one with its accounts and store, and
asks nothing but models; only compiler and clock are scripted. Compares what the server sent whole with the rows of
`llm_calls` and with its accounts, and prints JSON: calls by status, tokens on either side, how long nothing at all was
told at most, and the time beside what the latency alone would take. Then a second search has a budget of tokens and a
provider that only tells false usage. Exit code 1 if a token is missing or too many, a search ended by itself, or the
budget did not end the second one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from evo.search.driver import STOPPED, Search
from evo.session import run_row
from evo.store import Store, query
from tests.evo.model_runs import FENCE, MODEL, another, config, source_in, stages
from tests.inline import InlinePool
from tests.mutators.llm_server import LlmServer, Reply
from tests.mutators.test_llm import USAGES

MODELS = (MODEL, "openai/other")
FAULTS = (
    Reply(status=429, headers={"retry-after": "1"}), Reply(status=500), Reply(status=503), Reply(drop=True),
    Reply("w " * 500, cut=True), Reply(body=b"<html>"), Reply("late", delay_s=3600), Reply("half", finish="length"),
    Reply("", finish="content_filter"), Reply("I had rather not."), Reply("CHANGE: nothing\n```python\nprint()\n```"),
)  # fmt: skip
PROSE = Reply("prose " * 1_700_000, usage_json='{"prompt_tokens": 1000, "completion_tokens": 1700000}')
GONE = (
    Reply(status=401, error="Incorrect API key"), Reply(status=402, error="pay first"), Reply(status=403),
    Reply(status=404, error="no such model"), Reply(status=429, error="insufficient_quota"),
)  # fmt: skip
OUTAGE_REQUESTS = 3
"""Requests in a row that get the same refusal."""
MUST_BE_TRUE = ("honest_tokens_equal", "ledger_is_the_store", "went_on", "budget_ended")


class Provider:
    """Provider whose answers are drawn by chance, half of them faulty."""

    def __init__(self, latency_s: float) -> None:
        self.latency_s = latency_s
        self.kinds: Counter[str] = Counter()
        self.honest: Counter[str] = Counter()
        """Tokens of answers that were sent whole with the usage that they really had, and that can be."""
        self._dice = Random(1)
        self._gone: Iterator[Reply] = iter(())
        self._gone_model = ""

    def answer(self, request: Mapping[str, Any], number: int) -> Reply:
        """An answer, or one of the faults."""
        reply = self._outage(request) or self._reply(request, number)
        return replace(reply, delay_s=max(reply.delay_s, self.latency_s))

    def _outage(self, request: Mapping[str, Any]) -> Reply | None:
        """Every now and then one model is gone for a few requests."""
        if self._dice.random() < 0.02 and not self._gone_model and self.kinds["answer"] > 20:
            fault = self._dice.choice(GONE)
            self._gone, self._gone_model = iter([fault] * OUTAGE_REQUESTS), request["model"]
        if request["model"] != self._gone_model:
            return None
        reply = next(self._gone, None)
        self._gone_model = self._gone_model if reply else ""
        self.kinds["gone"] += reply is not None
        return reply

    def _reply(self, request: Mapping[str, Any], number: int) -> Reply:
        chance = self._dice.random()
        if chance < 0.4 and number > len(MODELS):
            self.kinds["fault"] += 1
            return self._dice.choice(FAULTS)
        if chance < 0.41 and number > len(MODELS):
            self.kinds["10 MB"] += 1
            return PROSE
        source = source_in(request["messages"][1]["content"])
        good = Reply(f"CHANGE: comment\n\n{FENCE}{source}\n{another(str(number))}\n```")
        if chance < 0.5:
            self.kinds["false usage"] += 1
            return replace(good, usage_json=self._dice.choice(USAGES))
        self.kinds["answer"] += 1
        return good


async def measured(requests: int, latency_s: float, concurrency: int, folder: Path) -> dict[str, Any]:
    """One search until so many requests were sent."""
    provider = Provider(latency_s)
    moments: list[float] = []
    async with LlmServer(provider.answer) as server:
        made = config(
            server.url,
            budget={},
            llm={
                "models": MODELS, "api_base": server.url, "backoff_s": 1.0, "concurrency": concurrency,
                "timeout_s": 2 * latency_s + 10, "pause_s": 2.0,
            },
        )  # fmt: skip

        def on_change(running: Search) -> None:
            moments.append(time.monotonic())
            if running.budget.spending.attempts >= requests and not running.stopping:
                running.stop()

        begin = time.monotonic()
        search, reason = await _searched(made, folder, on_change)
        seconds = time.monotonic() - begin
        spending = search.budget.spending
        (stored,) = query(
            folder,
            "select count(*) as calls, sum(attempts)::bigint as attempts, sum(tokens_in)::bigint as tokens_in,"
            " sum(tokens_out)::bigint as tokens_out, sum(lost_tokens)::bigint as lost_tokens,"
            " sum(tokens_in) filter (usage_doubt = '')::bigint as honest_in,"
            " sum(tokens_out) filter (usage_doubt = '')::bigint as honest_out,"
            " count(*) filter (usage_doubt <> '') as doubted from llm_calls",
        ).to_pylist()
        (cost,) = query(
            folder, "select sum(lost_tokens)::bigint as most, sum(likely_lost_tokens)::bigint as likely from cost"
        ).to_pylist()
        by_status = query(folder, "select status, count(*) as n from llm_calls group by 1 order by 1").to_pylist()
        told = query(folder, "select status, count(*) as n from tells group by 1 order by 1").to_pylist()
        events = query(folder, "select kind, count(*) as n from events group by 1 order by 1").to_pylist()
        sent = [server.tokens_in, server.tokens_out]
        kept = [spending.tokens_in, spending.tokens_out, spending.lost_tokens]
        return {
            "ended": reason,
            "requests_at_server": len(server.requests),
            "kinds": dict(provider.kinds),
            "calls": {row["status"]: row["n"] for row in by_status},
            "tells": {row["status"]: row["n"] for row in told},
            "events": {row["kind"]: row["n"] for row in events},
            "tokens_sent_whole": sent,
            "stored": stored,
            "spending": dict(zip(("tokens_in", "tokens_out", "lost"), kept, strict=True)),
            "lost_tokens": cost,
            "honest_tokens_equal": [stored["honest_in"], stored["honest_out"]] == sent,
            "ledger_is_the_store": [stored[f"{name}_tokens" if name == "lost" else name] for name in (
                "tokens_in", "tokens_out", "lost")] == kept,
            "went_on": reason == STOPPED,
            "seconds": round(seconds, 1),
            "seconds_of_latency_one_by_one": round(len(server.requests) * latency_s),
            "most_at_once": server.most_at_once,
            "longest_silence_s": round(max((b - a for a, b in pairwise(moments)), default=0.0), 1),
        }  # fmt: skip


async def budgeted(tokens: int, folder: Path) -> dict[str, Any]:
    """A search with a budget of tokens, of whose answers none tells a usage that is true."""
    provider = Provider(0.0)

    def script(request: Mapping[str, Any], number: int) -> Reply:
        return replace(provider.answer(request, 0), usage_json=USAGES[number % len(USAGES)], delay_s=0.0, status=200)

    async with LlmServer(script) as server:
        made = config(server.url, budget={"tokens": tokens}, llm={"models": [MODEL], "api_base": server.url})
        search, reason = await _searched(made, folder, lambda _: None)
        spending = search.budget.spending
        return {
            "ended": reason,
            "requests_at_server": len(server.requests),
            "tokens": spending.tokens,
            "budget_ended": "tokens are spent" in reason and spending.tokens <= tokens,
        }


async def _searched(made: Any, folder: Path, on_change: Any) -> tuple[Search, str]:
    with Store(folder, create=True) as store:
        store.commit({"runs": [run_row(made, folder)]}).result()
        search = Search(made, store, InlinePool(dict(stages(made))), on_change=on_change)
        return search, await search.run()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--latency", type=float, default=20.0, help="seconds")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=1_000_000, help="budget of the second search")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folders = (Path(work) / "run", Path(work) / "budgeted")
        found = asyncio.run(measured(arguments.requests, arguments.latency, arguments.concurrency, folders[0]))
        found["second"] = asyncio.run(budgeted(arguments.tokens, folders[1]))
    print(json.dumps(found, indent=1))
    return int(not all({**found, **found["second"]}[name] for name in MUST_BE_TRUE))


if __name__ == "__main__":
    sys.exit(main())
