"""Cross entropy of two distributions over classes."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from operators import drawing
from operators.dtypes import DType
from operators.relations import Relation, permuted, scaled
from operators.shared.sums import SMALL, coarse

TORCH_DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16}
LEAST = 1e-8
"""Predicted probabilities below it count as this."""
LOG_ULPS = 4
"""What a fast logarithm is off by at most: glibc's vector variant; near 1, CUDA's `__logf`, in units of 1."""


def inputs(classes: int, dtype: DType, rng: np.random.Generator, family: str) -> dict[str, Tensor]:
    """Two distributions: uniform values over their sum, or what the family makes of them."""
    few = family == "few"  # targets carry the loss
    drawn = {"predicted": _weights(classes, rng, "scaled" if few else family), "target": _weights(classes, rng, family)}
    return {n: torch.from_numpy(w / w.sum()).to(TORCH_DTYPES[dtype.name]) for n, w in drawn.items()}


def reference(predicted: Tensor, target: Tensor) -> Tensor:
    return -(target * _log(predicted)).sum()


def magnitude(predicted: Tensor, target: Tensor, classes: int) -> Tensor:
    """The sum of magnitudes, and what its terms are off by, in halves of roundoffs over the bound's sqrt(classes).

    A logarithm is off by `LOG_ULPS` (2 roundoffs each, of its value, or of 1 where it is small), a product by one.
    """
    logs = _log(predicted).abs()
    own = (2 * LOG_ULPS + 1) * logs + 2 * LOG_ULPS
    return (target.abs() * (logs + own / (2 * math.sqrt(classes)))).sum()


def library(predicted: Tensor, target: Tensor) -> Tensor:
    wide = torch.promote_types(predicted.dtype, torch.float32)
    return -torch.dot(target.to(wide), _log(predicted.to(wide)))


def cancel(
    predicted: Tensor, target: Tensor, classes: int, dtype: DType, rng: np.random.Generator
) -> dict[str, Tensor]:
    """Three classes of one probability get u, v and -(u + v), and so on; an eighth of all keeps a small share."""
    triples = (classes - classes // 8 - 1) // 3
    first, second, third = drawing.permutation(classes, rng, target.device)[: 3 * triples].reshape(3, triples)
    u, v = coarse((2, triples), dtype, rng, target.device).to(target.dtype)
    weights = target * SMALL
    weights[first], weights[second], weights[third] = u, v, -(u + v)
    predicted = predicted.clone()
    predicted[second] = predicted[third] = predicted[first]
    return {"predicted": predicted, "target": weights}


def relations(predicted: Tensor, target: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"predicted": predicted, "target": target}
    return [
        permuted("classes in another order", tensors, rng, inputs={"predicted": 0, "target": 0}, outputs={}),
        scaled("targets doubled", tensors, inputs={"target": 2.0}, outputs={"loss": 2.0}),
    ]


def _log(predicted: Tensor) -> Tensor:
    return predicted.clamp(min=LEAST).log()


def _weights(classes: int, rng: np.random.Generator, family: str) -> np.ndarray:
    """Not negative, and not all of them zero."""
    weights: np.ndarray = 1 - rng.random(classes)
    match family:
        case "scaled":
            weights *= np.exp2(rng.uniform(-12, 12, classes))
        case "integers":
            weights = np.maximum(rng.integers(0, 5, classes), np.arange(classes) == 0)
        case "structured":
            one_hot = np.arange(classes) == rng.integers(classes)
            weights = [np.ones(classes), one_hot.astype(np.float64), np.sort(weights)][rng.integers(3)]
        case "few":
            chosen = rng.integers(classes, size=rng.integers(1, 17))
            weights = np.bincount(chosen, minlength=classes).astype(np.float64)
        case "specials":
            weights[1:] *= rng.choice([0.0, 2.0**-140, 1.0], classes - 1, p=[0.1, 0.1, 0.8])
        case "mixture":
            weights *= np.exp2(rng.uniform(0, 30) * rng.standard_normal(classes))
            weights[1:] *= rng.random(classes - 1) > rng.random() ** 3
    return weights
