"""The data of a comparison's report, read once: conclusions, and answers to printed queries."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evo.api import Several
from evo.compare.cells import Begun, CellResult, cell_results, stored
from evo.compare.conclusions import POINTS, Conclusions, Curve, conclusions, curves
from evo.compare.config import USED, Comparison
from evo.compare.judgement import JudgedCell, judged_cells
from evo.compare.leaks import Hermetic, hermetic
from evo.compare.record import faults, head, lines
from evo.folders import find_runs
from evo.report.document import Query
from evo.search.driver import FAULTY, WAITS
from evo.store.reads import Identifier, filled

Rows = list[dict[str, Any]]
SHOWN = (
    "comparison.arms", "comparison.beside_reference", "comparison.operators_beside", "comparison.used",
    "comparison.cell_rows", "comparison.winner_rows", "comparison.time_rows", "comparison.failures",
    "comparison.models", "comparison.hosts", "comparison.shapes", "comparison.sources",
)  # fmt: skip
"""Queries in `evo/store/reads/comparison.sql` whose answers it shows, besides those for its curves."""
MANY_RUNS = 100
"""Runs from which on a query may need more than the minute that it has by itself."""
SECONDS_PER_RUN = 1
"""Seconds that such a query is given for each run, as a slow machine needs them."""
LEAST_TIME_S = 300
"""Seconds that each of the report's own queries has at least."""


@dataclass(frozen=True)
class ComparisonMaterial:
    """All that a report is made from."""

    folder: Path
    where: str
    """Pattern of the comparison's runs and its judgement, as `evo sql` takes it."""
    begun: Begun
    cells: Sequence[JudgedCell]
    """All of the configuration, those that were not begun yet among them."""
    found: Conclusions
    curves: Sequence[Curve]
    """The curves of cells whose naive kernel was judged."""
    hermetic: Hermetic
    faults: Sequence[str]
    """Differences from the record, in words."""
    record: str
    """The digest of the record's last line."""
    answers: Mapping[str, Rows]
    """Answers to the queries that the report prints, by the query."""

    @property
    def made(self) -> Comparison:
        """The configuration."""
        return self.begun.config

    @property
    def arms(self) -> list[str]:
        """All arms in the order of the configuration, which gives each its colour."""
        return [*self.made.arms]

    def series(self, arms: Iterable[str]) -> dict[str, int]:
        """These arms as series of figures."""
        return {arm: self.arms.index(arm) for arm in arms}

    def rows(self, name: str, **values: str) -> Rows:
        """The answer to a query of `evo/store/reads/comparison.sql`."""
        return self.answers[asked(self.made, name, **values)]

    def query(self, name: str, **values: str) -> Query:
        """A query as the report prints it."""
        text = asked(self.made, name, **values)
        return Query(self.where, text, len(self.answers.get(text, ())), _more_time_s(len(self.cells)))


def asked(made: Comparison, name: str, **values: str) -> str:
    """The text of a query about this comparison."""
    known: dict[str, Any] = {"reference": made.reference_arm, "waits": WAITS, "faulty": FAULTY}
    known["per_task"] = len(made.arms) * len(made.seeds)
    return filled(name, **known, points=POINTS, last=POINTS - 1, **values)


def _more_time_s(runs: int) -> int:
    """The time for a query to so many runs, where it is more than a query has by itself; else 0."""
    return SECONDS_PER_RUN * runs if runs > MANY_RUNS else 0


def material(
    folder: Path, results: Sequence[CellResult] | None = None, checked: Hermetic | None = None
) -> ComparisonMaterial:
    """Read what a report of the comparison in `folder` says. It raises UserError.

    `results` and `checked` are those of `cell_results` and `hermetic`, where they are at hand.
    """
    begun, where = stored(folder), f"{glob.escape(str(folder))}/**"
    cells = judged_cells(folder, cell_results(folder) if results is None else results)
    drawn = curves([cell.result for cell in cells if cell.result.curve], begun.families)
    return ComparisonMaterial(
        folder, where, begun, cells, conclusions(begun, cells), drawn, checked or hermetic(folder),
        faults(folder, begun), head(lines(folder)[-1:]), _answers(folder, where, _queries(begun.config)),
    )  # fmt: skip


def _queries(made: Comparison) -> list[str]:
    return [
        *(asked(made, name) for name in SHOWN),
        *(asked(made, "comparison.curve", budget=Identifier(kind)) for kind in USED),
    ]


def _answers(folder: Path, where: str, queries: Sequence[str]) -> dict[str, Rows]:
    """All answers, from runs that are opened once."""
    if not any(folder.glob("*/evo.duckdb")):
        return {query: [] for query in queries}  # nothing was begun
    folders = find_runs(folder.parent, where)
    with Several([folders] if isinstance(folders, Path) else folders) as runs:
        timeout_s = max(LEAST_TIME_S, _more_time_s(len(runs.folders)))
        return {query: runs.sql(query, timeout_s=timeout_s).to_pylist() for query in queries}
