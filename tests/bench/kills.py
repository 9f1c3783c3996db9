"""Kill a search at random moments, resume it each time, and count what was lost or done twice.

    python -m tests.bench.kills --kills 20 --operators softmax matrix_mul

Every kill is SIGKILL to the driver alone: its workers and runners have to follow it by themselves. What is known to be
acknowledged is what the database holds after a kill; each later look must find all of it again.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from evo.store import query

EVO = (sys.executable, "-m", "evo.cli")
TABLES = {
    "asks": "request_id", "tells": "request_id", "proposals": "request_id", "evaluations": "evaluation_id",
    "kernels": "kernel_id",
}  # fmt: skip


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


def session(command: list[str], seconds: float) -> tuple[bool, int]:
    """Run, kill after some seconds; whether it had ended by itself, and how many processes outlived it by 3 s."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([*EVO, *command], stdout=subprocess.DEVNULL, stderr=said)
        ended, left = _kill_after(process, seconds)
        said.seek(0)
        if ended:
            print(said.read(), file=sys.stderr)
    return ended, left


def _kill_after(process: subprocess.Popen[bytes], seconds: float) -> tuple[bool, int]:
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        below = descendants(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
        deadline = time.monotonic() + 3
        while alive(below) and time.monotonic() < deadline:
            time.sleep(0.05)
        return False, len(alive(below))
    return True, 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--operators", nargs="+", default=["softmax", "matrix_mul"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shortest", type=float, default=6.0, help="seconds before a kill")
    parser.add_argument("--longest", type=float, default=18.0)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    lost: Counter[str] = Counter()
    survivors = 0
    with tempfile.TemporaryDirectory() as runs:
        command = ["run", *arguments.operators, "--budget", "1h", "--runs", runs, "--seed", str(arguments.seed)]
        before: dict[str, set[str]] = {}
        for kill in range(arguments.kills):
            ended, left = session(command, rng.uniform(arguments.shortest, arguments.longest))
            survivors += left
            folder = next(Path(runs).iterdir())
            assert not ended, "the run ended before it could be killed"
            now = acknowledged(folder)
            for table, ids in before.items():
                lost[table] += len(ids - now[table])
            before = now
            counts = ", ".join(f"{len(ids)} {table}" for table, ids in now.items())
            print(f"kill {kill + 1}: {counts}; {left} processes left", file=sys.stderr)
            command = ["resume", str(folder)]
        subprocess.run([*EVO, "resume", str(folder), "--budget", "1s"], check=True, capture_output=True)
        now = acknowledged(folder)
        for table, ids in before.items():
            lost[table] += len(ids - now[table])
        twice = query(
            folder,
            "select count(*) as n from (select 1 from evaluations where status <> 'duplicate' "
            "and request_id is not null group by task, kernel_id, level having count(*) > 1)",
        ).to_pylist()[0]["n"]
        untold = query(folder, "select count(*) as n from asks anti join tells using (request_id)").to_pylist()[0]["n"]
        result = {
            "kills": arguments.kills, "rows_lost": sum(lost.values()), "evaluated_twice": twice,
            "processes_left": survivors, "requests_never_told": untold, "individuals": len(now["tells"]),
        }  # fmt: skip
        print(json.dumps(result))
    return int(bool(sum(lost.values()) or twice or survivors))


if __name__ == "__main__":
    sys.exit(main())
