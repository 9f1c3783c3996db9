"""Sorting of a vector in place; equal elements cannot be told apart."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators.relations import Relation, permuted


def reference(x: Tensor) -> Tensor:
    return torch.sort(x).values


def library(x: Tensor) -> Tensor:
    return torch.sort(x).values


def relations(x: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"x": x}
    return [
        permuted("elements in another order", tensors, rng, inputs={"x": 0}, outputs={}),
        Relation("the sign changed", {"x": -x}, lambda found: {"x": -found["x"].flip(0)}, exact=True),
    ]
