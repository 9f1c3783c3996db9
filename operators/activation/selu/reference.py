"""The scaled exponential linear unit, with the constants of MSKernelBench."""

from __future__ import annotations

import torch
from torch import Tensor

from operators.shared.elementwise import relations as relations
from operators.shared.errors import exp_error


def reference(x: Tensor, alpha: float, scale: float) -> Tensor:
    return scale * torch.where(x < 0, alpha * torch.expm1(x), x)


def magnitude(x: Tensor, alpha: float, scale: float) -> Tensor:
    """Where x is negative the difference cancels, so that the error is one of exp(x); products and constants add."""
    power = torch.exp(x.clamp(max=0))
    error = power * exp_error(x.clamp(-1e3, 0)) + 5 * (1 - power)
    return abs(scale) * torch.where(x < 0, abs(alpha) * error, 2 * x) / 2


def library(x: Tensor, alpha: float, scale: float) -> Tensor:
    # torch.nn.functional.selu has constants of its own.
    return torch.nn.functional.elu(x, alpha) if scale == 1 else scale * torch.nn.functional.elu(x, alpha)
