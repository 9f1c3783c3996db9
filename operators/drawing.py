"""Random numbers where they are wanted: on a GPU whole tensors are drawn there, in a hundredth of the time.

All of it comes from `rng`: on a GPU from a generator there, which `rng` seeds anew for every tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

NOMINAL = "nominal"
"""The family of inputs that are drawn as their distributions or their source say; `inputs` is told of families."""

_NUMPY: Mapping[torch.dtype, Any] = {
    torch.float32: np.float32, torch.float64: np.float64, torch.int32: np.int32, torch.int64: np.int64,
}  # fmt: skip
Shape = int | tuple[int, ...]


def uniform(
    shape: Shape, rng: np.random.Generator, device: torch.device, *, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Values of [0, 1), in fp32 or fp64."""
    if _by_numpy(device):
        return torch.from_numpy(np.asarray(rng.random(shape, dtype=_NUMPY[dtype])))
    return torch.rand(_sizes(shape), generator=_source(rng, device), device=device, dtype=dtype)


def normal(
    shape: Shape, rng: np.random.Generator, device: torch.device, *, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Draw numbers of mean 0 and deviation 1, in fp32 or fp64."""
    if _by_numpy(device):
        return torch.from_numpy(np.asarray(rng.standard_normal(shape, dtype=_NUMPY[dtype])))
    return torch.randn(_sizes(shape), generator=_source(rng, device), device=device, dtype=dtype)


def integers(
    low: int, high: int, shape: Shape, rng: np.random.Generator, device: torch.device, *,
    dtype: torch.dtype = torch.int64,
) -> Tensor:  # fmt: skip
    """Both ends included, in int32 or int64."""
    if _by_numpy(device):
        return torch.from_numpy(np.asarray(rng.integers(low, high, shape, endpoint=True, dtype=_NUMPY[dtype])))
    return torch.randint(low, high + 1, _sizes(shape), generator=_source(rng, device), device=device, dtype=dtype)


def permutation(count: int, rng: np.random.Generator, device: torch.device) -> Tensor:
    """The numbers below `count` in any order, in int64."""
    if _by_numpy(device):
        return torch.from_numpy(rng.permutation(count))
    return torch.randperm(count, generator=_source(rng, device), device=device)


def _by_numpy(device: torch.device) -> bool:
    """On a CPU numpy is faster."""
    return device.type == "cpu"


def _sizes(shape: Shape) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else shape


def _source(rng: np.random.Generator, device: torch.device) -> torch.Generator:
    return torch.Generator(device).manual_seed(int(rng.integers(2**63)))
