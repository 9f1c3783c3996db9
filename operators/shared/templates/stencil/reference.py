"""The mean of four neighbours: put what your operator computes in its place."""

import numpy as np
import torch
from torch import Tensor

from operators.relations import Relation, permuted, scaled


def reference(u: Tensor) -> Tensor:  # in fp64
    v = u.clone()
    v[1:-1, 1:-1] = (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) / 4
    return v


def library(u: Tensor) -> Tensor:  # leave it out where no vendor has it
    wide = torch.promote_types(u.dtype, torch.float32)
    return reference(u.to(wide)).to(u.dtype)


def magnitude(u: Tensor) -> Tensor:  # what the terms of a sum amount to without their signs
    return reference(u.abs())


def relations(u: Tensor, rng: np.random.Generator) -> list[Relation]:  # what holds whatever the reference says
    tensors = {"u": u}
    return [
        permuted("upside down", tensors, rng, inputs={"u": 0}, outputs={"v": 0}, reverse=True),
        permuted("mirrored", tensors, rng, inputs={"u": 1}, outputs={"v": 1}, reverse=True),
        scaled("values doubled", tensors, inputs={"u": 2.0}, outputs={"v": 2.0}),
    ]
