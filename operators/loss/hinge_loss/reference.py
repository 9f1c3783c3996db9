"""Hinge loss of every sample; labels are 1 and anything else."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators.relations import Relation, permuted


def reference(predicted: Tensor, target: Tensor) -> Tensor:
    return (1 - _signs(predicted, target) * predicted).clamp(min=0)


def library(predicted: Tensor, target: Tensor) -> Tensor:
    # torch's losses of this kind have margins and reductions of their own.
    return torch.relu(1 - _signs(predicted, target) * predicted)


def relations(predicted: Tensor, target: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"predicted": predicted, "target": target}
    return [
        permuted("samples in another order", tensors, rng, inputs={"predicted": 0, "target": 0}, outputs={"loss": 0}),
        Relation("labels and signs swapped", {"predicted": -predicted, "target": 1 - target}, lambda found: found),
    ]


def _signs(predicted: Tensor, target: Tensor) -> Tensor:
    return torch.where(target == 1, 1.0, -1.0).to(predicted.dtype)
