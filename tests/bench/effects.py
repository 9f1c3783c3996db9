"""Conclusions of the statistics of comparisons where the truth is known: false claims, power, coverage of intervals.

    python -m tests.bench.effects --comparisons 200

Each comparison is one of scripted models: an arm's cell draws so many answers, each right or not, each right one with
a speedup that depends on the operator, on how well the arm suits it, and on luck; its winner is the best, or naive, and
is measured anew with an error. `equal`: no arm is better than the reference. `better`: one of the arms is. `planned`:
its advantage is what the plan says is seen at 80 % power. The true effect is that of THOUSANDS of operators.
Prints JSON, shares with 95 % intervals (Wilson).
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from evo.compare.inference import Effect, Outcome, Spread, Verdict, detectable, effects, spread

REFERENCE = "reference"
THOUSANDS = 4000


@dataclass(frozen=True)
class World:
    """Scripted models and the comparison that they are in; speedups as logarithms."""

    operators: int = 12
    tasks: int = 1
    seeds: int = 3
    arms: int = 3
    """Arms beside the reference; only the first of them may be better."""
    advantage: float = 0.0
    answers: int = 8
    right: float = 0.3
    """Share of answers that are right."""
    operator_sd: float = 0.5
    suits_sd: float = 0.15
    """Standard deviation of an arm's effect from operator to operator, beside the advantage."""
    answer_sd: float = 0.3
    error_sd: float = 0.01

    def outcomes(self, rng: np.random.Generator) -> list[Outcome]:
        """One comparison."""
        return [outcome for number in range(self.operators) for outcome in self._operator(number, rng)]

    def _operator(self, number: int, rng: np.random.Generator) -> Iterator[Outcome]:
        ease = 0.2 + self.operator_sd * rng.standard_normal()
        for arm in range(-1, self.arms):
            suits = ease + self.suits_sd * rng.standard_normal() + (self.advantage if arm == 0 else 0.0)
            for task in range(self.tasks):
                for seed in range(self.seeds):
                    answers = suits + self.answer_sd * rng.standard_normal(self.answers)
                    right = answers[rng.random(self.answers) < self.right]
                    yield self._judged(f"arm{arm}" if arm >= 0 else REFERENCE, number, task, seed, right, rng)

    def _judged(
        self, arm: str, operator: int, task: int, seed: int, right: np.ndarray, rng: np.random.Generator
    ) -> Outcome:
        cell = Outcome(arm, f"operator{operator:04}", f"task{operator:04}.{task}", seed)
        if not len(right) or right.max() <= 0:  # it failed, or naive itself is the winner
            return cell
        measured = float(right.max() + self.error_sd * rng.standard_normal())
        return replace(cell, correct=True, log_speedup=measured, log_speedup_se=self.error_sd)

    def truth(self, rng: np.random.Generator) -> tuple[list[float], Spread]:
        """The true effect of every arm, and how much cells of the first one and the reference vary."""
        large = replace(self, operators=THOUSANDS).outcomes(rng)
        found = {arm: [one.log_speedup for one in large if one.arm == arm] for arm in {one.arm for one in large}}
        known = spread([one for one in large if one.arm in (REFERENCE, "arm0")], REFERENCE)
        assert known
        return [float(np.mean(found[f"arm{n}"]) - np.mean(found[REFERENCE])) for n in range(self.arms)], known


def simulated(world: World, count: int, difference: float, rng: np.random.Generator) -> Iterator[list[Effect]]:
    """The conclusions of each of this many comparisons on its arms, in their order."""
    for _ in range(count):
        yield sorted(effects(world.outcomes(rng), REFERENCE, difference, rng), key=lambda effect: effect.arm)


def summary(world: World, count: int, difference: float, seed: int) -> dict[str, object]:
    """The conclusions of this many comparisons, beside the truth."""
    rng = np.random.default_rng(seed)
    truth, known = world.truth(rng)
    truth = [truth[0] if world.advantage else 0.0, *(0.0 for _ in truth[1:])]
    found = list(simulated(world, count, difference, rng))
    nulls = [arms[1:] if world.advantage else arms for arms in found]
    first = [arms[0] for arms in found]
    inside = [each.low <= true <= each.high for arms in found for each, true in zip(arms, truth, strict=True)]
    sd = known.of_operator(world.tasks, world.seeds)
    return {
        "comparisons": count,
        "true_effect": round(math.expm1(truth[0]), 4),
        "planned_detectable": round(math.expm1(detectable(sd, world.operators, world.arms)), 4),
        "median_detectable": round(math.expm1(float(np.median([each.detectable for each in first]))), 4),
        "told_first_from_reference": share([_is_told(each) for each in first]),
        "told_first_wrongly": share([each.verdict is Verdict.SLOWER for each in first]),
        "any_false_claim": share([any(map(_is_told, arms)) for arms in nulls]),
        "called_equal": share([each.verdict is Verdict.EQUAL for arms in found for each in arms]),
        "interval_holds_truth": share(inside),
        "median_half_width": round(math.expm1(float(np.median([(e.high - e.low) / 2 for e in first]))), 4),
    }


def share(hits: Sequence[bool]) -> dict[str, object]:
    """The share of hits, with its 95 % interval."""
    low, high = stats.binomtest(sum(hits), len(hits)).proportion_ci(method="wilson")
    return {"of": len(hits), "share": round(sum(hits) / len(hits), 4), "share_95": [round(low, 4), round(high, 4)]}


def worlds(base: World, seed: int) -> dict[str, World]:
    """Those of the bench."""
    rng = np.random.default_rng(seed)
    planned = replace(base, advantage=math.log(1.5))
    for _ in range(4):  # failures and the naive kernel take a part of an advantage
        (truth, *_), known = planned.truth(rng)
        wanted = detectable(known.of_operator(base.tasks, base.seeds), base.operators, base.arms)
        planned = replace(planned, advantage=planned.advantage * wanted / truth)
    return {
        "equal": base,
        "better": replace(base, advantage=math.log(1.5)),
        "planned": planned,
    }


def _is_told(effect: Effect) -> bool:
    return effect.verdict in (Verdict.FASTER, Verdict.SLOWER)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--comparisons", type=int, default=200, help="of each world")
    parser.add_argument("--operators", type=int, default=World.operators)
    parser.add_argument("--tasks", type=int, default=World.tasks, help="of each operator")
    parser.add_argument("--seeds", type=int, default=World.seeds)
    parser.add_argument("--arms", type=int, default=World.arms, help="beside the reference")
    parser.add_argument("--difference", type=float, default=0.1, help="the registered one")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    base = World(given.operators, given.tasks, given.seeds, given.arms)
    found: dict[str, object] = {"operators": base.operators, "seeds": base.seeds, "arms": base.arms}
    for name, world in worlds(base, given.seed).items():
        found[name] = summary(world, given.comparisons, given.difference, given.seed)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
