"""Statistics on the re-judged winners of a comparison. Pure functions; nothing is read or written.

The primary endpoint of every comparison is ln(speedup over naive) of the re-judged winner at an equal budget; a cell
without a correct winner of its own counts as naive, which is what its user is left with. Each arm is compared with the
reference arm, cell by cell at the same task and seed. Operators are what a comparison samples: the differences of an
operator's tasks (its dtypes and targets) and of their seeds are averaged first, so that each operator has one vote.
P-values are of the sign-flip test over operators, corrected over arms by Holm; intervals of a bootstrap over operators
and over the seeds within them. The errors of the judgement's measurements are part of what differs between seeds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

ALPHA = 0.05
"""The error rate of all arms of a comparison together."""
POWER = 0.8
EXACT_OPERATORS = 12
"""Up to so many the power is that of the test itself on normal differences; beyond it Student's law is as good."""
DRAWS = 1000
MOST_OPERATORS = 200
MOST_SEEDS = 32


@dataclass(frozen=True)
class Spread:
    """Variation of ln(speedup), as standard deviations."""

    operators: float
    """The deviation of two arms' true difference from operator to operator."""
    seeds: float
    """The deviation of one arm's winner at one task from seed to seed."""

    def of_operator(self, tasks: float, seeds: float) -> float:
        """The deviation of one operator's difference, with so many of its tasks and seeds."""
        return math.sqrt(self.operators**2 + 2 * self.seeds**2 / (tasks * seeds))


@dataclass(frozen=True)
class Size:
    """A size of comparison, and what it would show."""

    operators: int
    seeds: int
    detectable: float
    """Smallest difference seen at 80 % power, a log ratio; infinite: none, however large."""


def least_operators(arms: int) -> int:
    """The number of operators from which any difference can be told from chance, with this many arms beside the
    reference.

    Of n operators the test has 2^n patterns of signs, so no p-value is below 2^(1-n); Holm's first step asks for
    ALPHA / arms.
    """
    return math.ceil(1 - math.log2(ALPHA / arms))


def nothing_concluded(operators: int, tested: Sequence[str]) -> str:
    """Why a comparison of so many operators gives no verdict of any arm, in words; empty: it may give some."""
    arms = max(len(tested), 1)
    few = (
        f"the test over operators needs {least_operators(arms)} for {arms} arm{'s' * (arms > 1)} "
        f"(2^(1-n) <= {ALPHA:g}/arms)"
        if operators < least_operators(arms)
        else ""
    )
    if not tested:
        return "it describes and concludes nothing: no arm is registered for a verdict" + (f"; {few}" if few else "")
    return f"nothing can be concluded with {operators} operators, however large a difference is: {few}" if few else ""


def detectable(sd: float, operators: int, arms: int) -> float:
    """Return the smallest log ratio that is told from chance at POWER, where operators differ by `sd`.

    It asks for what Holm's first step asks for: the first arm of `arms` to be told from the reference. Infinite: with
    so few operators none is, however large.
    """
    if operators < least_operators(arms):
        return math.inf
    return sd * _in_deviations(operators, ALPHA / arms)


def sizes(difference: float, spread: Spread, *, tasks: float, arms: int) -> Iterator[Size]:
    """For growing numbers of seeds, the fewest operators with which this log ratio would be seen.

    `tasks` are those of an operator. A number of seeds that spares no operator is left out, and so is one that asks for
    more than MOST_OPERATORS.
    """
    last = MOST_OPERATORS + 1
    for seeds in range(1, MOST_SEEDS + 1):
        sd = spread.of_operator(tasks, seeds)
        for operators in range(least_operators(arms), last):
            if (seen := detectable(sd, operators, arms)) <= difference:
                last = operators
                yield Size(operators, seeds, seen)
                break


