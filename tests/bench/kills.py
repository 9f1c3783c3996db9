"""Kill a search, or a part of it, at random moments, and count what was lost or done twice.

    python -m tests.bench.kills --kills 20 --operators softmax matrix_mul
    python -m tests.bench.kills --kills 10 --ray --what driver worker population node --operators tests/data/axpb
    python -m tests.bench.kills --kills 25 --model

Every kill is SIGKILL to one process: the driver, or with --ray also the actor of a population or an evaluation
worker, or the raylet that all actors of a machine hang on (node). After a driver or a node everything else has to end
by itself, and the run is resumed; after an actor the search has to get on. What is known to be acknowledged is what the
database held at the last look; each later look must find all of it again. With --model the search is one that asks
nothing but a scripted provider on loopback, faults included, which counts by itself. An answer is lost if it is not in
the database although its client had read it 20 ms before a kill (it closes the connection then), or if it was sent a
second before and not read; one that was sent whole later than that is only cut off. Every kill is aimed at an answer
that was just read. How many were read within the last 100 ms before one, and how many of these are stored, is told too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from evo.store import StoreError, query
from fitness.evaluation import RESOLVED, WIDE, Z95, Level
from tests.evo.model_runs import MODEL, script
from tests.mutators.llm_server import LlmServer, Reply

EVO = (sys.executable, "-m", "evo.cli")
TABLES = {
    "asks": "request_id", "tells": "request_id", "proposals": "request_id", "evaluations": "evaluation_id",
    "kernels": "kernel_id", "llm_calls": "call_id",
}  # fmt: skip
TITLES = {"worker": "ray::WorkerActor", "population": "ray::PopulationActor", "node": "raylet"}
"""Title of each part's process, or its program."""
FATAL = ("driver",)
"""The search ends with these."""
GRACE_S = 10.0
"""Longest time after which processes must have noticed that what they need is gone."""
RECOVERY_S = 180.0
"""Longest time after which a search must tell something new once an actor was killed."""
MUST_BE_ZERO = ("rows_lost", "evaluated_twice", "processes_left", "searches_stuck", "answers_lost")
KEPT_S = 0.02
"""Age of a read answer, at a kill, from which it must be there afterwards."""
READ_S = 1.0
"""Time after which an answer that a client has not read is taken to be lost."""
AIM_S = 0.06
"""Latest moment after an answer was read that kills are aimed at with a model; the earliest is KEPT_S."""
NEAR_S = 0.1
AWAKE_S = 120.0
"""Longest time after which a search must ask its model, which it begins to do seconds after its start."""


class Provider:
    """A language model on loopback, in a thread; knows when it sent which answer whole, and when that was read."""

    def __init__(self, latency_s: float) -> None:
        self.latency_s = latency_s
        self.marks: dict[int, str] = {}
        """By number of the request, a text that only this answer holds."""
        self.asked_at: dict[int, float] = {}
        """Moments on the monotonic clock, like `sent_at` and `read_at` of the server."""

    def _answer(self, request: Mapping[str, Any], number: int) -> Reply:
        reply = script(request, number)
        if reply.status != 200:
            return reply
        self.asked_at[number] = time.monotonic()
        mark = self.marks[number] = f"answer {number} of {id(self)}"
        return Reply((reply.text or "").replace("\n```", f"\n// {mark}\n```") + f"\n{mark}", delay_s=self.latency_s)

    def await_answer(self, since: float) -> None:
        """Until an answer was read that was asked for after this moment, or AWAKE_S."""
        deadline_s = time.monotonic() + AWAKE_S
        while time.monotonic() < deadline_s:
            if any(self.asked_at.get(number, 0.0) > since for number in list(self.read_at)):
                return
            time.sleep(0.05)

    def await_next(self) -> None:
        """Until the next answer is read, or AWAKE_S."""
        deadline_s, read = time.monotonic() + AWAKE_S, len(self.read_at)
        while time.monotonic() < deadline_s and len(self.read_at) == read:
            time.sleep(0.0005)

    @contextmanager
    def serving(self) -> Iterator[str]:
        """The address."""
        loop, ready = asyncio.new_event_loop(), threading.Event()

        async def serve() -> None:
            async with LlmServer(self._answer) as server:
                self.url, self.sent_at, self.read_at = server.url, server.sent_at, server.read_at
                ready.set()
                await self._over.wait()

        self._over = asyncio.Event()
        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
        thread.start()
        ready.wait()
        try:
            yield self.url
        finally:
            loop.call_soon_threadsafe(self._over.set)
            thread.join()
            loop.close()

    def balance(self, folder: Path, kills: Sequence[float]) -> dict[str, int]:
        """The outcomes of the answers that were sent before the last of these moments."""
        answers = query(folder, "select answer from llm_calls where answer <> ''").column("answer").to_pylist()
        stored = {answer.rpartition("\n")[2] for answer in answers}
        found: Counter[str] = Counter()
        for number, sent_at in self.sent_at.items():
            kill = next((kill for kill in kills if kill > sent_at), None)
            gone = any(self.asked_at.get(number, 0.0) < kill <= sent_at for kill in kills)
            if number not in self.marks or kill is None or gone:
                continue
            kept, read_s = self.marks[number] in stored, kill - self.read_at.get(number, math.inf)
            found["sent"] += 1
            if 0 < read_s <= NEAR_S:
                found["read_last_100_ms"] += 1
                found["read_last_100_ms_stored"] += kept
            if not kept:
                found["lost" if read_s >= KEPT_S or kill - sent_at >= READ_S else "cut_off"] += 1
        names = ("sent", "read_last_100_ms", "read_last_100_ms_stored", "cut_off", "lost")
        return {f"answers_{name}": found[name] for name in names}


