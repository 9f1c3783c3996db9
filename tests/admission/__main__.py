"""Judges every case and prints, for each operator, what was refused and what was accepted:

python -m tests.admission [OPERATOR...] [--repeat 3] [--write]

`--write` puts the table into README.md beside this file.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Sequence
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
    rows, problems = [], []
    print(_line(COLUMNS))
    for operator in options.operators:
        with tempfile.TemporaryDirectory() as folder:
            judge = Judge(Path(folder), slow=True)
            ordered = sorted(cases(operator), key=lambda c: c.dtype)
            found = [(case, judge.verdict(case)) for case in ordered for _ in range(options.repeat)]
            judge.close()
        rows.append(row(operator, found))
        print(_line(rows[-1]), flush=True)
        for case, result in found:
            if result.status is not case.status:
                said = " ".join(result.message.split())[:300]
                problems.append(f"{operator}: {case.name} ({case.dtype}) is {result.status}, not {case.status}. {said}")
                print(f"    {problems[-1]}", flush=True)
    if options.write:
        README.write_text(document(rows, problems), encoding="utf-8")


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


def document(rows: Sequence[Sequence[str]], problems: Sequence[str]) -> str:
    """README.md: the table, sums, and every case with another verdict than it deserves."""
    pairs = [[tuple(map(int, cells[column].split("/"))) for cells in rows] for column in (1, 6)]
    mutants, variants = (tuple(map(sum, zip(*column, strict=True))) for column in pairs)
    lines = [f"| {' | '.join(cells)} |" for cells in (COLUMNS, ("---",) * len(COLUMNS), *rows)]
    sums = (
        f"{len(rows)} operators: {mutants[0]} of {mutants[1]} mutants are refused, {variants[0]} of {variants[1]} "
        "variants accepted."
    )
    listed = [f"- {problem}" for problem in problems] or ["No mutant survives and no variant is refused."]
    return "\n".join([INTRODUCTION, sums, "", *listed, "", *lines, ""])


def _line(cells: Sequence[str]) -> str:
    first, *rest = (f"{text:>{len(name)}}" for text, name in zip(cells, COLUMNS, strict=True))
    return " ".join((f"{first.strip():22}", *rest))


if __name__ == "__main__":
    main()
