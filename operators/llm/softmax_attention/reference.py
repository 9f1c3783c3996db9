"""Softmax attention of one head."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from operators.dtypes import DType, resolve_dtype
from operators.relations import Relation, permuted, scaled
from operators.shared.errors import DIVISION_ULPS, exp_error

SCORE_DRIFT = 1 / 64
"""Roundoffs per term by which a sum of products errs beyond the root of their number, when roundings lean one way."""
ROUNDED = 3.0
"""How many times the root of the sum of squares the roundings of so many weights may come to, in roundoffs of T."""


def reference(q: Tensor, k: Tensor, v: Tensor, dim: int) -> Tensor:
    return torch.softmax(q @ k.T / math.sqrt(dim), dim=1) @ v


def magnitude(q: Tensor, k: Tensor, v: Tensor, keys: int, dim: int, dtype: DType) -> Tensor:
    """The sum of magnitudes, and what the weights in it are off by, in halves of roundoffs over sqrt(keys).

    A score is off by what its sum is, and the scaling; the exponential makes that a relative error of its weight, and
    adds its own. The sum in the denominator averages them, and adds sqrt(keys), as the bound's factor does for the
    sum of the result. Where elements have 16 bits, weights may be rounded to them, as tensor cores want them.
    """
    scores, sizes = q @ k.T / math.sqrt(dim), q.abs() @ k.abs().T / math.sqrt(dim)
    p = torch.softmax(scores, dim=1)
    distance = torch.where(p > 0, scores.amax(dim=1, keepdim=True) - scores, 0)
    own = (math.sqrt(dim) + SCORE_DRIFT * dim + 4) * sizes + exp_error(distance) + distance
    mean = (p * own).sum(dim=1, keepdim=True)
    rounding = (p * (own + mean + 2 * DIVISION_ULPS)) @ v.abs()
    if dtype.size < 4:
        coarser = dtype.unit_roundoff / resolve_dtype("ACC", dtype.name).unit_roundoff
        rounding += ROUNDED * coarser * ((p * p) @ (v * v)).sqrt()
    return 2 * p @ v.abs() + rounding / (2 * math.sqrt(keys))


def library(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q[None, None], k[None, None], v[None, None])[0, 0]


def relations(q: Tensor, k: Tensor, v: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"q": q, "k": k, "v": v}
    return [
        permuted("queries in another order", tensors, rng, inputs={"q": 0}, outputs={"y": 0}),
        permuted("keys in another order", tensors, rng, inputs={"k": 0, "v": 0}, outputs={}),
        permuted("columns of v in another order", tensors, rng, inputs={"v": 1}, outputs={"y": 1}),
        permuted("terms of scores in another order", tensors, rng, inputs={"q": 1, "k": 1}, outputs={}),
        scaled("values doubled", tensors, inputs={"v": 2.0}, outputs={"y": 2.0}),
    ]
