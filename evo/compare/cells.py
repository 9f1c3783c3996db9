"""A comparison's folder: what it was begun with, how far each of its cells is, and what became of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, ValidationError

from evo import rows as records
from evo.api import Row, Run
from evo.budget import UNDONE
from evo.compare.config import Cell, Comparison
from evo.folders import DATABASE
from evo.search.driver import FAULTY, WAITS
from evo.store import StoreError
from fitness.judging.base import DeviceInfo
from fitness.sandbox.native import publish
from operators.definition.reading import first_problem
from operators.errors import UserError
from operators.files import writing
from operators.identity import digest
from operators.kernel import Kernel

CONFIG = "comparison.json"
"""File of the comparison's beginning: its configuration, and the devices that prompts tell of."""
FREE = ("at_once",)
"""Keys that may be others when it goes on: they decide nothing but how long it takes."""


class Begun(BaseModel):
    """The beginning of a comparison: its registration."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")

    config: Comparison
    devices: dict[str, DeviceInfo]
    """By target, what prompts of all cells tell of."""
    families: dict[str, str]
    """By operator, the family that chance is over."""

    @property
    def digest(self) -> str:
        """The seal of all that it says, but for the keys FREE; every cell's configuration holds it."""
        said = self.model_dump(mode="json")
        said["config"] = {key: value for key, value in said["config"].items() if key not in FREE}
        return digest("registration", json.dumps(said, sort_keys=True))

    def cells(self) -> list[Cell]:
        """The cells in the order in which they are begun. It raises UserError."""
        return self.config.cells(self.devices, self.digest)


class CellState(Enum):
    """State of a cell."""

    NEW = "new"
    OPEN = "open"
    """Begun, and cut off or stopped, by a machine that is too busy as well."""
    WAITING = "waiting"
    """Answers from outside have to be told before it can go on."""
    FAILED = "failed"
    """Its operator is at fault; it is tried again when the comparison goes on."""
    DONE = "done"


def folder_of(runs: Path, name: str) -> Path:
    """Where a comparison of this name is."""
    return runs / f"compare-{name}"


def stored(folder: Path) -> Begun:
    """The beginning of a comparison. It raises UserError where none was begun."""
    try:
        return Begun.model_validate_json((folder / CONFIG).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{folder}: no comparison was begun there; begin one with: evo compare CONFIG") from None
    except (OSError, ValueError) as error:
        reason = first_problem(error) if isinstance(error, ValidationError) else str(error)
        raise UserError(f"{folder / CONFIG} cannot be used: {reason}") from None


def begin(folder: Path, comparison: Comparison, devices: Mapping[str, DeviceInfo]) -> Begun:
    """Write down what a comparison is begun with. It raises UserError where that cannot be."""
    held = Begun(config=comparison, devices=dict(devices), families=comparison.families())
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        publish(folder / CONFIG, held.model_dump_json(indent=2).encode())
    return held


def check_same(folder: Path, then: Comparison, now: Comparison) -> None:
    """Raise UserError if a comparison would go on with another configuration than it was begun with."""
    changes = list(_changes(then.model_dump(mode="json"), now.model_dump(mode="json")))
    if changes:
        more = f", and {len(changes) - 1} more" if len(changes) > 1 else ""
        raise UserError(
            f"{folder} was begun with another configuration ({changes[0]}{more}): cells of both would not compare; "
            "restore it, or give the comparison another name"
        )


def _changes(then: Any, now: Any, place: str = "") -> Iterator[str]:
    """Where two configurations differ, in words."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key in dict.fromkeys((*then, *now)):
            if place or key not in FREE:
                yield from _changes(then.get(key), now.get(key), f"{place}.{key}" if place else key)
    elif then != now:
        shown = [text if len(text := json.dumps(value)) <= 60 else f"{text[:57]}..." for value in (then, now)]
        yield f"{place} was {shown[0]}, is {shown[1]}"


def standing(folder: Path, read: Callable[[Run], object] = lambda _: None) -> tuple[CellState, str]:
    """The state of the cell in `folder`, and why its last session ended; see `CellState`.

    `read` is given the cell while it is open, if it was begun.
    """
    if not (folder / DATABASE).exists():
        return CellState.NEW, ""
    try:
        with Run(folder) as run:
            found = _last_told(run)
            if found[0] is not CellState.NEW:
                read(run)
            return found
    except StoreError as error:  # it is told when the cell goes on
        return CellState.OPEN, str(error)


def _last_told(run: Run) -> tuple[CellState, str]:
    found = run.rows("cells.last_event")
    if not found:
        return CellState.NEW, ""
    kind, detail = found[0]["kind"], json.loads(found[0]["detail_json"])
    reason = str(detail.get("reason", ""))
    if kind != "finished" or reason.startswith(UNDONE):
        return CellState.OPEN, reason if kind in ("stopped", "finished") else ""
    if reason.startswith(WAITS):
        return CellState.WAITING, reason
    return (CellState.FAILED if reason == FAULTY else CellState.DONE), reason


@dataclass(frozen=True)
class CellWinner:
    """The best kernel of a cell by the cell's own verdicts, not judged anew yet."""

    kernel: Kernel
    level: str
    """The level of its verdict: `confirmed`, as a rule."""
    flagged: str
    """Suspicions about it; empty: none."""
    log_speedup: float
    """ln(naive time / its time)."""
    log_speedup_se: float
    stands_at: float
    """The log speedup that is certain of it; see the view `best`."""
    mutator: str
    model: str
    description: str
    request_id: str
    evaluation_id: str


@dataclass(frozen=True)
class Used:
    """Use of a cell in all, each kind counted as the view `steps` says, alike in all arms."""

    evaluations: int = 0
    trials: int = 0
    duplicates: int = 0
    rejected: int = 0
    repairs: int = 0
    """Number of the evaluations that were repairs."""
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
    """The log speedup that the leader certainly had by then, with hindsight; see the view `curve`."""


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
    standing: CellState
    reason: str
    """Why its search ended, in the words of the last session; empty before that."""
    winner: CellWinner | None
    """None: no kernel is correct, not even the naive one, or none was judged yet."""
    used: Used
    spent: float
    """The share of its budget that it used: above 1 where its last request went beyond, see `mutators.llm.spending`."""
    curve: tuple[Point, ...]
    """Only requests that changed the best, and the last one."""

    @property
    def task(self) -> str:
        """`operator/dtype/target`."""
        return f"{self.operator}/{self.dtype}/{self.target}"


def cell_results(folder: Path) -> list[CellResult]:
    """All cells of the comparison in `folder`, in the order in which they are begun. It raises UserError."""
    known = stored(folder)
    return [_result(known.config.name, cell, folder / cell.name) for cell in known.cells()]


@dataclass(frozen=True)
class Spent:
    """Shares of their budgets that an arm's cells used."""

    mean: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.mean:.0%} ({self.least:.0%} to {self.most:.0%})"


