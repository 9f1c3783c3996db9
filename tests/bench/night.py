"""Minutes that stand for a night: a search with a model on all devices, stopped and resumed, with faults on the way.

    python -m tests.bench.night --target cuda --ray --minutes 25 --stops 3 --operators softmax gelu matrix_mul rms_norm
    python -m tests.bench.night --minutes 4 --stops 2 --faults verifier store provider      # cpu, without Ray

A server on loopback plays the model: its answers are the questions' kernels after one or two random transforms of
their syntax trees. `evo run` is interrupted as by Ctrl-C between `--stops` sessions of equal length, and resumed. Each
of `--faults` happens once, at a random moment: SIGKILL to an evaluation worker's process (`verifier`), to Ray's actor
around one (`worker`), to a population's actor, to the driver, which is the store's only writer (`store`), to the raylet
that all actors of a machine hang on (`node`); and the provider answers 503 for AWAY_S (`provider`). After `store`
everything else has to end by itself, and the run is resumed; after the others the search has to get on, after `node`
with another cluster, and of the lost one nothing may be left.

Prints JSON: rows that were in the store and are gone, answers that were read by their client and are not stored,
kernels judged twice, processes left, faults after which nothing was told for RECOVERY_S; what was found; seconds from
each fault to the next request told; and by quarter of the time: memory (sum over processes, and the driver's), open
files, processes, the share of time that kernels ran by nvidia-smi, candidates, and how far the latencies of kernels
that others are timed beside were from their own means. Exits with 1 where anything was lost.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evo.store import StoreError, query
from tests.bench.kills import (
    KEPT_S,
    MUST_BE_ZERO,
    TITLES,
    Balance,
    Provider,
    called,
    command_line,
    descendants,
    gets_on,
    outlive,
    running,
)  # fmt: skip
from tests.bench.model_searches import MODEL, answer_to
from tests.mutators.llm_server import Reply

FATAL = ("store",)
"""The search ends with these."""
DRIFT = """
with timed as (
  select ntile(4) over (order by e.created_at) as quarter, ln(t.anchor_latency_us)
    - avg(ln(t.anchor_latency_us)) over (partition by e.task, e.anchor_id, e.level, t.workload) as off
  from timings t join evaluations e using (evaluation_id)
)
select 100 * avg(off) as percent from timed group by quarter order by quarter
"""
NEED_RAY = ("worker", "population", "node")
FAULTS = ("worker", "verifier", "population", "store", "provider", "node")
AWAY_S = 20.0
SAMPLE_S = 5.0
STOP_S = 120.0
"""Longest time in which an interrupted search must end."""
VERIFIER = "from evo.workers.worker import main"


class RealProvider(Provider):
    """Answers with real kernels; away for a while when it is told to be."""

    def __init__(self, latency_s: float) -> None:
        super().__init__(latency_s)
        self._back_at = 0.0

    def leave(self) -> None:
        self._back_at = time.monotonic() + AWAY_S

    def _answer(self, request: Mapping[str, Any], number: int) -> Reply:
        if time.monotonic() < self._back_at:
            return Reply("", status=503)
        self.asked_at[number] = time.monotonic()
        mark = self.marks[number] = f"answer {number} of {id(self)}"
        return Reply(f"{answer_to(request, number)}\n{mark}", delay_s=self.latency_s)


@dataclass
class Samples:
    """Resources that the processes of a search take, every SAMPLE_S; it owns the thread that looks."""

    pid: int = 0
    """The driver's; 0: none runs."""
    taken: list[dict[str, float]] = field(default_factory=list)

    @contextmanager
    def looking(self) -> Iterator[Samples]:
        over = threading.Event()

        def look() -> None:
            while not over.wait(SAMPLE_S):
                if self.pid:
                    self.taken.append(self._sample(self.pid))

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield self
        finally:
            over.set()
            thread.join()

    def _sample(self, pid: int) -> dict[str, float]:
        pids = descendants(pid) | {pid}
        busy = [float(line) for line in _nvidia_smi().split() if line.replace(".", "").isdigit()]
        return {
            "memory_mib": sum(map(_memory_mib, pids)), "driver_mib": _memory_mib(pid), "processes": len(pids),
            "files": sum(map(_files, pids)), **({"busy_percent": statistics.mean(busy)} if busy else {}),
        }  # fmt: skip

    def by_quarter(self) -> dict[str, list[float]]:
        """Medians; busy shares are means, as each is of a moment."""
        size = max(-(-len(self.taken) // 4), 1)
        quarters = [self.taken[i : i + size] for i in range(0, len(self.taken), size)]
        middle: Mapping[str, Callable[[list[float]], float]] = {"busy_percent": statistics.mean}
        names = dict.fromkeys(name for sample in self.taken for name in sample)
        return {
            name: [round(middle.get(name, statistics.median)([s[name] for s in part if name in s]), 1)
                   for part in quarters if any(name in s for s in part)]
            for name in names
        }  # fmt: skip


def _memory_mib(pid: int) -> float:
    with suppress(OSError):
        found = re.search(r"^Rss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
        return int(found[1]) / 1024 if found else 0.0
    return 0.0


def _files(pid: int) -> int:
    with suppress(OSError):
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    return 0


def _nvidia_smi() -> str:
    with suppress(OSError, subprocess.SubprocessError):
        query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
        return subprocess.run(query, capture_output=True, text=True, timeout=10).stdout
    return ""


def main() -> int:
    """Entry point; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--operators", nargs="+", default=["softmax", "matrix_mul"])
    parser.add_argument("--minutes", type=float, default=25.0, help="of all sessions together")
    parser.add_argument("--stops", type=int, default=3, help="sessions; between two it is interrupted and resumed")
    parser.add_argument("--faults", nargs="*", choices=FAULTS, help="default: all that can be")
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--latency", type=float, default=8.0, help="seconds that the model takes")
    parser.add_argument("--concurrency", type=int, default=16, help="calls of it in flight at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], help="passed on to evo run")
    options = parser.parse_args()
    faults = options.faults
    if faults is None:
        faults = [fault for fault in FAULTS if options.ray or fault not in NEED_RAY]
    if not options.ray and set(faults) & set(NEED_RAY):
        parser.error(f"without --ray there is no {', '.join(sorted(set(faults) & set(NEED_RAY)))}")
    provider, samples = RealProvider(options.latency), Samples()
    with tempfile.TemporaryDirectory() as runs, provider.serving() as url, samples.looking():
        total_s = 60 * options.minutes
        command = ["run", *options.operators, "--target", options.target, "--budget", f"{total_s:.0f}s"]
        command += ["--runs", runs, "--seed", str(options.seed), "--llm", MODEL, "--set", f"llm.api_base={url}"]
        command += ["--set", f"llm.concurrency={options.concurrency}"]
        command += [text for setting in options.set for text in ("--set", setting)]
        night = Night(Path(runs), provider, samples, ["--ray"] if options.ray else [])
        result = night.pass_by(command, faults, sessions=options.stops, total_s=total_s, seed=options.seed)
    print(json.dumps(result, indent=1))
    return int(any(result.get(name) for name in MUST_BE_ZERO))


class Night:
    """The sessions of one run, and what is done to them."""

    def __init__(self, runs: Path, provider: RealProvider, samples: Samples, options: Sequence[str]) -> None:
        self._runs = runs
        self._provider = provider
        self._samples = samples
        self._options = list(options)
        self._balance: Balance | None = None
        self._left = self._stuck = 0
        self._kills: list[float] = []
        self._recovery_s: list[dict[str, Any]] = []

    def pass_by(
        self, command: list[str], faults: Sequence[str], *, sessions: int, total_s: float, seed: int
    ) -> dict[str, Any]:
        """Run all sessions; what became of the run."""
        rng = random.Random(seed)
        queue = rng.sample(list(faults), len(faults))
        plan: list[list[str]] = [queue[number::sessions] for number in range(sessions)]
        for number, planned in enumerate(plan):
            length_s = total_s / sessions
            moments = sorted(rng.uniform(0.25, 0.85) * length_s for _ in planned)
            end = time.monotonic() + length_s
            due = [(time.monotonic() + moment, fault) for moment, fault in zip(moments, planned, strict=True)]
            while due or time.monotonic() < end:
                command = self._session(command, due, end, last=number + 1 == sessions, rng=rng)
                if not due and number + 1 == sessions:
                    break
                if time.monotonic() > end - 10:
                    break
        return self._result()

    def _session(
        self, command: list[str], due: list[tuple[float, str]], end: float, *, last: bool, rng: random.Random
    ) -> list[str]:
        """One process of `evo`, until a fault ends it, or its time is over; what goes on with the run."""
        with running([*command, *self._options]) as process:
            self._samples.pid = process.pid
            try:
                self._live(process, due, end, last=last, rng=rng)
            finally:
                self._samples.pid = 0
        return ["resume", str(self._book().folder)]

    def _live(
        self, process: subprocess.Popen[bytes], due: list[tuple[float, str]], end: float, *, last: bool,
        rng: random.Random,
    ) -> None:  # fmt: skip
        while process.poll() is None:
            time.sleep(0.2)
            if not list(self._runs.glob("*/evo.duckdb")):
                continue
            if due and time.monotonic() >= due[0][0]:
                _, fault = due.pop(0)
                if not self._strike(process, fault, rng):
                    due.insert(0, (time.monotonic() + 2.0, fault))  # what it would hit is not there yet
                elif fault in FATAL:
                    return
            elif not due and not last and time.monotonic() >= end:
                process.send_signal(signal.SIGINT)
                process.wait(STOP_S)
                self._book().look()
        assert process.returncode == 0 or not last, f"evo ended with {process.returncode}"

    def _strike(self, process: subprocess.Popen[bytes], fault: str, rng: random.Random) -> bool:
        """Let a fault happen; False where there is nothing yet that it could hit."""
        below, balance = descendants(process.pid), self._book()
        try:
            told = balance.look()["tells"]
        except StoreError:
            return False
        if fault == "provider":
            self._provider.leave()
        else:
            victims = [process.pid] if fault == "store" else self._victims(below, fault)
            if not victims or not told:
                return False
            if fault == "store":
                self._provider.await_next()
                time.sleep(rng.uniform(KEPT_S, 3 * KEPT_S))
                self._kills.append(time.monotonic())
            os.kill(rng.choice(victims), signal.SIGKILL)
            if fault == "node":
                self._kills.append(time.monotonic())
        struck = time.monotonic()
        if fault in FATAL:
            self._left += outlive(below, process)
        else:
            self._stuck += not gets_on(balance.folder, told, process)
        self._recovery_s.append({"fault": fault, "seconds": round(time.monotonic() - struck, 1)})
        print(f"{fault}: {self._recovery_s[-1]['seconds']} s", file=sys.stderr)
        if fault == "node":
            self._left += outlive(below)  # of the cluster that the search replaced
        return True

    def _victims(self, below: set[int], fault: str) -> list[int]:
        if fault != "verifier":
            return called(below, TITLES[fault])
        commands = {pid: command_line(pid) for pid in below}
        return sorted(pid for pid, command in commands.items() if VERIFIER in command)

    def _book(self) -> Balance:
        if self._balance is None:
            (folder,) = (path.parent for path in self._runs.glob("*/evo.duckdb"))
            self._balance = Balance(folder)
        return self._balance

    def _result(self) -> dict[str, Any]:
        balance = self._book()
        counts = balance.look()

        def one(sql: str) -> dict[str, Any]:
            row: dict[str, Any] = query(balance.folder, sql).to_pylist()[0]
            return row

        finished = "select json_extract_string(detail_json, 'reason') as reason, detail_json from events"
        ends = query(balance.folder, f"{finished} where kind = 'finished' order by created_at").to_pylist()
        best = one("select count(*) as tasks, count(*) filter (where level = 'confirmed') as confirmed from best")
        quarters = query(
            balance.folder,
            "select ntile, count(*) as n, epoch(max(moment)) - epoch(min(moment)) as s from "
            "(select created_at as moment, ntile(4) over (order by created_at) as ntile from evaluations "
            "where status <> 'duplicate') group by ntile order by ntile",
        ).to_pylist()
        drift = query(balance.folder, DRIFT).to_pylist()
        return {
            "rows_lost": sum(balance.lost.values()), "evaluated_twice": balance.judged_twice(),
            "processes_left": self._left, "searches_stuck": self._stuck,
            **self._provider.balance(balance.folder, self._kills),
            "faults": self._recovery_s, "reason": ends[-1]["reason"] if ends else "", **best, "rows": counts,
            "evaluations_per_minute": [round(60 * q["n"] / max(q["s"], 1e-9), 1) for q in quarters],
            "reference_drift_percent": [round(row["percent"], 2) for row in drift],
            "profiles": one("select count(*) as n from profiles")["n"],
            "alarms": one("select count(*) as n from events where kind in ('stalled', 'restart')")["n"],
            **self._samples.by_quarter(),
        }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
