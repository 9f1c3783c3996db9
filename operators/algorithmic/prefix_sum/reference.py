"""Inclusive prefix sum of a vector."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators.dtypes import DType
from operators.relations import Relation, added, replaced


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
    steps = round(0.25 / dtype.unit_roundoff)  # so fine that u + v is not rounded
    u, v = rng.integers(-steps, steps, (2, n // 8), endpoint=True) / steps
    small = x.double().numpy() * 2.0**-12
    start = 8 * np.arange(n // 8) + rng.integers(0, 6, n // 8)
    small[start], small[start + 1], small[start + 2] = u, v, -(u + v)
    return {"x": torch.from_numpy(small).to(x.dtype)}


def relations(x: Tensor, n: int, dtype: DType, rng: np.random.Generator) -> list[Relation]:
    """What comes later changes nothing; sums add up, and exactly where all of them are integers that T can hold."""
    start = int(rng.integers(0, n))
    later = x.clone()
    later[start:] = later[start:].flip(0) + 1
    before = torch.arange(n) < start
    found = [replaced("later values changed", {"x": x}, inputs={"x": later}, unaffected={"y": before})]
    if torch.equal(x, x.round()) and float(x.double().abs().sum()) + n <= dtype.exact_integer_limit:
        ones = torch.from_numpy(rng.integers(0, 2, n)).double()
        found.append(
            added("integers added", {"x": x}, inputs={"x": ones}, outputs={"y": torch.cumsum(ones, 0)}, exact=True)
        )
    return found
