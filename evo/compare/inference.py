"""Statistics on the re-judged winners of a comparison. Pure functions; nothing is read or written.

The primary endpoint of every comparison is ln(speedup over naive) of the re-judged winner at an equal budget; a cell
without a correct winner of its own counts as naive, which is what its user is left with. Each arm is compared with the
reference arm, cell by cell at the same task and seed. The differences of an operator's tasks (its dtypes and targets)
and of their seeds are averaged first, and the effect is the mean over operators, each with one vote.

Chance is over families of operators, since what suits one matrix product suits the next: the test flips the signs of
whole families. The interval holds all effects that the test does not reject, so that the two cannot disagree: an arm is
faster or slower where its interval leaves out 1x, and equal where it lies within the registered difference. With m arms
that verdicts are given of, each interval is of the level 1 - ALPHA / m (Bonferroni), so that all of them hold at once.
The errors of the judgement's measurements are part of what differs between seeds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats

ALPHA = 0.05
"""The error rate of all arms of a comparison together."""
POWER = 0.8
MOST_EXACT = 14
"""Most families of which all patterns of signs are tried; of more FLIPS of them are."""
FLIPS = 9999
EXACT_POWER = 12
"""Most families of which the power is the test's own on normal differences; of more Student's law is as good."""
DRAWS = 1000
MOST_OPERATORS = 200
MOST_SEEDS = 32
DIGITS = 12
"""Decimal places of log ratios; what differs by less is the same, so that ties are ties."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Spread:
    """Variation of ln(speedup), as standard deviations."""

    operators: float
    """The deviation of two arms' true difference from operator to operator, within a family."""
    seeds: float
    """The deviation of one arm's winner at one task from seed to seed."""
    families: float = 0.0
    """The deviation of what the operators of a family have in common."""

    def error(self, families: int, operators: int, tasks: float, seeds: float) -> float:
        """The standard error of an effect at so many operators, with so many tasks each."""
        each = self.operators**2 + 2 * self.seeds**2 / (tasks * seeds)
        return math.sqrt(self.families**2 / families + each / operators)


@dataclass(frozen=True)
class Size:
    """A size of comparison, and what it would show."""

    operators: int
    families: int
    seeds: int
    detectable: float
    """Smallest difference seen at 80 % power, a log ratio; infinite: none, however large."""


def least_families(arms: int) -> int:
    """The number of families from which any difference can be told from chance, with this many arms beside the
    reference.

    Of n families the test has 2^n patterns of signs, so no p-value is below 2^(1-n), and each arm needs ALPHA / arms.
    """
    return math.ceil(1 - math.log2(ALPHA / arms))


def nothing_concluded(families: int, tested: Sequence[str]) -> str:
    """Why a comparison at operators of so many families gives no verdict of any arm, in words; empty: it may."""
    arms = max(len(tested), 1)
    few = (
        f"the test over families of operators needs {least_families(arms)} for {arms} arm{'s' * (arms > 1)} "
        f"(2^(1-n) <= {ALPHA:g}/arms)"
        if families < least_families(arms)
        else ""
    )
    if not tested:
        return "it describes and concludes nothing: no arm is registered for a verdict" + (f"; {few}" if few else "")
    many = f"{families} famil{'y' if families == 1 else 'ies'}"
    return f"nothing can be concluded at operators of {many}, however large a difference is: {few}" if few else ""


def detectable(error: float, families: int, arms: int) -> float:
    """Return the smallest log ratio that is told from chance at POWER, where an effect has this standard error.

    Infinite: with so few families none is, however large.
    """
    if families < least_families(arms):
        return math.inf
    return error * _in_errors(families, ALPHA / arms)


def sizes(difference: float, spread: Spread, *, families: int, tasks: float, arms: int) -> Iterator[Size]:
    """For growing numbers of seeds, the fewest operators with which this log ratio would be seen.

    They are of as many families as the comparison has, or as a verdict takes where those are more. `tasks` are those of
    an operator. A number of seeds that spares no operator is left out, and so is one that asks for more than
    MOST_OPERATORS.
    """
    families = max(families, least_families(arms))
    last = MOST_OPERATORS + 1
    for seeds in range(1, MOST_SEEDS + 1):
        for operators in range(families, last):
            if (seen := detectable(spread.error(families, operators, tasks, seeds), families, arms)) <= difference:
                last = operators
                yield Size(operators, families, seeds, seen)
                break


