"""Addition to the residual stream and root-mean-square normalization of the sum, both in place."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from operators.relations import Relation, permuted, scaled
from operators.shared.errors import ROOT_ULPS


def reference(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> dict[str, Tensor]:
    total = x + residual
    return {"residual": total, "x": total * torch.rsqrt((total * total).mean(dim=1, keepdim=True) + eps) * weight}


def magnitude(outputs: dict[str, Tensor], cols: int) -> dict[str, Tensor]:
    """The absolute error in roundoffs, halved.

    The sum of squares has positive terms: added up one by one, it is off by sqrt(cols) / 4 roundoffs as a standard
    deviation, which no row of millions should exceed by eight. Adding, squaring, the mean and eps add six, of all of
    which the root halves the sum. The root is off by `ROOT_ULPS` (2 roundoffs each), s, and the two products by one
    each.
    """
    own = (2 * math.sqrt(cols) + 6) / 2 + 2 * ROOT_ULPS + 3
    return {
        "x": outputs["x"].abs() * (own / math.sqrt(cols) / 2),
        "residual": outputs["residual"].abs() / (2 * math.sqrt(cols)),
    }


def library(x: Tensor, residual: Tensor, weight: Tensor, cols: int, eps: float) -> dict[str, Tensor]:
    # In bf16 the vendor's call would have to be given the rounded sum.
    wide = torch.promote_types(x.dtype, torch.float32)
    total = x.to(wide) + residual.to(wide)
    normalized = torch.nn.functional.rms_norm(total, (cols,), weight.to(wide), eps=eps)
    return {"residual": total.to(x.dtype), "x": normalized.to(x.dtype)}


def relations(x: Tensor, residual: Tensor, weight: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"x": x, "residual": residual, "weight": weight}
    rows, columns = {"x": 0, "residual": 0}, {"x": 1, "residual": 1}
    return [
        permuted("rows in another order", tensors, rng, inputs=rows, outputs=rows),
        permuted("columns in another order", tensors, rng, inputs=columns | {"weight": 0}, outputs=columns),
        scaled("weight doubled", tensors, inputs={"weight": 2.0}, outputs={"x": 2.0}),
        Relation("arguments swapped", {"x": residual, "residual": x}, lambda found: found),
    ]
