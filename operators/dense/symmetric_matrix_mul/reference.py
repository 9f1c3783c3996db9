"""Product of two symmetric matrices, of which all elements are stored."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators import drawing
from operators.relations import Relation, scaled
from operators.shared.products import Product

PRODUCT = Product("il,lj->ij")
reference, magnitude = PRODUCT.reference, PRODUCT.magnitude


def library(a: Tensor, b: Tensor) -> Tensor:
    return torch.mm(a, b)


def relations(a: Tensor, b: Tensor, rng: np.random.Generator) -> list[Relation]:
    """Those that keep symmetric what is symmetric; (a b)^T = b a."""
    order = drawing.permutation(len(a), rng, a.device)

    def reordered(x: Tensor) -> Tensor:
        return x[order][:, order]

    return [
        Relation(
            "rows and columns in another order",
            {"a": reordered(a), "b": reordered(b)},
            lambda found: {"c": reordered(found["c"])},
        ),
        Relation("factors swapped", {"a": b, "b": a}, lambda found: {"c": found["c"].T}),
        scaled("a doubled", {"a": a}, inputs={"a": 2.0}, outputs={"c": 2.0}),
    ]
