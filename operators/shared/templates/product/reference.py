"""A matrix product, negative elements of which become 0: put what your operator computes in its place."""

import numpy as np
from torch import Tensor

from operators.relations import Relation, permuted, scaled


def reference(a: Tensor, b: Tensor) -> Tensor:  # in fp64
    return (a @ b).clamp(min=0)


def library(a: Tensor, b: Tensor) -> Tensor:  # leave it out where no vendor has it
    return (a @ b).clamp(min=0)


def magnitude(a: Tensor, b: Tensor) -> Tensor:  # what the terms of a sum amount to without their signs
    return a.abs() @ b.abs()


def relations(
    a: Tensor, b: Tensor, rng: np.random.Generator
) -> list[Relation]:  # what holds whatever the reference says
    tensors = {"a": a, "b": b}
    return [
        permuted("rows of a in another order", tensors, rng, inputs={"a": 0}, outputs={"c": 0}),
        permuted("terms in another order", tensors, rng, inputs={"a": 1, "b": 0}, outputs={}),
        scaled("a doubled", tensors, inputs={"a": 2.0}, outputs={"c": 2.0}),
    ]
