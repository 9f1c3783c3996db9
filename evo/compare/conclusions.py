"""Conclusions of a comparison: what it will show by its size, what it costs at most, and what it shows so far."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from evo.compare.config import USED, Cell, Comparison
from evo.compare.inference import (
    ALPHA,
    POWER,
    ArmVerdict,
    Effect,
    Floats,
    Outcome,
    Size,
    Spread,
    Summary,
    block_mean,
    blocked,
    detectable,
    effects,
    least_families,
    mean_interval,
    nothing_concluded,
    sizes,
    spread,
    summaries,
)
from evo.compare.judgement import JudgedCell, outcomes
from evo.compare.running import cells_at_once
from evo.session import judging_here
from fitness.words import counted, duration, ratio
from mutators.llm.settings import LlmSettings, is_outside

if TYPE_CHECKING:
    from evo.compare.cells import Begun, CellResult, Point


@dataclass(frozen=True)
class Conclusions:
    """The conclusions of one comparison."""

    reference: str
    difference: float
    summaries: list[Summary]
    effects: list[Effect]
    """Empty as long as no cell of the reference is judged."""
    cells: int
    """Number of cells that figures are of when all is judged."""
    judged: int
    tested: tuple[str, ...]
    """Arms that verdicts are given of."""
    families: int
    """Families of the operators that are judged."""
    related: str
    """Families of several operators, in words; empty: there is none."""

    def rows(self) -> Iterator[dict[str, Any]]:
        """One per arm, the fastest first; figures that do not exist are None."""
        beside = {effect.arm: effect for effect in self.effects}
        for summary in self.summaries:
            effect = beside.get(summary.arm)
            yield {
                "arm": summary.arm, "operators": summary.operators, "tasks": summary.tasks, "cells": summary.cells,
                "with_winner": summary.with_winner, "speedup": summary.geometric_mean,
                "speedup_95": _interval(summary.low, summary.high), "median": summary.median, "score": summary.score,
                **{f"above_{factor}": share for factor, share in summary.above.items()},
                **{f"fast_{tau}": share for tau, share in summary.fast.items()},
                **{name: of(effect) if effect else None for name, of in BESIDE.items()},
            }  # fmt: skip

    def lines(self) -> Iterator[str]:
        """Sentences that must be known beside the table."""
        yield (
            f"{self.judged} of {counted(self.cells, 'cell')} judged anew; ratio: beside {self.reference}, with an "
            f"interval that holds for all arms at 95 %; p: sign-flip test over families of operators, Bonferroni over "
            f"arms; typical: the median over operators; seen_from: the smallest ratio that would have been told from "
            f"chance at 80 % power; registered: {ratio(1 + self.difference)}"
        )
        if self.effects and self.judged < self.cells:
            yield "no verdict, interval or p-value before all cells are judged"
        if self.related:
            yield f"related operators count as one for chance: {self.related}"
        for effect in self.effects:
            if effect.verdict in (ArmVerdict.FASTER, ArmVerdict.SLOWER):
                yield f"{effect.arm}: {effect.verdict} {effect.scope}"
        if still := [effect.arm for effect in self.effects if effect.verdict is ArmVerdict.OPEN]:
            yield f"no verdict: {', '.join(still)}"
        if self.effects and (why := nothing_concluded(self.families, self.tested)):
            yield why
            yield from self._with_enough()

    def _with_enough(self) -> Iterator[str]:
        """Sentences on what as many families as the test needs would have told, if they differed as these do."""
        arms = max(len(self.tested), 1)
        needed = least_families(arms)
        for effect in self.effects:
            if effect.families > 1:
                seen = math.exp(detectable(effect.error * math.sqrt(effect.families / needed), needed, arms))
                alike = f"families that differ as these {effect.families}"
                yield f"{effect.arm}: {needed} {alike} would show {ratio(seen)}"


def conclusions(begun: Begun, cells: Sequence[JudgedCell]) -> Conclusions:
    """The conclusions from the judged ones of these cells."""
    return concluded(begun, outcomes(cells), sum(not cell.left_out for cell in cells))


def concluded(begun: Begun, found: Sequence[Outcome], cells: int) -> Conclusions:
    """The conclusions from these outcomes, in whatever order, of a comparison whose figures are of this many cells."""
    made, families = begun.config, begun.families
    reference, complete = made.reference_arm, len(found) == cells
    known = any(outcome.arm == reference for outcome in found)
    kin = Counter(families.get(name, name) for name in {outcome.operator for outcome in found})
    return Conclusions(
        reference, made.difference, summaries(found, families),
        effects(found, reference, made.difference, families, made.tested, complete=complete) if known else [], cells,
        len(found), made.tested, len(kin), related(kin),
    )  # fmt: skip


def related(kin: Mapping[str, int]) -> str:
    """Families of several operators, in words, from their numbers; empty: there is none."""
    several = sorted((family for family, count in kin.items() if count > 1), key=lambda family: -kin[family])
    shown = ", ".join(f"{kin[family]} {family}" for family in several)
    return (
        f"{counted(sum(kin.values()), 'operator')} are of {counted(len(kin), 'family', 'families')} ({shown})"
        if several
        else ""
    )


BESIDE: Mapping[str, Callable[[Effect], Any]] = {
    "reference": lambda effect: effect.reference,
    "families": lambda effect: effect.families,
    "pairs": lambda effect: effect.pairs,
    "unpaired": lambda effect: effect.unpaired,
    "pairs_with_winner": lambda effect: effect.found,
    "ratio": lambda effect: math.exp(effect.log_ratio),
    "ratio_95": lambda effect: _interval(math.exp(effect.low), math.exp(effect.high)),
    "typical": lambda effect: math.exp(effect.median),
    "typical_95": lambda effect: _interval(math.exp(effect.median_low), math.exp(effect.median_high)),
    "ratio_searched": lambda effect: math.exp(effect.searched),
    "p": lambda effect: None if math.isnan(effect.p) else effect.p,
    "seen_from": lambda effect: None if math.isinf(effect.detectable) else math.exp(effect.detectable),
    "judging_se_log": lambda effect: effect.judging_se,
    "verdict": lambda effect: effect.verdict.value,
}
"""Figures of an arm beside the reference, by name."""


def _interval(low: float, high: float) -> list[float] | None:
    return None if math.isinf(high) else [low, high]


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
    """Pointwise 95 % band, as `mean_interval` makes it."""


def curves(results: Sequence[CellResult], families: Mapping[str, str]) -> list[Curve]:
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
        found += [_curve(arm, budget, grid, values, families) for arm, values in sorted(arms.items())]
    return found


def best_at(grid: Floats, budget: str, points: Sequence[Point]) -> Floats:
    """The best log speedup of a cell by the time it had used so much of a budget: steps, 0 before the first one."""
    used = np.array([getattr(point, budget) for point in points], dtype=np.float64)
    best = np.array([0.0, *(point.best_log_speedup for point in points)])
    return np.asarray(best[np.searchsorted(used, grid, side="right")])


def _curve(
    arm: str, budget: str, grid: Floats, values: Mapping[tuple[str, str, int], Floats], families: Mapping[str, str]
) -> Curve:
    blocks = blocked(values)
    low, high, _ = mean_interval(blocks, families)
    mean = np.mean([block_mean(block) for block in blocks.values()], axis=0)
    return Curve(arm, budget, len(values), grid, mean, low, high)


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
    """The same with an operator of each of as many families as verdicts take."""
    sizes: tuple[Size, ...]
    """Sizes that would see the registered difference; empty: none of a size that anyone would run."""


@dataclass(frozen=True)
class Sizing:
    """A comparison's size, and its outlook."""

    operators: int
    families: int
    related: str
    """Families of several operators, in words; empty: there is none."""
    tasks: float
    """Tasks per operator, on average."""
    seeds: int
    arms: int
    """Beside the reference."""
    tested: tuple[str, ...]
    """Arms that verdicts are given of; the others are described."""
    reference: str
    difference: float
    """The registered one, as a share."""
    least_families: int
    """Fewer conclude nothing."""
    outlooks: tuple[Outlook, ...]

    def lines(self) -> Iterator[str]:
        """The same in words."""
        yield (
            f"{counted(self.arms, 'arm')} beside {self.reference}, {counted(self.operators, 'operator')} "
            f"({self.tasks:.3g} {'task' if self.tasks == 1 else 'tasks'} each), {counted(self.seeds, 'seed')}; "
            f"registered difference: {ratio(1 + self.difference)}"
        )
        if self.related:
            yield f"related operators count as one for chance: {self.related}"
        if 0 < len(self.tested) < self.arms:
            yield f"verdicts are given of {', '.join(self.tested)}; the other arms are described"
        if why := nothing_concluded(self.families, self.tested):
            yield why
        yield from self.seen()
        for outlook in self.outlooks:
            wanted = ", ".join(
                f"{counted(size.operators, 'operator')} of {counted(size.families, 'family', 'families')} x "
                f"{counted(size.seeds, 'seed')}"
                for size in outlook.sizes[:4]
            )
            asked = f"{ratio(1 + self.difference)} asks for {wanted or 'more operators than there are'}"
            yield f"{asked}, {outlook.origin}"

    def seen(self) -> Iterator[str]:
        """The differences that would be seen, in words."""
        yield f"what would be seen, at {POWER:.0%} power and {ALPHA:.0%} false claims over {self._claims()}:"
        for outlook in self.outlooks:
            yield f"  {outlook.origin}: {self._seen(outlook)}"
        usual = self.outlooks[len(self.outlooks) // 2]
        if self.tested and usual.detectable > math.log1p(self.difference):
            yield f"the registered difference, {ratio(1 + self.difference)}, is smaller than what would be seen"

    def _seen(self, outlook: Outlook) -> str:
        if math.isfinite(outlook.detectable):
            return f"from {ratio(math.exp(outlook.detectable))} on"
        seen = ratio(math.exp(outlook.with_enough))
        return f"nothing; of operators of {counted(self.least_families, 'family', 'families')}, from {seen} on"

    def _claims(self) -> str:
        if not self.tested:
            return "one arm, were one registered"
        return "all arms" if len(self.tested) == self.arms else f"these {counted(len(self.tested), 'arm')}"


def sizing(made: Comparison, cells: Sequence[Cell], results: Sequence[CellResult] = ()) -> Sizing:
    """The size of a comparison with these cells; `results` of it or of a smaller one tell how much cells vary."""
    operators, kin = {cell.operator for cell in cells}, made.families()
    families = Counter(kin[operator] for operator in operators)
    tasks = len({cell.task for cell in cells}) / len(operators)
    arms = max(len(made.tested), 1)
    least = least_families(arms)
    outlooks = tuple(
        Outlook(
            origin,
            each,
            detectable(each.error(len(families), len(operators), tasks, len(made.seeds)), len(families), arms),
            detectable(each.error(least, least, tasks, len(made.seeds)), least, arms),
            tuple(sizes(math.log1p(made.difference), each, families=len(families), tasks=tasks, arms=arms)),
        )
        for origin, each in _spreads(made, results)
    )
    return Sizing(
        len(operators), len(families), related(families), tasks, len(made.seeds), len(made.arms) - 1, made.tested,
        made.reference_arm, made.difference, least, outlooks,
    )  # fmt: skip


def _spreads(made: Comparison, results: Sequence[CellResult]) -> Iterator[tuple[str, Spread]]:
    if known := spread(own_outcomes(results), made.reference_arm, made.families()):
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
            cell = replace(cell, log_speedup=winner.log_speedup, log_speedup_se=se, has_winner=True)
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
    workers: int
    """Workers of this machine that judge kernels, of the target that has the fewest."""
    least_s: float | None
    """Least time that all searches together take here; None: the budget limits no time."""

    def lines(self) -> list[str]:
        """The plan in words."""
        unit = USED[self.kind]
        lines = [
            f"{counted(self.cells, 'cell')}, each a run: {counted(len(self.arms), 'arm')} x "
            f"{counted(self.tasks, 'task')} x {counted(self.seeds, 'seed')}",
            f"budget: {_amount(self.per_cell)} {unit} a cell, {_amount(self.cells * self.per_cell)} in all at most; "
            f"{self.trials} trials of tunables besides, and a confirmation of every winner",
            f"cells under way at once: {self.at_once}",
        ]
        return [*lines, self.time(), self.cost()]

    def time(self) -> str:
        """The time that it takes, in words."""
        besides = f"{'answers, ' if self.asking else ''}confirmations and the judgement of winners"
        if self.least_s is not None:
            many = counted(self.workers, "worker")
            return f"its searches take {duration(self.least_s)} at least on {many} here; {besides} come besides"
        work = "answers and evaluations" if self.asking else "evaluations"
        return (
            f"how long it takes depends on how long {work} take: a budget in {USED[self.kind]} limits no time, one in "
            "evaluator_s does"
        )

    def cost(self) -> str:
        """The most that answers cost, in words."""
        if not self.asking:
            return "no language model is asked: it costs nothing but time"
        if self.most_usd is not None:
            return f"language models cost {self.most_usd:.2f} US dollars at most, lost and last answers besides"
        why = (
            "no price is known for all models; set llm.prices"
            if self.kind == "tokens"
            else f"a budget in {USED[self.kind]} limits no tokens; one in tokens or cost_usd does"
        )
        return f"what language models may cost is not limited: {why}"


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"


def plan(made: Comparison, cells: Sequence[Cell]) -> ComparisonPlan:
    """The plan that would be begun with these cells of a comparison."""
    kind, amount = made.limit
    asking = [cell for cell in cells if cell.config.llm]
    tuned = sum(cell.config.cell.trials for cell in cells if cell.config.cell)
    workers = [judging_here(cell.config) for cell in cells]
    return ComparisonPlan(
        made.name, [_arm(made, name, cells) for name in made.arms], len(cells), len(asking),
        len({cell.task for cell in cells}), len(made.seeds), kind, amount, tuned,
        _most_usd(kind, amount, asking),
        f"{made.at_once or f'twice the jobs of the pool (8 jobs: {cells_at_once(cells, 8)})'}",
        min(workers),
        sum(amount / many for many in workers) if kind == "evaluator_s" else None,
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
    asked = [cell.config.llm for cell in asking if cell.config.llm]
    prices = [max(_price(model, llm) for model in llm.models) for llm in asked]  # of the dearest token
    return sum(price * amount for price in prices) if all(map(math.isfinite, prices)) else None


def _price(model: str, llm: LlmSettings) -> float:
    """Dollars of a model's dearest token; infinite where the price is not known."""
    if told := llm.prices.get(model):
        return max(told.input, told.output) / 1e6
    if is_outside(model):
        return 0.0
    from mutators.llm.client import listed_price
    from mutators.llm.library import litellm_module

    found = listed_price(litellm_module(), model)
    return max(found.input, found.output) / 1e6 if found else math.inf
