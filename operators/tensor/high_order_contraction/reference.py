"""Contraction of a tensor of order four with one of order three over two indices."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators.dtypes import DType
from operators.relations import Relation, permuted, scaled
from operators.shared.sums import zero_product


def reference(a: Tensor, b: Tensor) -> Tensor:
    return torch.einsum("ixjy,xky->ijk", a, b)


def magnitude(a: Tensor, b: Tensor) -> Tensor:
    return reference(a.abs(), b.abs())


def library(a: Tensor, b: Tensor) -> Tensor:
    return torch.einsum("ixjy,xky->ijk", a, b)


def cancel(
    a: Tensor, b: Tensor, na: int, nb: int, nc: int, nx: int, ny: int, dtype: DType, rng: np.random.Generator
) -> dict[str, Tensor]:
    left = a.permute(0, 2, 1, 3).reshape(na * nb, nx * ny)
    left, right = zero_product(left, b.permute(0, 2, 1).reshape(nx * ny, nc), dtype, rng)
    return {
        "a": left.reshape(na, nb, nx, ny).permute(0, 2, 1, 3).contiguous(),
        "b": right.reshape(nx, ny, nc).permute(0, 2, 1).contiguous(),
    }


def relations(a: Tensor, b: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"a": a, "b": b}
    return [
        permuted("i in another order", tensors, rng, inputs={"a": 0}, outputs={"c": 0}),
        permuted("j in another order", tensors, rng, inputs={"a": 2}, outputs={"c": 1}),
        permuted("k in another order", tensors, rng, inputs={"b": 1}, outputs={"c": 2}),
        permuted("x in another order", tensors, rng, inputs={"a": 1, "b": 0}, outputs={}),
        permuted("y in another order", tensors, rng, inputs={"a": 3, "b": 2}, outputs={}),
        scaled("a doubled", tensors, inputs={"a": 2.0}, outputs={"c": 2.0}),
    ]