@cache
def _in_errors(families: int, alpha: float) -> float:
    """The detectable difference as a multiple of its standard error.

    Beyond EXACT_POWER it is t_(1 - alpha/2) + t_POWER, of n - 1 degrees of freedom (Bloom, "Minimum detectable
    effects", Evaluation Review 19, 1995). Of few the test's p-values are coarse, which costs power: there it is found
    by trying the test on DRAWS normal samples.
    """
    if families > EXACT_POWER:
        law = stats.t(families - 1)
        return float(law.ppf(1 - alpha / 2) + law.ppf(POWER))
    noise, signs = np.random.default_rng(families).standard_normal((families, DRAWS)), _signs(families)
    low, high = 0.0, 16.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        flipped = np.abs(signs @ (noise + middle))
        p_values = (flipped >= flipped[0] * (1 - 1e-12)).mean(axis=0)
        low, high = (low, middle) if (p_values <= alpha).mean() >= POWER else (middle, high)
    return high * math.sqrt(families)


FACTORS = (1, 2, 4)
THRESHOLDS = (1, 2, 4, 8)
"""The thresholds of the score P."""

Block = Sequence[Floats]
"""The results of one operator: for each of its tasks a row per seed, of one value or several."""
_Key = tuple[str, str, int]
"""Operator, task and seed."""
Families = Mapping[str, str]
"""The family of an operator by its name; an operator without one is one by itself."""


@dataclass(frozen=True)
class Outcome:
    """The winner of one cell as it was judged anew. It raises ValueError for a failure that has a speed."""

    arm: str
    operator: str
    task: str
    """`operator/dtype/target`."""
    seed: int
    log_speedup: float = 0.0
    """ln(naive time / its time) at sizes that were drawn after the search; 0 for a failure."""
    log_speedup_se: float = 0.0
    searched: float = 0.0
    """The same at the sizes that were searched."""
    has_winner: bool = False
    """Whether the cell had a winner, other than the naive kernel itself, that passed the judgement."""
    times_us: tuple[tuple[float, float], ...] = ()
    """Times of naive and of the winner, for each workload that was searched."""

    def __post_init__(self) -> None:
        if not self.has_winner and (self.log_speedup or self.log_speedup_se or self.searched or self.times_us):
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
        if not self.has_winner:
            return 0.0
        if not self.times_us:
            return self.speedup
        return sum(naive * naive / own for naive, own in self.times_us) / sum(naive for naive, _ in self.times_us)


_Cells = dict[_Key, Outcome]


class ArmVerdict(StrEnum):
    """Verdict of a comparison on an arm beside the reference."""

    FASTER = "faster"
    SLOWER = "slower"
    EQUAL = "equal"
    """Any difference is less than the registered one, where winners were found."""
    OPEN = "open"
    """Neither: noise hides more than the registered difference, or it is about as large as that; or most operators are
    the other way round than their mean."""
    PENDING = "pending"
    """None before all cells are judged."""
    DESCRIBED = "described"
    """None is given: the arm is not among those that the comparison registered a verdict of."""


@dataclass(frozen=True)
class Effect:
    """An arm beside the reference. Ratios are logarithms; above 0 the arm is better."""

    arm: str
    reference: str
    families: int
    """Families of the operators that both arms have cells of."""
    operators: int
    pairs: int
    """Cells of the same task and seed that both arms have."""
    unpaired: int
    """Cells of either arm that the other one lacks; they do not count."""
    found: int
    """Pairs in which either arm has a winner; the others say nothing of which is faster."""
    log_ratio: float
    """Mean over operators of ln(winner's speedup / reference's winner's speedup)."""
    searched: float
    """The same at the sizes that were searched."""
    low: float
    high: float
    """All effects that the test does not reject; infinite where there are too few families for any to be."""
    median: float
    """Median over operators, where the mean is of few that differ much."""
    median_low: float
    median_high: float
    """The same of a test of the signs alone."""
    p: float
    """Corrected over the arms that verdicts are given of; NaN of the others, and before all is judged."""
    error: float
    """Standard error of the mean, from family to family; NaN of one."""
    detectable: float
    """Smallest difference that would have been told from chance at 80 % power; infinite: none, however large."""
    judging_se: float
    """The part of the standard error that the judgement's own measurements make."""
    verdict: ArmVerdict

    @property
    def scope(self) -> str:
        """The operators that faster or slower is said of, in words: at most of them where the median, whose test asks
        for no symmetry, leaves out 1x too."""
        of_most = (self.low > 0 and self.median_low > 0) or (self.high < 0 and self.median_high < 0)
        evenly = "if operators are as often above it as below (their median alone does not tell)"
        return "at most operators" if of_most else f"on average, {evenly}"

    @property
    def is_skewed(self) -> bool:
        """Whether most operators say another thing than their mean."""
        outside = not self.low <= self.median <= self.high or not self.median_low <= self.log_ratio <= self.median_high
        return outside or (self.low > 0 >= self.median) or (self.high < 0 <= self.median)


