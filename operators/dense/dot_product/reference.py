"""The inner product of two vectors."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators.dtypes import DType
from operators.relations import Relation, permuted, scaled
from operators.shared.sums import zero_product


def reference(x: Tensor, y: Tensor) -> Tensor:
    return torch.dot(x, y)


def magnitude(x: Tensor, y: Tensor) -> Tensor:
    return torch.dot(x.abs(), y.abs())


def library(x: Tensor, y: Tensor) -> Tensor:
    # In bf16 the vendor's call would round the result.
    wide = torch.promote_types(x.dtype, torch.float32)
    return torch.dot(x.to(wide), y.to(wide))


def cancel(x: Tensor, y: Tensor, dtype: DType, rng: np.random.Generator) -> dict[str, Tensor]:
    left, right = zero_product(x[None], y[:, None], dtype, rng)
    return {"x": left[0], "y": right[:, 0]}


def relations(x: Tensor, y: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"x": x, "y": y}
    return [
        permuted("terms in another order", tensors, rng, inputs={"x": 0, "y": 0}, outputs={}),
        scaled("x doubled", tensors, inputs={"x": 2.0}, outputs={"product": 2.0}),
        Relation("arguments swapped", {"x": y, "y": x}, lambda found: found),
    ]
