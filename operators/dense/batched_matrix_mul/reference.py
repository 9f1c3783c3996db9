"""Products of pairs of matrices, row-major."""

from __future__ import annotations

import torch
from torch import Tensor

from operators.shared.products import Product

PRODUCT = Product("sil,slj->sij")
reference, magnitude, cancel, relations = PRODUCT.reference, PRODUCT.magnitude, PRODUCT.cancel, PRODUCT.relations


def library(a: Tensor, b: Tensor) -> Tensor:
    return torch.bmm(a, b)
