"""Maxima of square windows of images; what lies outside of an image does not count."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators.relations import Relation, permuted


def reference(x: Tensor, size: int, stride: int, pad: int) -> Tensor:
    return torch.nn.functional.max_pool2d(x, size, stride, pad)


def library(x: Tensor, size: int, stride: int, pad: int) -> Tensor:
    return torch.nn.functional.max_pool2d(x, size, stride, pad)


def relations(x: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"x": x}
    return [
        permuted("images in another order", tensors, rng, inputs={"x": 0}, outputs={"y": 0}),
        permuted("channels in another order", tensors, rng, inputs={"x": 1}, outputs={"y": 1}),
    ]
