"""Best so far against what was used until then, over all cells of an arm."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from evo.compare.config import USED
from evo.compare.inference import Floats, block_mean, blocked, hierarchical_interval

if TYPE_CHECKING:
    from evo.compare.results import CellResult, Point

POINTS = 65


@dataclass(frozen=True)
class Curve:
    """Mean best-so-far of one arm against one kind of budget, each operator with one vote.

    By the verdicts of the cells' own searches: those that are judged anew are only the last ones.
    """

    arm: str
    budget: str
    cells: int
    used: Floats
    log_speedup: Floats
    """Mean of ln(naive time / best time so far); a cell without a correct kernel counts as naive."""
    low: Floats
    high: Floats
    """Pointwise 95 % band, as `hierarchical_interval` makes it."""


def curves(results: Sequence[CellResult], rng: np.random.Generator) -> list[Curve]:
    """The curves of all arms against every budget that any cell used, on one grid per budget.

    A cell keeps its last value where it had used up its budget before another one.
    """
    found = []
    for budget in USED:
        used = [getattr(result.curve[-1], budget) for result in results if result.curve]
        if not any(used):
            continue
        grid = np.linspace(0.0, max(used), POINTS)
        arms: defaultdict[str, dict[tuple[str, str, int], Floats]] = defaultdict(dict)
        for result in results:
            arms[result.arm][result.operator, result.task, result.seed] = best_at(grid, budget, result.curve)
        found += [_curve(arm, budget, grid, values, rng) for arm, values in sorted(arms.items())]
    return found


def best_at(grid: Floats, budget: str, points: Sequence[Point]) -> Floats:
    """The best log speedup of a cell by the time it had used so much of a budget: steps, 0 before the first one."""
    used = np.array([getattr(point, budget) for point in points], dtype=np.float64)
    best = np.array([0.0, *(point.best_log_speedup for point in points)])
    return np.asarray(best[np.searchsorted(used, grid, side="right")])


def _curve(
    arm: str, budget: str, grid: Floats, values: Mapping[tuple[str, str, int], Floats], rng: np.random.Generator
) -> Curve:
    blocks = blocked(values)
    low, high = hierarchical_interval(blocks, rng)
    return Curve(arm, budget, len(values), grid, np.mean([block_mean(block) for block in blocks], axis=0), low, high)
