"""The logarithm of a row-wise softmax."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from operators.dtypes import DType, resolve_dtype
from operators.relations import Relation, added, permuted
from operators.shared.errors import EXP_ULPS, LOG_ULPS


def reference(x: Tensor) -> Tensor:
    return torch.log_softmax(x, dim=1)


def magnitude(x: Tensor, outputs: dict[str, Tensor], cols: int, dtype: DType) -> Tensor:
    """The absolute error of y = (x - max) - log s in roundoffs, halved, over sqrt(cols), which the bound has as factor.

    The relative error of the sum s, an absolute one of its logarithm, is that of a softmax's: sqrt(cols) of its own,
    the mean of its terms' errors (`EXP_ULPS`, and up to 4 d where the argument is -d), and what terms lose that are too
    small beside it. The logarithm itself is off by `LOG_ULPS`, near 1 in units of 1; x - max, max + log s and y are
    rounded once each.
    """
    u, y = resolve_dtype("ACC", dtype.name).unit_roundoff, outputs["y"]
    largest = x.amax(dim=1, keepdim=True)
    share, distance = torch.exp(y), largest - x
    mean_distance = torch.where(share > 0, share * distance, 0).sum(dim=1, keepdim=True)
    lost = (share * (share < u)).sum(dim=1, keepdim=True) / u
    log_sum = torch.logsumexp(x - largest, dim=1, keepdim=True)
    own = EXP_ULPS + 2 * mean_distance + lost + LOG_ULPS * log_sum.clamp(min=1)
    rounded = distance.abs() + (largest + log_sum).abs() + y.abs()
    return _sum_growth(share, cols, u) + (own + rounded / 2) / math.sqrt(cols)


def _sum_growth(share: Tensor, cols: int, unit_roundoff: float) -> Tensor:
    """By how much the rounding errors of a row's sum exceed sqrt(cols) roundoffs: terms nearly alike round alike."""
    spread = share.std(dim=1, keepdim=True, correction=0) * cols
    alike = (spread > 0) & (spread < 8 * cols * unit_roundoff)
    return 1 + alike * math.sqrt(cols) / 4


def library(x: Tensor) -> Tensor:
    # On a CPU the vendor's call in bf16 rounds on the way.
    wide = x.dtype if x.is_cuda else torch.promote_types(x.dtype, torch.float32)
    return torch.log_softmax(x.to(wide), dim=1).to(x.dtype)


def relations(x: Tensor, dtype: DType, rng: np.random.Generator) -> list[Relation]:
    """Order of rows, order of columns; a shift of a row where x + shift is not rounded."""
    tensors = {"x": x}
    found = [
        permuted("rows in another order", tensors, rng, inputs={"x": 0}, outputs={"y": 0}),
        permuted("columns in another order", tensors, rng, inputs={"x": 1}, outputs={"y": 1}),
    ]
    if torch.equal(x, x.round()) and float(x.abs().max()) + 16 <= dtype.exact_integer_limit:
        shift = torch.from_numpy(rng.integers(-16, 17, (len(x), 1))).expand_as(x)
        found.append(added("rows shifted", tensors, inputs={"x": shift}, outputs={}))
    return found
