"""Judges every case and prints, for each operator, what was refused and what was accepted:

python -m tests.admission [OPERATOR...] [--repeat 3]
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path

from fitness.evaluation import Evaluation, Level
from tests.admission.cases import Case, admitted, cases
from tests.admission.judging import Judge


def main() -> None:
    parser = argparse.ArgumentParser(description="Judge the cases of operators.")
    parser.add_argument("operators", nargs="*", default=admitted())
    parser.add_argument("--repeat", type=int, default=1, help="judge every case so often, on new inputs each time")
    options = parser.parse_args()
    print(f"{'operator':20} {'mutants refused':>15} {'at build':>8} {'screen':>6} {'full':>6} {'later':>6} ", end="")
    print(f"{'variants accepted':>17} {'worst error':>11}")
    for operator in options.operators:
        with tempfile.TemporaryDirectory() as folder:
            judge = Judge(Path(folder), slow=True)
            ordered = sorted(cases(operator), key=lambda c: c.dtype)
            found = [(case, judge.verdict(case)) for case in ordered for _ in range(options.repeat)]
            judge.close()
        print(row(operator, found))
        for case, result in found:
            if result.status is not case.status:
                print(f"    {case.name} ({case.dtype}) is {result.status}, not {case.status}. {result.message}")


def row(operator: str, found: list[tuple[Case, Evaluation]]) -> str:
    """Errors of variants are in units of what is allowed."""
    mutants = [result for case, result in found if case.is_mutant]
    variants = [result for case, result in found if not case.is_mutant]
    refused = [result for result in mutants if not result.correct]
    level = Counter("build" if "verify" not in r.stage_ms and r.level is Level.SCREEN else r.level for r in refused)
    worst = max((error.worst_ratio for result in variants for error in result.errors), default=0.0)
    return (
        f"{operator:20} {f'{len(refused)}/{len(mutants)}':>15} {level['build']:8} {level[Level.SCREEN]:6} "
        f"{level[Level.FULL]:6} {level[Level.CONFIRMED]:6} "
        f"{f'{sum(r.correct for r in variants)}/{len(variants)}':>17} {worst:11.2f}"
    )


if __name__ == "__main__":
    main()
