"""A weighted sum: put what your operator computes in its place."""

import numpy as np
import torch
from torch import Tensor

from operators.relations import Relation, permuted


def reference(weight: Tensor, x: Tensor) -> Tensor:  # in fp64
    return (weight * x).sum()


def library(weight: Tensor, x: Tensor) -> Tensor:  # leave it out where no vendor has it
    wide = torch.promote_types(x.dtype, torch.float32)
    return torch.dot(weight.to(wide), x.to(wide))


def magnitude(weight: Tensor, x: Tensor) -> Tensor:  # what the terms of the sum amount to without their signs
    return (weight * x).abs().sum()


def relations(weight: Tensor, x: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"weight": weight, "x": x}
    return [permuted("terms in another order", tensors, rng, inputs={"weight": 0, "x": 0}, outputs={})]
