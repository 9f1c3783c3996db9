"""Matrix product, row-major."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators.dtypes import DType
from operators.relations import Relation, permuted, scaled
from operators.shared.sums import zero_product


def reference(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def magnitude(a: Tensor, b: Tensor) -> Tensor:
    return a.abs() @ b.abs()


def library(a: Tensor, b: Tensor) -> Tensor:
    return torch.mm(a, b)


def cancel(a: Tensor, b: Tensor, dtype: DType, rng: np.random.Generator) -> dict[str, Tensor]:
    a, b = zero_product(a, b, dtype, rng)
    return {"a": a, "b": b}


def relations(a: Tensor, b: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"a": a, "b": b}
    return [
        permuted("rows of a in another order", tensors, rng, inputs={"a": 0}, outputs={"c": 0}),
        permuted("columns of b in another order", tensors, rng, inputs={"b": 1}, outputs={"c": 1}),
        permuted("terms in another order", tensors, rng, inputs={"a": 1, "b": 0}, outputs={}),
        scaled("a doubled", tensors, inputs={"a": 2.0}, outputs={"c": 2.0}),
    ]
