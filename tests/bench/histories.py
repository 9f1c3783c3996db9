"""Many random histories of runs (`tests.evo.histories`): `python -m tests.bench.histories [1000] [first seed]`.

Sessions are stopped, killed and meet faults, in this process and in actors that die; each run must resume, lose
nothing, and be the same when it is replayed. It prints how many were, and the seeds of those that were not.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.evo.histories import history


def outcome(seed: int) -> tuple[int, tuple[str, ...], str]:
    """The sessions of one history, and what was wrong with it."""
    with TemporaryDirectory(prefix="evo-history-") as folder:
        try:
            return seed, history(seed, Path(folder) / "run").sessions, ""
        except Exception:  # noqa: BLE001 (whatever it is, it is the finding)
            return seed, (), traceback.format_exc(limit=-3)


def main() -> None:
    """Run them in two processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=1000)
    parser.add_argument("first", type=int, nargs="?", default=0, help="first seed")
    arguments = parser.parse_args()
    count, first = arguments.count, arguments.first
    ways: Counter[str] = Counter()
    wrong: list[int] = []
    with ProcessPoolExecutor(2) as pool:
        for seed, sessions, problem in pool.map(outcome, range(first, first + count)):
            ways.update(sessions)
            if problem:
                wrong.append(seed)
                print(f"seed {seed}:\n{problem}", flush=True)
    for way, number in ways.most_common():
        print(f"{number:6} sessions {way}")
    print(f"{count - len(wrong)} of {count} histories resumed always and are the same in their replays; wrong: {wrong}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
