"""Normalization by mean and variance, along one axis of a matrix."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from operators.dtypes import DType, least_deviation
from operators.shared.errors import ROOT_ULPS


def standardized(x: Tensor, eps: float, axis: int) -> Tensor:
    """(x - mean) / sqrt(variance + eps); the variance is that of deviations, not of squares less the squared mean."""
    deviation = x - x.mean(dim=axis, keepdim=True)
    return deviation * torch.rsqrt((deviation * deviation).mean(dim=axis, keepdim=True) + eps)


def affine_magnitude(x: Tensor, weight: Tensor, bias: Tensor, eps: float, axis: int) -> Tensor:
    """S of weight * standardized + bias, for `terms` = the length of the axis.

    The mean is off by roundoffs of the mean magnitude, as many as the bound's factor has; so is every deviation. Of
    the variance, whose terms are positive, the mean's error moves nothing but by its square; the root halves what the
    sum of squares is off by. Constants are roundoffs over that factor, halved. Vendors round bias - mean * a for
    x * a + (bias - mean * a).
    """
    terms = x.shape[axis]
    deviation = x - x.mean(dim=axis, keepdim=True)
    variance = (deviation * deviation).mean(dim=axis, keepdim=True) + eps
    of_mean = x.abs().mean(dim=axis, keepdim=True)
    own = (4 / 2 + 2 * ROOT_ULPS + 3) / (2 * math.sqrt(terms))
    scale = weight.abs() * torch.rsqrt(variance)
    product = scale * (of_mean * (1 + 1 / math.sqrt(terms)) + deviation.abs() * (1 / 2 + own))
    return product + bias.abs() / (2 * math.sqrt(terms))


def far_from_zero(x: Tensor, axis: int, dtype: DType, rng: np.random.Generator, *, otherwise: Tensor) -> Tensor:
    """Half of the lines along the axis, moved away from zero until their deviations are small beside them.

    A variance that is the mean of squares less the squared mean has few digits there, or none. The other lines are
    those of `otherwise`.
    """
    lines = (len(x), 1) if axis == 1 else (1, x.shape[1])
    most = max(-math.log2(least_deviation(x.shape[axis], dtype)), 0.0)
    distance = torch.from_numpy(rng.choice([-1.0, 1.0], lines) * 2.0 ** rng.uniform(0, most, lines))
    moved = (x + distance * x.double().std(axis, correction=0, keepdim=True)).to(x.dtype)
    return torch.where(torch.from_numpy(rng.random(lines) < 0.5), moved, otherwise)
