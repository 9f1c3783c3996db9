"""The exponential linear unit."""

from __future__ import annotations

import torch
from torch import Tensor

from operators.shared.elementwise import relations as relations
from operators.shared.errors import exp_error


def reference(x: Tensor, alpha: float) -> Tensor:
    return torch.where(x < 0, alpha * torch.expm1(x), x)


def magnitude(x: Tensor, alpha: float) -> Tensor:
    """Where x is negative the difference cancels, so that the error is one of exp(x); product and alpha add two."""
    power = torch.exp(x.clamp(max=0))
    error = power * exp_error(x.clamp(-1e3, 0)) + 3 * (1 - power)
    return torch.where(x < 0, abs(alpha) * error, 0) / 2


def library(x: Tensor, alpha: float) -> Tensor:
    return torch.nn.functional.elu(x, alpha)
