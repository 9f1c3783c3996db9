"""The hyperbolic tangent's piecewise linear stand-in: x, cut off at -1 and 1."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators.relations import Relation, permuted, scaled


def reference(x: Tensor) -> Tensor:
    return x.clamp(-1, 1)


def library(x: Tensor) -> Tensor:
    return torch.nn.functional.hardtanh(x)


def relations(x: Tensor, rng: np.random.Generator) -> list[Relation]:
    return [
        permuted("elements in another order", {"x": x}, rng, inputs={"x": 0}, outputs={"y": 0}),
        scaled("the sign changed", {"x": x}, inputs={"x": -1.0}, outputs={"y": -1.0}, exact=True),
    ]