def spent(results: Iterable[CellResult]) -> dict[str, Spent]:
    """By arm, what its cells that are done used of their budgets."""
    shares: dict[str, list[float]] = {}
    for result in results:
        if result.standing is CellState.DONE:
            shares.setdefault(result.arm, []).append(result.spent)
    return {arm: Spent(sum(own) / len(own), min(own), max(own)) for arm, own in shares.items()}


def results_table(results: Sequence[CellResult]) -> pa.Table:
    """One row per cell: what it is, its standing, its winner and what it used."""
    rows = []
    for result in results:
        row: dict[str, Any] = {name: getattr(result, name) for name in _LABELS}
        row |= {"folder": str(result.folder), "standing": result.standing.value, "reason": result.reason}
        row["spent"] = result.spent
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
_WINNER = tuple(each.name for each in fields(CellWinner) if each.name != "kernel")


def _result(comparison: str, cell: Cell, folder: Path) -> CellResult:
    used: list[Row] = []
    winners: list[Row] = []
    points: list[Row] = []

    def read(run: Run) -> None:
        used.extend(run.rows("cells.used"))
        winners.extend(run.rows("kernels.best_files", task=""))
        points.extend(run.rows("cells.curve"))

    now, reason = standing(folder, read)
    known = Used(**used[0]) if used else Used()
    ((kind, limit),) = cell.config.budget.items()
    return CellResult(
        comparison, cell.arm, cell.config.strategy, cell.operator, cell.dtype, cell.target, cell.seed, folder, now,
        reason, _winner(winners[0]) if winners else None, known, getattr(known, kind) / limit,
        tuple(_thinned(points)),
    )  # fmt: skip


def _winner(row: dict[str, Any]) -> CellWinner:
    named = {name: row[name] or "" for name in ("mutator", "model", "description", "request_id")}
    return CellWinner(
        records.kernel_from(row), row["level"], row["flagged"] or "", row["log_speedup"], row["log_speedup_se"] or 0.0,
        row["stands_at"], evaluation_id=row["evaluation_id"], **named,
    )  # fmt: skip


def _thinned(rows: list[dict[str, Any]]) -> Iterator[Point]:
    best: float | None = None
    for place, row in enumerate(rows):
        if row["best_log_speedup"] != best or place == len(rows) - 1:
            best = row["best_log_speedup"]
            yield Point(**{name: value for name, value in row.items() if name != "seq"})
