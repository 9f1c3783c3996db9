"""Matrix product, row-major."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators.dtypes import DType
from operators.relations import Relation, permuted, scaled


def reference(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def magnitude(a: Tensor, b: Tensor) -> Tensor:
    return a.abs() @ b.abs()


def library(a: Tensor, b: Tensor) -> Tensor:
    return torch.mm(a, b)


def cancel(a: Tensor, b: Tensor, k: int, dtype: DType, rng: np.random.Generator) -> dict[str, Tensor]:
    """Triples of terms u y + v y - (u + v) y, whose products round differently, in any order among small terms."""
    triples = (k - k // 8 - 1) // 3
    first, second, third = rng.permutation(k)[: 3 * triples].reshape(3, triples)
    steps = round(0.25 / dtype.unit_roundoff)  # so fine that u + v is not rounded
    u, v = rng.integers(-steps, steps, (2, len(a), triples), endpoint=True) / steps
    left = a.double().numpy() * 2.0**-12
    left[:, first], left[:, second], left[:, third] = u, v, -(u + v)
    b = b.clone()
    b[second] = b[third] = b[first]
    return {"a": torch.from_numpy(left).to(a.dtype), "b": b}


def relations(a: Tensor, b: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"a": a, "b": b}
    return [
        permuted("rows of a in another order", tensors, rng, inputs={"a": 0}, outputs={"c": 0}),
        permuted("columns of b in another order", tensors, rng, inputs={"b": 1}, outputs={"c": 1}),
        permuted("terms in another order", tensors, rng, inputs={"a": 1, "b": 0}, outputs={}),
        scaled("a doubled", tensors, inputs={"a": 2.0}, outputs={"c": 2.0}),
    ]
