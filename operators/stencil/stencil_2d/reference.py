"""One explicit step of the heat equation on a grid: the five-point stencil, with the border kept."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators.dtypes import DType
from operators.relations import Relation, permuted, scaled
from operators.shared.sums import SMALL, zero_neighbours

TORCH_DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16}


def inputs(dtype: DType, rng: np.random.Generator, family: str) -> dict[str, Tensor]:
    """A stable rate, at most 1 / 4; an integer where sums must be exact."""
    rate = rng.integers(1, 4) if family == "integers" else rng.uniform(0.05, 0.25)
    return {"rate": torch.tensor([rate], dtype=TORCH_DTYPES[dtype.name])}


def reference(u: Tensor, rate: Tensor) -> Tensor:
    v = u.clone()
    v[1:-1, 1:-1] += rate * (_neighbours(u) - 4 * u[1:-1, 1:-1])
    return v


def magnitude(u: Tensor, rate: Tensor) -> Tensor:
    """The sum of the magnitudes of all terms; nothing on the border, which is copied."""
    s = torch.zeros_like(u)
    u = u.abs()
    s[1:-1, 1:-1] = u[1:-1, 1:-1] + rate * (_neighbours(u) + 4 * u[1:-1, 1:-1])
    return s


def library(u: Tensor, rate: Tensor) -> Tensor:
    # No vendor's convolution: it would round 1 - 4 rate to bf16, and use TF32 where torch lets it.
    wide = torch.promote_types(u.dtype, torch.float32)
    return reference(u.to(wide), rate.to(wide)).to(u.dtype)


def cancel(u: Tensor, dtype: DType, rng: np.random.Generator) -> dict[str, Tensor]:
    """At rate 1 / 4, small values on the white squares of a chessboard; each has neighbours that sum to nothing."""
    nx, ny = u.shape
    black = zero_neighbours(nx, ny, dtype, rng, u.device).to(u.dtype)
    changed = u * SMALL
    for rows, columns in (slice(0, None, 2), slice(1, None, 2)), (slice(1, None, 2), slice(0, None, 2)):
        changed[rows, columns] = black[rows, columns]
    rate = torch.tensor([0.25], dtype=u.dtype)
    return {"u": changed, "rate": rate}


def relations(u: Tensor, rate: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"u": u, "rate": rate}
    return [
        permuted("upside down", tensors, rng, inputs={"u": 0}, outputs={"v": 0}, reverse=True),
        permuted("mirrored", tensors, rng, inputs={"u": 1}, outputs={"v": 1}, reverse=True),
        scaled("values doubled", tensors, inputs={"u": 2.0}, outputs={"v": 2.0}),
    ]


def _neighbours(u: Tensor) -> Tensor:
    """The sum of the four neighbours of every inner point."""
    return u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
