"""The transpose of a matrix."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from operators.relations import Relation, permuted


def reference(x: Tensor) -> Tensor:
    return x.T


def library(x: Tensor) -> Tensor:
    return x.T.contiguous()


def relations(x: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"x": x}
    return [
        permuted("rows in another order", tensors, rng, inputs={"x": 0}, outputs={"y": 1}),
        permuted("columns in another order", tensors, rng, inputs={"x": 1}, outputs={"y": 0}),
    ]
