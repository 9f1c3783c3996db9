"""Comparison of a run's ledger with what its provider counted, to the token and the dollar: with tools, retries and
kills.

    python -m tests.bench.ledger --calls 500 --kills 2

A search of the strategy `islands` with the mutator `agent` asks a scripted model on loopback, which calls tools, says
how many of a prompt's tokens its own cache had, and fails now and then: it turns requests away (429, 500), or closes
the connection before or in the middle of an answer. The process is killed (SIGKILL) in the middle of its first
sessions, while answers are under way, and gone on with, until so many requests were answered. The run is replayed at
last, which must ask nothing. Of the mutators those alone take part that ask a model: others spend most evaluations of
a budget, and nothing in any ledger.

The provider counts what it sent whole to a client that was alive to read it; it cannot know what a client that was
killed had of an answer, so kills wait for a moment in which none was just read. Equal must be: tokens in, tokens out,
dollars and answers. `lost` are upper bounds that the ledger keeps apart: of answers that broke off, and of
those under way when the process was killed. `cache_hits` are answers from before a kill that a later session found.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from evo.replay import replay
from evo.store import query
from mutators.llm.settings import Price
from tests.evo.model_runs import MODEL, working
from tests.mutators.llm_server import LlmServer, Reply

PRICE = Price(input=3.0, output=15.0)
LATENCY_S = 0.1
QUIET_S = 0.03
"""Time before a kill in which nothing was read."""
MORE_EVALUATIONS = 120
"""Evaluations that one session may spend beyond the one before."""
FAULTS = (
    Reply(status=429, error="slow down", headers={"retry-after": "0"}), Reply(status=500, error="overloaded"),
    Reply(drop=True), Reply("CHANGE: never heard", cut=True),
)  # fmt: skip


class Provider:
    """Answers by a script, and counts what it told."""

    def __init__(self) -> None:
        self.server: LlmServer
        self.tokens: dict[int, tuple[int, int]] = {}
        """By number of the request, in and out, of answers that were to be sent whole."""
        self.asked_at: dict[int, float] = {}
        self.kinds: Counter[str] = Counter()
        self._dice = Random(7)

    def answer(self, request: Mapping[str, Any], number: int) -> Reply:
        """An answer with its usage, or a fault."""
        self.asked_at[number] = time.monotonic()
        chance = self._dice.random()
        if chance < 0.15 and number > 5:
            self.kinds["faults"] += 1
            return replace(self._dice.choice(FAULTS), delay_s=LATENCY_S * chance)
        reply = working(request, number)
        if reply.status != 200:
            self.kinds["faults"] += 1
            return reply
        tokens_in, tokens_out = self.tokens[number] = self.server.usage(request, reply.written)
        self.kinds["tool_calls" if reply.tools else "texts"] += 1
        told = {
            "prompt_tokens": tokens_in, "completion_tokens": tokens_out, "total_tokens": tokens_in + tokens_out,
            "prompt_tokens_details": {"cached_tokens": tokens_in // 2},
        }  # fmt: skip
        return replace(reply, usage_json=json.dumps(told), delay_s=LATENCY_S * self._dice.random())

    async def quiet(self, answered: int) -> None:
        """Until so many answers were read, one is under way, and none was just read."""
        while True:
            await asyncio.sleep(0.002)
            read = self.server.read_at
            now, latest = time.monotonic(), max(read.values(), default=0.0)
            if len(read) >= answered and now - latest > QUIET_S and len(self.asked_at) > len(read):
                return

    def alive(self, kills: list[float]) -> set[int]:
        """Numbers of the requests whose client was there to the end."""
        read = self.server.read_at
        return {
            number
            for number, asked in self.asked_at.items()
            if not any(asked < kill <= read.get(number, kill) for kill in kills)
        }


async def session(folder: Path, url: str, evaluations: int) -> asyncio.subprocess.Process:
    """A session of the search in a process of its own, from where the last one ended."""
    llm = {
        "models": [MODEL], "api_base": url, "backoff_s": 0.01, "concurrency": 12, "attempts": 8,
        "prices": {MODEL: PRICE.model_dump()},
    }  # fmt: skip
    settings = {"agent": {"evaluations": 2, "calls": 8}, "without": ["transform", "tune", "recombine", "route"]}
    changes = {"strategy": "islands", "settings": settings, "llm": llm}
    command = ["-m", "tests.evo.model_runs", str(folder), url, str(evaluations), json.dumps(changes)]
    return await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.DEVNULL)


async def measured(calls: int, kills: int, folder: Path) -> dict[str, Any]:
    """The search until so many answers were sent, and its ledger beside the provider's."""
    provider, killed, evaluations = Provider(), list[float](), MORE_EVALUATIONS
    async with LlmServer(provider.answer) as server:
        provider.server = server
        while len(provider.tokens) < calls or len(killed) < kills:
            process = await session(folder, server.url, evaluations)
            if len(killed) < kills:
                ended = asyncio.ensure_future(process.wait())
                ready = asyncio.ensure_future(provider.quiet(len(server.read_at) + calls // (2 * kills + 2)))
                await asyncio.wait((ended, ready), return_when=asyncio.FIRST_COMPLETED)
                ready.cancel()
                if not ended.done():
                    killed.append(time.monotonic())
                    process.send_signal(signal.SIGKILL)
            code = await process.wait()
            assert code in (0, -signal.SIGKILL), f"a session ended with {code}"
            evaluations += MORE_EVALUATIONS if code == 0 else 0
        asked = len(server.requests)
        done = await asyncio.to_thread(replay, folder)
        return {
            **compared(provider, killed, folder),
            "replay_is_equal": done.equal,
            "asked_by_replay": len(server.requests) - asked,
            "sent": dict(provider.kinds),
            "kills": len(killed),
        }


def compared(provider: Provider, kills: list[float], folder: Path) -> dict[str, Any]:
    """Both ledgers."""
    alive = provider.alive(kills)
    told = [tokens for number, tokens in provider.tokens.items() if number in alive]
    (stored,) = query(
        folder,
        "select sum(tokens_in)::bigint as tokens_in, sum(tokens_out)::bigint as tokens_out, sum(cost_usd) as cost_usd,"
        " count(*) filter (tokens_in > 0) as answers, sum(lost_tokens)::bigint as lost_tokens,"
        " sum(lost_usd) as lost_usd, sum(attempts)::bigint as attempts,"
        " count(*) filter (lost_tokens > 0) as calls_with_losses,"
        " count(*) filter (usage_doubt <> '') as doubted from llm_calls",
    ).to_pylist()
    (hits,) = query(
        folder,
        "select count(*) as n from llm_calls as c join tells as t using (request_id) join events as e"
        " on e.kind = 'session' and c.created_at < e.created_at and t.created_at > e.created_at"
        " where c.status = 'answered'",
    ).to_pylist()
    provider_told = {
        "tokens_in": sum(t for t, _ in told), "tokens_out": sum(t for _, t in told), "answers": len(told),
        "cost_usd": round(sum(PRICE.cost_usd(*each) for each in told), 9), "requests": len(provider.asked_at),
        "under_way_at_kills": len(provider.asked_at) - len(alive),
    }  # fmt: skip
    stored["cost_usd"] = round(stored["cost_usd"], 9)
    names = ("tokens_in", "tokens_out", "answers", "cost_usd")
    return {
        "provider": provider_told,
        "ledger": stored,
        "equal": all(stored[name] == provider_told[name] for name in names),
        "cache_hits": hits["n"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=500, help="answers that are sent at least")
    parser.add_argument("--kills", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        found = asyncio.run(measured(arguments.calls, arguments.kills, Path(work) / "run"))
    print(json.dumps(found, indent=1))
    return int(not (found["equal"] and found["replay_is_equal"] and not found["asked_by_replay"]))


if __name__ == "__main__":
    sys.exit(main())
