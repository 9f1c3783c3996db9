"""Row-wise softmax."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from operators.dtypes import DType, resolve_dtype
from operators.relations import Relation, added, permuted, sums_to

EXP_ULPS = 4
"""What a fast single-precision exponential is off by at most: glibc's vector `expf`, or `exp2` of a scaled argument."""
NORMAL_MIN = {"fp64": 2.0**-1022, "fp32": 2.0**-126}
"""By accumulator."""


def reference(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=1)


def magnitude(x: Tensor, outputs: dict[str, Tensor], cols: int, dtype: DType) -> Tensor:
    """Relative error of y = e / s in units of the unit roundoff, halved, since the bound allows b = 2 of them.

    With d = |x - max|: the argument of the exponential carries d (subtraction) and up to 3 d more where `exp` is made
    of `exp2`, which exp turns into a relative error of the same size; the exponential itself is off by `EXP_ULPS`
    (2 roundoffs each); scaling costs two ulps. The sum averages the errors of its terms, adds sqrt(cols) of its own,
    which the bound has as a factor, and may lose terms that are too small beside it. A result that underflows may be
    flushed to zero.
    """
    accumulator = resolve_dtype("ACC", dtype.name)
    u, y = accumulator.unit_roundoff, outputs["y"]
    distance = torch.where(y > 0, x.amax(dim=1, keepdim=True) - x, 0)  # not inf * 0 where x is -inf
    mean_distance = (y * distance).sum(dim=1, keepdim=True)
    lost = (y * (y < u)).sum(dim=1, keepdim=True) / u
    own = 2 * EXP_ULPS + 2 + 2 * (distance + mean_distance) + lost
    return y * (_sum_growth(y, cols, u) + own / math.sqrt(cols)) + NORMAL_MIN[accumulator.name] / u


def _sum_growth(y: Tensor, cols: int, unit_roundoff: float) -> Tensor:
    """By how much the rounding errors of a row's sum exceed sqrt(cols) roundoffs.

    Terms that differ by less than the last place of the partial sums are all rounded the same way, so that the errors
    add up instead of cancelling: up to 0.16 cols in one long chain of additions. (Rows of equal terms are held to a
    bound that is linear in cols anyway.)
    """
    spread = y.std(dim=1, keepdim=True, correction=0) * cols
    alike = (spread > 0) & (spread < 8 * cols * unit_roundoff)
    return 1 + alike * math.sqrt(cols) / 4


def library(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=1)


def relations(x: Tensor, dtype: DType, rng: np.random.Generator) -> list[Relation]:
    """Order of rows, order of columns, sums of 1; a shift of a row where x + shift is not rounded."""
    tensors = {"x": x}
    found = [
        permuted("rows in another order", tensors, rng, inputs={"x": 0}, outputs={"y": 0}),
        permuted("columns in another order", tensors, rng, inputs={"x": 1}, outputs={"y": 1}),
        sums_to("rows sum to 1", output="y", axis=1),
    ]
    if torch.equal(x, x.round()) and float(x.abs().max()) + 16 <= dtype.exact_integer_limit:
        shift = torch.from_numpy(rng.integers(-16, 17, (len(x), 1))).expand_as(x)
        found.append(added("rows shifted", tensors, inputs={"x": shift}, outputs={}))
    return found
