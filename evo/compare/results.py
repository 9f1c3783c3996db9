"""What became of the cells of a comparison: their winners, what they used, and how far that brought them.

`cell_results` is what judgement, statistics and reports are made from; `results_table` and `curves_table` are the same
as Arrow. It reads stores, also while they are written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from evo import rows as records
from evo.compare.cells import Standing, begun, standing
from evo.compare.config import Cell
from evo.store import Connection
from operators.kernel import Kernel

WINNER = """
    select b.kernel_id, b.level, b.flagged, b.log_speedup, b.log_speedup_se, b.cell, b.mutator, b.model, b.description,
           b.request_id, b.evaluation_id, k.operator, k.target, k.source, k.values_json
    from best b join kernels k using (kernel_id)
"""
USED = "select * exclude (task) from used"
CURVE = """
    select seq, evaluations, trials, calls, tokens, cost_usd, evaluator_s, elapsed_s, best_log_speedup
    from curve where best_log_speedup is not null order by seq
"""


@dataclass(frozen=True)
class Winner:
    """The best kernel of a cell by the cell's own verdicts, which nobody has judged anew yet."""

    kernel: Kernel
    level: str
    """Of its verdict: `confirmed`, as a rule."""
    flagged: str
    """What is suspicious about it; empty: nothing."""
    log_speedup: float
    """ln(naive time / its time)."""
    log_speedup_se: float
    mutator: str
    model: str
    description: str
    request_id: str
    evaluation_id: str


@dataclass(frozen=True)
class Used:
    """What a cell used in all, each counted as the view `steps` says, alike in all arms."""

    evaluations: int = 0
    trials: int = 0
    duplicates: int = 0
    rejected: int = 0
    repairs: int = 0
    """Of the evaluations."""
    checks: int = 0
    calls: int = 0
    failed_calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    lost_tokens: int = 0
    lost_usd: float = 0.0
    evaluator_s: float = 0.0

    @property
    def tokens(self) -> int:
        """In and out, without what is lost."""
        return self.tokens_in + self.tokens_out


@dataclass(frozen=True)
class Point:
    """The best so far after one request, by what was used until then; one of the curve of a cell."""

    evaluations: int
    trials: int
    calls: int
    tokens: int
    cost_usd: float
    evaluator_s: float
    elapsed_s: float
    """Since the cell was begun, pauses included."""
    best_log_speedup: float


@dataclass(frozen=True)
class CellResult:
    """One cell and what became of it."""

    comparison: str
    arm: str
    strategy: str
    operator: str
    dtype: str
    target: str
    seed: int
    folder: Path
    standing: Standing
    reason: str
    """Why its search ended, in the words of the last session; empty before that."""
    winner: Winner | None
    """None: no kernel is correct, not even the naive one, or none was judged yet."""
    used: Used
    curve: tuple[Point, ...]
    """Only requests that changed the best, and the last one."""

    @property
    def task(self) -> str:
        """`operator/dtype/target`."""
        return f"{self.operator}/{self.dtype}/{self.target}"


def cell_results(folder: Path) -> list[CellResult]:
    """All cells of the comparison in `folder`, in the order in which they are begun. It raises UserError."""
    comparison, cells = begun(folder)
    return [_result(comparison.name, cell, folder / cell.name) for cell in cells]


def results_table(results: Sequence[CellResult]) -> pa.Table:
    """One row per cell: what it is, its standing, its winner and what it used."""
    rows = []
    for result in results:
        row: dict[str, Any] = {name: getattr(result, name) for name in _LABELS}
        row |= {"folder": str(result.folder), "standing": result.standing.value, "reason": result.reason}
        row |= {name: getattr(result.winner, name) if result.winner else None for name in _WINNER}
        row |= {
            "kernel_id": result.winner.kernel.id if result.winner else None,
            "source": result.winner.kernel.source if result.winner else None,
            "values": json.dumps(dict(result.winner.kernel.values)) if result.winner else None,
        }
        rows.append(row | asdict(result.used) | {"tokens": result.used.tokens})
    return pa.Table.from_pylist(rows)


def curves_table(results: Sequence[CellResult]) -> pa.Table:
    """One row per point of the curve of each cell."""
    rows = [
        {name: getattr(result, name) for name in _LABELS} | asdict(point)
        for result in results
        for point in result.curve
    ]
    return pa.Table.from_pylist(rows)


_LABELS = ("comparison", "arm", "strategy", "operator", "dtype", "target", "seed")
_WINNER = tuple(each.name for each in fields(Winner) if each.name != "kernel")


def _result(comparison: str, cell: Cell, folder: Path) -> CellResult:
    found: dict[str, list[dict[str, Any]]] = {USED: [], WINNER: [], CURVE: []}

    def read(store: Connection) -> None:
        found.update({sql: store.sql(sql).to_arrow_table().to_pylist() for sql in found})

    now, reason = standing(folder, read)
    used, winners, points = found.values()
    return CellResult(
        comparison, cell.arm, cell.config.strategy, cell.operator, cell.dtype, cell.target, cell.seed, folder, now,
        reason, _winner(winners[0]) if winners else None, Used(**used[0]) if used else Used(),
        tuple(_thinned(points)),
    )  # fmt: skip


def _winner(row: dict[str, Any]) -> Winner:
    named = {name: row[name] or "" for name in ("mutator", "model", "description", "request_id")}
    return Winner(
        records.kernel_from(row), row["level"], row["flagged"] or "", row["log_speedup"], row["log_speedup_se"] or 0.0,
        evaluation_id=row["evaluation_id"], **named,
    )  # fmt: skip


def _thinned(rows: list[dict[str, Any]]) -> Iterator[Point]:
    best: float | None = None
    for place, row in enumerate(rows):
        if row["best_log_speedup"] != best or place == len(rows) - 1:
            best = row["best_log_speedup"]
            yield Point(**{name: value for name, value in row.items() if name != "seq"})
