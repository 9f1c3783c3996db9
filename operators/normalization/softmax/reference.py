"""Row-wise softmax."""

from __future__ import annotations

import math

import torch
from torch import Tensor

EXP_ULPS = 4
"""What a fast single-precision exponential is off by at most: glibc's vector `expf`, or `exp2` of a scaled argument."""
UNIT_ROUNDOFF = 2.0**-24
NORMAL_MIN = 2.0**-126


def reference(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=1)


def magnitude(x: Tensor, outputs: dict[str, Tensor], cols: int) -> Tensor:
    """Relative error of y = e / s in units of the unit roundoff, halved, since the bound allows b = 2 of them.

    With d = |x - max|: the argument of the exponential carries d (subtraction) and up to 3 d more where `exp` is made
    of `exp2`, which exp turns into a relative error of the same size; the exponential itself is off by `EXP_ULPS`
    (2 roundoffs each); scaling costs two ulps. The sum averages the errors of its terms, adds sqrt(cols) of its own,
    which the bound has as a factor, and may lose terms that are too small beside it. A result that underflows may be
    flushed to zero.
    """
    y = outputs["y"]
    distance = x.amax(dim=1, keepdim=True) - x
    mean_distance = (y * distance).sum(dim=1, keepdim=True)
    lost = (y * (y < UNIT_ROUNDOFF)).sum(dim=1, keepdim=True) / UNIT_ROUNDOFF
    own = 2 * EXP_ULPS + 2 + 2 * (distance + mean_distance) + lost
    return y * (_sum_growth(y, cols) + own / math.sqrt(cols)) + NORMAL_MIN / UNIT_ROUNDOFF


def _sum_growth(y: Tensor, cols: int) -> Tensor:
    """By how much the rounding errors of a row's sum exceed sqrt(cols) roundoffs.

    Terms that differ by less than the last place of the partial sums are all rounded the same way, so that the errors
    add up instead of cancelling: up to 0.16 cols in one long chain of additions. (Rows of equal terms are held to a
    bound that is linear in cols anyway.)
    """
    spread = y.std(dim=1, keepdim=True, correction=0) * cols
    alike = (spread > 0) & (spread < 8 * cols * UNIT_ROUNDOFF)
    return 1 + alike * math.sqrt(cols) / 4


def library(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=1)
