"""The hyperbolic tangent of every element."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators.relations import Relation, permuted, scaled
from operators.shared.errors import exp_error


def reference(x: Tensor) -> Tensor:
    return torch.tanh(x)


def magnitude(x: Tensor, outputs: dict[str, Tensor]) -> Tensor:
    """The error of 1 - 2 / (exp(2 x) + 1): what the exponential's does to it, and of the order of 1 the rest."""
    y = outputs["y"]
    return ((1 - y * y) / 2 * exp_error(2 * x.clamp(-1e3, 1e3)) + 4) / 2


def library(x: Tensor) -> Tensor:
    return torch.tanh(x)


def relations(x: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"x": x}
    return [
        permuted("elements in another order", tensors, rng, inputs={"x": 0}, outputs={"y": 0}),
        scaled("the sign changed", tensors, inputs={"x": -1.0}, outputs={"y": -1.0}),
    ]
