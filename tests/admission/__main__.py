"""Judges every case and prints, for each operator, what was refused and what was accepted:

python -m tests.admission [OPERATOR...] [--repeat 3] [--write]

`--write` puts the table into README.md beside this file; what stands there of other operators stays.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from fitness.evaluation import Evaluation, Level
from tests.admission.cases import Case, admitted, cases
from tests.admission.judging import Judge

README = Path(__file__).with_name("README.md")
COLUMNS = ("operator", "mutants refused", "at build", "screen", "full", "later", "variants accepted", "worst error")
INTRODUCTION = """# Admission

Which mutants of each operator's first kernel (`naive.cpp`) are refused, and where; which better or merely different
variants are accepted, with the largest of their errors in units of what is allowed. Written by
`python -m tests.admission --write`; the cases are the TOML files here.
"""
Found = tuple[Case, Evaluation]


def main() -> None:
    parser = argparse.ArgumentParser(description="Judge the cases of operators.")
    parser.add_argument("operators", nargs="*", default=admitted())
    parser.add_argument("--repeat", type=int, default=1, help="judge every case so often, on new inputs each time")
    parser.add_argument("--write", action="store_true", help="keep the table in README.md")
    options = parser.parse_args()
    rows: dict[str, Sequence[str]] = {}
    problems: dict[str, list[str]] = {}
    print(_line(COLUMNS))
    for operator in options.operators:
        with tempfile.TemporaryDirectory() as folder:
            judge = Judge(Path(folder), slow=True)
            ordered = sorted(cases(operator), key=lambda c: c.dtype)
            found = [(case, judge.verdict(case)) for case in ordered for _ in range(options.repeat)]
            judge.close()
        rows[operator] = row(operator, found)
        problems[operator] = []
        print(_line(rows[operator]), flush=True)
        for case, result in found:
            if result.status is not case.status:
                said = " ".join(result.message.split())[:300]
                text = f"{operator}: {case.name} ({case.dtype}) is {result.status}, not {case.status}. {said}"
                problems[operator].append(text)
                print(f"    {text}", flush=True)
    if options.write:
        known_rows, known_problems = written()
        README.write_text(document(known_rows | rows, known_problems | problems), encoding="utf-8")


def row(operator: str, found: Sequence[Found]) -> tuple[str, ...]:
    """The cells of COLUMNS. Errors of variants are in units of what is allowed."""
    mutants = [result for case, result in found if case.is_mutant]
    variants = [result for case, result in found if not case.is_mutant]
    refused = [result for result in mutants if not result.correct]
    level = Counter("build" if "verify" not in r.stage_ms and r.level is Level.SCREEN else r.level for r in refused)
    worst = max((error.worst_ratio for result in variants for error in result.errors), default=0.0)
    return (
        operator,
        f"{len(refused)}/{len(mutants)}",
        *(str(level[name]) for name in ("build", Level.SCREEN, Level.FULL, Level.CONFIRMED)),
        f"{sum(r.correct for r in variants)}/{len(variants)}",
        f"{worst:.2f}",
    )


def written() -> tuple[dict[str, Sequence[str]], dict[str, list[str]]]:
    """Rows and problems as README.md has them, by operator; nothing of operators that are no more."""
    rows: dict[str, Sequence[str]] = {}
    problems: dict[str, list[str]] = {}
    for line in README.read_text(encoding="utf-8").splitlines() if README.exists() else ():
        cells = tuple(line.strip("| ").split(" | "))
        name = line.removeprefix("- ").partition(":")[0]
        if len(cells) == len(COLUMNS) and cells[0] in admitted():
            rows[cells[0]] = cells
        elif name in admitted():
            problems.setdefault(name, []).append(line.removeprefix("- "))
    return rows, problems


def document(found: Mapping[str, Sequence[str]], problems: Mapping[str, Sequence[str]]) -> str:
    """README.md: the table, sums, and every case with another verdict than it deserves."""
    rows = [found[name] for name in sorted(found)]
    pairs = [[tuple(map(int, cells[column].split("/"))) for cells in rows] for column in (1, 6)]
    mutants, variants = (tuple(map(sum, zip(*column, strict=True))) for column in pairs)
    lines = [f"| {' | '.join(cells)} |" for cells in (COLUMNS, ("---",) * len(COLUMNS), *rows)]
    sums = (
        f"{len(rows)} operators: {mutants[0]} of {mutants[1]} mutants are refused, {variants[0]} of {variants[1]} "
        "variants accepted."
    )
    listed = [f"- {problem}" for name in sorted(problems) for problem in problems[name]]
    listed = listed or ["No mutant survives and no variant is refused."]
    return "\n".join([INTRODUCTION, sums, "", *listed, "", *lines, ""])


def _line(cells: Sequence[str]) -> str:
    first, *rest = (f"{text:>{len(name)}}" for text, name in zip(cells, COLUMNS, strict=True))
    return " ".join((f"{first.strip():22}", *rest))


if __name__ == "__main__":
    main()
