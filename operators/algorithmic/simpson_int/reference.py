"""Simpson's rule on given samples; of an odd number of intervals the last one is left out."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from operators.dtypes import DType
from operators.relations import Relation, permuted, scaled
from operators.shared.sums import zero_sums


def reference(samples: Tensor, low: float, high: float, intervals: int) -> Tensor:
    return (high - low) / intervals / 3 * _weighted(samples, intervals).sum()


def magnitude(samples: Tensor, low: float, high: float, intervals: int, n: int) -> Tensor:
    """Five roundings beside those of the sum: two inside a term, three of its factor."""
    total = _weighted(samples.abs(), intervals).sum()
    return abs(high - low) / intervals / 3 * total * (1 + 5 / (2 * math.sqrt(n)))


def library(samples: Tensor, low: float, high: float, intervals: int) -> Tensor:
    # No vendor has Simpson's rule; this is a product with weights.
    wide = torch.promote_types(samples.dtype, torch.float32)
    return (high - low) / intervals / 3 * _weighted(samples.to(wide), intervals).sum()


def cancel(samples: Tensor, dtype: DType, rng: np.random.Generator) -> dict[str, Tensor]:
    """Samples at odd places cancel; the others are small."""
    samples = samples.clone()
    samples[1::2] = zero_sums(samples[None, 1::2], dtype, rng)[0]
    samples[::2] *= 2.0**-12
    return {"samples": samples}


def relations(samples: Tensor, intervals: int, rng: np.random.Generator) -> list[Relation]:
    tensors = {"samples": samples}
    found = [scaled("samples doubled", tensors, inputs={"samples": 2.0}, outputs={"integral": 2.0})]
    if intervals % 2 == 0:
        found.append(permuted("backwards", tensors, rng, inputs={"samples": 0}, outputs={}, reverse=True))
    return found


def _weighted(samples: Tensor, intervals: int) -> Tensor:
    """Of the samples that count."""
    end = intervals // 2 * 2
    weights = torch.zeros_like(samples[: end + 1 if end else 0])
    weights[:-1:2] += 1
    weights[1:-1:2] += 4
    weights[2::2] += 1
    return weights * samples[: len(weights)]
