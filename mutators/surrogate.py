"""A model of what settings of tunables bring, from few trials: a Gaussian process over their grid.

Its covariance is that of functions that mostly add up what each tunable brings by itself, and else depend on all of
them together; values that are neighbours in their order are alike (an Ornstein-Uhlenbeck covariance of their distance).
The next setting is the one with the greatest expected improvement (Jones, Schonlau and Welch 1998,
doi 10.1023/A:1008306431147). Its constants were chosen on tables of kernels measured whole: `tests.bench.tuning`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

Setting = tuple[int, ...]
"""Positions in the sorted values of each tunable."""

REACH = 2.0
"""Steps between values over which what they bring is alike."""
ADDITIVE = 0.7
"""Part of the variance that each tunable accounts for by itself."""
NOISE = 0.05
"""Variance of a measurement, as a part of that between settings."""


def most_promising(known: Mapping[Setting, float | None], candidates: Sequence[Setting]) -> list[Setting]:
    """Return the candidates, those with the greatest expected improvement first, equals as they come.

    `known` are log speedups, None for settings that failed or are under way: they count like the worst that is known.
    """
    measured = [value for value in known.values() if value is not None]
    if not measured or not candidates:
        return list(candidates)
    worst = min(measured)
    tried, untried = np.array(list(known)), np.array(candidates)
    values = np.array([worst if value is None else value for value in known.values()])
    scaled = (values - values.mean()) / (values.std() or 1.0)
    across = _covariance(untried, tried)
    inverse = np.linalg.inv(_covariance(tried, tried) + NOISE * np.eye(len(tried)))
    mean = across @ inverse @ scaled
    deviation = np.sqrt(np.maximum(1.0 - np.einsum("ij,jk,ik->i", across, inverse, across), 1e-9))
    gain = mean - scaled.max()
    z = gain / deviation
    below = 0.5 * (1.0 + np.array([math.erf(each / math.sqrt(2.0)) for each in z]))
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    order = np.argsort(-(gain * below + deviation * density), kind="stable")
    return [candidates[number] for number in order]


def _covariance(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    alike = np.exp(-np.abs(some[:, None, :] - others[None, :, :]) / REACH)
    covariance: np.ndarray = ADDITIVE * alike.mean(axis=-1) + (1.0 - ADDITIVE) * alike.prod(axis=-1)
    return covariance
