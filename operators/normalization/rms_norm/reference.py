"""Root-mean-square normalization of rows, with weight and bias."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from operators.dtypes import DType
from operators.relations import Relation, permuted, scaled

ROOT_ULPS = 2
"""What a fast reciprocal square root is off by at most: CUDA's `rsqrtf`."""


def reference(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return _scaled(x, weight, eps) + bias


def magnitude(x: Tensor, weight: Tensor, cols: int, eps: float) -> Tensor:
    """The absolute error in units of the unit roundoff, halved, since the bound allows b = 2 of them.

    The sum of squares has positive terms: added up one by one, it is off by sqrt(cols) / 4 roundoffs as a standard
    deviation, which no row of millions should exceed by eight. Squaring, the mean, eps and its own rounding add four,
    of all of which the root halves the sum. The root is off by `ROOT_ULPS` (2 roundoffs each), the two products by one
    each. The last sum, with the bias, rounds y itself.
    """
    own = (2 * math.sqrt(cols) + 4) / 2 + 2 * ROOT_ULPS + 2
    return _scaled(x, weight, eps).abs() * (own / math.sqrt(cols) / 2)


def library(x: Tensor, weight: Tensor, bias: Tensor, cols: int, eps: float) -> Tensor:
    # In bf16 the vendor's call would round what it returns before the bias is added.
    wide = torch.promote_types(x.dtype, torch.float32)
    normalized = torch.nn.functional.rms_norm(x.to(wide), (cols,), eps=eps)
    return torch.addcmul(bias.to(wide), normalized, weight.to(wide)).to(x.dtype)


def cancel(x: Tensor, weight: Tensor, eps: float, dtype: DType, rng: np.random.Generator) -> dict[str, Tensor]:
    """Every row is the first one times a power of two, and the bias takes away all but a thousandth of the product."""
    x = x[:1] * torch.from_numpy(2.0 ** rng.integers(0, 4, (len(x), 1))).to(x.dtype)
    left = 1 - torch.from_numpy(rng.uniform(0, 2**-10, len(weight)))
    return {"x": x, "bias": (-_scaled(x[:1].double(), weight.double(), eps)[0] * left).to(x.dtype)}


def relations(x: Tensor, weight: Tensor, bias: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"x": x, "weight": weight, "bias": bias}
    return [
        permuted("rows in another order", tensors, rng, inputs={"x": 0}, outputs={"y": 0}),
        permuted("columns in another order", tensors, rng, inputs={"x": 1, "weight": 0, "bias": 0}, outputs={"y": 1}),
        scaled("weight and bias doubled", tensors, inputs={"weight": 2.0, "bias": 2.0}, outputs={"y": 2.0}),
    ]


def _scaled(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """What the bias is added to."""
    return weight * x * torch.rsqrt((x * x).mean(dim=1, keepdim=True) + eps)
