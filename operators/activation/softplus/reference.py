"""The smooth rectifier: the logarithm of 1 + exp(x)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators.relations import Relation, added, permuted
from operators.shared.errors import LOG_ULPS, exp_error


def reference(x: Tensor) -> Tensor:
    return torch.logaddexp(x, torch.zeros_like(x))


def magnitude(x: Tensor, outputs: dict[str, Tensor]) -> Tensor:
    """What the exponential's error does to the logarithm, the sum, and the logarithm's own error, near 0 one of 1."""
    exponent = torch.sigmoid(x) * exp_error(x.clamp(-1e3, 20))
    return (exponent + 2 + 2 * LOG_ULPS * outputs["y"].clamp(min=1)) / 2


def library(x: Tensor) -> Tensor:
    # By default the vendor's call returns x from 20 on, which fp64 can tell.
    return torch.nn.functional.softplus(x, threshold=80)


def relations(x: Tensor, rng: np.random.Generator) -> list[Relation]:
    """f(-x) = f(x) - x, where x is finite."""
    found = [permuted("elements in another order", {"x": x}, rng, inputs={"x": 0}, outputs={"y": 0})]
    if bool(x.isfinite().all()):
        found.append(added("the sign changed", {"x": x}, inputs={"x": -2 * x.double()}, outputs={"y": -x}))
    return found
