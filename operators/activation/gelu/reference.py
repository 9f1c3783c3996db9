"""The Gaussian error linear unit in its exact form, with erf."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from operators.relations import Relation, added

ERF_ULPS = 4
"""What a fast erf is off by at most, in units of the last place of 1: torch's own on the CPU, a rational approximation;
glibc's and CUDA's are better, above all near 0."""


def reference(x: Tensor) -> Tensor:
    return x / 2 * (1 + torch.erf(x / math.sqrt(2)))


def magnitude(x: Tensor) -> Tensor:
    """The absolute error in units of the unit roundoff, halved, since the bound allows b = 2 of them.

    erf(t) is off by `ERF_ULPS` (2 roundoffs each), and by what 2 roundoffs of t = x / sqrt(2) do to it, 2 |t| erf'(t);
    the sum adds one of 1 + erf(t) and the products two. Where x is negative the sum cancels, so that the error is one
    of x and not of y.
    """
    t = x / math.sqrt(2)
    erf = torch.erf(t)
    of_argument = 2 * t.abs() * (2 / math.sqrt(math.pi)) * torch.exp(-t * t)
    return x.abs() / 2 * (2 * ERF_ULPS + of_argument + 3 * (1 + erf)) / 2


def library(x: Tensor) -> Tensor:
    return torch.nn.functional.gelu(x)


def relations(x: Tensor) -> list[Relation]:
    """gelu(-x) = gelu(x) - x."""
    return [added("the sign changed", {"x": x}, inputs={"x": -2 * x}, outputs={"y": -x})]
