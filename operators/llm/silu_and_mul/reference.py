"""The activation of a gated feed-forward layer: SiLU of the first half of each row, times the second half."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators.dtypes import DType
from operators.relations import Relation, permuted
from operators.shared.errors import flushed, sigmoid_error


def reference(x: Tensor) -> Tensor:
    gate, value = x.chunk(2, dim=1)
    return gate * torch.sigmoid(gate) * value


def magnitude(x: Tensor, outputs: dict[str, Tensor], dtype: DType) -> Tensor:
    """The logistic function's error and two products; what is lost where it underflows."""
    gate, value = x.chunk(2, dim=1)
    own = sigmoid_error(gate.clamp(-1e3, 1e3)) + 2
    return (outputs["y"].abs() * own + (gate * value).abs() * flushed(dtype)) / 2


def library(x: Tensor) -> Tensor:
    # In bf16 the vendor's call would round what it returns before the product.
    gate, value = x.to(torch.promote_types(x.dtype, torch.float32)).chunk(2, dim=1)
    return (torch.nn.functional.silu(gate) * value).to(x.dtype)


def relations(x: Tensor, cols: int, rng: np.random.Generator) -> list[Relation]:
    doubled = x.clone()
    doubled[:, cols:] *= 2
    return [
        permuted("rows in another order", {"x": x}, rng, inputs={"x": 0}, outputs={"y": 0}),
        Relation("values doubled", {"x": doubled}, lambda found: {"y": 2 * found["y"]}),
    ]
