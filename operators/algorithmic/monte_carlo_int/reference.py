"""Monte Carlo integration: the mean of given samples times the length of the interval."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from operators.dtypes import DType
from operators.relations import Relation, permuted, scaled
from operators.shared.sums import zero_sums


def reference(samples: Tensor, low: float, high: float, n: int) -> Tensor:
    return (high - low) / n * samples.sum()


def magnitude(samples: Tensor, low: float, high: float, n: int) -> Tensor:
    """Three roundings beside those of the sum: the difference, the quotient, the product."""
    return abs(high - low) / n * samples.abs().sum() * (1 + 3 / (2 * math.sqrt(n)))


def library(samples: Tensor, low: float, high: float) -> Tensor:
    # In bf16 the vendor's call would round the mean.
    return (high - low) * samples.mean(dtype=torch.promote_types(samples.dtype, torch.float32))


def cancel(samples: Tensor, dtype: DType, rng: np.random.Generator) -> dict[str, Tensor]:
    return {"samples": zero_sums(samples[None], dtype, rng)[0]}


def relations(samples: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"samples": samples}
    return [
        permuted("samples in another order", tensors, rng, inputs={"samples": 0}, outputs={}),
        scaled("samples doubled", tensors, inputs={"samples": 2.0}, outputs={"integral": 2.0}),
    ]
