"""A table of imports: `python -m tests.bench.imports PROBLEM...`, files and folders in formats that `evo import` reads.

For each problem: whether it is imported, whether its first kernel is right on the cpu, whether `evo check` passes with
a few mutants, how long all of it took, and the reason of a failure. `--only-import` leaves out what takes long.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from evo.check_operator import check
from evo.outside.importing import import_problem
from operators.errors import UserError


@dataclass
class Row:
    """One problem."""

    problem: str
    imported: bool = False
    right: bool = False
    checked: bool = False
    seconds: float = 0.0
    reason: str = ""


def problems(places: list[str]) -> Iterator[str]:
    """The problems in these places: a folder of files stands for its files."""
    for place in places:
        path = Path(place)
        inside = sorted([*path.glob("*.py"), *path.glob("*.json")]) if path.is_dir() else []
        whole = not inside or any((path / name).exists() for name in ("task.yml", "definition.json"))
        yield from [place] if whole else map(str, inside)


def measured(problem: str, folder: Path, *, only_import: bool, mutants: int) -> Row:
    """Import one problem, and check what it became."""
    row, began = Row(Path(problem).stem), time.monotonic()
    try:
        _, lines = import_problem(problem, out=folder)
        row.imported = True
        missing = [line for line in lines if line.startswith("naive.cpp")]
        if missing:
            row.reason = missing[0]
        elif not only_import:
            said: list[str] = []
            report = check(str(folder), targets=["cpu"], limit_s=120, most=mutants, say=said.append)
            row.right = any("naive.cpp is correct" in line for line in said)
            row.checked = report.passed(strict=False)
            row.reason = "" if row.checked else next((line for line in said if "naive.cpp" in line), said[-1])
    except UserError as error:
        row.reason = str(error)
    row.seconds = time.monotonic() - began
    return row


def main() -> None:
    """Print the table, a row as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", nargs="+")
    parser.add_argument("--only-import", action="store_true")
    parser.add_argument("--mutants", type=int, default=10)
    parser.add_argument("--lines", type=Path, help="add each row to this file, as JSON")
    given = parser.parse_args()
    rows = []
    print("| problem | imported | first kernel right | check passed | s | reason |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as place:
        for number, problem in enumerate(problems(given.problems)):
            folder = Path(place, f"p{number}")
            row = measured(problem, folder, only_import=given.only_import, mutants=given.mutants)
            rows.append(row)
            marks = " | ".join("yes" if each else "no" for each in (row.imported, row.right, row.checked))
            print(f"| {row.problem} | {marks} | {row.seconds:.0f} | {row.reason[:200]} |", flush=True)
            if given.lines:
                with given.lines.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(asdict(row)) + "\n")
    print(f"\n{sum(r.imported for r in rows)} of {len(rows)} imported, {sum(r.right for r in rows)} right")


if __name__ == "__main__":
    main()