@cache
def _in_deviations(operators: int, alpha: float) -> float:
    """The detectable difference as a multiple of the deviation between operators.

    Beyond EXACT_OPERATORS it is (t_(1 - alpha/2) + t_POWER) / sqrt(n), of n - 1 degrees of freedom (Bloom, "Minimum
    detectable effects", Evaluation Review 19, 1995). Of few the test's p-values are coarse, which costs power: there it
    is found by trying the test on DRAWS normal samples.
    """
    if operators > EXACT_OPERATORS:
        law = stats.t(operators - 1)
        return float(law.ppf(1 - alpha / 2) + law.ppf(POWER)) / math.sqrt(operators)
    noise = np.random.default_rng(operators).standard_normal((operators, DRAWS))
    signs = 1 - 2 * (
        (np.arange(2 ** (operators - 1))[:, None] >> np.arange(operators)) & 1
    )  # of both of a mirrored pair
    low, high = 0.0, 16.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        flipped = np.abs(signs @ (noise + middle))
        p_values = (flipped >= flipped[0] * (1 - 1e-12)).mean(axis=0)
        low, high = (low, middle) if (p_values <= alpha).mean() >= POWER else (middle, high)
    return high


LEVEL = 0.95
LEAST_BLOCKS = 5
"""The fewest operators from which a bootstrap makes an interval: resamples of fewer say nothing of other operators."""
RESAMPLES = 1999
FLIPS = 9999
"""Patterns of signs that are tried; all of them where there are no more."""
REDRAWN = 500
"""Resamples of each operator's mean, over seeds."""
BATCH = 200
FACTORS = (1, 2, 4)
THRESHOLDS = (1, 2, 4, 8)
"""The thresholds of the score P."""

Floats = NDArray[np.float64]
Block = Sequence[Floats]
"""The results of one operator: for each of its tasks a row per seed, of one value or several."""
_Key = tuple[str, str, int]
"""Operator, task and seed."""


@dataclass(frozen=True)
class Outcome:
    """The winner of one cell as it was judged anew. It raises ValueError for a failure that has a speed."""

    arm: str
    operator: str
    task: str
    """`operator/dtype/target`."""
    seed: int
    log_speedup: float = 0.0
    """ln(naive time / its time); 0 for a failure."""
    log_speedup_se: float = 0.0
    correct: bool = False
    """Whether the cell had a winner, other than the naive kernel itself, that passed the judgement."""
    times_us: tuple[tuple[float, float], ...] = ()
    """Times of naive and of the winner, for each workload."""

    def __post_init__(self) -> None:
        if not self.correct and (self.log_speedup or self.log_speedup_se or self.times_us):
            raise ValueError("a cell that failed counts as naive, it has no times")
        if not math.isfinite(self.log_speedup) or not math.isfinite(self.log_speedup_se):
            raise ValueError(f"log speedup {self.log_speedup} +- {self.log_speedup_se}")

    @property
    def speedup(self) -> float:
        return math.exp(self.log_speedup)

    @property
    def score(self) -> float:
        """MSKernelBench's P (arXiv 2603.07169): sum T_i S_i / sum T_i over sizes, of speedup S_i and naive time T_i.

        The paper does not say whose time is the weight; here it is the baseline's. 0 for a failure.
        """
        if not self.correct:
            return 0.0
        if not self.times_us:
            return self.speedup
        return sum(naive * naive / own for naive, own in self.times_us) / sum(naive for naive, _ in self.times_us)


_Cells = dict[_Key, Outcome]


class Verdict(StrEnum):
    """Verdict of a comparison on an arm beside the reference."""

    FASTER = "faster"
    SLOWER = "slower"
    EQUAL = "equal"
    """Any difference is less than the registered one."""
    OPEN = "open"
    """Neither: noise hides more than the registered difference, or it is about as large as that."""
    DESCRIBED = "described"
    """None is given: the arm is not among those that the comparison registered a verdict of."""


