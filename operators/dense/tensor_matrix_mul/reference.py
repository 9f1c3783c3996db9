"""A tensor times a matrix along its last axis, row-major; all its other axes but one are `batch`."""

from __future__ import annotations

import torch
from torch import Tensor

from operators.shared.products import Product

PRODUCT = Product("sil,lj->sij")
reference, magnitude, cancel, relations = PRODUCT.reference, PRODUCT.magnitude, PRODUCT.cancel, PRODUCT.relations


def library(a: Tensor, b: Tensor) -> Tensor:
    return torch.matmul(a, b)
