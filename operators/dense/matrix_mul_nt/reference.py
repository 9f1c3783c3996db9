"""Matrix product with the second factor transposed, row-major."""

from __future__ import annotations

import torch
from torch import Tensor

from operators.shared.products import Product

PRODUCT = Product("il,jl->ij")
reference, magnitude, cancel, relations = PRODUCT.reference, PRODUCT.magnitude, PRODUCT.cancel, PRODUCT.relations


def library(a: Tensor, b: Tensor) -> Tensor:
    return torch.mm(a, b.T)
