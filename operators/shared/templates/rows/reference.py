"""The sum of squares of every row: put what your operator computes in its place."""

import numpy as np
import torch
from torch import Tensor

from operators.relations import Relation, permuted


def reference(x: Tensor) -> Tensor:  # in fp64
    return (x * x).sum(dim=1)


def library(x: Tensor) -> Tensor:  # of the task's own type; leave it out where no vendor has it
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return (wide * wide).sum(dim=1)


def magnitude(x: Tensor) -> Tensor:  # what the terms of a sum amount to without their signs
    return (x * x).sum(dim=1)


def relations(x: Tensor, rng: np.random.Generator) -> list[Relation]:  # what holds whatever the reference says
    tensors = {"x": x}
    return [
        permuted("rows in another order", tensors, rng, inputs={"x": 0}, outputs={"y": 0}),
        permuted("columns in another order", tensors, rng, inputs={"x": 1}, outputs={}),
    ]
