"""A matrix times a number."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from operators.relations import Relation, permuted, scaled


def reference(x: Tensor, alpha: float) -> Tensor:
    return alpha * x


def library(x: Tensor, alpha: float) -> Tensor:
    return alpha * x


def relations(x: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"x": x}
    return [
        permuted("rows in another order", tensors, rng, inputs={"x": 0}, outputs={"y": 0}),
        scaled("doubled", tensors, inputs={"x": 2.0}, outputs={"y": 2.0}),
    ]
