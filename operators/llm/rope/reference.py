"""Rotary position embedding: pairs of neighbours turned by an angle that grows with the row."""

from __future__ import annotations

import torch
from torch import Tensor

from operators.relations import Outputs, Relation, scaled
from operators.shared.errors import SINE_ULPS

POWER_ULPS = 8
"""What a fast power of the base is off by at most, besides what rounding its exponent does."""


def reference(x: Tensor, rows: int, pairs: int, base: float) -> Tensor:
    angle = _angles(x, rows, pairs, base)
    even, odd = x[:, ::2], x[:, 1::2]
    cosine, sine = torch.cos(angle), torch.sin(angle)
    return torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), dim=2).flatten(1)


def magnitude(x: Tensor, rows: int, pairs: int, base: float) -> Tensor:
    """An angle is off by what its power and the rounding of the exponent and the product do; so are sine and cosine."""
    angle = _angles(x, rows, pairs, base)
    of_exponent = 2 * torch.log(torch.tensor(base, dtype=x.dtype)) * torch.arange(pairs, device=x.device) / pairs
    own = 2 * SINE_ULPS + 3 + angle * (2 * POWER_ULPS + of_exponent + 1)
    size = x[:, ::2].abs() + x[:, 1::2].abs()
    return (size * own / 2).repeat_interleave(2, dim=1)


def library(x: Tensor, rows: int, pairs: int, base: float) -> Tensor:
    # No vendor turns neighbours by angles it computes itself; this is the usual formula in a few calls.
    wide = torch.promote_types(x.dtype, torch.float32)
    return reference(x.to(wide), rows, pairs, base).to(x.dtype)


def relations(x: Tensor) -> list[Relation]:
    """Turns are linear, and come in any order."""
    tensors = {"x": x}
    turned = torch.stack((-x[:, 1::2], x[:, ::2]), dim=2).flatten(1)

    def expected(found: Outputs) -> Outputs:
        y = found["y"]
        return {"y": torch.stack((-y[:, 1::2], y[:, ::2]), dim=2).flatten(1)}

    return [
        scaled("doubled", tensors, inputs={"x": 2.0}, outputs={"y": 2.0}),
        Relation("pairs turned by 90 degrees", {"x": turned}, expected),
    ]


def _angles(x: Tensor, rows: int, pairs: int, base: float) -> Tensor:
    """[rows, pairs], in fp64 whatever the type of x: a library may hold such a table."""
    frequency = base ** (-torch.arange(pairs, dtype=torch.float64, device=x.device) / pairs)
    return (torch.arange(rows, dtype=torch.float64, device=x.device)[:, None] * frequency).to(x.dtype)
