"""Conclusions of a comparison: what it will show by its size, what it costs at most, and what it shows so far."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from evo.compare.config import USED, Cell, Comparison
from evo.compare.inference import (
    ALPHA,
    POWER,
    Effect,
    Floats,
    Outcome,
    Size,
    Spread,
    Summary,
    Verdict,
    block_mean,
    blocked,
    detectable,
    effects,
    hierarchical_interval,
    least_operators,
    nothing_concluded,
    sizes,
    spread,
    summaries,
)
from evo.compare.judgement import JudgedCell, outcomes
from evo.compare.running import cells_at_once
from fitness.words import ratio
from mutators.llm.settings import LlmSettings, is_outside
from operators.identity import digest

if TYPE_CHECKING:
    from evo.compare.cells import CellResult, Point

if TYPE_CHECKING:
    from evo.compare.cells import CellResult


@dataclass(frozen=True)
class Conclusions:
    """The conclusions of one comparison. Equal outcomes give equal figures: resampling is seeded by its name."""

    reference: str
    difference: float
    summaries: list[Summary]
    effects: list[Effect]
    """Empty as long as no cell of the reference is judged."""
    cells: int
    judged: int
    tested: tuple[str, ...]
    """Arms that verdicts are given of."""

    def rows(self) -> Iterator[dict[str, Any]]:
        """One per arm, the fastest first; figures that do not exist are None."""
        beside = {effect.arm: effect for effect in self.effects}
        for summary in self.summaries:
            row: dict[str, Any] = {"arm": summary.arm, "cells": summary.cells, "correct": _rounded(summary.correct)}
            row |= {"speedup": _rounded(summary.geometric_mean), "speedup_95": _interval(summary.low, summary.high)}
            row |= {"median": _rounded(summary.median), "score": _rounded(summary.score)}
            row |= {f"above_{factor}": _rounded(share) for factor, share in summary.above.items()}
            row |= {f"fast_{tau}": _rounded(share) for tau, share in summary.fast.items()}
            yield row | _beside(beside.get(summary.arm))

    def lines(self) -> Iterator[str]:
        """Sentences that must be known beside the table."""
        yield (
            f"{self.judged} of {self.cells} cells judged anew; ratio: beside {self.reference}, with a 95 % interval; "
            f"p: sign-flip test over operators, Holm over arms; seen_from: the smallest ratio that would have been "
            f"told from chance at 80 % power; registered: {ratio(1 + self.difference)}"
        )
        if still := [effect.arm for effect in self.effects if effect.verdict is Verdict.OPEN]:
            yield f"no verdict: {', '.join(still)}"
        if self.effects and (why := nothing_concluded(max(e.operators for e in self.effects), self.tested)):
            yield why
            yield from self._with_enough()

    def _with_enough(self) -> Iterator[str]:
        """Sentences on what as many operators as the test needs would have told, if they differed as these do."""
        arms = max(len(self.tested), 1)
        needed = least_operators(arms)
        for effect in self.effects:
            if effect.operators > 1:
                seen = math.exp(detectable(effect.sd, needed, arms))
                alike = f"operators that differ as these {effect.operators}"
                yield f"{effect.arm}: {needed} {alike} would show {ratio(seen)}"


def conclusions(made: Comparison, cells: Sequence[JudgedCell]) -> Conclusions:
    """The conclusions from the judged ones of these cells."""
    return concluded(made, outcomes(cells), len(cells))


def concluded(made: Comparison, found: Sequence[Outcome], cells: int) -> Conclusions:
    """The conclusions from these outcomes, in whatever order, of a comparison with this many cells."""
    reference, rng = made.reference_arm, resampling(made)
    known = any(outcome.arm == reference for outcome in found)
    return Conclusions(
        reference, made.difference, summaries(found, rng),
        effects(found, reference, made.difference, rng, made.tested) if known else [], cells, len(found), made.tested,
    )  # fmt: skip


def resampling(made: Comparison) -> np.random.Generator:
    """The generator for all resampling in a comparison, seeded by its name, so that figures do not change."""
    return np.random.default_rng(int(digest("resampling", made.name)[:16], 16))


def _beside(effect: Effect | None) -> dict[str, Any]:
    if effect is None:
        return dict.fromkeys(("ratio", "ratio_95", "p", "seen_from", "verdict"))
    return {
        "ratio": _rounded(math.exp(effect.log_ratio)),
        "ratio_95": _interval(math.exp(effect.low), math.exp(effect.high)),
        "p": None if math.isnan(effect.p_holm) else _rounded(effect.p_holm),
        "seen_from": None if math.isinf(effect.detectable) else _rounded(math.exp(effect.detectable)),
        "verdict": effect.verdict.value,
    }


def _interval(low: float, high: float) -> list[float] | None:
    return None if math.isinf(high) else [_rounded(low), _rounded(high)]


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


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


ASSUMED = (1.1, 1.3, 2.0)
"""Factors by which winners differ, as a standard deviation: what is planned with where nothing was measured."""


@dataclass(frozen=True)
class Outlook:
    """Expectation if cells vary this much."""

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
    """Tasks per operator, on average."""
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
            f"{self.seeds} seeds; registered difference: {ratio(1 + self.difference)}"
        )
        if 0 < len(self.tested) < self.arms:
            yield f"verdicts are given of {', '.join(self.tested)}; the other arms are described"
        if why := nothing_concluded(self.operators, self.tested):
            yield why
        yield f"what would be seen, at {POWER:.0%} power and {ALPHA:.0%} false claims over {self._claims()}:"
        for outlook in self.outlooks:
            yield f"  {outlook.origin}: {self._seen(outlook)}"
            wanted = ", ".join(f"{size.operators} operators x {size.seeds} seeds" for size in outlook.sizes[:4])
            yield f"    {ratio(1 + self.difference)} asks for {wanted or 'more operators than there are'}"

    def _seen(self, outlook: Outlook) -> str:
        if math.isfinite(outlook.detectable):
            return f"from {ratio(math.exp(outlook.detectable))} on"
        return f"nothing; of {self.least_operators} such operators, from {ratio(math.exp(outlook.with_enough))} on"

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
        origin = f"assumed, winners differ by {ratio(factor)} from seed to seed, and arms from operator to operator"
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


@dataclass(frozen=True)
class ComparisonPlan:
    """Plan of a comparison that would be begun."""

    name: str
    arms: list[dict[str, Any]]
    cells: int
    asking: int
    """Cells that ask language models."""
    tasks: int
    seeds: int
    kind: str
    per_cell: float
    trials: int
    """In all cells together, at most."""
    most_usd: float | None
    """Largest cost of the answers; None: no limit follows from this budget, or a price is not known."""
    at_once: str

    def lines(self) -> list[str]:
        """The plan in words."""
        unit = USED[self.kind]
        lines = [
            f"{self.cells} cells, each a run: {len(self.arms)} arms x {self.tasks} tasks x {self.seeds} seeds",
            f"budget: {_amount(self.per_cell)} {unit} a cell, {_amount(self.cells * self.per_cell)} in all at most; "
            f"{self.trials} trials of tunables besides, and a confirmation of every winner",
            f"cells under way at once: {self.at_once}",
        ]
        if not self.asking:
            return [*lines, "no language model is asked: it costs nothing but time"]
        if self.most_usd is not None:
            return [
                *lines,
                f"language models cost {self.most_usd:.2f} US dollars at most, lost and last answers besides",
            ]
        why = (
            "no price is known for all models; set llm.prices"
            if self.kind == "tokens"
            else f"a budget in {unit} limits no tokens; one in tokens or cost_usd does"
        )
        return [*lines, f"what language models may cost is not limited: {why}"]

    def as_row(self) -> dict[str, Any]:
        """The same as plain values."""
        return dict(vars(self))


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"


def plan(made: Comparison, cells: Sequence[Cell]) -> ComparisonPlan:
    """The plan that would be begun with these cells of a comparison."""
    kind, amount = made.limit
    asking = [cell for cell in cells if cell.config.llm]
    tuned = sum(cell.config.cell.trials for cell in cells if cell.config.cell)
    return ComparisonPlan(
        made.name, [_arm(made, name, cells) for name in made.arms], len(cells), len(asking),
        len({(cell.operator, cell.dtype, cell.target) for cell in cells}), len(made.seeds), kind, amount, tuned,
        _most_usd(kind, amount, asking),
        f"{made.at_once or f'twice the jobs of the pool (8 jobs: {cells_at_once(cells, 8)})'}",
    )  # fmt: skip


def _arm(made: Comparison, name: str, cells: Sequence[Cell]) -> dict[str, Any]:
    arm = made.arms[name]
    own = [cell for cell in cells if cell.arm == name]
    llm = own[0].config.llm
    return {
        "arm": name, "strategy": own[0].config.strategy, "models": ", ".join(llm.models) if llm else "none",
        "profile": arm.profile if llm else "", "tuning": arm.tuning, "cells": len(own),
    }  # fmt: skip


def _most_usd(kind: str, amount: float, asking: Sequence[Cell]) -> float | None:
    if kind == "cost_usd":
        return amount * len(asking)
    if kind != "tokens":
        return None
    prices = [_dearest(cell.config.llm) for cell in asking if cell.config.llm]
    return sum(price * amount for price in prices) if all(map(math.isfinite, prices)) else None


def _dearest(llm: LlmSettings) -> float:
    """Dollars of the dearest token; infinite where a price is not known."""
    return max(_price(model, llm) for model in llm.models)


def _price(model: str, llm: LlmSettings) -> float:
    if told := llm.prices.get(model):
        return max(told.input, told.output) / 1e6
    if is_outside(model):
        return 0.0
    from mutators.llm.client import listed_price
    from mutators.llm.library import litellm_module

    found = listed_price(litellm_module(), model)
    return max(found.input, found.output) / 1e6 if found else math.inf