def acknowledged(folder: Path) -> dict[str, set[str]]:
    """Ids of every row that is in the store."""
    return {t: set(query(folder, f"select {key} as id from {t}").column("id").to_pylist()) for t, key in TABLES.items()}


def descendants(pid: int) -> set[int]:
    """Every process below `pid`."""
    parents: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(status.parent.name)] = int(fields[1])
    found: set[int] = set()
    frontier = {pid}
    while frontier:
        frontier = {child for child, parent in parents.items() if parent in frontier} - found
        found |= frontier
    return found


def alive(pids: set[int]) -> set[int]:
    """Those that still exist and are no zombies."""
    left = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            left.add(pid)
    return left


def called(pids: set[int], title: str) -> list[int]:
    """Those that call themselves so, or whose program is called so."""
    found = []
    for pid in sorted(pids):
        name = command_line(pid).split("\0")[0]
        if name.startswith(title) or Path(name).name == title:
            found.append(pid)
    return found


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


@contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """`evo` with these arguments; what it said is shown if it ended by itself."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([*EVO, *command], stdout=subprocess.DEVNULL, stderr=said)
        try:
            yield process
        except BaseException:
            said.seek(0)
            print(said.read(), file=sys.stderr)
            raise
        finally:
            process.kill()
            process.wait()


def outlive(pids: set[int], process: subprocess.Popen[bytes] | None = None) -> int:
    """The number of processes that are left some seconds after what they need was killed; `process` is to end too."""
    deadline_s = time.monotonic() + GRACE_S
    while time.monotonic() < deadline_s:
        if (process is None or process.poll() is not None) and not alive(pids):
            return 0
        time.sleep(0.05)
    left = alive(pids | ({process.pid} if process else set()))
    for pid in left:
        print(f"left: {pid} {command_line(pid)[:200]}".replace("\0", " "), file=sys.stderr)
    return len(left)


def gets_on(folder: Path, told: int, process: subprocess.Popen[bytes] | None = None) -> bool:
    """Whether more than so many requests are told before long; a `process` that ends meanwhile is not stuck."""
    deadline_s = time.monotonic() + RECOVERY_S
    while time.monotonic() < deadline_s:
        if process and process.poll() is not None:
            return True
        try:
            if query(folder, "select count(*) as n from tells").to_pylist()[0]["n"] > told:
                return True
        except StoreError:  # between two writers
            pass
        time.sleep(0.3)
    return False


class Balance:
    """Answers that were acknowledged so far, and those of them that could not be found again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.before: dict[str, set[str]] = {}
        self.lost: Counter[str] = Counter()

    def look(self) -> dict[str, int]:
        """Count what is lost since the last look; rows by table."""
        now = acknowledged(self.folder)
        for table, ids in self.before.items():
            self.lost[table] += len(ids - now[table])
        self.before = now
        return {table: len(ids) for table, ids in now.items()}

    def judged_twice(self) -> int:
        """Kernels with two results of a level; one that leaves open what the kernel is worth is rightly followed."""
        open_ = (
            f"anchor_id is distinct from kernel_id and level <> '{Level.CONFIRMED}' and coalesce("
            f"{Z95} * log_ratio_se > greatest({RESOLVED}, least(abs(log_ratio), {WIDE})), false)"
        )
        return int(
            query(
                self.folder,
                "select count(*) as n from (select 1 from evaluations where status <> 'duplicate' "
                f"and request_id is not null and not ({open_}) group by task, kernel_id, level having count(*) > 1)",
            ).to_pylist()[0]["n"]
        )

    def never_told(self) -> int:
        return int(
            query(self.folder, "select count(*) as n from asks anti join tells using (request_id)").to_pylist()[0]["n"]
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--what", nargs="+", choices=["driver", *TITLES], default=["driver"], help="in turn")
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--operators", nargs="+", default=["softmax", "matrix_mul"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shortest", type=float, default=6.0, help="seconds before a kill; after the first answer")
    parser.add_argument("--longest", type=float, default=18.0)
    parser.add_argument("--model", action="store_true", help="with a scripted language model on loopback")
    parser.add_argument("--latency", type=float, default=1.5, help="seconds that this model takes")
    parser.add_argument("--concurrency", type=int, default=16, help="calls of it in flight at most")
    arguments = parser.parse_args()
    if set(arguments.what) - {"driver"} and not arguments.ray:
        parser.error("without --ray there is only a driver to kill")
    kills = [arguments.what[i % len(arguments.what)] for i in range(arguments.kills)]
    options = ["--ray"] if arguments.ray else []
    provider = Provider(arguments.latency)
    with ExitStack() as opened:
        runs = opened.enter_context(tempfile.TemporaryDirectory())
        command = ["run", *arguments.operators, "--budget", "1h", "--runs", runs, "--seed", str(arguments.seed)]
        if arguments.model:
            url = opened.enter_context(provider.serving())
            command += ["--strategy", "best_of_n", "--set", "settings.n=1000000"]
            command += ["--llm", MODEL, "--set", f"llm.api_base={url}"]
            command += ["--set", f"llm.concurrency={arguments.concurrency}"]
        result = killed([*command, *options], options, kills, arguments, provider)
    print(json.dumps(result))
    return int(any(result.get(key) for key in MUST_BE_ZERO))