@dataclass(frozen=True)
class Summary:
    """One arm by itself. Each operator has one vote in shares and in the geometric mean, failures count as naive."""

    arm: str
    operators: int
    tasks: int
    cells: int
    with_winner: float
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
    families: Families,
    tested: Collection[str] | None = None,
    *,
    complete: bool = True,
) -> list[Effect]:
    """Each arm beside the reference, the best first.

    `difference` is the registered one, as a share: 0.1 says that a difference of 10 % matters. `tested` are the arms
    that verdicts were registered of, all of which the correction counts, with cells or without; None: all that there
    are. Another arm's interval and what would have been seen of it are what would have been as one of them. As long as
    not all is judged (`complete`) there are no intervals and no verdicts. It raises ValueError where the reference has
    no cell.
    """
    by_arm = _by_arm(outcomes)
    if reference not in by_arm:
        raise ValueError(f"arm {reference} has no cells")
    theirs = by_arm.pop(reference)
    wanted = set(by_arm if tested is None else tested)
    arms, registered = max(len(wanted), 1), math.log1p(difference)
    found = []
    for arm, own in by_arm.items():
        effect = _effect(arm, reference, own, theirs, families, arms, registered)
        if arm not in wanted:
            effect = replace(effect, p=math.nan, verdict=ArmVerdict.DESCRIBED)
        elif not complete:
            effect = replace(effect, p=math.nan, verdict=ArmVerdict.PENDING)
        if not complete:
            effect = replace(
                effect, low=-math.inf, high=math.inf, median_low=-math.inf, median_high=math.inf, detectable=math.inf
            )
        found.append(effect)
    return sorted(found, key=lambda effect: -effect.log_ratio)


def summaries(outcomes: Sequence[Outcome], families: Families) -> list[Summary]:
    """Each arm by itself, the fastest first."""
    found = [_summary(arm, own, families) for arm, own in _by_arm(outcomes).items()]
    return sorted(found, key=lambda summary: -summary.geometric_mean)


