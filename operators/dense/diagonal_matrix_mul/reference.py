"""A diagonal matrix, of which the diagonal is stored, times a matrix."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from operators.relations import Relation, permuted, scaled


def reference(diagonal: Tensor, x: Tensor) -> Tensor:
    return diagonal[:, None] * x


def library(diagonal: Tensor, x: Tensor) -> Tensor:
    # KernelBench's torch.diag(a) @ b multiplies by a whole matrix of zeros.
    return diagonal[:, None] * x


def relations(diagonal: Tensor, x: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"diagonal": diagonal, "x": x}
    return [
        permuted("rows in another order", tensors, rng, inputs={"diagonal": 0, "x": 0}, outputs={"y": 0}),
        permuted("columns in another order", tensors, rng, inputs={"x": 1}, outputs={"y": 1}),
        scaled("the diagonal doubled", tensors, inputs={"diagonal": 2.0}, outputs={"y": 2.0}),
    ]
