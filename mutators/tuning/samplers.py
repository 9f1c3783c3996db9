"""The samplers of Optuna that may choose values for tunables: our own, and those it is measured against.

`tests.bench.tuning` plays searches with each on tables of kernels that were measured whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import BaseSampler, GPSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from mutators.tuning.space import Setting, Space

optuna.logging.set_verbosity(optuna.logging.ERROR)

REACH = 2.0
"""Steps between values over which what they bring is alike."""
ADDITIVE = 0.7
"""Part of the variance that each tunable accounts for by itself."""
NOISE = 0.05
"""Variance of a measurement, as a part of that between settings."""
FIRST = 2
"""Measured settings that Optuna's own samplers go by; with fewer they draw at random."""


class Surrogate(BaseSampler):
    """A Gaussian process over the grid of all tunables, for few trials and spaces of which it is known what fits.

    Its covariance is that of functions that mostly add up what each tunable brings by itself, and else depend on all
    of them together; values that are neighbours in their order are alike (an Ornstein-Uhlenbeck covariance of their
    distance). It takes the setting with the greatest expected improvement (Jones, Schonlau and Welch 1998,
    doi 10.1023/A:1008306431147) among those that fit and are in no trial of the study yet. Unlike Optuna's samplers
    it counts failed trials, as the worst that is known, and running ones, too. Its constants were chosen on the tables
    of `tests.bench.tuning`.
    """

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._random = Random(seed)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return all tunables: they are chosen together."""
        return distributions(self._space)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the positions of the best setting; nothing where none fits that is in no trial."""
        earlier = [each for each in study.get_trials(deepcopy=False) if each.params and each.number != trial.number]
        known = {setting_of(each, self._space): each.value for each in earlier}
        measured = {setting: value for setting, value in known.items() if value is not None}
        centre = max(measured, key=measured.__getitem__, default=self._space.default)
        candidates = [setting for setting in self._space.candidates(centre, self._random) if setting not in known]
        self._random.shuffle(candidates)
        ranked = most_promising(known, candidates)
        chosen = next((setting for setting in ranked if not self._space.problem(setting)), None)
        return positions(chosen, self._space) if chosen else {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return the position of the least value: nothing is left that fits, and the study's owner has to see that."""
        return 0


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


SAMPLERS: dict[str, Callable[[Space, int], BaseSampler]] = {
    "surrogate": Surrogate,
    "tpe": lambda _, seed: TPESampler(seed=seed, multivariate=True, n_startup_trials=FIRST),
    "gp": lambda _, seed: GPSampler(seed=seed, n_startup_trials=FIRST, warn_independent_sampling=False),
}
"""By name, makers of a sampler for one question to a study, with a seed of at most 32 bits."""


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Return Optuna's form of the space: the position of each tunable's value among its sorted values."""
    return {name: IntDistribution(0, size - 1) for name, size in zip(space.names, space.sizes, strict=True)}


def positions(setting: Setting, space: Space) -> dict[str, int]:
    """Return Optuna's form of a setting."""
    return dict(zip(space.names, setting, strict=True))


def trial_of(setting: Setting, space: Space, state: TrialState, value: float | None = None) -> FrozenTrial:
    """Return a trial of the setting for a study to add."""
    params, axes = positions(setting, space), distributions(space)
    return create_trial(state=state, value=value, params=params, distributions=axes)


def setting_of(trial: FrozenTrial | Trial, space: Space) -> Setting:
    """Return the setting that a trial is of."""
    return tuple(trial.params[name] for name in space.names)
