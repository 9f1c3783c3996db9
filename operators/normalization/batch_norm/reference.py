"""Normalization of columns by mean and variance over all rows, with weight and bias."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators import drawing
from operators.dtypes import DType, least_deviation
from operators.relations import Relation, permuted, scaled
from operators.shared.norms import affine_magnitude, far_from_zero, standardized


def reference(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return standardized(x, eps, 0) * weight + bias


def magnitude(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return affine_magnitude(x, weight, bias, eps, 0)


def library(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    # One sample has no variance that the vendor would accept; in bf16 its weight and bias would have to be fp32.
    wide = torch.promote_types(x.dtype, torch.float32)
    if len(x) == 1:
        return (x - x) * weight + bias
    found = torch.nn.functional.batch_norm(
        x.to(wide), None, None, weight.to(wide), bias.to(wide), training=True, eps=eps
    )
    return found.to(x.dtype)


def cancel(x: Tensor, weight: Tensor, eps: float, dtype: DType, rng: np.random.Generator) -> dict[str, Tensor]:
    """Samples differ in their sign and last places; the bias takes away all but a thousandth of the first row. Half of
    the columns lie far from zero."""
    places = least_deviation(len(x), dtype)
    signs = torch.from_numpy(rng.choice([-1.0, 1.0], (len(x), 1), p=[0.25, 0.75]))
    near = (signs * x[:1].double() * (1 + places * drawing.uniform(tuple(x.shape), rng, x.device))).to(x.dtype)
    x = far_from_zero(x, 0, dtype, rng, otherwise=near)
    left = 1 - torch.from_numpy(rng.uniform(0, 2**-10, len(weight)))
    product = standardized(x.double(), eps, 0)[0] * weight.double()
    return {"x": x, "bias": (-product * left).to(x.dtype)}


def relations(x: Tensor, weight: Tensor, bias: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"x": x, "weight": weight, "bias": bias}
    return [
        permuted("rows in another order", tensors, rng, inputs={"x": 0}, outputs={"y": 0}),
        permuted("columns in another order", tensors, rng, inputs={"x": 1, "weight": 0, "bias": 0}, outputs={"y": 1}),
        scaled("weight and bias doubled", tensors, inputs={"weight": 2.0, "bias": 2.0}, outputs={"y": 2.0}),
    ]
