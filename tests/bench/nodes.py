"""Two machines of a Ray cluster, both on this host: one is killed while a search runs on them, and joins again.

    python -m tests.bench.nodes --seconds 60                            # cpu
    python -m tests.bench.nodes --target cuda --gpus 2 --seconds 150    # GPUs 0, 1 are one machine's, 2, 3 the other's

The second machine's processes get SIGKILL after a third of the time, and another one with its GPUs joins after half of
it. Prints JSON: verdicts by machine and third (both, the first alone, both again), seconds from the kill to the next
verdict and from joining to the first verdict there, rows that were in the store and are gone, kernels judged twice.
Exits with 1 where anything was lost, or where the search did not end by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from evo.store import StoreError, query
from tests.bench.kills import Balance, running

LATE_S = 60.0
"""Longest time after its budget in which a search must have ended."""
VERDICTS = "select worker, epoch(created_at) as at from evaluations where worker is not null order by created_at"


def main() -> int:
    """Entry point; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--operators", nargs="+", default=["softmax", "gelu"])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--gpus", type=int, default=0, help="of each machine")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as runs:
        found = watched(Path(runs), options.target, options.operators, options.seconds, options.gpus)
    print(json.dumps(found, indent=1))
    return int(found["rows_lost"] or found["judged_twice"] or found["exit_code"] != 0)


def watched(runs: Path, target: str, operators: Sequence[str], seconds: int, gpus: int) -> dict[str, Any]:
    """Figures of a search of so many seconds on both machines."""
    with Machines(gpus) as machines:
        command = ["run", *operators, "--target", target, "--budget", f"{seconds}s", "--runs", str(runs)]
        with running([*command, "--ray-address", machines.address]) as search:
            folder, began = _begun(runs, search), time.time()
            balance = Balance(folder)
            _sleep_until(began + seconds / 3)
            balance.look()
            killed_at = time.time()
            machines.kill()
            _sleep_until(began + seconds / 2)
            balance.look()
            joined_at = time.time()
            machines.join()
            exit_code = search.wait(began + seconds + LATE_S - time.time())
        balance.look()
        rows = query(folder, VERDICTS).to_pylist()
    return {
        "exit_code": exit_code,
        "rows_lost": sum(balance.lost.values()),
        "judged_twice": balance.judged_twice(),
        **_told(rows, machines.own, killed_at, joined_at),
    }


def _told(rows: Sequence[dict[str, Any]], own: str, killed_at: float, joined_at: float) -> dict[str, Any]:
    judged = [(row["at"], "own" if row["worker"].endswith(own) else "other") for row in rows]
    phases = {"both": (0.0, killed_at), "one": (killed_at, joined_at), "both_again": (joined_at, float("inf"))}
    verdicts = {
        phase: {machine: sum(a <= at < z and where == machine for at, where in judged) for machine in ("own", "other")}
        for phase, (a, z) in phases.items()
    }
    after = [at - killed_at for at, _ in judged if at > killed_at]
    there = [at - joined_at for at, where in judged if at > joined_at and where == "other"]
    return {
        "verdicts": verdicts,
        "next_verdict_s": round(after[0], 1) if after else None,
        "first_verdict_there_s": round(there[0], 1) if there else None,
    }


class Machines:
    """A cluster of two nodes on this host; it owns their processes."""

    def __init__(self, gpus: int) -> None:
        from ray.cluster_utils import Cluster

        self._gpus = gpus
        self._cluster = Cluster(initialize_head=True, head_node_args=self._node(0))
        self.address: str = self._cluster.address
        head: Any = self._cluster.head_node
        self.own: str = head.node_id
        """The first machine, as Ray names it: the search runs there."""
        self.join()

    def __enter__(self) -> Machines:
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.shutdown()  # type: ignore[no-untyped-call]

    def join(self) -> None:
        """Add the second machine."""
        self._other = self._cluster.add_node(**self._node(1))

    def kill(self) -> None:
        """Kill the processes of the second machine."""
        self._cluster.remove_node(self._other, allow_graceful=False)

    def _node(self, number: int) -> dict[str, Any]:
        first = number * self._gpus
        visible = ",".join(str(gpu) for gpu in range(first, first + self._gpus))
        settings = {"CUDA_VISIBLE_DEVICES": visible, "RAY_worker_niceness": "0"}
        cores = len(os.sched_getaffinity(0))
        return {"num_cpus": cores, "num_gpus": self._gpus, "env_vars": settings, "include_dashboard": False}


def _begun(runs: Path, search: subprocess.Popen[bytes]) -> Path:
    """The folder of the run, once something was judged in it."""
    while search.poll() is None:
        for database in runs.glob("*/evo.duckdb"):
            with suppress(StoreError):
                if query(database.parent, VERDICTS).num_rows:
                    return database.parent
        time.sleep(0.3)
    raise SystemExit("the search ended before it judged anything")


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.time()))


if __name__ == "__main__":
    sys.exit(main())
