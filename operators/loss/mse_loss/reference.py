"""The mean of squared differences."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from operators.relations import Relation, permuted, scaled


def reference(x: Tensor, y: Tensor) -> Tensor:
    return ((x - y) ** 2).mean()


def magnitude(outputs: dict[str, Tensor], n: int) -> Tensor:
    """The sum has positive terms; difference, square and division are off by 4 roundoffs."""
    return outputs["loss"] * (1 + 4 / (2 * math.sqrt(n)))


def library(x: Tensor, y: Tensor) -> Tensor:
    # In bf16 the vendor's call would round differences and result.
    wide = torch.promote_types(x.dtype, torch.float32)
    return torch.nn.functional.mse_loss(x.to(wide), y.to(wide))


def relations(x: Tensor, y: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"x": x, "y": y}
    return [
        permuted("terms in another order", tensors, rng, inputs={"x": 0, "y": 0}, outputs={}),
        scaled("both doubled", tensors, inputs={"x": 2.0, "y": 2.0}, outputs={"loss": 4.0}),
        Relation("arguments swapped", {"x": y, "y": x}, lambda found: found),
    ]