def spread(outcomes: Sequence[Outcome], reference: str, families: Families) -> Spread | None:
    """The variation of these outcomes, for the plan of a larger comparison; None where they cannot tell.

    Seeds by the variance within an arm's tasks, pooled; families and operators by an analysis of variance of the
    differences to the reference, less what seeds make of it, pooled over arms. Where each operator is the only one of
    its family, what families have in common is not told apart.
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
    found = []
    for own in by_arm.values():
        blocks = blocked({k: _values(own[k].log_speedup - theirs[k].log_speedup) for k in own if k in theirs})
        if len(blocks) > 1:
            noise = np.mean(
                [sum(2 * within / len(task) for task in block) / len(block) ** 2 for block in blocks.values()]
            )
            of_family, of_operator = _variances(blocks, families)
            found.append((of_family, of_operator - float(noise)))
    if not found:
        return None
    of_family, of_operator = np.maximum(np.mean(found, axis=0), 0.0)
    return Spread(math.sqrt(of_operator), math.sqrt(within), math.sqrt(of_family))


def _variances(blocks: Mapping[str, Block], families: Families) -> tuple[float, float]:
    """The variance between families and that of operators within them."""
    values, kin, counts = _families(blocks, families)
    values, total = values[:, 0], len(values)
    means = np.bincount(kin, values) / counts
    inner, outer = total - len(counts), len(counts) - 1
    if not inner or not outer:
        return 0.0, float(np.var(values, ddof=1))
    each = float(((values - means[kin]) ** 2).sum()) / inner
    between = float((counts * (means - values.mean()) ** 2).sum()) / outer
    return max((between - each) * outer / (total - float((counts**2).sum()) / total), 0.0), each


# --- tests and intervals --------------------------------------------------------------------------------------------


@cache
def _signs(families: int) -> Floats:
    """Patterns of signs of so many families, of two mirrored ones the first: all of them, or FLIPS; the first keeps all
    signs."""
    if families <= MOST_EXACT:
        bits = (np.arange(2 ** (families - 1))[:, None] >> np.arange(families)) & 1
        return 1 - 2 * bits.astype(np.float64)
    drawn = np.random.default_rng(families).integers(2, size=(FLIPS, families)).astype(np.float64)
    return np.concatenate([np.ones((1, families)), 1 - 2 * drawn])


def mean_interval(
    blocks: Mapping[str, Block], families: Families, alpha: float = ALPHA
) -> tuple[Floats, Floats, Floats]:
    """The interval of the mean over operators, and the p-value of 0; of values that are arrays, pointwise.

    The test takes the signs of families' differences from a shift as chance, and is exact where these are symmetric. A
    pattern of signs has as large a sum as the data for the shifts between two roots, which lie on either side of the
    mean; the share of patterns whose roots hold a shift is the shift's p-value. The interval is that of the shifts with
    a p-value above `alpha`, infinite where there are too few patterns for any other.
    """
    values, kin, counts = _families(blocks, families)
    sums = np.zeros((len(counts), values.shape[1]))
    np.add.at(sums, kin, values)
    signs = _signs(len(counts))
    flipped, votes = signs @ sums, (signs @ counts)[:, None]
    total, all_votes = sums.sum(axis=0), counts.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        roots = np.stack([(total - flipped) / (all_votes - votes), (total + flipped) / (all_votes + votes)])
    every = np.abs(votes[:, 0]) == all_votes  # the data themselves, and their mirror image: as large for any shift
    low, high = np.round(roots.min(axis=0), DIGITS), np.round(roots.max(axis=0), DIGITS)
    low[every], high[every] = -np.inf, np.inf
    p = ((low <= 0) & (high >= 0)).mean(axis=0)
    rejected = math.floor(alpha * len(signs) * (1 + 1e-9))  # so many patterns are too few
    return np.sort(low, axis=0)[rejected], np.sort(high, axis=0)[-1 - rejected], p


def median_interval(blocks: Mapping[str, Block], families: Families, alpha: float = ALPHA) -> tuple[float, float]:
    """The interval of the median over operators: of the shifts that a test of signs does not reject.

    It is as `mean_interval`, with the sign of an operator's difference from a shift in place of the difference. Of
    families of one operator it asks for no symmetry.
    """
    values, kin, counts = _families(blocks, families)
    order = np.argsort(values[:, 0], kind="stable")
    ends = np.array([-np.inf, *np.round(values[order, 0], DIGITS), np.inf])
    below = np.zeros((len(counts), len(ends) - 1))  # of each family, how many are below the gap behind an end
    np.add.at(below, (kin[order], np.arange(1, len(ends) - 1)), 1.0)
    balance = counts[:, None] - 2 * below.cumsum(axis=1)
    flipped = np.abs(_signs(len(counts)) @ balance)
    (kept,) = np.nonzero((flipped >= flipped[0]).mean(axis=0) > alpha * (1 + 1e-9))
    return float(ends[kept[0]]), float(ends[kept[-1] + 1])


def _families(blocks: Mapping[str, Block], families: Families) -> tuple[Floats, NDArray[np.int64], Floats]:
    """The operators' means, the number of each one's family, and how many operators each family has."""
    names = {name: families.get(name) or f"{name} alone" for name in blocks}
    _, kin, counts = np.unique([*names.values()], return_inverse=True, return_counts=True)
    return np.stack([np.atleast_1d(block_mean(block)) for block in blocks.values()]), kin, counts.astype(np.float64)


def blocked(values: Mapping[_Key, Floats]) -> dict[str, Block]:
    """Values of cells, by operator, task and seed, as one block per operator."""
    found: defaultdict[str, defaultdict[str, list[Floats]]] = defaultdict(lambda: defaultdict(list))
    for (operator, task, _), value in sorted(values.items(), key=lambda each: each[0]):
        found[operator][task].append(value)
    return {name: [np.stack(seeds) for seeds in tasks.values()] for name, tasks in found.items()}


def block_mean(block: Block) -> Floats:
    """An operator's mean over its tasks of the mean over their seeds."""
    return np.asarray(np.mean([seeds.mean(axis=0) for seeds in block], axis=0))


# --- what they are made of ------------------------------------------------------------------------------------------


