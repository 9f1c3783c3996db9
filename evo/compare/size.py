"""What a comparison of this size will show, and which size would show the difference that it registered."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from evo.compare.config import Cell, Comparison
from evo.compare.inference import Outcome, spread
from evo.compare.power import ALPHA, POWER, Size, Spread, detectable, least_operators, nothing_concluded, sizes

if TYPE_CHECKING:
    from evo.compare.results import CellResult

ASSUMED = (1.1, 1.3, 2.0)
"""Factors by which winners differ, as a standard deviation: what is planned with where nothing was measured."""


@dataclass(frozen=True)
class Outlook:
    """What is to be expected if cells vary so much."""

    origin: str
    """Where the spread is from, in words."""
    spread: Spread
    detectable: float
    """Log ratio that the comparison as it is would see at 80 % power; infinite: none."""
    with_enough: float
    """The same with as many operators as verdicts take, and no more."""
    sizes: tuple[Size, ...]
    """Those that would see the registered difference; empty: none of a size that anyone would run."""


@dataclass(frozen=True)
class Sizing:
    """A comparison's size, and its outlook."""

    operators: int
    tasks: float
    """Of an operator, on average."""
    seeds: int
    arms: int
    """Beside the reference."""
    tested: tuple[str, ...]
    """Those that verdicts are given of; the others are described."""
    reference: str
    difference: float
    """The registered one, as a share."""
    least_operators: int
    """Fewer conclude nothing."""
    outlooks: tuple[Outlook, ...]

    def lines(self) -> Iterator[str]:
        """The same in words."""
        yield (
            f"{self.arms} arms beside {self.reference}, {self.operators} operators ({self.tasks:.3g} tasks each), "
            f"{self.seeds} seeds; registered difference: x{1 + self.difference:.3g}"
        )
        if 0 < len(self.tested) < self.arms:
            yield f"verdicts are given of {', '.join(self.tested)}; the other arms are described"
        if why := nothing_concluded(self.operators, self.tested):
            yield why
        yield f"what would be seen, at {POWER:.0%} power and {ALPHA:.0%} false claims over {self._claims()}:"
        for outlook in self.outlooks:
            yield f"  {outlook.origin}: {self._seen(outlook)}"
            wanted = ", ".join(f"{size.operators} operators x {size.seeds} seeds" for size in outlook.sizes[:4])
            yield f"    x{1 + self.difference:.3g} asks for {wanted or 'more operators than there are'}"

    def _seen(self, outlook: Outlook) -> str:
        if math.isfinite(outlook.detectable):
            return f"from x{math.exp(outlook.detectable):.3g} on"
        return f"nothing; of {self.least_operators} such operators, from x{math.exp(outlook.with_enough):.3g} on"

    def _claims(self) -> str:
        if not self.tested:
            return "one arm, were one registered"
        return "all arms" if len(self.tested) == self.arms else f"these {len(self.tested)} arms"

    def as_row(self) -> dict[str, Any]:
        """The same as plain values, an infinite difference as None."""
        row = asdict(self)
        for outlook in row["outlooks"]:
            if math.isinf(outlook["detectable"]):
                outlook["detectable"] = None
        return row


def sizing(made: Comparison, cells: Sequence[Cell], results: Sequence[CellResult] = ()) -> Sizing:
    """The size of a comparison with these cells; `results` of it or of a smaller one tell how much cells vary."""
    operators = {cell.operator for cell in cells}
    tasks = len({(cell.operator, cell.dtype, cell.target) for cell in cells}) / len(operators)
    arms = max(len(made.tested), 1)
    outlooks = tuple(
        Outlook(
            origin,
            each,
            detectable(each.of_operator(tasks, len(made.seeds)), len(operators), arms),
            detectable(each.of_operator(tasks, len(made.seeds)), least_operators(arms), arms),
            tuple(sizes(math.log1p(made.difference), each, tasks=tasks, arms=arms)),
        )
        for origin, each in _spreads(made, results)
    )
    return Sizing(
        len(operators), tasks, len(made.seeds), len(made.arms) - 1, made.tested, made.reference_arm, made.difference,
        least_operators(arms), outlooks,
    )  # fmt: skip


def _spreads(made: Comparison, results: Sequence[CellResult]) -> Iterator[tuple[str, Spread]]:
    if known := spread(own_outcomes(results), made.reference_arm):
        yield "as its cells vary so far", known
        return
    for factor in ASSUMED:
        origin = f"assumed, winners differ by x{factor:g} from seed to seed, and arms from operator to operator"
        yield origin, Spread(math.log(factor), math.log(factor))


def own_outcomes(results: Sequence[CellResult]) -> list[Outcome]:
    """Winners by the verdicts of their own searches, of cells that are done: for plans, never for conclusions."""
    found = []
    for result in results:
        cell, winner = Outcome(result.arm, result.operator, result.task, result.seed), result.winner
        if winner and winner.mutator != "ancestor":
            se = winner.log_speedup_se
            cell = replace(cell, log_speedup=winner.log_speedup, log_speedup_se=se, correct=True)
        if result.standing.value == "done":
            found.append(cell)
    return found
