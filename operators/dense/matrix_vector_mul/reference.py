"""Matrix times vector, row-major."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators.dtypes import DType
from operators.relations import Relation, permuted, scaled
from operators.shared.sums import zero_product


def reference(a: Tensor, x: Tensor) -> Tensor:
    return a @ x


def magnitude(a: Tensor, x: Tensor) -> Tensor:
    return a.abs() @ x.abs()


def library(a: Tensor, x: Tensor) -> Tensor:
    return torch.mv(a, x)


def cancel(a: Tensor, x: Tensor, dtype: DType, rng: np.random.Generator) -> dict[str, Tensor]:
    a, column = zero_product(a, x[:, None], dtype, rng)
    return {"a": a, "x": column[:, 0]}


def relations(a: Tensor, x: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"a": a, "x": x}
    return [
        permuted("rows in another order", tensors, rng, inputs={"a": 0}, outputs={"y": 0}),
        permuted("terms in another order", tensors, rng, inputs={"a": 1, "x": 0}, outputs={}),
        scaled("x doubled", tensors, inputs={"x": 2.0}, outputs={"y": 2.0}),
    ]