def _effect(
    arm: str, reference: str, own: _Cells, theirs: _Cells, families: Families, arms: int, registered: float
) -> Effect:
    """An arm beside the reference, as one of `arms` that verdicts are given of, when all is judged."""
    pairs = {key: (own[key], theirs[key]) for key in own if key in theirs}
    found = {key for key, pair in pairs.items() if any(one.has_winner for one in pair)}
    unpaired = len(own) + len(theirs) - 2 * len(pairs)
    none = Effect(
        arm, reference, 0, 0, 0, unpaired, 0, 0.0, 0.0, -math.inf, math.inf, 0.0, -math.inf, math.inf, 1.0, math.nan,
        math.inf, 0.0, ArmVerdict.OPEN,
    )  # fmt: skip
    if not pairs:
        return none
    ratios = {key: _values(mine.log_speedup - its.log_speedup) for key, (mine, its) in pairs.items()}
    blocks, alpha = blocked(ratios), ALPHA / arms
    searched = blocked({key: _values(mine.searched - its.searched) for key, (mine, its) in pairs.items()})
    errors = blocked(
        {key: _values(math.hypot(mine.log_speedup_se, its.log_speedup_se)) for key, (mine, its) in pairs.items()}
    )
    means, kin, counts = _families(blocks, families)
    (low,), (high,), (p,) = mean_interval(blocks, families, alpha)
    median_low, median_high = median_interval(blocks, families, alpha)
    error = _standard_error(means[:, 0], kin)
    within = (float(low), float(high)) if len(found) == len(pairs) else (-math.inf, math.inf)
    if 0 < len(found) < len(pairs):
        (least,), (most,), _ = mean_interval(blocked({key: ratios[key] for key in found}), families, alpha)
        within = float(least), float(most)
    effect = replace(
        none, families=len(counts), operators=len(means), pairs=len(pairs), found=len(found),
        log_ratio=float(means.mean()), searched=_mean(searched), low=float(low), high=float(high),
        median=float(np.median(means)), median_low=median_low, median_high=median_high,
        p=min(arms * float(p), 1.0), error=error,
        detectable=detectable(error, len(counts), arms) if len(counts) > 1 else math.inf,
        judging_se=_error_of_mean(errors),
    )  # fmt: skip
    return replace(effect, verdict=_verdict(effect, within, registered))


def _verdict(effect: Effect, within: tuple[float, float], registered: float) -> ArmVerdict:
    """The verdict by the interval; `within` is that of the pairs in which a winner was found."""
    if effect.low > 0 or effect.high < 0:
        if effect.log_ratio * effect.median < 0:
            return ArmVerdict.OPEN
        return ArmVerdict.FASTER if effect.low > 0 else ArmVerdict.SLOWER
    return ArmVerdict.EQUAL if -registered < within[0] and within[1] < registered else ArmVerdict.OPEN


def _standard_error(means: Floats, kin: NDArray[np.int64]) -> float:
    """The standard error of operators' mean, robust to what families have in common; NaN of one family."""
    residuals = np.bincount(kin, means - means.mean())
    count = len(residuals)
    return math.sqrt(float((residuals**2).sum()) * count / (count - 1)) / len(means) if count > 1 else math.nan


def _summary(arm: str, own: _Cells, families: Families) -> Summary:
    logs = blocked({key: _values(one.log_speedup) for key, one in own.items()})
    (low,), (high,), _ = mean_interval(logs, families)
    tasks = [float(seeds.mean()) for block in logs.values() for seeds in block]
    return Summary(
        arm, len(logs), len(tasks), len(own),
        with_winner=_share({key: one.has_winner for key, one in own.items()}),
        geometric_mean=math.exp(_mean(logs)), low=math.exp(float(low)), high=math.exp(float(high)),
        median=math.exp(float(np.median(tasks))),
        above={
            factor: _share({key: one.has_winner and one.speedup > factor for key, one in own.items()})
            for factor in FACTORS
        },
        score=float(np.median([one.score for one in own.values()])),
        fast={tau: _share({key: one.score >= tau for key, one in own.items()}) for tau in THRESHOLDS},
    )  # fmt: skip


def _share(marks: Mapping[_Key, bool]) -> float:
    return _mean(blocked({key: _values(float(mark)) for key, mark in marks.items()}))


def _mean(blocks: Mapping[str, Block]) -> float:
    return float(np.mean([block_mean(block) for block in blocks.values()]))


def _error_of_mean(blocks: Mapping[str, Block]) -> float:
    """The standard error of the mean over operators, from the standard errors of cells."""
    variances = [
        sum(float((seeds**2).sum()) / len(seeds) ** 2 for seeds in block) / len(block) ** 2 for block in blocks.values()
    ]
    return math.sqrt(sum(variances)) / len(blocks)


def _by_arm(outcomes: Iterable[Outcome]) -> dict[str, _Cells]:
    """The outcomes of each arm, arms in the order of their names."""
    found: defaultdict[str, _Cells] = defaultdict(dict)
    for one in sorted(outcomes, key=lambda one: one.arm):
        found[one.arm][one.operator, one.task, one.seed] = one
    return dict(found)


def _values(*numbers: float) -> Floats:
    return np.array(numbers, dtype=np.float64)
