"""The gated unit SwiGLU."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators.dtypes import DType
from operators.relations import Relation, permuted, scaled
from operators.shared.errors import flushed, sigmoid_error


def reference(gate: Tensor, value: Tensor, beta: float) -> Tensor:
    return gate * torch.sigmoid(beta * gate) * value


def magnitude(gate: Tensor, value: Tensor, beta: float, outputs: dict[str, Tensor], dtype: DType) -> Tensor:
    """The logistic function's error and three products; what is lost where it underflows."""
    own = sigmoid_error(beta * gate.clamp(-1e3, 1e3)) + 3
    return (outputs["y"].abs() * own + (gate * value).abs() * flushed(dtype)) / 2


def library(gate: Tensor, value: Tensor, beta: float) -> Tensor:
    # In bf16 the vendor's call would round what it returns before the product.
    wide = torch.promote_types(gate.dtype, torch.float32)
    gate, value, narrow = gate.to(wide), value.to(wide), gate.dtype
    return (torch.nn.functional.silu(beta * gate) / beta * value).to(narrow)


def relations(gate: Tensor, value: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"gate": gate, "value": value}
    return [
        permuted("elements in another order", tensors, rng, inputs={"gate": 0, "value": 0}, outputs={"y": 0}),
        scaled("values doubled", tensors, inputs={"value": 2.0}, outputs={"y": 2.0}),
    ]