@dataclass(frozen=True)
class Effect:
    """An arm beside the reference. Ratios are logarithms; above 0 the arm is better."""

    arm: str
    reference: str
    operators: int
    pairs: int
    """Cells of the same task and seed that both arms have."""
    unpaired: int
    """Cells of either arm that the other one lacks; they do not count."""
    log_ratio: float
    """Mean over operators of ln(winner's speedup / reference's winner's speedup)."""
    low: float
    high: float
    """95 % interval; infinite where there are too few operators for one."""
    p_value: float
    p_holm: float
    """Corrected over the arms that verdicts are given of; NaN of the others."""
    sd: float
    """Standard deviation, from operator to operator, of their mean differences; NaN for one operator."""
    detectable: float
    """Smallest difference that would have been told from chance at 80 % power; infinite: none, however large."""
    judging_se: float
    """The part of the standard error that the judgement's own measurements make."""
    verdict: Verdict


@dataclass(frozen=True)
class Summary:
    """One arm by itself. Each operator has one vote in shares and in the geometric mean, failures count as naive."""

    arm: str
    operators: int
    tasks: int
    cells: int
    correct: float
    """Share of cells with a winner, other than the naive kernel itself, that passed the judgement."""
    geometric_mean: float
    """The geometric mean of the speedup over naive."""
    low: float
    high: float
    """95 % interval of it."""
    median: float
    """Over tasks, of the geometric mean over seeds."""
    above: Mapping[int, float]
    """Share of cells that are correct and faster than naive by more than a factor: KernelBench's fast_p."""
    score: float
    """Median of the score P over cells; 0 for a failure."""
    fast: Mapping[int, float]
    """Fast-tau: share of cells whose score P is at least tau."""


def effects(
    outcomes: Sequence[Outcome],
    reference: str,
    difference: float,
    rng: np.random.Generator,
    tested: Collection[str] | None = None,
) -> list[Effect]:
    """Each arm beside the reference, the best first.

    `difference` is the registered one, as a share: 0.1 says that a difference of 10 % matters. `tested` are the arms
    that verdicts were registered of, of which Holm's correction counts all, with cells or without; None: all that
    there are. What would have been seen of another arm is what would have been as one of them. It raises ValueError
    where the reference has no cell.
    """
    by_arm = _by_arm(outcomes)
    if reference not in by_arm:
        raise ValueError(f"arm {reference} has no cells")
    theirs = by_arm.pop(reference)
    wanted = list(by_arm if tested is None else tested)
    found = {arm: _effect(arm, reference, own, theirs, max(len(wanted), 1), rng) for arm, own in by_arm.items()}
    corrected = dict(zip(wanted, holm([found[arm].p_value if arm in found else 1.0 for arm in wanted]), strict=True))
    judged = [
        replace(effect, p_holm=corrected[arm], verdict=_verdict(effect, corrected[arm], math.log1p(difference)))
        if arm in corrected
        else replace(effect, p_holm=math.nan, verdict=Verdict.DESCRIBED)
        for arm, effect in found.items()
    ]
    return sorted(judged, key=lambda effect: -effect.log_ratio)


def summaries(outcomes: Sequence[Outcome], rng: np.random.Generator) -> list[Summary]:
    """Each arm by itself, the fastest first."""
    found = [_summary(arm, own, rng) for arm, own in _by_arm(outcomes).items()]
    return sorted(found, key=lambda summary: -summary.geometric_mean)


def spread(outcomes: Sequence[Outcome], reference: str) -> Spread | None:
    """The variation of these outcomes, for the plan of a larger comparison; None where they cannot tell.

    Seeds by the variance within an arm's tasks, pooled; operators by that of the differences to the reference, less
    what seeds make of it, pooled over arms.
    """
    by_arm = _by_arm(outcomes)
    tasks: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for one in outcomes:
        tasks[one.arm, one.task].append(one.log_speedup)
    freedom = sum(len(values) - 1 for values in tasks.values())
    if not freedom or reference not in by_arm:
        return None
    within = sum(float(np.var(values)) * len(values) for values in tasks.values()) / freedom
    theirs = by_arm.pop(reference)
    between = []
    for own in by_arm.values():
        blocks = blocked({k: _values(own[k].log_speedup - theirs[k].log_speedup) for k in own if k in theirs})
        if len(blocks) > 1:
            noise = np.mean([sum(2 * within / len(task) for task in block) / len(block) ** 2 for block in blocks])
            between.append(float(np.var([block_mean(block) for block in blocks], ddof=1) - noise))
    return Spread(math.sqrt(max(float(np.mean(between)), 0.0)), math.sqrt(within)) if between else None


