"""Inclusive prefix sum of a vector."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators import drawing
from operators.dtypes import DType
from operators.relations import Relation, added, replaced
from operators.shared.sums import SMALL, coarse


def reference(x: Tensor) -> Tensor:
    return torch.cumsum(x, dim=0)


def magnitude(x: Tensor, n: int) -> Tensor:
    """Sums of magnitudes; the i-th has i terms, not the n that the bound's factor counts."""
    terms = torch.arange(1, n + 1, dtype=x.dtype, device=x.device)
    return torch.cumsum(x.abs(), dim=0) * (terms / n).sqrt()


def library(x: Tensor) -> Tensor:
    # In bf16 the vendor's call on a GPU rounds sums on the way.
    return torch.cumsum(x, dim=0, dtype=torch.promote_types(x.dtype, torch.float32)).to(x.dtype)


def cancel(x: Tensor, n: int, dtype: DType, rng: np.random.Generator) -> dict[str, Tensor]:
    """In every eight values, three neighbours u, v, -(u + v) somewhere among small ones."""
    changed = x * SMALL
    u, v = coarse((2, n // 8), dtype, rng, x.device).to(x.dtype)
    start = 8 * torch.arange(n // 8, device=x.device) + drawing.integers(0, 5, n // 8, rng, x.device)
    changed[start], changed[start + 1], changed[start + 2] = u, v, -(u + v)
    return {"x": changed}


def relations(x: Tensor, n: int, dtype: DType, rng: np.random.Generator) -> list[Relation]:
    """What comes later changes nothing; sums add up, and exactly where all of them are integers that T can hold."""
    start = int(rng.integers(0, n))
    later = x.clone()
    later[start:] = later[start:].flip(0) + 1
    before = torch.arange(n, device=x.device) < start
    found = [replaced("later values changed", {"x": x}, inputs={"x": later}, unaffected={"y": before})]
    if torch.equal(x, x.round()) and float(x.double().abs().sum()) + n <= dtype.exact_integer_limit:
        ones = drawing.integers(0, 1, n, rng, x.device).double()
        found.append(
            added("integers added", {"x": x}, inputs={"x": ones}, outputs={"y": torch.cumsum(ones, 0)}, exact=True)
        )
    return found
