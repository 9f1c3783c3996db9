"""One explicit step of the heat equation in space: the seven-point stencil, with the border kept."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators.dtypes import DType
from operators.relations import Relation, permuted, scaled
from operators.shared.sums import SMALL, zero_neighbours

TORCH_DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16}
INNER = (slice(1, -1),) * 3


def inputs(dtype: DType, rng: np.random.Generator, family: str) -> dict[str, Tensor]:
    """A stable rate, at most 1 / 6; an integer where sums must be exact."""
    rate = rng.integers(1, 4) if family == "integers" else rng.uniform(0.05, 1 / 6)
    return {"rate": torch.tensor([rate], dtype=TORCH_DTYPES[dtype.name])}


def reference(u: Tensor, rate: Tensor) -> Tensor:
    v = u.clone()
    v[INNER] += rate * (_neighbours(u) - 6 * u[INNER])
    return v


def magnitude(u: Tensor, rate: Tensor) -> Tensor:
    """The sum of the magnitudes of all terms; nothing on the border, which is copied."""
    s = torch.zeros_like(u)
    u = u.abs()
    s[INNER] = u[INNER] + rate * (_neighbours(u) + 6 * u[INNER])
    return s


def library(u: Tensor, rate: Tensor) -> Tensor:
    # No vendor's convolution: it would round 1 - 6 rate to bf16, and use TF32 where torch lets it.
    wide = torch.promote_types(u.dtype, torch.float32)
    return reference(u.to(wide), rate.to(wide)).to(u.dtype)


def cancel(u: Tensor, dtype: DType, rng: np.random.Generator) -> dict[str, Tensor]:
    """At rate 1 / 4: planes alike along x, in each of which the four neighbours of a point sum to nearly nothing.

    What is left is u + (2 u - 6 u) / 4.
    """
    _, ny, nz = u.shape
    plane = zero_neighbours(ny, nz, dtype, rng, u.device)
    return {"u": (plane + u.to(plane.dtype) * SMALL).to(u.dtype), "rate": torch.tensor([0.25], dtype=u.dtype)}


def relations(u: Tensor, rate: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"u": u, "rate": rate}
    mirrored = [
        permuted(f"mirrored along axis {axis}", tensors, rng, inputs={"u": axis}, outputs={"v": axis}, reverse=True)
        for axis in range(3)
    ]
    return [*mirrored, scaled("values doubled", tensors, inputs={"u": 2.0}, outputs={"v": 2.0})]


def _neighbours(u: Tensor) -> Tensor:
    """The sum of the six neighbours of every inner point."""
    x, y, z = u[:, 1:-1, 1:-1], u[1:-1, :, 1:-1], u[1:-1, 1:-1]
    return x[:-2] + x[2:] + y[:, :-2] + y[:, 2:] + z[:, :, :-2] + z[:, :, 2:]