# --- tests and intervals --------------------------------------------------------------------------------------------


def sign_flip(means: Floats, rng: np.random.Generator) -> float:
    """P-value, two-sided, of operators' mean differences: which sign each has is chance where the arms are equal.

    All patterns of signs are tried, or FLIPS of them where there are more.
    """
    if len(means) < 2:
        return 1.0
    result = stats.permutation_test(
        (means,), lambda x, axis: np.mean(x, axis=axis), permutation_type="samples", vectorized=True,
        n_resamples=FLIPS, batch=FLIPS, rng=rng,
    )  # fmt: skip
    return float(min(result.pvalue, 1.0))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction (Scandinavian Journal of Statistics 6, 1979), in the order given."""
    order, count, largest, found = np.argsort(p_values), len(p_values), 0.0, [1.0] * len(p_values)
    for rank, place in enumerate(order):
        found[place] = largest = max(largest, min(1.0, (count - rank) * p_values[place]))
    return found


def hierarchical_interval(blocks: Sequence[Block], rng: np.random.Generator) -> tuple[Floats, Floats]:
    """95 % interval of the mean over operators: operators are resampled, and within each the seeds of every task.

    Of values that are arrays, pointwise. It is the percentile interval, widened as Student's law asks for few operators
    (Hesterberg, "What teachers should know about the bootstrap", The American Statistician 69, 2015, expanded
    percentile). Infinite for fewer than LEAST_BLOCKS operators.
    """
    count, width = len(blocks), blocks[0][0].shape[1] if blocks else 1
    if count < LEAST_BLOCKS:
        return np.full(width, -np.inf), np.full(width, np.inf)
    drawn = np.stack([_redrawn(block, rng) for block in blocks])
    tail = stats.norm.cdf(-math.sqrt(count / (count - 1)) * stats.t.ppf((1 + LEVEL) / 2, count - 1))

    def mean(index: NDArray[np.int64], axis: int) -> Floats:
        which = rng.integers(REDRAWN, size=index.shape[1:])
        column = np.arange(width).reshape(-1, *(1 for _ in index.shape[1:]))
        return np.asarray(drawn[index, which, column].mean(axis=axis))

    every = np.broadcast_to(np.arange(count), (width, count))
    result = stats.bootstrap(
        (every,), mean, axis=-1, vectorized=True, n_resamples=RESAMPLES, batch=BATCH, method="percentile",
        confidence_level=1 - 2 * tail, rng=rng,
    )  # fmt: skip
    return np.asarray(result.confidence_interval.low), np.asarray(result.confidence_interval.high)


def blocked(values: Mapping[_Key, Floats]) -> list[Block]:
    """Values of cells, by operator, task and seed, as blocks: one per operator."""
    found: defaultdict[str, defaultdict[str, list[Floats]]] = defaultdict(lambda: defaultdict(list))
    for (operator, task, _), value in sorted(values.items(), key=lambda each: each[0]):
        found[operator][task].append(value)
    return [[np.stack(seeds) for seeds in tasks.values()] for tasks in found.values()]


def block_mean(block: Block) -> Any:
    """An operator's mean over its tasks of the mean over their seeds; a number, or an array of several."""
    mean = np.mean([seeds.mean(axis=0) for seeds in block], axis=0)
    return float(mean[0]) if mean.shape == (1,) else mean


def _redrawn(block: Block, rng: np.random.Generator) -> Floats:
    """An operator's mean with other seeds, REDRAWN times."""
    drawn = [seeds[rng.integers(len(seeds), size=(REDRAWN, len(seeds)))].mean(axis=1) for seeds in block]
    return np.asarray(np.mean(drawn, axis=0))