def killed(
    command: list[str],
    options: list[str],
    kills: Sequence[str],
    arguments: argparse.Namespace,
    provider: Provider,
) -> dict[str, Any]:
    """Start the search, kill what is to be killed, resume, and so on; what was lost."""
    rng = random.Random(arguments.seed)
    runs = Path(command[command.index("--runs") + 1])
    survivors = stuck = 0
    moments: list[float] = []
    balance: Balance | None = None
    while len(moments) < len(kills):
        begun = time.monotonic()
        with running(command) as process:
            if arguments.model:
                provider.await_answer(begun)
            while len(moments) < len(kills):
                time.sleep(rng.uniform(arguments.shortest, arguments.longest))
                assert process.poll() is None, "the run ended before it could be killed"
                what = kills[len(moments)]
                below = descendants(process.pid)
                if balance is None:
                    folders = list(runs.glob("*/evo.duckdb"))
                    if not folders:
                        continue  # still starting
                    balance = Balance(folders[0].parent)
                victims = [process.pid] if what == "driver" else called(below, TITLES[what])
                starting = arguments.ray and not called(below, TITLES["worker"])
                if not victims or (what == "node" and starting):
                    continue  # of a node that ends while it starts Ray itself takes notice, after a minute
                told = balance.look()["tells"]
                if arguments.model:
                    provider.await_next()
                    time.sleep(rng.uniform(KEPT_S, AIM_S))
                moments.append(time.monotonic())
                os.kill(rng.choice(victims), signal.SIGKILL)
                left = outlive(below, process) if what in FATAL else 0
                stuck += what not in FATAL and not gets_on(balance.folder, told)
                left += outlive(below) if what == "node" else 0  # of the cluster that the search replaced
                survivors += left
                counts = ", ".join(f"{n} {table}" for table, n in balance.look().items())
                print(f"kill {len(moments)}, {what}: {counts}; {left} processes left", file=sys.stderr)
                if what in FATAL:
                    break
        assert balance
        command = ["resume", str(balance.folder), *options]
    assert balance
    subprocess.run([*EVO, *command, "--budget", "1s"], check=True, capture_output=True)
    individuals = balance.look()["tells"]
    return {
        "kills": dict(Counter(kills)), "rows_lost": sum(balance.lost.values()),
        "answered_calls_lost": balance.lost["llm_calls"], "evaluated_twice": balance.judged_twice(),
        "processes_left": survivors, "searches_stuck": stuck, "requests_never_told": balance.never_told(),
        "individuals": individuals,
    } | (provider.balance(balance.folder, moments) if arguments.model else {})  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
