"""Conclusions of the statistics of comparisons where the truth is known: false claims, power, coverage of intervals.

    python -m tests.bench.effects              # three minutes of a processor
    python -m tests.bench.effects --arms 5 --laws normal families

Each comparison has an arm beside the reference; a cell's winner is as fast as its operator is easy, as its arm suits
the operator, and as luck has it from seed to seed. Arms suit operators by one of the laws LAWS, each of mean 0:
`normal`; `t2.2`, whose variance is barely finite; `pareto` and `skewed`, where most operators lose a little and few win
much; `families`, where operators of a family are alike. `nothing` has winners in one operator alone. Where an arm is
better, it is so by `--advantage` at every operator besides. Prints a table: of arms of equal means the share that is
called faster or slower (`false`; of several arms that of any), and the share where that is false of most operators too
(`of most`), as it need not be where a law has no symmetry; the share called equal; the coverage of intervals of mean
and median; the power; and the share of all verdicts that their own interval contradicts.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from evo.compare.inference import ArmVerdict, Effect, Outcome, effects

REFERENCE = "reference"
LAWS = ("normal", "t2.2", "pareto", "skewed", "families", "nothing")
TAIL = 2.5
"""Exponent of the Pareto law."""
RARE = 0.1
"""Share of operators of the law `skewed` at which the arm wins."""
FAMILIES = {8: 6, 20: 7, 50: 9}
"""Families of so many operators, in the law `families`."""


@dataclass(frozen=True)
class World:
    """One comparison of scripted arms; speedups as logarithms."""

    operators: int = 12
    seeds: int = 3
    law: str = "normal"
    families: int = 0
    """Number of families of operators, all of about one size; 0: each operator is one by itself."""
    arms: int = 1
    """Arms beside the reference; only the first of them may be better."""
    advantage: float = 0.0
    suits_sd: float = 0.15
    """Standard deviation of an arm's effect from operator to operator, beside the advantage; that of `pareto` and
    `t2.2` is the deviation of the same law scaled."""
    seed_sd: float = 0.1
    error_sd: float = 0.01

    @property
    def family_of(self) -> Mapping[str, str]:
        """The family of every operator."""
        return {_name(n): f"family{n % self.families if self.families else n}" for n in range(self.operators)}

    @property
    def median(self) -> float:
        """The median over operators of what is seen of an arm that is not better."""
        if self.law not in ("pareto", "skewed"):
            return 0.0
        rng, count = np.random.default_rng(0), 100_001
        noise = math.sqrt(2 * (self.seed_sd**2 + self.error_sd**2) / self.seeds) * rng.standard_normal(count)
        return float(np.median(self._suits(count, rng) + noise))

    def outcomes(self, rng: np.random.Generator) -> list[Outcome]:
        """One comparison."""
        found = []
        for arm in range(-1, self.arms):
            suits = self._suits(self.operators, rng) if arm >= 0 else np.zeros(self.operators)
            level = 1.0 + suits + (self.advantage if arm == 0 else 0.0)
            noise = math.hypot(self.seed_sd, self.error_sd) * rng.standard_normal((self.operators, self.seeds))
            for operator, row in enumerate((level[:, None] + noise).tolist()):
                for seed, value in enumerate(row):
                    found.append(self._cell(f"arm{arm}" if arm >= 0 else REFERENCE, operator, seed, value))
        return found

    def _cell(self, arm: str, operator: int, seed: int, value: float) -> Outcome:
        cell = Outcome(arm, _name(operator), f"{_name(operator)}/fp32/cpu", seed)
        if self.law == "nothing" and operator:
            return cell
        return replace(cell, has_winner=True, log_speedup=value, log_speedup_se=self.error_sd)

    def _suits(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """The effects of an arm at this many operators."""
        match self.law:
            case "t2.2":
                return self.suits_sd * rng.standard_t(2.2, count)
            case "pareto":
                return self.suits_sd * (rng.pareto(TAIL, count) - 1 / (TAIL - 1))
            case "skewed":
                return self.suits_sd * np.where(rng.random(count) < RARE, (1 - RARE) / RARE, -1.0)
            case "families":
                shared = rng.standard_normal(count)[np.arange(count) % self.families]
                return self.suits_sd * (0.95 * shared + 0.3 * rng.standard_normal(count))
        return self.suits_sd * rng.standard_normal(count)


def _name(operator: int) -> str:
    return f"operator{operator:04}"


def simulated(world: World, count: int, difference: float, rng: np.random.Generator) -> Iterator[list[Effect]]:
    """The conclusions of each of this many comparisons on its arms, in their order."""
    for _ in range(count):
        found = effects(world.outcomes(rng), REFERENCE, difference, world.family_of)
        yield sorted(found, key=lambda effect: effect.arm)


def share(hits: Sequence[bool]) -> float:
    """The share of hits; NaN of none."""
    return sum(hits) / len(hits) if hits else math.nan


def is_told(effect: Effect) -> bool:
    """Whether an arm is called faster or slower."""
    return effect.verdict in (ArmVerdict.FASTER, ArmVerdict.SLOWER)


def contradicted(effect: Effect) -> bool:
    """Whether its interval says another thing than its verdict."""
    return is_told(effect) and effect.low <= 0 <= effect.high


def row(world: World, count: int, difference: float, advantage: float, seed: int) -> dict[str, float]:
    """The figures of one world, of equal arms and of one that is better."""
    rng = np.random.default_rng(seed)
    alike = [*simulated(world, count, difference, rng)]
    equal = [arms[0] for arms in alike]
    better = [arms[0] for arms in simulated(replace(world, advantage=advantage), count, difference, rng)]
    median = world.median
    told = [effect for effect in (*equal, *better) if is_told(effect)]
    of_most = [is_told(e) and (not median or (e.log_ratio > 0) != (median > 0)) for e in equal]
    return {
        "false": share([any(map(is_told, arms)) for arms in alike]),
        "of most": share(of_most),
        "equal": share([e.verdict is ArmVerdict.EQUAL for e in equal]),
        "covers": share([e.low <= 0 <= e.high for e in equal]),
        "median": share([e.median_low <= median <= e.median_high for e in equal]),
        "power": share([e.verdict is ArmVerdict.FASTER for e in better]),
        "contra": share([contradicted(e) for e in told]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comparisons", type=int, default=400, help="of each law, size and truth")
    parser.add_argument("--operators", type=int, nargs="+", default=[8, 20, 50])
    parser.add_argument("--seeds", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--arms", type=int, default=1, help="beside the reference")
    parser.add_argument("--laws", nargs="+", default=LAWS, choices=LAWS)
    parser.add_argument("--advantage", type=float, default=0.2, help="as a share")
    parser.add_argument("--difference", type=float, default=0.1, help="the registered one")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    began, head = time.monotonic(), ""
    for law in given.laws:
        for operators in given.operators:
            for seeds in given.seeds:
                families = FAMILIES.get(operators, 6) if law == "families" else 0
                world = World(operators, seeds, law, families, given.arms)
                found = row(world, given.comparisons, given.difference, math.log1p(given.advantage), given.seed)
                if not head:
                    head = "law       operators seeds " + " ".join(f"{name:>8}" for name in found)
                    print(head)
                print(
                    f"{law:9} {operators:9} {seeds:5} " + " ".join(f"{100 * x:7.1f}%" for x in found.values()),
                    flush=True,
                )
    print(f"{given.comparisons} comparisons of each, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
