"""Cost of readers to a search: candidates a second and CPU time each, without readers and with ten questions a second.

    python -m tests.bench.readers --history 10000 --count 2000 [--rate 10] [--query best]

The search is that of `tests.bench.engine`: its verdicts come from a script, so that it writes far more often than one
that measures. Questions are asked in two ways: `commands` starts an `evo sql` for each, as many as the machine can at
the rate that is wished for; `api` asks in one process by way of `evo.open`, so that what is left is the cost of
snapshots. Prints JSON, by way: `candidates_per_s` and `cpu_ms` (of the searching process, per candidate), and of the
questions `asked_per_s`, `answer_s` (median), `failed`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MOST_AT_ONCE = 4
"""Commands that wait for each other: more would only fill the machine."""
ASKING = """
import json, sys, time
import evo
folder, name, pause = sys.argv[1], sys.argv[2], float(sys.argv[3])
print("ready", flush=True)
due = time.monotonic()
while True:
    due = max(due + pause, time.monotonic() - 1.0)
    began = time.monotonic()
    try:
        rows = evo.open(folder).query(name).num_rows
    except Exception as error:
        rows = None
    print(json.dumps([time.monotonic() - began, rows is not None]), flush=True)
    time.sleep(max(due - time.monotonic(), 0.0))
"""


@contextmanager
def commands(folder: Path, name: str, rate: float, answers: list[tuple[float, bool]]) -> Iterator[None]:
    """Start an `evo sql` so many times a second."""
    command = [sys.executable, "-m", "evo.cli", "sql", str(folder), "--query", name, "--json"]
    done = threading.Event()

    def one() -> None:
        began = time.monotonic()
        ended = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        answers.append((time.monotonic() - began, ended.returncode == 0))

    def start() -> None:
        asking: list[threading.Thread] = []
        while not done.wait(1 / rate):
            asking = [thread for thread in asking if thread.is_alive()]
            if len(asking) < MOST_AT_ONCE:
                asking.append(threading.Thread(target=one))
                asking[-1].start()
        for thread in asking:
            thread.join()

    starter = threading.Thread(target=start)
    starter.start()
    try:
        yield
    finally:
        done.set()
        starter.join()


@contextmanager
def api(folder: Path, name: str, rate: float, answers: list[tuple[float, bool]]) -> Iterator[None]:
    """Ask so many times a second in one process."""
    command = [sys.executable, "-c", ASKING, str(folder), name, str(1 / rate)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdout
        asking.stdout.readline()
        try:
            yield
        finally:
            asking.terminate()
            answers += [tuple(json.loads(line)) for line in asking.stdout if line.endswith("]\n")]


@contextmanager
def nobody(folder: Path, name: str, rate: float, answers: list[tuple[float, bool]]) -> Iterator[None]:
    """Ask nothing."""
    yield


WAYS: dict[str, Callable[..., Any]] = {"nobody": nobody, "commands": commands, "api": api}


def probed(folder: Path, way: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure the search that goes on in `folder`."""
    answers: list[tuple[float, bool]] = []
    engine = [sys.executable, "-m", "tests.bench.engine", "--count", str(arguments.count), "--probe", str(folder)]
    began = time.monotonic()
    with WAYS[way](folder, arguments.query, arguments.rate, answers):
        run = subprocess.run([*engine, "--started", repr(time.time())], check=True, stdout=subprocess.PIPE, text=True)
        took = time.monotonic() - began
    seen = json.loads(run.stdout)
    found = {name: seen[name] for name in ("individuals", "candidates_per_s", "cpu_ms")}
    if answers:
        found["asked_per_s"] = round(len(answers) / took, 1)
        found["answer_s"] = round(statistics.median(seconds for seconds, _ in answers), 2)
        found["failed"] = sum(not good for _, good in answers)
    return found


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--history", type=int, default=10_000, help="individuals that are there")
    parser.add_argument("--count", type=int, default=2_000, help="candidates that are measured")
    parser.add_argument("--rate", type=float, default=10.0, help="questions a second")
    parser.add_argument("--query", default="leaders", help="named query")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    arguments = parser.parse_args()
    result: dict[str, Any] = {"cores": os.cpu_count()}
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "run"
        grow = [sys.executable, "-m", "tests.bench.engine", "--grow", str(folder), "--size", str(arguments.history)]
        subprocess.run(grow, check=True)
        for way in arguments.ways:
            result[way] = probed(folder, way, arguments)
            print(way, result[way], file=sys.stderr, flush=True)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
