"""The sigmoid linear unit, x times the logistic function of x."""

from __future__ import annotations

import torch
from torch import Tensor

from operators.dtypes import DType
from operators.relations import Relation, added
from operators.shared.errors import flushed, sigmoid_error


def reference(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def magnitude(x: Tensor, outputs: dict[str, Tensor], dtype: DType) -> Tensor:
    """The logistic function's error and a product; what is lost where it underflows."""
    own = sigmoid_error(x.clamp(-1e3, 1e3)) + 1
    return (outputs["y"].abs() * own + x.abs() * flushed(dtype)) / 2


def library(x: Tensor) -> Tensor:
    return torch.nn.functional.silu(x)


def relations(x: Tensor) -> list[Relation]:
    """swish(-x) = swish(x) - x."""
    return [added("the sign changed", {"x": x}, inputs={"x": -2 * x}, outputs={"y": -x})]
