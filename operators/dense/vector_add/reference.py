"""The sum of two vectors."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators import drawing
from operators.dtypes import DType
from operators.relations import Relation, permuted, scaled


def reference(x: Tensor, y: Tensor) -> Tensor:
    return x + y


def library(x: Tensor, y: Tensor) -> Tensor:
    return torch.add(x, y)


def cancel(x: Tensor, dtype: DType, rng: np.random.Generator) -> dict[str, Tensor]:
    """y is -x but for a few last places."""
    near = -x.double() * (1 + dtype.unit_roundoff * drawing.integers(-4, 4, len(x), rng, x.device))
    return {"y": near.to(x.dtype)}


def relations(x: Tensor, y: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"x": x, "y": y}
    return [
        permuted("elements in another order", tensors, rng, inputs={"x": 0, "y": 0}, outputs={"z": 0}),
        Relation("arguments swapped", {"x": y, "y": x}, lambda found: found),
        scaled("both doubled", tensors, inputs={"x": 2.0, "y": 2.0}, outputs={"z": 2.0}),
    ]
