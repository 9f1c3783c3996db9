"""Kill a search, or a part of it, at random moments, and count what was lost or done twice.

    python -m tests.bench.kills --kills 20 --operators softmax matrix_mul
    python -m tests.bench.kills --kills 10 --ray --what driver worker population store node --operators tests/data/axpb

Every kill is SIGKILL to one process: the driver, or with --ray also the actor of a store, a population or an evaluation
worker, or the raylet that all actors of a machine hang on (node). After a driver or a node everything else has to end
by itself, and the run is resumed; after an actor the search has to get on. What is known to be acknowledged is what the
database held at the last look; each later look must find all of it again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evo.store import StoreError, query

EVO = (sys.executable, "-m", "evo.cli")
TABLES = {
    "asks": "request_id", "tells": "request_id", "proposals": "request_id", "evaluations": "evaluation_id",
    "kernels": "kernel_id", "llm_calls": "call_id",
}  # fmt: skip
TITLES = {
    "worker": "ray::WorkerActor", "population": "ray::PopulationActor", "store": "ray::StoreActor", "node": "raylet",
}  # fmt: skip
"""What the process of each part calls itself, or its program."""
FATAL = ("driver", "node")
"""The search ends with these."""
GRACE_S = 10.0
"""How long processes may take to notice that what they need is gone."""
RECOVERY_S = 180.0
"""How long a search may take to tell something new after an actor was killed."""


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
        name = _command(pid).split("\0")[0]
        if name.startswith(title) or Path(name).name == title:
            found.append(pid)
    return found


def _command(pid: int) -> str:
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


def outlive(process: subprocess.Popen[bytes], below: set[int]) -> int:
    """How many processes of a search are left some seconds after what it needs was killed."""
    deadline_s = time.monotonic() + GRACE_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None and not alive(below):
            return 0
        time.sleep(0.05)
    left = alive(below | {process.pid})
    for pid in left:
        print(f"left: {pid} {_command(pid)[:200]}".replace("\0", " "), file=sys.stderr)
    return len(left)


def gets_on(folder: Path, told: int) -> bool:
    """Whether more than so many requests are told before long."""
    deadline_s = time.monotonic() + RECOVERY_S
    while time.monotonic() < deadline_s:
        try:
            if query(folder, "select count(*) as n from tells").to_pylist()[0]["n"] > told:
                return True
        except StoreError:  # between two writers
            pass
        time.sleep(0.3)
    return False


class Balance:
    """What was acknowledged so far, and what of it could not be found again."""

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
        return int(
            query(
                self.folder,
                "select count(*) as n from (select 1 from evaluations where status <> 'duplicate' "
                "and request_id is not null group by task, kernel_id, level having count(*) > 1)",
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
    parser.add_argument("--shortest", type=float, default=6.0, help="seconds before a kill")
    parser.add_argument("--longest", type=float, default=18.0)
    arguments = parser.parse_args()
    if set(arguments.what) - {"driver"} and not arguments.ray:
        parser.error("without --ray there is only a driver to kill")
    kills = [arguments.what[i % len(arguments.what)] for i in range(arguments.kills)]
    rng = random.Random(arguments.seed)
    ray = ["--ray"] if arguments.ray else []
    survivors = stuck = done = 0
    with tempfile.TemporaryDirectory() as runs:
        command = ["run", *arguments.operators, "--budget", "1h", "--runs", runs, "--seed", str(arguments.seed), *ray]
        balance: Balance | None = None
        while done < len(kills):
            with running(command) as process:
                while done < len(kills):
                    time.sleep(rng.uniform(arguments.shortest, arguments.longest))
                    assert process.poll() is None, "the run ended before it could be killed"
                    what = kills[done]
                    below = descendants(process.pid)
                    if balance is None:
                        folders = list(Path(runs).glob("*/evo.duckdb"))
                        if not folders:
                            continue  # still starting
                        balance = Balance(folders[0].parent)
                    victims = [process.pid] if what == "driver" else called(below, TITLES[what])
                    starting = arguments.ray and not called(below, TITLES["worker"])
                    if not victims or (what == "node" and starting):
                        continue  # of a node that ends while it starts Ray itself takes notice, after a minute
                    told = balance.look()["tells"]
                    os.kill(rng.choice(victims), signal.SIGKILL)
                    done += 1
                    left = outlive(process, below) if what in FATAL else 0
                    survivors += left
                    stuck += what not in FATAL and not gets_on(balance.folder, told)
                    counts = ", ".join(f"{n} {table}" for table, n in balance.look().items())
                    print(f"kill {done}, {what}: {counts}; {left} processes left", file=sys.stderr)
                    if what in FATAL:
                        break
            assert balance
            command = ["resume", str(balance.folder), *ray]
        subprocess.run([*EVO, *command, "--budget", "1s"], check=True, capture_output=True)
        individuals = balance.look()["tells"]
        result = {
            "kills": dict(Counter(kills)), "rows_lost": sum(balance.lost.values()),
            "answered_calls_lost": balance.lost["llm_calls"], "evaluated_twice": balance.judged_twice(),
            "processes_left": survivors, "searches_stuck": stuck, "requests_never_told": balance.never_told(),
            "individuals": individuals,
        }  # fmt: skip
        print(json.dumps(result))
    return int(any(result[key] for key in ("rows_lost", "evaluated_twice", "processes_left", "searches_stuck")))


if __name__ == "__main__":
    sys.exit(main())
