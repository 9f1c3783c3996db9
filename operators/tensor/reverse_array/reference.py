"""A vector backwards."""

from __future__ import annotations

import torch
from torch import Tensor

from operators.relations import Relation


def reference(x: Tensor) -> Tensor:
    return x.flip(0)


def library(x: Tensor) -> Tensor:
    return torch.flip(x, (0,))


def relations(x: Tensor) -> list[Relation]:
    """Twice is not at all."""
    return [Relation("the input backwards", {"x": x.flip(0)}, lambda found: {"y": found["y"].flip(0)}, exact=True)]
