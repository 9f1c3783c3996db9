"""The rectified linear unit."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators.relations import Relation, permuted, scaled


def reference(x: Tensor) -> Tensor:
    return x.clamp(min=0)


def library(x: Tensor) -> Tensor:
    return torch.relu(x)


def relations(x: Tensor, rng: np.random.Generator) -> list[Relation]:
    """relu(2 x) = 2 relu(x); relu(-x) = relu(x) - x."""
    tensors = {"x": x}
    return [
        permuted("elements in another order", tensors, rng, inputs={"x": 0}, outputs={"y": 0}),
        scaled("doubled", tensors, inputs={"x": 2.0}, outputs={"y": 2.0}, exact=True),
        Relation("the sign changed", {"x": -x}, lambda found: {"y": found["y"] - x.double()}),
    ]
