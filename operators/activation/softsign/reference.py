"""The algebraic sigmoid: x over 1 plus its magnitude."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators.relations import Relation, permuted, scaled
from operators.shared.errors import DIVISION_ULPS


def reference(x: Tensor) -> Tensor:
    return x / (1 + x.abs())


def magnitude(outputs: dict[str, Tensor]) -> Tensor:
    return outputs["y"].abs() * (1 + 2 * DIVISION_ULPS) / 2


def library(x: Tensor) -> Tensor:
    # In bf16 the vendor's call would round the sum.
    wide = torch.promote_types(x.dtype, torch.float32)
    return torch.nn.functional.softsign(x.to(wide)).to(x.dtype)


def relations(x: Tensor, rng: np.random.Generator) -> list[Relation]:
    return [
        permuted("elements in another order", {"x": x}, rng, inputs={"x": 0}, outputs={"y": 0}),
        scaled("the sign changed", {"x": x}, inputs={"x": -1.0}, outputs={"y": -1.0}),
    ]
