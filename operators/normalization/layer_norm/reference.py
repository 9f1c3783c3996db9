"""Normalization of rows by mean and variance, with weight and bias."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators.dtypes import DType
from operators.relations import Relation, permuted, scaled
from operators.shared.norms import affine_magnitude, far_from_zero, standardized


def reference(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return standardized(x, eps, 1) * weight + bias


def magnitude(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return affine_magnitude(x, weight, bias, eps, 1)


def library(x: Tensor, weight: Tensor, bias: Tensor, cols: int, eps: float) -> Tensor:
    return torch.nn.functional.layer_norm(x, (cols,), weight, bias, eps=eps)


def cancel(x: Tensor, weight: Tensor, eps: float, dtype: DType, rng: np.random.Generator) -> dict[str, Tensor]:
    """Every row is the first one, doubled or not, and far from zero or not; the bias takes away all but a thousandth of
    the product."""
    x = x[:1] * torch.from_numpy(2.0 ** rng.integers(0, 2, (len(x), 1))).to(x.dtype)
    left = 1 - torch.from_numpy(rng.uniform(0, 2**-10, len(weight)))
    product = standardized(x[:1].double(), eps, 1)[0] * weight.double()
    return {"x": far_from_zero(x, 1, dtype, rng, otherwise=x), "bias": (-product * left).to(x.dtype)}


def relations(x: Tensor, weight: Tensor, bias: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"x": x, "weight": weight, "bias": bias}
    return [
        permuted("rows in another order", tensors, rng, inputs={"x": 0}, outputs={"y": 0}),
        permuted("columns in another order", tensors, rng, inputs={"x": 1, "weight": 0, "bias": 0}, outputs={"y": 1}),
        scaled("weight and bias doubled", tensors, inputs={"weight": 2.0, "bias": 2.0}, outputs={"y": 2.0}),
    ]