# --- what they are made of ------------------------------------------------------------------------------------------


def _effect(arm: str, reference: str, own: _Cells, theirs: _Cells, arms: int, rng: np.random.Generator) -> Effect:
    """All but what depends on the other arms."""
    pairs = {key: (own[key], theirs[key]) for key in own if key in theirs}
    blocks = blocked({key: _values(mine.log_speedup - its.log_speedup) for key, (mine, its) in pairs.items()})
    errors = blocked(
        {key: _values(math.hypot(mine.log_speedup_se, its.log_speedup_se)) for key, (mine, its) in pairs.items()}
    )
    means = _values(*(block_mean(block) for block in blocks))
    (low,), (high,) = hierarchical_interval(blocks, rng)
    sd = float(np.std(means, ddof=1)) if len(means) > 1 else math.nan
    seen = detectable(sd, len(means), arms) if len(means) > 1 else math.inf
    return Effect(
        arm, reference, len(means), len(pairs), len(own) + len(theirs) - 2 * len(pairs),
        float(means.mean()) if len(means) else 0.0, float(low), float(high), sign_flip(means, rng), 1.0, sd, seen,
        _error_of_mean(errors), Verdict.OPEN,
    )  # fmt: skip


def _verdict(effect: Effect, p_holm: float, registered: float) -> Verdict:
    if p_holm <= ALPHA:
        return Verdict.FASTER if effect.log_ratio > 0 else Verdict.SLOWER
    within = -registered < effect.low and effect.high < registered
    return Verdict.EQUAL if within and effect.detectable <= registered else Verdict.OPEN


def _summary(arm: str, own: _Cells, rng: np.random.Generator) -> Summary:
    logs = blocked({key: _values(one.log_speedup) for key, one in own.items()})
    (low,), (high,) = hierarchical_interval(logs, rng)
    tasks = [float(seeds.mean()) for block in logs for seeds in block]
    return Summary(
        arm, len(logs), len(tasks), len(own),
        correct=_share(own, lambda one: one.correct),
        geometric_mean=math.exp(_mean(logs)), low=math.exp(float(low)), high=math.exp(float(high)),
        median=math.exp(float(np.median(tasks))),
        above={factor: _share(own, partial(_is_above, factor)) for factor in FACTORS},
        score=float(np.median([one.score for one in own.values()])),
        fast={tau: _share(own, partial(_is_fast, tau)) for tau in THRESHOLDS},
    )  # fmt: skip


def _is_above(factor: float, one: Outcome) -> bool:
    return one.correct and one.speedup > factor


def _is_fast(tau: float, one: Outcome) -> bool:
    return one.score >= tau


def _share(own: _Cells, has: Callable[[Outcome], bool]) -> float:
    return _mean(blocked({key: _values(float(has(one))) for key, one in own.items()}))


def _mean(blocks: Sequence[Block]) -> float:
    return float(np.mean([block_mean(block) for block in blocks]))


def _error_of_mean(blocks: Sequence[Block]) -> float:
    """The standard error of the mean over operators, from the standard errors of cells."""
    if not blocks:
        return 0.0
    variances = [
        sum(float((seeds**2).sum()) / len(seeds) ** 2 for seeds in block) / len(block) ** 2 for block in blocks
    ]
    return math.sqrt(sum(variances)) / len(blocks)


def _by_arm(outcomes: Iterable[Outcome]) -> dict[str, _Cells]:
    """In the order of their names, so that what is resampled does not hang on the order of outcomes."""
    found: defaultdict[str, _Cells] = defaultdict(dict)
    for one in sorted(outcomes, key=lambda one: one.arm):
        found[one.arm][one.operator, one.task, one.seed] = one
    return dict(found)


def _values(*numbers: float) -> Floats:
    return np.array(numbers, dtype=np.float64)
