"""The logistic function."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators.relations import Relation, permuted
from operators.shared.errors import sigmoid_error


def reference(x: Tensor) -> Tensor:
    return torch.sigmoid(x)


def magnitude(x: Tensor, outputs: dict[str, Tensor]) -> Tensor:
    return outputs["y"] * sigmoid_error(x.clamp(-1e3, 1e3)) / 2


def library(x: Tensor) -> Tensor:
    return torch.sigmoid(x)


def relations(x: Tensor, rng: np.random.Generator) -> list[Relation]:
    """sigmoid(-x) = 1 - sigmoid(x)."""
    return [
        permuted("elements in another order", {"x": x}, rng, inputs={"x": 0}, outputs={"y": 0}),
        Relation("the sign changed", {"x": -x}, lambda found: {"y": 1 - found["y"]}),
    ]
