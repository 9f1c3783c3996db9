"""What a comparison concludes, from what was judged anew so far: arms by themselves, and beside the reference."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evo.compare.config import Comparison
from evo.compare.inference import Effect, Outcome, Summary, Verdict, effects, summaries
from evo.compare.judgement import JudgedCell, outcomes
from evo.compare.power import detectable, least_operators, nothing_concluded
from operators.identity import digest


@dataclass(frozen=True)
class Conclusions:
    """Of one comparison. The same outcomes lead to the same figures: what is resampled is drawn from its name."""

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
        """What is to be known of the table, in words."""
        yield (
            f"{self.judged} of {self.cells} cells judged anew; ratio: beside {self.reference}, with a 95 % interval; "
            f"p: sign-flip test over operators, Holm over arms; seen_from: the smallest ratio that would have been "
            f"told from chance at 80 % power; registered: x{1 + self.difference:.3g}"
        )
        if still := [effect.arm for effect in self.effects if effect.verdict is Verdict.OPEN]:
            yield f"no verdict: {', '.join(still)}"
        if self.effects and (why := nothing_concluded(max(e.operators for e in self.effects), self.tested)):
            yield why
            yield from self._with_enough()

    def _with_enough(self) -> Iterator[str]:
        """What as many operators as the test needs would have told, if they differed as these do."""
        arms = max(len(self.tested), 1)
        needed = least_operators(arms)
        for effect in self.effects:
            if effect.operators > 1:
                seen = math.exp(detectable(effect.sd, needed, arms))
                yield f"{effect.arm}: {needed} operators that differ as these {effect.operators} would show x{seen:.3g}"


def conclusions(made: Comparison, cells: Sequence[JudgedCell]) -> Conclusions:
    """What the judged ones of these cells say."""
    return concluded(made, outcomes(cells), len(cells))


def concluded(made: Comparison, found: Sequence[Outcome], cells: int) -> Conclusions:
    """What these outcomes say, in whatever order, of a comparison with so many cells."""
    reference, rng = made.reference_arm, resampling(made)
    known = any(outcome.arm == reference for outcome in found)
    return Conclusions(
        reference, made.difference, summaries(found, rng),
        effects(found, reference, made.difference, rng, made.tested) if known else [], cells, len(found), made.tested,
    )  # fmt: skip


def resampling(made: Comparison) -> np.random.Generator:
    """Of all that is resampled in a comparison, drawn from its name: whoever asks again gets the same figures."""
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
