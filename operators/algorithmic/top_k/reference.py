"""The k largest elements of a vector and where they stand."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators import drawing
from operators.relations import Outputs, Relation


def reference(x: Tensor, k: int) -> dict[str, Tensor]:
    found = torch.sort(x, descending=True, stable=True)
    return {"values": found.values[:k], "indices": found.indices[:k].to(torch.int32)}


def library(x: Tensor, k: int) -> dict[str, Tensor]:
    # torch.topk does not say which of equal elements it takes.
    return reference(x, k)


def relations(x: Tensor, n: int, rng: np.random.Generator) -> list[Relation]:
    """In another order the values stay; doubled, the values double and the indices stay."""
    order = drawing.permutation(n, rng, x.device)

    def values(found: Outputs) -> Outputs:
        return {"values": found["values"]}

    def both(found: Outputs) -> Outputs:
        return {"values": 2 * found["values"], "indices": found["indices"]}

    relations = [Relation("elements in another order", {"x": x[order]}, values, exact=True)]
    if bool((2 * x).isfinite().all()):
        relations.append(Relation("doubled", {"x": 2 * x}, both, exact=True))
    return relations
