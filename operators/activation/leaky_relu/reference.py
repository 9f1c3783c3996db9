"""The rectified linear unit with a slope on the negative side."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators.relations import Relation, permuted, scaled


def reference(x: Tensor, alpha: float) -> Tensor:
    return torch.where(x < 0, alpha * x, x)


def library(x: Tensor, alpha: float) -> Tensor:
    return torch.nn.functional.leaky_relu(x, alpha)


def relations(x: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"x": x}
    return [
        permuted("elements in another order", tensors, rng, inputs={"x": 0}, outputs={"y": 0}),
        scaled("doubled", tensors, inputs={"x": 2.0}, outputs={"y": 2.0}),
    ]
