"""A copy of a matrix."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from operators.relations import Relation, permuted, scaled


def reference(x: Tensor) -> Tensor:
    return x


def library(x: Tensor) -> Tensor:
    return x.clone()


def relations(x: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"x": x}
    return [
        permuted("rows in another order", tensors, rng, inputs={"x": 0}, outputs={"y": 0}),
        scaled("the sign changed", tensors, inputs={"x": -1.0}, outputs={"y": -1.0}, exact=True),
    ]
