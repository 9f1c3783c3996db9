"""The logistic function's piecewise linear stand-in."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators.relations import Relation, permuted


def reference(x: Tensor) -> Tensor:
    return (x / 6 + 0.5).clamp(0, 1)


def magnitude(x: Tensor) -> Tensor:
    """Rounded are 1 / 6, the product with it and the sum, which cancels where x is near -3."""
    inside = x.clamp(-3, 3)
    return (inside.abs() / 3 + (inside / 6 + 0.5)) / 2


def library(x: Tensor) -> Tensor:
    return torch.nn.functional.hardsigmoid(x)


def relations(x: Tensor, rng: np.random.Generator) -> list[Relation]:
    """f(-x) = 1 - f(x)."""
    return [
        permuted("elements in another order", {"x": x}, rng, inputs={"x": 0}, outputs={"y": 0}),
        Relation("the sign changed", {"x": -x}, lambda found: {"y": 1 - found["y"]}),
    ]
