"""The data of a comparison's report, read once: conclusions, and answers to printed queries."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evo.compare.cells import Begun, CellResult, cell_results, stored
from evo.compare.conclusions import Conclusions, Curve, conclusions, curves, resampling
from evo.compare.config import USED, Comparison
from evo.compare.judgement import JudgedCell, judged_cells
from evo.compare.leaks import Hermetic, hermetic
from evo.folders import find_runs
from evo.report.comparison import sql
from evo.report.document import Query
from evo.store import open_readers

Rows = list[dict[str, Any]]
MANY_RUNS = 100
"""From more on a query may need more than the minute that it has by itself..."""
SECONDS_PER_RUN = 1
"""...on a slow machine so much for each."""


@dataclass(frozen=True)
class Material:
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
    answers: Mapping[str, Rows]
    """To the queries that the report prints, by the query."""

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

    def rows(self, query: str) -> Rows:
        """The answer to a query of `evo.report.comparison.sql`."""
        return self.answers[query]

    def query(self, text: str) -> Query:
        """A query as the report prints it."""
        timeout_s = SECONDS_PER_RUN * len(self.cells) if len(self.cells) > MANY_RUNS else 0
        return Query(self.where, text, len(self.answers.get(text, ())), timeout_s)


def material(folder: Path, results: Sequence[CellResult] | None = None, checked: Hermetic | None = None) -> Material:
    """Read what a report of the comparison in `folder` says. It raises UserError.

    `results` and `checked` are those of `cell_results` and `hermetic`, where they are at hand.
    """
    begun, where = stored(folder), f"{glob.escape(str(folder))}/**"
    cells = judged_cells(folder, cell_results(folder) if results is None else results)
    drawn = curves([cell.result for cell in cells if cell.result.curve], resampling(begun.config))
    return Material(
        folder, where, begun, cells, conclusions(begun.config, cells), drawn, checked or hermetic(folder),
        _answers(folder, where, _queries(begun.config)),
    )  # fmt: skip


def _queries(made: Comparison) -> list[str]:
    beside = made.reference_arm
    return [
        sql.ARMS, sql.beside(beside), sql.by_operator(beside), sql.USED, sql.CELLS, sql.WINNERS, sql.TIMES,
        sql.FAILURES, sql.MODELS, sql.HOSTS, sql.SHAPES_DRAWN, sql.SOURCES, *map(sql.curve, USED),
    ]  # fmt: skip


def _answers(folder: Path, where: str, queries: Sequence[str]) -> dict[str, Rows]:
    """All answers, from runs that are opened once."""
    found: dict[str, Rows] = {query: [] for query in queries}
    if not any(folder.glob("*/evo.duckdb")):
        return found  # nothing was begun
    folders = find_runs(folder.parent, where)
    with open_readers([folders] if isinstance(folders, Path) else folders) as runs:
        for query in queries:
            runs.define(query)
            found[query] = runs.connection.sql(query).to_arrow_table().to_pylist()
    return found
